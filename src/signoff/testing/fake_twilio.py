"""Fakes Twilio with messages in memory: checks credentials, fields, lengths, the 24 hours and templates.

It signs requests and refuses with codes as Twilio does. Refusals by WhatsApp arrive later as reports, unless `prompt`
is set.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any, ClassVar, Final, Literal
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels.envelopes import InboundRequest
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import HTTP_TROUBLES, CardStatus, Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

ACCOUNT: Final = "AC" + "0a" * 16
AUTH_TOKEN: Final = "7d3e5f0b9a814c62b0f4d6a1c8e27395"
CONTENT: Final = "HX" + "1b" * 16
OURS: Final = "+14155238886"
CALLED: Final = "https://signoff.example/channels/channel"
BODY: Final = "Approval {{1}} waits for you.\n\n{{2}}\n\n{{3}}\n\nIt is also here: {{4}}\n\nAnswer with a button below."
"""The template of docs/channels.md."""
ACTIONS: Final = (("Approve", "signoff.approve.{{5}}"), ("Deny", "signoff.deny.{{5}}"))
_WINDOW: Final = timedelta(hours=24)
_FORM: Final = "application/x-www-form-urlencoded"
_MOST: Final = 1_600
_PLACE: Final = re.compile(r"\{\{(\d+)\}\}")
_TOKEN_IN: Final = re.compile(r"/link/([a-z0-9]+)")
_HEADED: Final = re.compile(r"[^\n]+ \(([0-9A-Z]{3}-[0-9A-Z]{3})\)(?:\n|\Z)")
_FIELDS: Final = frozenset(
    ("To", "From", "MessagingServiceSid", "Body", "ContentSid", "ContentVariables", "StatusCallback")
)
_STATUS: Final[Mapping[int, int]] = {20003: 401, 20404: 404, 20429: 429}
"""HTTP statuses of codes whose status is not 400."""


@dataclass
class TwilioMessage:
    """One message: its text, and the payloads of its buttons by title."""

    person: str
    sid: str
    text: str
    buttons: Mapping[str, str] = field(default_factory=dict)
    sent: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_card(self) -> bool:
        """A card has buttons, or a heading with a code."""
        return bool(self.buttons) or bool(_HEADED.match(self.text))

    @property
    def token(self) -> str:
        """From the buttons or the link."""
        found = _TOKEN_IN.search(self.text)
        return next((each.rpartition(".")[2] for each in self.buttons.values()), found[1] if found else "")


class FakeTwilio(Vendor):
    """One WhatsApp sender. Everyone has just written to it, except those in `silent`."""

    kind: ClassVar[str] = "twilio"
    troubles: ClassVar[Sequence[Trouble]] = HTTP_TROUBLES
    identities: ClassVar[tuple[str, str, str, str]] = (
        "whatsapp:+15550000001",
        "whatsapp:US.13491208655302741918",
        "whatsapp:+15550000003",
        "whatsapp:+15550000004",
    )
    via: ClassVar[Literal["whatsapp", "sms"]] = "whatsapp"
    prefix: ClassVar[str] = "whatsapp:"

    def __init__(self, *, template: bool = False) -> None:
        self.url = ""
        self.bubbles: list[TwilioMessage] = []
        self.refused: list[int] = []
        self.late: list[InboundRequest] = []
        """Reports of failed messages."""
        self.prompt = False
        """Whether it refuses at once, instead of reporting the failure later."""
        self.silent: set[str] = set()
        self.stopped: set[str] = set()
        """People who sent STOP."""
        self.refuse_with = 0
        """A code with which every message is refused."""
        self.called = CALLED
        """The webhook for incoming messages."""
        self.contents: dict[str, tuple[str, Sequence[tuple[str, str]]]] = {CONTENT: (BODY, ACTIONS)}
        self.approved = "approved"
        self._template = template
        self._began: datetime | None = None
        self._wrote: dict[str, datetime] = {}
        self._came: dict[str, datetime] = {}
        self._numbers = iter(range(1, 1_000_000))

    @property
    def options(self) -> Mapping[str, Any]:
        options = {
            "via": self.via,
            "account_sid": ACCOUNT,
            "auth_token": "env:TWILIO_AUTH_TOKEN",
            "sender": OURS,
            "api_url": self.url,
            "content_url": self.url,
        }
        return options | ({"content_sids": {"en": CONTENT}} if self._template else {})

    @property
    def environment(self) -> Mapping[str, str]:
        return {"TWILIO_AUTH_TOKEN": AUTH_TOKEN}

    def app(self) -> Starlette:
        account = "/2010-04-01/Accounts/{account}"
        return Starlette(
            routes=[
                Route(f"{account}/Messages.json", self._messages, methods=["POST"]),
                Route(f"{account}/Messages/{{sid}}.json", self._message, methods=["GET"]),
                Route(f"{account}/IncomingPhoneNumbers.json", self._list, methods=["GET"]),
                Route(f"{account}.json", self._describe, methods=["GET"]),
                Route("/v1/Content/{content}", self._content, methods=["GET"]),
                Route("/v1/Content/{content}/ApprovalRequests", self._approval, methods=["GET"]),
            ]
        )

    # What people see.

    def cards(self) -> Sequence[VendorCard]:
        return [VendorCard(each.person, each.token, _show(each)) for each in self.bubbles if each.is_card]

    def reads(self, identity: str) -> Sequence[str]:
        return [_show(each) for each in self.bubbles if each.person == identity]

    def bubble(self, card: VendorCard) -> TwilioMessage:
        mine = [each for each in self.bubbles if (each.person, _show(each)) == (card.to, card.text)]
        return next(each for each in reversed(mine) if each.token == card.token)

    # What people do.

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Send the text that the card asks for if there is a reason or the card has no buttons."""
        bubble = self.bubble(card)
        word = "approve" if verdict == "approved" else "deny"
        if bubble.buttons and not reason:
            return self.press_request(bubble, identity, word.title())
        headed = _HEADED.match(bubble.text)
        if headed:
            return self.reply(card, identity, f"{word} {headed[1]} {reason}".strip())
        return self.reply(card, identity, f"{word}\n{reason}")

    def press_request(self, bubble: TwilioMessage, identity: str, title: str, **more: str) -> InboundRequest:
        about = {"OriginalRepliedMessageSid": bubble.sid, "OriginalRepliedMessageSender": self.prefix + OURS}
        fields = {"Body": title, "ButtonText": title, "ButtonPayload": bubble.buttons[title], "MessageType": "button"}
        return self.message(identity, **{**about, **fields, **more})

    def write(self, identity: str, words: str) -> InboundRequest:
        return self.message(identity, Body=words, MessageType="text")

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        """Swipe the card for the reply."""
        sid = self.bubble(card).sid
        return self.message(identity, Body=words, MessageType="text", OriginalRepliedMessageSid=sid)

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest | None:
        """Swipe the conversation's newest message for the reply."""
        sid = next(each.sid for each in reversed(self.bubbles) if each.person == identity)
        return self.message(identity, Body=words, MessageType="text", OriginalRepliedMessageSid=sid)

    def message(self, identity: str, **fields: str) -> InboundRequest:
        self._wrote[identity] = self.clock()
        sid = self.sid()
        self._came[sid] = self.now_said
        common = {
            "SmsMessageSid": sid,
            "NumMedia": "0",
            "ProfileName": "Somebody",
            "SmsSid": sid,
            "SmsStatus": "received",
            "To": self.prefix + OURS,
            "MessageSid": sid,
            "AccountSid": ACCOUNT,
            "From": identity,
            "ApiVersion": "2010-04-01",
        }
        return self.form_request({**common, **fields})

    def status(self, card: VendorCard, state: CardStatus) -> InboundRequest | None:
        """Twilio gives a failure its code."""
        return self.status_request(self.bubble(card), state, 30003 if state == "failed" else 0)

    def status_request(self, bubble: TwilioMessage, state: str, code: int = 0) -> InboundRequest:
        fields = {
            "SmsSid": bubble.sid,
            "SmsStatus": state,
            "MessageStatus": state,
            "To": bubble.person,
            "MessageSid": bubble.sid,
            "AccountSid": ACCOUNT,
            "From": self.prefix + OURS,
            "ApiVersion": "2010-04-01",
        }
        return self.form_request(fields | ({"ErrorCode": str(code)} if code else {}))

    def form_request(self, fields: Mapping[str, str]) -> InboundRequest:
        return self.sign(urlencode(fields).encode())

    def sign(self, body: bytes, url: str = CALLED) -> InboundRequest:
        """Sign the body as a form if it is one."""
        pairs = [each.partition("=")[::2] for each in body.decode("latin-1").split("&")] if body else []
        # Twilio signs the pairs in order of name and value, and exact duplicates once.
        signed = url + "".join(_plain(name) + _plain(value) for name, value in sorted(set(pairs), key=_in_order))
        mark = base64.b64encode(hmac.new(AUTH_TOKEN.encode(), signed.encode(), hashlib.sha1).digest()).decode()
        headers = {"content-type": f"{_FORM}; charset=UTF-8", "x-twilio-signature": mark}
        return InboundRequest(body, headers, at=self.clock(), url=url)

    def unknown(self) -> Sequence[InboundRequest]:
        bo = self.identities[1]
        asked = [each for each in self.bubbles if each.person == bo][-1]
        return [
            self.message(bo, Body="👍", MessageType="reaction"),
            self.message(bo, Body="Approve", ButtonText="Approve", ButtonPayload="of another program"),
            self.message(bo, Body="Approve", ButtonText="Approve"),
            self.message(bo, Body="STOP", OptOutType="STOP"),
            self.message(bo, Body="approve", To="+15550009999"),
            self.message("rcs:agent", Body="approve"),
            self.status_request(asked, "warmed_up"),
            self.status_request(asked, "queued", 0),
            self.form_request({"CallSid": "CA1", "CallStatus": "ringing"}),
        ]

    def sid(self) -> str:
        return f"SM{next(self._numbers):032x}"

    def is_window_open(self, person: str) -> bool:
        """Return whether the person has written within 24 hours. SMS has no such window."""
        self._began = self._began or self.clock()
        last = self._wrote.get(person, None if person in self.silent else self._began)
        return self.via == "sms" or (last is not None and self.clock() - last < _WINDOW)

    # The API.

    async def _messages(self, request: Request) -> Response:
        trouble = self._trouble(request)
        if trouble is not None:
            return trouble
        sent = {name: str(value) for name, value in (await request.form()).multi_items()}
        right = request.headers.get("content-type") == _FORM and set(sent) <= _FIELDS
        code = self.refuse_with or (self._problem(sent) if right else 21620)
        if code:
            return self._no(code)
        bubble = self._bubble(sent)
        if "Body" in sent and not self.is_window_open(bubble.person):
            if self.prompt:
                return self._no(63016)
            self.refused.append(63016)
            self.late.append(self.status_request(bubble, "failed", 63016))
        else:
            self.bubbles.append(bubble)
        body = {"sid": bubble.sid, "status": "queued", "error_code": None, "error_message": None, "to": bubble.person}
        return JSONResponse(body, status_code=201)

    def _problem(self, sent: Mapping[str, str]) -> int:
        """Return Twilio's code, or 0."""
        to, content = sent.get("To", ""), sent.get("ContentSid")
        if to not in self.identities:
            return 21211
        if sent.get("From") != self.prefix + OURS and not sent.get("MessagingServiceSid", "").startswith("MG"):
            return 21606
        if not sent.get("StatusCallback", "").startswith("https://"):
            return 21609
        if to in self.stopped:
            return 21610
        if content is None:
            body = sent.get("Body", "")
            return 21602 if not body else 21617 if _units(body) > _MOST else 0
        return 21620 if "Body" in sent else self._unfit(content, sent.get("ContentVariables", "{}"))

    def _unfit(self, content: str, written: str) -> int:
        if content not in self.contents:
            return 21655
        body, actions = self.contents[content]
        variables = json.loads(written)
        places = set(_PLACE.findall(body + "".join(name for _, name in actions)))
        values = variables.values()
        # WhatsApp refuses empty variables, and line ends, tabs or long runs of blanks in them.
        plain = all(isinstance(each, str) and each and not re.search(r"[\n\t]| {5}", each) for each in values)
        if set(variables) != places or not plain:
            return 21656
        names = [_fill(name, variables) for _, name in actions]
        return 21658 if _units(_fill(body, variables)) > 1_024 or any(len(name) > 128 for name in names) else 0

    def _bubble(self, sent: Mapping[str, str]) -> TwilioMessage:
        if "Body" in sent:
            return TwilioMessage(sent["To"], self.sid(), sent["Body"], sent=sent)
        body, actions = self.contents[sent["ContentSid"]]
        variables = json.loads(sent["ContentVariables"])
        buttons = {title: _fill(name, variables) for title, name in actions}
        return TwilioMessage(sent["To"], self.sid(), _fill(body, variables), buttons, sent)

    async def _describe(self, request: Request) -> Response:
        body = {"sid": ACCOUNT, "friendly_name": "Acme", "status": "active"}
        return self._trouble(request) or JSONResponse(body)

    async def _message(self, request: Request) -> Response:
        came = self._came.get(request.path_params["sid"])
        if came is None:
            return self._trouble(request) or self._no(20404)
        body = {"sid": request.path_params["sid"], "direction": "inbound", "date_created": format_datetime(came)}
        return self._trouble(request) or JSONResponse(body)

    async def _list(self, request: Request) -> Response:
        mine = request.query_params.get("PhoneNumber") == OURS
        numbers = [{"phone_number": OURS, "sms_url": self.called, "sms_method": "POST"}] if mine else []
        return self._trouble(request) or JSONResponse({"incoming_phone_numbers": numbers})

    async def _content(self, request: Request) -> Response:
        found = self.contents.get(request.path_params["content"])
        if found is None:
            return self._trouble(request) or self._no(20404)
        actions = [{"title": title, "id": name} for title, name in found[1]]
        body = {"language": "en", "types": {"twilio/quick-reply": {"body": found[0], "actions": actions}}}
        return self._trouble(request) or JSONResponse(body)

    async def _approval(self, request: Request) -> Response:
        return self._trouble(request) or JSONResponse({"whatsapp": {"status": self.approved, "category": "UTILITY"}})

    def _trouble(self, request: Request) -> Response | None:
        if self.trouble == "down":
            return Response("no upstream", status_code=503)
        if self.trouble == "busy":
            return self._no(20429)
        right = base64.b64encode(f"{ACCOUNT}:{AUTH_TOKEN}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {right}":
            return self._no(20003)
        return self._no(20404) if request.path_params.get("account", ACCOUNT) != ACCOUNT else None

    def _no(self, code: int) -> Response:
        self.refused.append(code)
        status, more = _STATUS.get(code, 400), f"https://www.twilio.com/docs/errors/{code}"
        error = {"code": code, "message": "It is refused", "more_info": more, "status": status}
        return JSONResponse(error, status_code=status)


class FakeSms(FakeTwilio):
    """The same number by SMS, which has no replies to a message: every text is independent."""

    identities: ClassVar[tuple[str, str, str, str]] = ("+15550000001", "+15550000002", "+15550000003", "+15550000004")
    via: ClassVar[Literal["whatsapp", "sms"]] = "sms"
    prefix: ClassVar[str] = ""

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        """SMS has no references to a message."""
        return self.message(identity, Body=words)

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest | None:
        """SMS has no replies to a message."""
        return None


@asynccontextmanager
async def fake_twilio(twilio: FakeTwilio | None = None) -> AsyncIterator[FakeTwilio]:
    found = twilio or FakeTwilio()
    async with serve_vendor(found.app(), vendor=found) as url:
        found.url = url
        yield found


def _plain(written: str) -> str:
    raw = re.sub(
        rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), written.replace("+", " ").encode("latin-1")
    )
    return raw.decode("utf-8", "replace")


def _in_order(pair: Sequence[str]) -> tuple[str, str]:
    return _plain(pair[0]), _plain(pair[1])


def _show(bubble: TwilioMessage) -> str:
    return "\n".join((bubble.text, *(f"[{title}]" for title in bubble.buttons)))


def _fill(template: str, variables: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: variables.get(found[1], found[0]), template)


def _units(words: str) -> int:
    return len(words.encode("utf-16-le")) // 2
