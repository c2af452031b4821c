"""Fakes Slack with messages in memory: checks tokens, shapes and sizes, and signs requests, as Slack does.

The limits come from Slack's Block Kit reference. A violation is refused with `invalid_blocks`.
"""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels.envelopes import InboundRequest, RoomAct
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import HTTP_TROUBLES, Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

BOT_TOKEN: Final = "xoxb-fake"
APP_TOKEN: Final = "xapp-fake"
SIGNING_SECRET: Final = "8f742231b10e8888abcd99yyyzzz85a5"
TEAM: Final = "T1"
ROOM: Final = "C0TEAM"
"""A channel with the app as a member."""
TRIGGER_SECONDS: Final = 3.0
_LIMITS: Final = {"header": 150, "section": 3_000, "button": 75, "title": 24, "label": 2_000}
_BLOCKS: Final = 50
_ELEMENTS: Final = 25


@dataclass
class SlackMessage:
    """One message to `user`. An ephemeral message has no `ts` and cannot be edited."""

    user: str
    ts: str
    text: str
    blocks: list[dict[str, Any]] = field(default_factory=list)
    thread: str = ""
    ephemeral: bool = False

    @property
    def words(self) -> str:
        """Includes the addresses behind buttons."""
        return "\n".join(_words(self.blocks)) if self.blocks else self.text

    @property
    def token(self) -> str:
        """From the block of the buttons."""
        actions = [block for block in self.blocks if block["type"] == "actions"]
        return str(actions[0].get("block_id", "")).split(".")[1] if actions else ""


class FakeSlack(Vendor):
    """One workspace, in which every person has a conversation with the app."""

    kind: ClassVar[str] = "slack"
    identities: ClassVar[tuple[str, str, str, str]] = ("T1:UANA", "T1:UBO", "T1:UCY", "T9:UNOBODY")
    troubles: ClassVar[Sequence[Trouble]] = HTTP_TROUBLES
    busy_seconds: ClassVar[float] = 30.0
    room: ClassVar[str] = ROOM

    def __init__(self) -> None:
        self.url = ""
        self.messages: list[SlackMessage] = []
        self.windows: list[dict[str, Any]] = []
        self.rooms: dict[str, list[SlackMessage]] = {ROOM: []}
        self.standing = {"is_archived": False, "is_member": True, "is_private": False}
        """The app's standing in the rooms."""
        self.scopes = {"chat:write", "channels:read", "groups:read"}
        self.refused: list[str] = []
        self.socket_url = ""
        self._numbers = iter(range(1, 1_000_000))
        self._triggers: dict[str, tuple[float, str]] = {}

    @property
    def options(self) -> Mapping[str, Any]:
        return {"token": "env:SLACK_TOKEN", "signing_secret": "env:SLACK_SIGNING", "api_url": f"{self.url}/api"}

    @property
    def environment(self) -> Mapping[str, str]:
        return {"SLACK_TOKEN": BOT_TOKEN, "SLACK_SIGNING": SIGNING_SECRET, "SLACK_APP": APP_TOKEN}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/{method}", self._api, methods=["POST"]),
                Route("/respond/{user}", self._respond, methods=["POST"]),
            ]
        )

    # What people see.

    def cards(self) -> Sequence[VendorCard]:
        mine = [each for each in self.messages if each.blocks and each.token and "over" not in _block_ids(each)]
        return [VendorCard(_identity(each.user), each.token, each.words) for each in mine]

    def reads(self, identity: str) -> Sequence[str]:
        """Include the windows that opened for the person."""
        mine = [each.words for each in self.messages if _identity(each.user) == identity]
        return mine + ["\n".join(_words(view["blocks"])) for view in self.windows if view["user"] == identity]

    # What people do.

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Approve by the button, or deny by the window that the other button opens."""
        if verdict == "approved":
            return self.press_request(card, identity, "signoff.approve")
        return self.submit(card, identity, "signoff.deny", reason)

    def submit(self, card: VendorCard, identity: str, window: str, words: str) -> InboundRequest:
        """Write into the field of a window that a button has opened."""
        view = {
            "id": f"V{next(self._numbers)}",
            "callback_id": window,
            "private_metadata": json.dumps({"token": card.token, "channel": _conversation(identity)}),
            "state": {"values": {"signoff.reason": {"signoff.reason": {"type": "plain_text_input", "value": words}}}},
        }
        return self.interaction({"type": "view_submission", **_people(identity), "view": view})

    def press_request(self, card: VendorCard, identity: str, action: str) -> InboundRequest:
        """The trigger for the button's window is valid for three seconds."""
        number, trigger = self._new_trigger(identity)
        message = next(each for each in self.messages if each.token == card.token)
        channel = _conversation(_identity(message.user))
        return self.interaction(
            {
                "type": "block_actions",
                **_people(identity),
                "api_app_id": "A1",
                "container": {"type": "message", "message_ts": message.ts, "channel_id": channel},
                "channel": {"id": channel},
                "message": {"ts": message.ts},
                "response_url": f"{self.url}/respond/{identity.rpartition(':')[2]}",
                "trigger_id": trigger,
                "actions": [{"type": "button", "action_id": action, "value": card.token, "action_ts": f"{number}.1"}],
            }
        )

    def room_cards(self) -> Sequence[VendorCard]:
        return [VendorCard(ROOM, each.token, each.words) for each in self.rooms[ROOM]]

    def press_room(self, card: VendorCard, identity: str, act: RoomAct) -> InboundRequest:
        message = next(each for each in self.rooms[ROOM] if each.token == card.token)
        elements = [element for block in message.blocks for element in block.get("elements", ())]
        button = {each["action_id"]: each for each in elements}[f"signoff.{act}"]
        number, trigger = self._new_trigger(identity)
        return self.interaction(
            {
                "type": "block_actions",
                **_people(identity),
                "container": {"type": "message", "message_ts": message.ts, "channel_id": ROOM},
                "channel": {"id": ROOM},
                "message": {"ts": message.ts},
                "response_url": f"{self.url}/respond/{identity.rpartition(':')[2]}",
                "trigger_id": trigger,
                "actions": [
                    {
                        "type": "button",
                        "action_id": button["action_id"],
                        "value": button["value"],
                        "action_ts": f"{number}.1",
                    }
                ],
            }
        )

    def press_view(self, identity: str, action: str) -> InboundRequest:
        """Press a button in the newest dialog of a person."""
        view = next(each for each in reversed(self.windows) if each["user"] == identity)
        elements = [element for block in view["blocks"] for element in block.get("elements", ())]
        button = next(each for each in elements if each["action_id"] == action)
        number, trigger = self._new_trigger(identity)
        return self.interaction(
            {
                "type": "block_actions",
                **_people(identity),
                "container": {"type": "view", "view_id": view["id"]},
                "view": {"id": view["id"], "private_metadata": view.get("private_metadata", "")},
                "trigger_id": trigger,
                "actions": [
                    {"type": "button", "action_id": action, "value": button["value"], "action_ts": f"{number}.1"}
                ],
            }
        )

    def submit_view(self, identity: str, reason: str) -> InboundRequest:
        """Submit the newest dialog of a person, with a reason."""
        view = next(each for each in reversed(self.windows) if each["user"] == identity)
        state = {"values": {"signoff.reason": {"signoff.reason": {"type": "plain_text_input", "value": reason}}}}
        sent = {"id": view["id"], "callback_id": view["callback_id"], "private_metadata": view["private_metadata"]}
        return self.interaction({"type": "view_submission", **_people(identity), "view": {**sent, "state": state}})

    def write(self, identity: str, words: str) -> InboundRequest:
        return self._make_event(identity, words, {})

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        """Write in the thread of a card."""
        message = next(each for each in self.messages if each.token == card.token)
        return self._make_event(identity, words, {"thread_ts": message.ts})

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest:
        """Only the message's blocks show the part as struck out."""
        message = next(each for each in self.messages if each.token == card.token)
        parts = [
            {"type": "text", "text": f"{words} "},
            {"type": "text", "text": struck, "style": {"strike": True}},
        ]
        section = {"type": "rich_text_section", "elements": parts}
        blocks = [{"type": "rich_text", "elements": [section]}]
        return self._make_event(identity, f"{words} {struck}", {"thread_ts": message.ts, "blocks": blocks})

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        """Write in the thread of the conversation's newest message."""
        newest = next(each for each in reversed(self.messages) if _identity(each.user) == identity)
        return self._make_event(identity, words, {"thread_ts": newest.thread or newest.ts})

    def sign(self, body: bytes) -> InboundRequest:
        return self.signed_request(body, "application/json")

    def interaction(self, payload: Mapping[str, Any]) -> InboundRequest:
        """Slack sends a form with one field."""
        return self.signed_request(
            urlencode({"payload": json.dumps(payload)}).encode(), "application/x-www-form-urlencoded"
        )

    def signed_request(self, body: bytes, kind: str, ahead: float = 0.0) -> InboundRequest:
        """Sign a body with `v0`, by a clock that may be `ahead`."""
        stamp = str(int(self.clock().timestamp() + ahead))
        mark = hmac.new(SIGNING_SECRET.encode(), b"v0:%s:%s" % (stamp.encode(), body), hashlib.sha256).hexdigest()
        headers = {"content-type": kind, "x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={mark}"}
        return InboundRequest(body, headers, at=self.clock())

    def unknown(self) -> Sequence[InboundRequest]:
        events = [
            {"type": "url_verification", "challenge": "3eZbrw1aB"},
            {"type": "event_callback", "event_id": "Ev1", "event": {"type": "team_join", "user": {"id": "U9"}}},
            {"type": "event_callback", "event_id": "Ev2", "event": {"type": "message", "bot_id": "B1", "text": "yes"}},
            {"type": "app_rate_limited", "minute_rate_limited": 1},
        ]
        actions = [{"type": "button", "action_id": "signoff.open", "value": ""}, "nonsense", {"action_id": "other"}]
        pressed = {"type": "block_actions", **_people(self.identities[1]), "actions": actions}
        shortcut = {"type": "shortcut", **_people(self.identities[1]), "callback_id": "x"}
        return [
            *(self.sign(json.dumps(each).encode()) for each in events),
            self.interaction(pressed),
            self.interaction(shortcut),
        ]

    # The API.

    async def _api(self, request: Request) -> Response:
        if self.trouble:
            busy = self.trouble == "busy"
            return Response(status_code=429 if busy else 503, headers={"retry-after": "30"} if busy else {})
        method = request.path_params["method"]
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if request.headers.get("authorization") != f"Bearer {wanted}":
            return self._no("invalid_auth")
        raw = await request.body()
        # Methods that read take no JSON.
        form = {name: values[-1] for name, values in parse_qs(raw.decode()).items()}
        body = form if method == "conversations.info" else json.loads(raw or b"{}")
        known: dict[str, Callable[[Mapping[str, Any]], Response]] = {
            "chat.postMessage": self._post,
            "chat.postEphemeral": self._ephemeral,
            "chat.update": self._update,
            "views.open": self._window,
            "views.push": self._push,
            "views.update": self._change_window,
            "conversations.info": self._info,
            "auth.test": lambda _: JSONResponse({"ok": True, "user": "signoff", "team": "Acme", "team_id": TEAM}),
            "apps.connections.open": lambda _: JSONResponse({"ok": True, "url": self.socket_url}),
        }
        return known[method](body) if method in known else self._no("unknown_method")

    def _post(self, body: Mapping[str, Any]) -> Response:
        problem = self._problem(body)
        if not problem and body["channel"] in self.rooms:
            if self.standing["is_archived"] or not self.standing["is_member"]:
                hidden = "channel_not_found" if self.standing["is_private"] else "not_in_channel"
                return self._no("is_archived" if self.standing["is_archived"] else hidden)
            posted = SlackMessage("", self._stamp(), body["text"], body.get("blocks", []))
            self.rooms[body["channel"]].append(posted)
            return JSONResponse({"ok": True, "channel": body["channel"], "ts": posted.ts})
        user = _user_of(body["channel"])
        if problem or user is None:
            return self._no(problem or "channel_not_found")
        message = SlackMessage(user, self._stamp(), body["text"], body.get("blocks", []), body.get("thread_ts", ""))
        self.messages.append(message)
        # A message to a user's id returns the conversation's id, which edits require.
        return JSONResponse({"ok": True, "channel": f"D{user}", "ts": message.ts})

    def _info(self, body: Mapping[str, Any]) -> Response:
        if not {"channels:read", "groups:read"} & self.scopes:
            self.refused.append("missing_scope")
            return JSONResponse({"ok": False, "error": "missing_scope", "needed": "channels:read"})
        name = body.get("channel")
        # A private channel is unknown to an app that is no member.
        if name not in self.rooms or (self.standing["is_private"] and not self.standing["is_member"]):
            return self._no("channel_not_found")
        return JSONResponse(
            {"ok": True, "channel": {"id": name, "name": "finance", "is_channel": True} | self.standing}
        )

    def _ephemeral(self, body: Mapping[str, Any]) -> Response:
        if self._problem(body) or not str(body.get("channel", "")).startswith("D"):
            return self._no(self._problem(body) or "channel_not_found")
        self.messages.append(SlackMessage(body["user"], self._stamp(), body["text"], ephemeral=True))
        return JSONResponse({"ok": True, "message_ts": self._stamp()})

    def _update(self, body: Mapping[str, Any]) -> Response:
        problem = self._problem(body)
        found = [
            each
            for each in self.messages
            if body["channel"] == f"D{each.user}" and each.ts == body.get("ts") and not each.ephemeral
        ]
        found += [each for each in self.rooms.get(body["channel"], ()) if each.ts == body.get("ts")]
        if problem or not found:
            return self._no(problem or "message_not_found")
        found[0].text, found[0].blocks = body["text"], body["blocks"]
        return JSONResponse({"ok": True, "channel": body["channel"], "ts": found[0].ts})

    def _window(self, body: Mapping[str, Any]) -> Response:
        view = body["view"]
        # A trigger is valid once.
        opened = self._triggers.pop(body["trigger_id"], None)
        if opened is None or self.clock().timestamp() - opened[0] > TRIGGER_SECONDS:
            return self._no("expired_trigger_id")
        if not _view_fits(view):
            return self._no("invalid_arguments")
        self.windows.append({**view, "user": opened[1], "id": f"V{next(self._numbers)}"})
        return JSONResponse({"ok": True, "view": {"id": self.windows[-1]["id"]}})

    def _push(self, body: Mapping[str, Any]) -> Response:
        """Only a trigger of a press in a dialog may push another one."""
        return self._window(body) if self.windows else self._no("not_found")

    def _change_window(self, body: Mapping[str, Any]) -> Response:
        found = [number for number, each in enumerate(self.windows) if each["id"] == body.get("view_id")]
        if not found or not _view_fits(body["view"]):
            return self._no("invalid_arguments" if found else "not_found")
        old = self.windows[found[0]]
        self.windows[found[0]] = {**body["view"], "user": old["user"], "id": old["id"]}
        return JSONResponse({"ok": True, "view": {"id": old["id"]}})

    async def _respond(self, request: Request) -> Response:
        if self.trouble:
            return Response(status_code=503)
        body = json.loads(await request.body())
        if body.get("response_type") != "ephemeral" or body.get("replace_original") is not False or not body["text"]:
            return Response("invalid_payload", status_code=400)
        self.messages.append(SlackMessage(request.path_params["user"], self._stamp(), body["text"], ephemeral=True))
        return Response("ok")

    def _no(self, error: str) -> Response:
        self.refused.append(error)
        # Slack refuses with status 200; only limits and outages have their own status.
        return JSONResponse({"ok": False, "error": error})

    def _problem(self, body: Mapping[str, Any]) -> str:
        if not body.get("text") or len(body["text"]) > 40_000:
            return "no_text"
        blocks = body.get("blocks", [])
        if len(blocks) > _BLOCKS:
            return "invalid_blocks"
        return "" if all(map(_fits, blocks)) else "invalid_blocks"

    def _new_trigger(self, identity: str) -> tuple[int, str]:
        number = next(self._numbers)
        self._triggers[f"trigger.{number}"] = (self.clock().timestamp(), identity)
        return number, f"trigger.{number}"

    def _stamp(self) -> str:
        return f"{int(self.clock().timestamp())}.{next(self._numbers):06d}"

    def _make_event(self, identity: str, words: str, more: Mapping[str, Any]) -> InboundRequest:
        user, number = identity.rpartition(":")[2], next(self._numbers)
        event = {
            "type": "message",
            "channel": _conversation(identity),
            "channel_type": "im",
            "team": identity.partition(":")[0],
            "user": user,
            "text": words,
            "ts": f"{int(self.now_said.timestamp())}.{number:06d}",
            **more,
        }
        body = {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{number}", "event": event}
        return self.sign(json.dumps(body).encode())


@asynccontextmanager
async def fake_slack() -> AsyncIterator[FakeSlack]:
    slack = FakeSlack()
    async with serve_vendor(slack.app(), vendor=slack) as url:
        slack.url = url
        yield slack


def _fits(block: Mapping[str, Any]) -> bool:
    kind = block["type"]
    if len(block.get("block_id", "")) > 255:
        return False
    if kind in ("header", "section"):
        return block["text"]["type"] == "plain_text" and 0 < len(block["text"]["text"]) <= _LIMITS[kind]
    if kind != "actions":
        return False
    elements = block["elements"]
    names = [each["action_id"] for each in elements]
    return 0 < len(elements) <= _ELEMENTS and len(set(names)) == len(names) and all(map(_button_fits, elements))


def _view_fits(view: Mapping[str, Any]) -> bool:
    """A dialog with an input has a button to submit it."""
    inputs = [block for block in view["blocks"] if block["type"] == "input"]
    titles = [view[name]["text"] for name in ("title", "submit", "close") if name in view]
    return (
        view["type"] == "modal"
        and bool(view["blocks"])
        and len(view["blocks"]) <= 100
        and all(0 < len(each) <= _LIMITS["title"] for each in titles)
        and len(view.get("private_metadata", "")) <= 3_000
        and (not inputs or "submit" in view)
        and all(block["type"] == "input" or _fits(block) for block in view["blocks"])
    )


def _button_fits(button: Mapping[str, Any]) -> bool:
    return (
        button["type"] == "button"
        and 0 < len(button["text"]["text"]) <= _LIMITS["button"]
        and len(button["action_id"]) <= 255
        and len(button.get("value", "")) <= 2_000
        and len(button.get("url", "")) <= 3_000
        and button.get("style", "primary") in ("primary", "danger")
    )


def _words(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] in ("header", "section"):
            yield block["text"]["text"]
        if block["type"] == "input":
            yield block["label"]["text"]
        for element in block.get("elements", ()):
            yield f"[{element['text']['text']}] {element.get('url', '')}".strip()


def _block_ids(message: SlackMessage) -> str:
    return " ".join(str(block.get("block_id", "")) for block in message.blocks)


def _people(identity: str) -> dict[str, Any]:
    team, _, user = identity.rpartition(":")
    return {"team": {"id": TEAM}, "user": {"id": user, "team_id": team, "name": user.lower()}}


def _identity(user: str) -> str:
    return next((each for each in FakeSlack.identities if each.endswith(f":{user}")), f"{TEAM}:{user}")


def _conversation(identity: str) -> str:
    return f"D{identity.rpartition(':')[2]}"


def _user_of(channel: str) -> str | None:
    user = channel.removeprefix("D")
    return user if any(each.endswith(f":{user}") for each in FakeSlack.identities) else None
