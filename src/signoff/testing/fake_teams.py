"""Fakes Microsoft for a bot of Teams: its sign-in, its keys, the connector, and the clients of people.

Checks bearers, conversations, shapes and sizes as Microsoft's documentation states them. Refusals have its codes.
"""

import html
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels.envelopes import InboundBatch, InboundRequest, RoomAct
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import HTTP_TROUBLES, Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

APP_ID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"
APP_SECRET: Final = "a~secret.of-the-bot"
TENANT: Final = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
ROOM: Final = "19:finance@thread.tacv2"
"""A channel of a team that has installed the bot."""
OTHER_TENANT: Final = "16fd2706-8baf-433b-82eb-8c7fada847da"
ISSUER: Final = "https://api.botframework.com"
SCOPE: Final = "https://api.botframework.com/.default"
CARD_TYPE: Final = "application/vnd.microsoft.card.adaptive"
MESSAGE_TYPE: Final = "application/vnd.microsoft.activity.message"
BUSY_SECONDS: Final = 30
MESSAGE_BYTES: Final = 28_000
TOKEN_SECONDS: Final = 3_600
VERSIONS: Final = ("1.4", "1.5")
"""Versions of cards with `Action.Execute` that Teams shows."""
_ELEMENTS: Final[Mapping[str, frozenset[str]]] = {
    "AdaptiveCard": frozenset(("type", "$schema", "version", "body", "actions")),
    "RichTextBlock": frozenset(("type", "inlines", "spacing", "separator", "horizontalAlignment")),
    "TextRun": frozenset(("type", "text", "weight", "size", "color", "isSubtle", "strikethrough")),
    "Input.Text": frozenset(
        ("type", "id", "label", "isMultiline", "maxLength", "isRequired", "errorMessage", "placeholder")
    ),
    "Action.Execute": frozenset(("type", "title", "verb", "data", "style", "fallback", "id")),
    "Action.Submit": frozenset(("type", "title", "data", "style", "id")),
    "Action.OpenUrl": frozenset(("type", "title", "url", "style", "id")),
    "Action.ShowCard": frozenset(("type", "title", "card", "style", "id")),
}
"""The documented properties of the elements that cards here have."""
_INSIDE: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "AdaptiveCard": (("body", ""), ("actions", "Action.")),
    "RichTextBlock": (("inlines", "TextRun"),),
}
"""The lists of elements inside each, with the beginning of their types."""
Body: TypeAlias = Mapping[str, Any]


class TeamsRefusal(Exception):
    """A refusal of the connector."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.code = code
        self.words = words


@dataclass
class TeamsMessage:
    """One activity of the bot."""

    conversation: str
    id: str
    text: str
    card: Body | None = None

    @property
    def text_shown(self) -> str:
        return self.text if self.card is None else "\n".join(_shown(self.card))

    @property
    def token(self) -> str:
        """From the buttons or the link."""
        for action in _actions(self.card or {}):
            ours = action.get("data", {}).get("signoff", {}) if isinstance(action.get("data"), dict) else {}
            if ours:
                return str(ours["token"])
        links = (str(each.get("url")) for each in _actions(self.card or {}) if each["type"] == "Action.OpenUrl")
        return next((each.rpartition("/link/")[2] for each in links if "/link/" in each), "")


@dataclass
class FakeTeams(Vendor):
    """One bot in one tenant. Everyone in `identities` has installed it before."""

    kind: ClassVar[str] = "teams"
    identities: ClassVar[tuple[str, str, str, str]] = (
        f"{TENANT}:00000000-0000-4000-8000-000000000001",
        f"{TENANT}:00000000-0000-4000-8000-000000000002",
        f"{TENANT}:00000000-0000-4000-8000-000000000003",
        f"{TENANT}:99999999-9999-4999-8999-999999999999",
    )
    troubles: ClassVar[Sequence[Trouble]] = HTTP_TROUBLES
    busy_seconds: ClassVar[float] = float(BUSY_SECONDS)
    room: ClassVar[str] = ROOM

    url: str = ""
    messages: list[TeamsMessage] = field(default_factory=list)
    responses: dict[str, tuple[str, Body]] = field(default_factory=dict)
    """Maps presses to the person and the body of the response."""
    posted: list[Body] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    gone: dict[str, str] = field(default_factory=dict)
    """Maps conversations to the code of their refusal."""
    logins: int = 0
    fetches: int = 0
    """How often the list of keys was fetched."""
    endorsements: tuple[str, ...] = ("msteams", "webchat")
    older_keys: int = 1
    """How many pairs of unusable keys the list has before the current one."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Overrides fields of the OpenID document."""
    issuer: str = ISSUER
    scope: str = SCOPE
    bearers: dict[str, datetime] = field(default_factory=dict)
    """The valid tokens of the bot, with their ends."""

    def __post_init__(self) -> None:
        self._numbers = iter(range(1, 1_000_000))
        self._cards: list[VendorCard] = []
        self.key = _signing_key("first")

    @property
    def options(self) -> Mapping[str, Any]:
        return {
            "app_id": APP_ID,
            "app_secret": "env:TEAMS_SECRET",
            "tenant_id": TENANT,
            "service_urls": [self.url],
            "login_url": self.url,
            "metadata_url": f"{self.url}/v1/.well-known/openidconfiguration",
        }

    @property
    def environment(self) -> Mapping[str, str]:
        return {"TEAMS_SECRET": APP_SECRET}

    @property
    def service(self) -> str:
        return f"{self.url}/teams/"

    def app(self) -> Starlette:
        conversation = "/teams/v3/conversations/{conversation}"
        return Starlette(
            routes=[
                Route("/v1/.well-known/openidconfiguration", self._openid),
                Route("/v1/.well-known/keys", self._published),
                Route("/{tenant}/oauth2/v2.0/token", self._login, methods=["POST"]),
                Route(conversation + "/activities", self._post, methods=["POST"]),
                Route(conversation + "/activities/{activity}", self._put, methods=["PUT"]),
                Route(conversation + "/pagedmembers", self._roster, methods=["GET"]),
            ]
        )

    def rotate(self, name: str = "second") -> None:
        """Sign with another key, and publish it alone."""
        self.key = _signing_key(name)

    # What people see.

    def cards(self) -> Sequence[VendorCard]:
        """Return the cards as they were sent."""
        return list(self._cards)

    def reads(self, identity: str) -> Sequence[str]:
        """Include the responses to presses."""
        mine = [each.text_shown for each in self.messages if each.conversation == conversation_of(identity)]
        return mine + [_response_text(body) for who, body in self.responses.values() if who == identity]

    def show_response(self, raw: InboundRequest, response: InboundBatch) -> None:
        """Check the response to a press as Teams does. Only the first one has a client."""
        activity = _json(raw.body)
        if activity.get("type") != "invoke" or activity["id"] in self.responses or raw.method != "POST":
            return
        if response.status == 501:
            return
        assert (response.status, response.media_type) == (200, "application/json")
        body = _json(response.body)
        assert body["statusCode"] == 200
        assert set(body) == {"statusCode", "type", "value"}
        if body["type"] == CARD_TYPE:
            check_card(body["value"])
        else:
            assert body["type"] == MESSAGE_TYPE
            assert isinstance(body["value"], str)
            assert body["value"]
        self.responses[activity["id"]] = (f"{TENANT}:{activity['from']['aadObjectId']}", body)

    def message_of(self, card: VendorCard) -> TeamsMessage:
        """The first message with the card's token."""
        mine = [each for each in self.messages if each.conversation == conversation_of(card.to)]
        return next(each for each in mine if each.token == card.token)

    # What people do.

    def introductions(self) -> Sequence[InboundRequest]:
        installed = self.room_activity(self.identities[0], type="installationUpdate", action="add")
        return [*(self.request(self.installation(identity)) for identity in self.identities), self.request(installed)]

    def room_cards(self) -> Sequence[VendorCard]:
        return [VendorCard(ROOM, each.token, each.text_shown) for each in self.messages if each.conversation == ROOM]

    def press_room(self, card: VendorCard, identity: str, act: RoomAct) -> InboundRequest:
        return self.request(self.room_press(card, identity, act))

    def room_press(self, card: VendorCard, identity: str, act: str) -> dict[str, Any]:
        message = next(each for each in self.messages if (each.conversation, each.token) == (ROOM, card.token))
        buttons = {each["data"]["signoff"]["room"]: each for each in _actions(message.card or {})}
        button = buttons[act]
        action = {"type": "Action.Execute", "title": button["title"], "verb": button["verb"], "data": button["data"]}
        value = {"action": action, "trigger": "manual"}
        invoke = {"type": "invoke", "name": "adaptiveCard/action", "replyToId": message.id, "value": value}
        return self.room_activity(identity, thread=message.id, **invoke)

    def room_activity(self, identity: str, *, thread: str = "", **more: Any) -> dict[str, Any]:
        """Return an activity in the team's channel, perhaps in a thread."""
        tenant = identity.partition(":")[0]
        conversation = {
            "id": f"{ROOM};messageid={thread}" if thread else ROOM,
            "conversationType": "channel",
            "isGroup": True,
            "tenantId": tenant,
        }
        data = {"tenant": {"id": tenant}, "team": {"id": ROOM}, "channel": {"id": ROOM}}
        return self.activity(identity, **{"conversation": conversation, "channelData": data} | more)

    def installation(self, identity: str, action: str = "add") -> dict[str, Any]:
        return self.activity(identity, type="installationUpdate", action=action)

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Raise `KeyError` if the card has no such button."""
        return self.request(self.press_activity(card, identity, verdict, reason))

    def press_activity(self, card: VendorCard, identity: str, verdict: str, reason: str = "") -> dict[str, Any]:
        """The client merges the inputs of the button's part of the card into its data."""
        message = self.message_of(card)
        sent = next(each for each in self.posted if each["id"] == message.id)
        buttons = [each for each in _actions(_content(sent)) if each["type"] == "Action.Execute"]
        by_verdict = {each["data"]["signoff"].get("verdict"): each for each in buttons}
        button = by_verdict.get(verdict) or _unsent(card, verdict)
        data = {**button["data"], "reason": reason} if verdict == "denied" else button["data"]
        action = {"type": "Action.Execute", "title": button["title"], "verb": button["verb"], "data": data}
        return self.activity(
            identity,
            type="invoke",
            name="adaptiveCard/action",
            replyToId=message.id,
            value={"action": action, "trigger": "manual"},
        )

    def write(self, identity: str, words: str) -> InboundRequest:
        return self.request(self.message_activity(identity, f"<p>{_html(words)}</p>", words))

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        return self._reply_to(self.message_of(card), identity, f"<p>{_html(words)}</p>", words)

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest:
        """Only the HTML shows it."""
        content = f"<p>{_html(words)} <s>{_html(struck)}</s></p>"
        return self._reply_to(self.message_of(card), identity, content, f"{words} {struck}")

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        mine = [each for each in self.messages if each.conversation == conversation_of(identity)]
        return self._reply_to(mine[-1], identity, f"<p>{_html(words)}</p>", words)

    def message_activity(self, identity: str, content: str, words: str, **more: Any) -> dict[str, Any]:
        attachments = [{"contentType": "text/html", "content": content}]
        message = {"type": "message", "text": words, "textFormat": "plain", "attachments": attachments}
        return self.activity(identity, **message | more)

    def activity(self, identity: str, **more: Any) -> dict[str, Any]:
        """Return an activity in a person's own conversation. `more` overrides its fields."""
        tenant, _, person = identity.partition(":")
        return {
            "id": f"f:{next(self._numbers)}",
            "timestamp": self.now_said.strftime("%Y-%m-%dT%H:%M:%S.%f0Z"),
            "channelId": "msteams",
            "serviceUrl": self.service,
            "from": {"id": f"29:{person}", "name": f"Person {person}", "aadObjectId": person},
            "conversation": {"id": conversation_of(identity), "conversationType": "personal", "tenantId": tenant},
            "recipient": {"id": f"28:{APP_ID}", "name": "Signoff"},
            "channelData": {"tenant": {"id": tenant}},
            "locale": "en-GB",
            **more,
        }

    def request(self, activity: Body, **claims: Any) -> InboundRequest:
        return self.sign(json.dumps(activity).encode(), **claims)

    def sign(self, body: bytes, **claims: Any) -> InboundRequest:
        """The Bot Framework signs a token, not the body. A claim of None is left out."""
        token = self.token(**claims)
        headers = {"content-type": "application/json; charset=utf-8", "authorization": f"Bearer {token}"}
        return InboundRequest(body, headers, at=self.clock())

    def token(self, *, key: RSAKey | None = None, header: Body | None = None, **claims: Any) -> str:
        now, signer = self.clock(), key or self.key
        given = {
            "iss": self.issuer,
            "aud": APP_ID,
            "serviceurl": self.service,
            "nbf": int(now.timestamp()) - 1,
            "exp": int((now + timedelta(seconds=TOKEN_SECONDS)).timestamp()),
        } | claims
        claimed = {name: value for name, value in given.items() if value is not None}
        written = {"alg": "RS256", "kid": signer.kid, "x5t": signer.kid, **(header or {})}
        return jwt.encode(written, claimed, signer, algorithms=[written["alg"]])

    def forgeries(self, raw: InboundRequest) -> Sequence[InboundRequest]:
        """Return requests with false tokens, and with true ones for other activities."""
        now = int(self.clock().timestamp())
        stranger = _signing_key("a stranger's")
        bare = RSAKey(stranger.raw_value, stranger.raw_value, {"kid": str(self.key.kid)})
        tokens = [
            self.token(iss=f"https://sts.windows.net/{OTHER_TENANT}/"),
            self.token(aud=OTHER_TENANT),
            self.token(aud=[APP_ID, OTHER_TENANT]),
            self.token(exp=now - 301),
            self.token(exp=None),
            self.token(exp="never"),
            self.token(nbf=now + 400),
            self.token(serviceurl="https://smba.evil.example/teams/"),
            self.token(serviceurl=None),
            self.token(key=stranger),
            self.token(key=bare),
            _unsigned(self.token()),
            "",
            "a.b.c",
            "." * 9_000,
        ]
        headers = [f"Bearer {each}" for each in tokens]
        headers += [f"Basic {self.token()}", self.token(), f"bearer {self.token()}x", "Bearer é.é.é"]
        shown = [replace(raw, headers={**raw.headers, "authorization": each}) for each in headers]
        activity = _json(raw.body)
        altered: list[Body] = [
            {"serviceUrl": "https://smba.evil.example/teams/"},
            {"channelId": "webchat"},
            {"channelId": "directline"},
            {"channelData": {"tenant": {"id": OTHER_TENANT}}},
            {"conversation": {**activity["conversation"], "tenantId": OTHER_TENANT}},
            {"conversation": {**activity["conversation"], "tenantId": None}, "channelData": {}},
        ]
        others = [self.request({**activity, **each}) for each in altered]
        evil = "https://smba.evil.example/teams/"
        elsewhere = self.request({**activity, "serviceUrl": evil}, serviceurl=evil)
        return [replace(raw, headers={}), *shown, *others, elsewhere]

    def unknown(self) -> Sequence[InboundRequest]:
        bo = self.identities[1]
        card = next(each for each in reversed(self._cards) if each.to == bo)
        press = self.press_activity(card, bo, "denied")
        action = press["value"]["action"]
        group = {"id": "19:group@thread.v2", "conversationType": "groupChat", "isGroup": True, "tenantId": TENANT}
        team = {"id": "19:team@thread.tacv2", "conversationType": "channel", "isGroup": True, "tenantId": TENANT}
        words = self.message_activity(bo, "<p>yes</p>", "yes")
        bot = {"id": f"28:{APP_ID}", "name": "Signoff"}
        activities: list[Body] = [
            {**words, "conversation": group},
            {**words, "conversation": team},
            {**words, "from": bot},
            {**press, "conversation": group},
            {**press, "name": "task/fetch"},
            {**press, "value": {"action": {**action, "verb": "other"}}},
            {**press, "value": {"action": {**action, "data": {"signoff": {"token": "no!", "verdict": "denied"}}}}},
            {**press, "value": {"action": {**action, "data": {"signoff": {"token": card.token, "verdict": "?"}}}}},
            {**press, "value": "denied"},
            self.activity(bo, type="message", value={"another": "card"}),
            self.activity(bo, type="conversationUpdate", membersAdded=[bot]),
            self.activity(bo, type="messageReaction", reactionsAdded=[{"type": "like"}], replyToId="1"),
            self.activity(bo, type="typing"),
            self.activity(bo, type="something new"),
            self.activity(bo, type=3),
        ]
        return [self.request(each) for each in activities]

    def _reply_to(self, message: TeamsMessage, identity: str, content: str, words: str) -> InboundRequest:
        quoted = f'<blockquote itemscope="" itemtype="http://schema.skype.com/Reply" itemid="{message.id}">'
        quoted += f"<strong>Signoff</strong><p>{_html(message.text_shown)}</p></blockquote>"
        return self.request(self.message_activity(identity, quoted + content, f"{message.text_shown}\n\n{words}"))

    # Microsoft.

    async def _openid(self, request: Request) -> Response:
        if trouble := self._troubled():
            return trouble
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": "https://invalid.botframework.com",
                "jwks_uri": f"{self.url}/v1/.well-known/keys",
                "id_token_signing_alg_values_supported": ["RS256"],
                "token_endpoint_auth_methods_supported": ["private_key_jwt"],
            }
            | self.metadata
        )

    async def _published(self, request: Request) -> Response:
        if trouble := self._troubled():
            return trouble
        self.fetches += 1
        key = {**self.key.as_dict(private=False), "use": "sig", "x5t": self.key.kid, "x5c": ["MIIC"]}
        others = [{"kty": "EC", "kid": "ec", "crv": "P-256"}, {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"}]
        return JSONResponse({"keys": [*others * self.older_keys, {**key, "endorsements": list(self.endorsements)}]})

    async def _login(self, request: Request) -> Response:
        if trouble := self._troubled():
            return trouble
        self.logins += 1
        form = {name: values[-1] for name, values in parse_qs((await request.body()).decode()).items()}
        if request.path_params["tenant"] != TENANT:
            return JSONResponse({"error": "invalid_request", "error_description": "AADSTS90002"}, 400)
        if form.get("grant_type") != "client_credentials" or form.get("scope") != self.scope:
            return JSONResponse({"error": "invalid_scope", "error_description": "AADSTS70011"}, 400)
        if form.get("client_id") != APP_ID:
            return JSONResponse({"error": "unauthorized_client", "error_description": "AADSTS700016"}, 400)
        if form.get("client_secret") != APP_SECRET:
            return JSONResponse({"error": "invalid_client", "error_description": "AADSTS7000215"}, 401)
        token = secrets.token_urlsafe(32)
        self.bearers[token] = self.clock() + timedelta(seconds=TOKEN_SECONDS)
        return JSONResponse({"token_type": "Bearer", "expires_in": TOKEN_SECONDS, "access_token": token})

    async def _post(self, request: Request) -> Response:
        return await self._answer(request, self._send)

    async def _put(self, request: Request) -> Response:
        return await self._answer(request, self._edit)

    async def _roster(self, request: Request) -> Response:
        return await self._answer(request, self._members)

    async def _answer(self, request: Request, act: Any) -> Response:
        if trouble := self._troubled():
            return trouble
        if (
            self.bearers.get(request.headers.get("authorization", "").removeprefix("Bearer "), _LONG_AGO)
            <= self.clock()
        ):
            return JSONResponse({"message": "Authorization has been denied for this request."}, 401)
        try:
            body = await request.body()
            if len(body) > MESSAGE_BYTES:
                raise TeamsRefusal(413, "MessageSizeTooBig", "Message size too large.")
            return JSONResponse(*act(request.path_params, json.loads(body or b"{}")))
        except TeamsRefusal as refusal:
            self.refused.append(refusal.code)
            return JSONResponse({"error": {"code": refusal.code, "message": refusal.words}}, refusal.status)

    def _send(self, path: Body, activity: Body) -> tuple[Body, int]:
        conversation = path["conversation"]
        message = TeamsMessage(conversation, str(1_700_000_000_000 + next(self._numbers)), *self._read(path, activity))
        self.messages.append(message)
        self.posted.append({**activity, "id": message.id})
        if message.token and conversation != ROOM:
            person = conversation.removeprefix("a:")
            self._cards.append(VendorCard(f"{TENANT}:{person}", message.token, message.text_shown))
        return {"id": message.id}, 201

    def _edit(self, path: Body, activity: Body) -> tuple[Body, int]:
        where = (path["conversation"], path["activity"])
        message = next((each for each in self.messages if (each.conversation, each.id) == where), None)
        if message is None or activity.get("id") != message.id:
            raise TeamsRefusal(404, "ActivityNotFoundInConversation", "The activity was not found.")
        message.text, message.card = self._read(path, activity)
        return {"id": message.id}, 200

    def _members(self, path: Body, _: Body) -> tuple[Body, int]:
        self._check_present(path["conversation"])
        people = [{"id": f"29:{each}", "objectId": each.rpartition(":")[2]} for each in self.identities]
        return {"members": people}, 200

    def _check_present(self, conversation: str) -> None:
        if conversation in self.gone:
            raise TeamsRefusal(403, self.gone[conversation], "The conversation is gone.")
        if conversation not in (ROOM, *map(conversation_of, self.identities)):
            raise TeamsRefusal(404, "ConversationNotFound", "Conversation not found.")

    def _read(self, path: Body, activity: Body) -> tuple[str, Body | None]:
        conversation = path["conversation"]
        self._check_present(conversation)
        person = conversation.removeprefix("a:")
        recipient = "" if conversation == ROOM else f"29:{person}"
        if activity.get("recipient", {}).get("id", "") != recipient or activity["from"]["id"] != f"28:{APP_ID}":
            raise TeamsRefusal(400, "BadSyntax", "Wrong sender or recipient.")
        if activity.get("type") != "message" or activity["conversation"]["id"] != conversation:
            raise TeamsRefusal(400, "BadSyntax", "Activity resulted into multiple skype activities.")
        attachments = activity.get("attachments", [])
        if not attachments:
            if not activity.get("text") or activity.get("textFormat") != "plain":
                raise TeamsRefusal(400, "BadSyntax", "The text must be plain and not empty.")
            return activity["text"], None
        if len(attachments) != 1 or attachments[0].get("contentType") != CARD_TYPE:
            raise TeamsRefusal(400, "BadSyntax", "Unknown attachment type.")
        try:
            check_card(attachments[0]["content"])
        except AssertionError as error:
            raise TeamsRefusal(400, "BadSyntax", f"Bad card: {error}") from None
        return "", attachments[0]["content"]

    def _troubled(self) -> Response | None:
        if self.trouble == "down":
            return Response("<html>Bad Gateway</html>", 502, media_type="text/html")
        if self.trouble:
            body = {"error": {"code": "Throttled", "message": "Too many requests."}}
            return JSONResponse(body, 429, headers={"retry-after": str(BUSY_SECONDS)})
        return None


def check_card(card: Any) -> None:
    """Raise `AssertionError` for a card that Teams does not show, or shows without a part."""
    assert isinstance(card, dict), "no object"
    assert card.get("type") == "AdaptiveCard", "no card"
    assert card.get("$schema") == "http://adaptivecards.io/schemas/adaptive-card.json", "no schema"
    assert card.get("version") in VERSIONS, "unknown version"
    assert card.get("body"), "an empty card"
    assert len(card.get("actions", [])) <= 6, "too many actions"
    _check_element(card)


def _check_element(element: Any) -> None:
    kind = element["type"]
    assert kind in _ELEMENTS, f"unknown element {kind}"
    unknown = set(element) - _ELEMENTS[kind]
    assert not unknown, f"unknown properties {unknown} of {kind}"
    for name, begin in _INSIDE.get(kind, ()):
        for inner in element.get(name, []):
            assert inner["type"].startswith(begin), f"{inner['type']} among {name}"
            _check_element(inner)
    if kind == "RichTextBlock":
        assert element["inlines"], "an empty block"
    if kind == "TextRun":
        assert isinstance(element["text"], str), "no text"
        assert element["text"], "an empty run"
        assert "\n" not in element["text"], "a line break in a run"
    if kind.startswith("Action."):
        assert element.get("title"), "an action without title"
        assert element.get("style", "default") in ("default", "positive", "destructive"), "unknown style"
    if kind == "Action.OpenUrl":
        assert element["url"].startswith(("https://", "http://")), "no address"
    if kind == "Action.Execute":
        assert element.get("verb"), "no verb"
        assert element["fallback"]["type"] == "Action.Submit", "no fallback for older clients"
        assert element["fallback"]["data"] == element["data"], "another fallback"
        _check_element(element["fallback"])
    if kind == "Action.ShowCard":
        check_card(element["card"])
    if kind == "Input.Text":
        assert element.get("id"), "an input without id"
        assert element.get("label"), "an input without label"
        assert not element.get("isRequired") or element.get("errorMessage"), "no words for a missing input"


def conversation_of(identity: str) -> str:
    """Return the conversation of a person with the bot."""
    return f"a:{identity.partition(':')[2]}"


def _shown(card: Body) -> Iterator[str]:
    for block in card["body"]:
        if block["type"] == "RichTextBlock":
            yield "".join(run["text"] for run in block["inlines"])
        else:
            yield f"[{block['label']}]"
    for action in card.get("actions", []):
        yield f"[{action['title']}]" + (f"({action['url']})" if "url" in action else "")
        if "card" in action:
            yield from _shown(action["card"])


def _actions(card: Body) -> Iterator[Body]:
    for action in card.get("actions", []):
        yield action
        yield from _actions(action.get("card", {}))


def _content(activity: Body) -> Body:
    content: Body = activity["attachments"][0]["content"]
    return content


def _response_text(body: Body) -> str:
    return str(body["value"]) if body["type"] == MESSAGE_TYPE else "\n".join(_shown(body["value"]))


def _unsent(card: VendorCard, verdict: str) -> Body:
    """Return a button that an attacker makes up: the token is on the card, if it has a link alone."""
    if verdict == "approved" and "[Deny]" in card.text:
        raise KeyError("the card has no such button")
    data = {"signoff": {"token": card.token, "verdict": verdict}}
    return {"title": verdict, "verb": "signoff", "data": data}


def _unsigned(token: str) -> str:
    return f"{token.rpartition('.')[0]}."


def _html(words: str) -> str:
    return "<br>".join(html.escape(words).split("\n"))


def _json(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


@cache
def _signing_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, parameters={"kid": f"kid-{name}"})


_LONG_AGO: Final = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


@asynccontextmanager
async def fake_teams() -> AsyncIterator[FakeTeams]:
    teams = FakeTeams()
    async with serve_vendor(teams.app(), vendor=teams) as url:
        teams.url = url
        yield teams
