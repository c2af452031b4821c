"""Fakes WhatsApp with messages in memory: checks tokens, shapes, sizes, the 24 hours and templates as Meta does.

It signs requests and refuses with codes as Meta does. Some people are known by number, others also by a business-scoped
id.

The shapes are JSON Schema and narrower than Meta's: only documented fields. They follow Meta's OpenAPI description of
the Business Messaging API (`InteractiveObject`, `ActionObject`, `TemplateObject`) and its pages on templates and
business-scoped ids.
"""

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels.envelopes import InboundRequest
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import HTTP_TROUBLES, CardStatus, Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

TOKEN: Final = "EAAfake"
APP_SECRET: Final = "9a1de0c4b2f84c7db8c3d1e0f7a65b21"
VERIFY_TOKEN: Final = "a word of our own"
NUMBER_ID: Final = "106540352242922"
ACCOUNT_ID: Final = "102290129340398"
TEMPLATE: Final = "signoff_request"
BODY: Final = "Approval {{1}} waits for you.\n\n{{2}}\n\n{{3}}\n\nIt is also here: {{4}}\n\nAnswer with a button below."
"""The template of docs/channels.md."""
_OURS: Final = "15550783881"
_WINDOW: Final = timedelta(hours=24)
_TOKEN_IN: Final = re.compile(r"/link/([a-z0-9]+)")
_MOST: Final = 1024
_STATUS: Final[Mapping[int, int]] = {190: 401, 10: 403, 131000: 500, 131016: 503}
"""HTTP statuses of codes whose status is not 400."""


def _close(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def _text_shape(most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": r"\S"}


_TITLE_SHAPE: Final = {"type": "string", "minLength": 1, "maxLength": 20, "pattern": r"\S"}
_BUTTON_SHAPE: Final = _close(
    ["type", "reply"],
    type={"const": "reply"},
    reply=_close(
        ["id", "title"],
        id={"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^\S(.*\S)?$"},
        title=_TITLE_SHAPE,
    ),
)
_INTERACTIVE_SHAPE: Final = _close(
    ["type", "body", "action"],
    type={"const": "button"},
    header=_close(["type", "text"], type={"const": "text"}, text=_text_shape(60)),
    body=_close(["text"], text=_text_shape(1024)),
    footer=_close(["text"], text=_text_shape(60)),
    action=_close(["buttons"], buttons={"type": "array", "minItems": 1, "maxItems": 3, "items": _BUTTON_SHAPE}),
)
_TEXT_SHAPE: Final = _close(["body"], body=_text_shape(4096), preview_url={"type": "boolean"})
_PARAMETER_SHAPE: Final = _close(
    ["type", "text"],
    type={"const": "text"},
    text={"type": "string", "minLength": 1, "maxLength": 1024, "not": {"pattern": r"[\n\r\t]| {5}"}},
)
_BODY_SHAPE: Final = _close(
    ["type", "parameters"], type={"const": "body"}, parameters={"type": "array", "items": _PARAMETER_SHAPE}
)
_REPLY_SHAPE: Final = _close(
    ["type", "sub_type", "index", "parameters"],
    type={"const": "button"},
    sub_type={"const": "quick_reply"},
    index={"enum": [str(number) for number in range(10)]},
    parameters={
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": _close(["type", "payload"], type={"const": "payload"}, payload=_text_shape(128)),
    },
)
_TEMPLATE_SHAPE: Final = _close(
    ["name", "language", "components"],
    name={"type": "string", "pattern": "^[a-z0-9_]{1,512}$"},
    language=_close(["policy", "code"], policy={"const": "deterministic"}, code={"type": "string", "minLength": 2}),
    components={"type": "array", "items": {"oneOf": [_BODY_SHAPE, _REPLY_SHAPE]}},
)
_COMMON_SHAPE: Final = {
    "messaging_product": {"const": "whatsapp"},
    "recipient_type": {"const": "individual"},
    "to": {"type": "string", "pattern": "^[0-9]{5,20}$"},
    "recipient": {"type": "string", "pattern": r"^[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}$"},
    "context": _close(["message_id"], message_id={"type": "string", "pattern": "^wamid"}),
}


def _message_shape(kind: str, shape: dict[str, Any]) -> dict[str, Any]:
    required = ["messaging_product", "recipient_type", "type", kind]
    return _close(required, **_COMMON_SHAPE, **{"type": {"const": kind}, kind: shape})


MESSAGE: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "anyOf": [{"required": ["to"]}, {"required": ["recipient"]}],
    "oneOf": [
        _message_shape("interactive", _INTERACTIVE_SHAPE),
        _message_shape("text", _TEXT_SHAPE),
        _message_shape("template", _TEMPLATE_SHAPE),
    ],
}
"""The body of a message: with buttons, as text, or as a template."""
_SHAPE: Final = Draft202012Validator(MESSAGE)


@dataclass
class WhatsAppMessage:
    """One message: its text, and the payloads of its buttons by title."""

    person: str
    name: str
    kind: str
    text: str
    about: str = ""
    buttons: Mapping[str, str] = field(default_factory=dict)
    sent: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_card(self) -> bool:
        """A card has buttons, or links to the place for an answer."""
        return bool(self.buttons) or "Sign in to answer: http" in self.text

    @property
    def token(self) -> str:
        """From the buttons or the link."""
        found = _TOKEN_IN.search(self.text)
        return next((each.rpartition(".")[2] for each in self.buttons.values()), found[1] if found else "")


class FakeWhatsApp(Vendor):
    """One number of one account. Everyone has just written to it, except those in `silent`."""

    kind: ClassVar[str] = "whatsapp"
    troubles: ClassVar[Sequence[Trouble]] = HTTP_TROUBLES
    identities: ClassVar[tuple[str, str, str, str]] = (
        "15550000001",
        "US.13491208655302741918",
        "15550000003",
        "15550000004",
    )
    scoped: ClassVar[Mapping[str, str]] = {"US.13491208655302741918": "15550000002"}
    """The number behind each business-scoped id."""

    def __init__(self, *, template: bool = False) -> None:
        self.url = ""
        self.bubbles: list[WhatsAppMessage] = []
        self.refused: list[int] = []
        self.silent: set[str] = set()
        self.hidden: set[str] = set()
        """People who hide their number."""
        self.refuse_with = 0
        """A code with which every message is refused."""
        self.templates: dict[tuple[str, str], str] = {(TEMPLATE, "en_US"): BODY}
        self._template = template
        self._began: datetime | None = None
        self._wrote: dict[str, datetime] = {}
        self._numbers = iter(range(1, 1_000_000))

    @property
    def options(self) -> Mapping[str, Any]:
        options = {
            "phone_number_id": NUMBER_ID,
            "token": "env:WHATSAPP_TOKEN",
            "app_secret": "env:WHATSAPP_APP_SECRET",
            "verify_token": "env:WHATSAPP_VERIFY_TOKEN",
            "business_account_id": ACCOUNT_ID,
            "graph_url": self.url,
        }
        return options | ({"template": TEMPLATE, "languages": {"en": "en_US"}} if self._template else {})

    @property
    def environment(self) -> Mapping[str, str]:
        secrets = {"TOKEN": TOKEN, "APP_SECRET": APP_SECRET, "VERIFY_TOKEN": VERIFY_TOKEN}
        return {f"WHATSAPP_{name}": value for name, value in secrets.items()}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/{version}/{number}/messages", self._messages, methods=["POST"]),
                Route("/{version}/{account}/message_templates", self._list, methods=["GET"]),
                Route("/{version}/{number}", self._describe, methods=["GET"]),
            ]
        )

    # What people see.

    def cards(self) -> Sequence[VendorCard]:
        return [VendorCard(each.person, each.token, _show(each)) for each in self.bubbles if each.is_card]

    def reads(self, identity: str) -> Sequence[str]:
        return [_show(each) for each in self.bubbles if each.person == identity]

    def bubble(self, card: VendorCard) -> WhatsAppMessage:
        mine = [each for each in self.bubbles if (each.person, _show(each)) == (card.to, card.text)]
        return next(each for each in reversed(mine) if each.token == card.token)

    # What people do.

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Reply with text if there is a reason or the card has no buttons."""
        bubble = self.bubble(card)
        if reason or not bubble.buttons:
            word = "approve" if verdict == "approved" else "deny"
            return self.reply(card, identity, f"{word}\n{reason}".strip())
        title = "Approve" if verdict == "approved" else "Deny"
        return self.press_request(bubble, identity, title)

    def press_request(
        self, bubble: WhatsAppMessage, identity: str, title: str, *, context: bool = True
    ) -> InboundRequest:
        """Without `context`, the press does not name its message, as may happen with templates."""
        about = {"context": {"from": _OURS, "id": bubble.name}} if context else {}
        name = bubble.buttons[title]
        if bubble.kind == "template":
            return self.message(identity, "button", button={"payload": name, "text": title}, **about)
        reply = {"type": "button_reply", "button_reply": {"id": name, "title": title}}
        return self.message(identity, "interactive", interactive=reply, **about)

    def write(self, identity: str, words: str) -> InboundRequest:
        return self.message(identity, "text", text={"body": words})

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        """Swipe the card for the reply."""
        return self._swiped(self.bubble(card), identity, words)

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest:
        """Use the marks that the app shows as a line through text."""
        return self.reply(card, identity, f"{words} ~{struck}~")

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        """Swipe the conversation's newest message for the reply."""
        newest = next(each for each in reversed(self.bubbles) if each.person == identity)
        return self._swiped(newest, identity, words)

    def _swiped(self, bubble: WhatsAppMessage, identity: str, words: str) -> InboundRequest:
        return self.message(identity, "text", text={"body": words}, context={"from": _OURS, "id": bubble.name})

    def message(self, identity: str, kind: str, **content: Any) -> InboundRequest:
        return self.body_request(self.value(identity, {"id": self.wamid(), "type": kind, **content}))

    def value(self, identity: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Include the sender's number unless they hide it."""
        self._wrote[identity] = self.clock()
        phone = self.scoped.get(identity, identity)
        contact: dict[str, Any] = {"profile": {"name": "Somebody"}}
        sent = {"timestamp": str(int(self.now_said.timestamp())), **message}
        if identity not in self.hidden:
            contact["wa_id"] = sent["from"] = phone
        if identity in self.scoped:
            contact["user_id"] = sent["from_user_id"] = identity
        return {"contacts": [contact], "messages": [sent]}

    def status_body(self, bubble: WhatsAppMessage, state: str, code: int = 0) -> dict[str, Any]:
        status: dict[str, Any] = {
            "id": bubble.name,
            "status": state,
            "timestamp": str(int(self.clock().timestamp())),
            "recipient_id": self.scoped.get(bubble.person, bubble.person),
        }
        if bubble.person in self.scoped:
            status["recipient_user_id"] = bubble.person
        if code:
            status["errors"] = [{"code": code, "title": "Message failed", "error_data": {"details": "It failed."}}]
        return {"statuses": [status]}

    def body_request(
        self, *values: Mapping[str, Any], number: str = NUMBER_ID, name: str = "messages"
    ) -> InboundRequest:
        """Put each value in its own change."""
        metadata = {"display_phone_number": _OURS, "phone_number_id": number}
        common = {"messaging_product": "whatsapp", "metadata": metadata}
        changes = [{"field": name, "value": {**common, **value}} for value in values]
        entry = [{"id": ACCOUNT_ID, "changes": changes}]
        # Like Meta, escape everything beyond ASCII.
        return self.sign(json.dumps({"object": "whatsapp_business_account", "entry": entry}).encode())

    def status(self, card: VendorCard, state: CardStatus) -> InboundRequest | None:
        """Meta gives a failure its code."""
        return self.body_request(self.status_body(self.bubble(card), state, 131026 if state == "failed" else 0))

    def sign(self, body: bytes) -> InboundRequest:
        # The signature covers the body alone, without a time: only message ids identify replays.
        mark = hmac.new(APP_SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"content-type": "application/json", "x-hub-signature-256": f"sha256={mark}"}
        return InboundRequest(body, headers, at=self.clock())

    def unknown(self) -> Sequence[InboundRequest]:
        bo = self.identities[1]
        asked = [each for each in self.bubbles if each.person == bo][-1]
        update = {"type": "user_id_update", "body": "changed", "user_id": "US.2"}
        return [
            self.message(bo, "reaction", reaction={"message_id": asked.name, "emoji": "👍"}),
            self.message(bo, "system", system=update),
            self.message(bo, "edit", edit={"original_message_id": "wamid.1", "message": {"text": {"body": "yes"}}}),
            self.message(bo, "revoke", revoke={"original_message_id": "wamid.1"}),
            self.message(bo, "unsupported", errors=[{"code": 131051, "title": "Unsupported"}]),
            self.message(bo, "interactive", interactive={"type": "nfm_reply", "nfm_reply": {"name": "flow"}}),
            self.message(bo, "button", button={"payload": "Approve", "text": "Approve"}),
            self.body_request(self.status_body(asked, "warmed_up")),
            self.body_request(
                {"statuses": [{"status": "read"}, 3]}, {"errors": [{"code": 130429}]}, {"messages": "none"}
            ),
            self.body_request({"event": "APPROVED"}, name="message_template_status_update"),
            self.sign(b'{"object": "page", "entry": []}'),
        ]

    def wamid(self) -> str:
        return f"wamid.HBgLMTU1NTA3ODM4ODE{next(self._numbers):06d}"

    def is_window_open(self, person: str) -> bool:
        self._began = self._began or self.clock()
        met = None if person in self.silent else self._began
        last = self._wrote.get(person, met)
        return last is not None and self.clock() - last < _WINDOW

    # The API.

    async def _messages(self, request: Request) -> Response:
        trouble = self._trouble(request)
        if trouble is not None:
            return trouble
        body = json.loads(await request.body())
        code = self.refuse_with or self._problem(request.path_params["number"], body)
        if code:
            return self._no(code)
        to = body.get("to") or body["recipient"]
        person = next((scoped for scoped, phone in self.scoped.items() if phone == to), to)
        bubble = self._bubble(person, body)
        self.bubbles.append(bubble)
        contact = {"input": to, "wa_id": self.scoped.get(person, person)}
        answer = {"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": bubble.name}]}
        return JSONResponse(answer)

    def _problem(self, number: str, body: Mapping[str, Any]) -> int:
        """Return Meta's code, or 0."""
        if number != NUMBER_ID:
            return 33
        if not _SHAPE.is_valid(body):
            return 100
        kind, content = body["type"], body[body["type"]]
        to = body.get("to") or body["recipient"]
        known = {**{each: each for each in self.identities}, **{phone: each for each, phone in self.scoped.items()}}
        if to not in known:
            return 131026
        if kind == "template":
            return self._unfit(content)
        if kind == "interactive":
            titles = [button["reply"]["title"] for button in content["action"]["buttons"]]
            names = [button["reply"]["id"] for button in content["action"]["buttons"]]
            alike = len(set(titles)) < len(titles) or len(set(names)) < len(names)
            if alike or _units(content["body"]["text"]) > _MOST:
                return 100
        # Checked last, and not for templates, which may begin a conversation.
        return 0 if self.is_window_open(known[to]) else 131047

    def _unfit(self, template: Mapping[str, Any]) -> int:
        known = self.templates.get((template["name"], template["language"]["code"]))
        if known is None:
            return 132001
        bodies = [each for each in template["components"] if each["type"] == "body"]
        buttons = [each["index"] for each in template["components"] if each["type"] == "button"]
        if len(bodies) != 1 or len(bodies[0]["parameters"]) != len(re.findall(r"\{\{\d\}\}", known)):
            return 132000
        if buttons != ["0", "1"]:
            return 132012
        return 132005 if _units(_fill(known, bodies[0]["parameters"])) > _MOST else 0

    def _bubble(self, person: str, body: Mapping[str, Any]) -> WhatsAppMessage:
        kind, content = body["type"], body[body["type"]]
        buttons: dict[str, str] = {}
        if kind == "template":
            known = self.templates[content["name"], content["language"]["code"]]
            text = _fill(known, content["components"][0]["parameters"])
            payloads = [each["parameters"][0]["payload"] for each in content["components"][1:]]
            buttons = dict(zip(("Approve", "Deny"), payloads, strict=True))
        elif kind == "interactive":
            text = content["body"]["text"]
            buttons = {each["reply"]["title"]: each["reply"]["id"] for each in content["action"]["buttons"]}
        else:
            text = content["body"]
        about = body.get("context", {}).get("message_id", "")
        return WhatsAppMessage(person, self.wamid(), kind, text, about, buttons, body)

    async def _describe(self, request: Request) -> Response:
        trouble = self._trouble(request)
        if trouble is not None:
            return trouble
        if request.path_params["number"] != NUMBER_ID:
            return self._no(100)
        return JSONResponse({"id": NUMBER_ID, "display_phone_number": "+1 555-078-3881", "verified_name": "Acme"})

    async def _list(self, request: Request) -> Response:
        trouble = self._trouble(request)
        if trouble is not None:
            return trouble
        if request.path_params["account"] != ACCOUNT_ID:
            return self._no(100)
        buttons = [{"type": "QUICK_REPLY", "text": title} for title in ("Approve", "Deny")]
        listed = [
            {
                "name": name,
                "language": language,
                "status": "APPROVED",
                "components": [{"type": "BODY", "text": body}, {"type": "BUTTONS", "buttons": buttons}],
            }
            for (name, language), body in self.templates.items()
            if name == request.query_params.get("name", name)
        ]
        return JSONResponse({"data": listed})

    def _trouble(self, request: Request) -> Response | None:
        if self.trouble == "down":
            return Response("no upstream", status_code=503)
        if self.trouble == "busy":
            return self._no(130429)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._no(190)
        return None

    def _no(self, code: int) -> Response:
        self.refused.append(code)
        error = {"message": f"(#{code}) It is refused", "type": "OAuthException", "code": code, "fbtrace_id": "A1"}
        return JSONResponse({"error": error}, status_code=_STATUS.get(code, 400))


@asynccontextmanager
async def fake_whatsapp(*, template: bool = False) -> AsyncIterator[FakeWhatsApp]:
    """With `template`, the number's options name the approved template."""
    whatsapp = FakeWhatsApp(template=template)
    async with serve_vendor(whatsapp.app(), vendor=whatsapp) as url:
        whatsapp.url = url
        yield whatsapp


def _show(bubble: WhatsAppMessage) -> str:
    return "\n".join((bubble.text, *(f"[{title}]" for title in bubble.buttons)))


def _fill(template: str, parameters: Sequence[Mapping[str, Any]]) -> str:
    values = {f"{{{{{number}}}}}": each["text"] for number, each in enumerate(parameters, 1)}
    return re.sub(r"\{\{\d\}\}", lambda found: values.get(found.group(), found.group()), template)


def _units(words: str) -> int:
    return len(words.encode("utf-16-le")) // 2
