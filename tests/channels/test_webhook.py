import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from standardwebhooks.webhooks import Webhook as Reference
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import ChannelReply, ClosedCard, InboundRequest, OutboundCard
from signoff.channels.outbound_http import ServerAnswer
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.channels.webhook import Webhook
from signoff.contracts.approval import ApprovalRequest, Card, CardRow
from signoff.contracts.content import Content
from signoff.contracts.decision import Verdict
from signoff.contracts.person import Person, Principal
from signoff.contracts.responses import ApprovalRequestPart
from signoff.testing.channels import ChannelSuite
from signoff.testing.vendor import Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
LARGEST = 256 * 1024


class Receiver(Vendor):
    kind: ClassVar[str] = "webhook"
    identities: ClassVar[tuple[str, str, str, str]] = ("U-ana", "U-bo", "U-cy", "U-nobody")
    # Only the header of a receiver's answer is read.
    troubles: ClassVar[Sequence[Trouble]] = ("limited", "fault")
    busy_seconds: ClassVar[float] = 30.0

    def __init__(self) -> None:
        self.url = ""
        self.taken: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self._numbers = iter(range(1, 10_000))

    @property
    def options(self) -> Mapping[str, Any]:
        return {"url": self.url, "secret": "env:HOOK_SECRET", "allow_networks": ["127.0.0.0/8"]}

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HOOK_SECRET": SECRET}

    async def take(self, request: Request) -> Response:
        self.asked += 1
        if self.trouble:
            busy = self.trouble == "busy"
            return Response(status_code=429 if busy else 500, headers={"retry-after": "30"} if busy else {})
        body, headers = await request.body(), request.headers
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        right = Reference(SECRET).sign(headers["webhook-id"], at, body.decode())
        if right not in headers["webhook-signature"].split(" "):
            return Response(status_code=401)
        late = abs((self.clock() - at).total_seconds()) > 300
        if late or headers["content-type"] != "application/json" or len(body) > LARGEST:
            return Response(status_code=400)
        message = json.loads(body)
        if set(message) != {"type", "timestamp", "data"}:
            return Response(status_code=400)
        self.taken.setdefault(headers["webhook-id"], message)
        return Response(status_code=202)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/hook", self.take, methods=["POST"])])

    def cards(self) -> Sequence[VendorCard]:
        result = {"approval.asked", "approval.reminded", "approval.digest"}
        return [
            VendorCard(each["data"]["to"], name.partition(".")[0], each["data"]["text"])
            for name, each in self.taken.items()
            if each["type"] in result
        ]

    def reads(self, identity: str) -> Sequence[str]:
        mine = {card.token for card in self.cards() if card.to == identity}
        found = [card.text for card in self.cards() if card.to == identity]
        for message in self.taken.values():
            data = message["data"]
            if message["type"] == "approval.closed" and data["token"] in mine:
                found.append(f"{data['text']} {data['reason']}")
            if message["type"] in ("answer.receipt", "notice") and data["to"] == identity:
                found.append(data["text"])
        return found

    def send(self, kind: str, **data: Any) -> InboundRequest:
        return self.sign(json.dumps({"type": kind, "timestamp": self.now_said.isoformat(), "data": data}).encode())

    def sign(self, body: bytes) -> InboundRequest:
        headers = signed_headers([read_secret(SECRET)], f"msg_{next(self._numbers)}", self.clock(), body)
        return InboundRequest(body, {**headers, "content-type": "application/json"}, at=self.clock())

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        return self.send("decision", token=card.token, identity=identity, verdict=verdict, reason=reason)

    def write(self, identity: str, words: str) -> InboundRequest:
        return self.send("message", identity=identity, text=words)

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        return self.send("message", identity=identity, text=words, in_reply_to=f"{card.token}.ask")

    def status(self, card: VendorCard, state: str) -> InboundRequest:
        return self.send("status", id=f"{card.token}.ask", state=state)

    def forgeries(self, raw: InboundRequest) -> Sequence[InboundRequest]:
        other = signed_headers([read_secret(OTHER)], "msg_x", self.clock(), raw.body)
        old = raw.headers | {"webhook-timestamp": str(int(self.clock().timestamp()) - 301)}
        again = raw.headers | {"webhook-id": "msg_again"}
        made = [replace(raw, headers={**raw.headers, **each}) for each in (other, old, again)]
        return (*super().forgeries(raw), *made)

    def unknown(self) -> Sequence[InboundRequest]:
        card = self.cards()[-1].token
        return (
            self.send("approval.fancied", token=card),
            self.send("status", id=f"{card}.ask", state="pondered"),
            self.send("status", id="msg_of_somebody_else", state="delivered"),
            self.sign(b'{"type": "ping"}'),
            self.sign(b"{}"),
        )


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with serve_vendor(receiver.app(), vendor=receiver) as url:
        receiver.url = f"{url}/hook"
        yield receiver


class TestWebhook(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return receiving()


NOW = datetime(2026, 11, 22, 14, 2, tzinfo=UTC)


class Line:
    def __init__(self, status: int = 200, retry_after: float = 0.0, at: datetime | None = None) -> None:
        self.answer = ServerAnswer(status, retry_after, at)
        self.posts: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ServerAnswer:
        self.posts.append((url, dict(headers), json.loads(body)))
        return self.answer

    async def close(self) -> None:
        """See `GuardedHttp`."""


def webhook(line: Line, **options: Any) -> Webhook:
    given = {"url": "https://desk.example.com/hook", "secret": SECRET} | options
    return Webhook(ChannelContext("desk", given, "https://signoff.example", lambda: NOW, b"k"), line)


def notice(kind: Any = "ask", reminded: int = 0) -> OutboundCard:
    request = ApprovalRequest(
        id="main.s.t.c1.1",
        code="K7Q2FM",
        digest="d",
        tenant="main",
        turn="t",
        call="c1.1",
        tool="pay",
        args=Content(inline={}),
        card=Card(effect="Pay 3", rows=(CardRow(name="to", label="To", value="Bo"),)),
        requester=Principal(user="guest"),
        reminded=reminded,
    )
    return OutboundCard(
        token="t" * 26, kind=kind, request=request, person=Person(id="bo"), address="U-bo", link="https://x/l"
    )


@table(
    ("status", "again"),
    (301, False),
    (307, False),
    (400, True),
    (401, True),
    (404, True),
    (410, False),
    (429, True),
    (500, True),
    (503, True),
)
async def test_redirect_or_error_status_does_not_acknowledge(status: int, again: bool) -> None:
    with pytest.raises(NotDelivered) as refused:
        await webhook(Line(status, retry_after=9.0)).deliver(notice(), None)
    assert (refused.value.again, refused.value.code) == (again, str(status))
    assert refused.value.after == (9.0 if status in (429, 503) else 0.0)


@table("status", 200, 201, 202, 204)
async def test_any_success_status_acknowledges(status: int) -> None:
    sent = await webhook(Line(status)).deliver(notice(), None)
    assert sent.vendor_id == f"{'t' * 26}.ask"


async def test_message_keeps_its_id_when_sent_again() -> None:
    line = Line()
    channel = webhook(line)
    first = await channel.deliver(notice(), None)
    await channel.deliver(notice(), None)
    for number in (1, 2, 2):
        reminded = await channel.deliver(notice("remind", number), first)
        assert reminded.vendor_id == first.vendor_id
    closed = ClosedCard(request=notice().request, person=Person(id="bo"), token="t" * 26, link="https://x/l")
    await channel.close(first, closed)
    ids = [headers["webhook-id"].removeprefix("t" * 26) for _, headers, _ in line.posts]
    assert ids == [".ask", ".ask", ".remind.1", ".remind.2", ".remind.2", ".closed"]


async def test_card_contains_all_data_for_a_system() -> None:
    line = Line()
    await webhook(line).deliver(notice(), None)
    message = line.posts[0][2]
    assert (message["type"], message["timestamp"]) == ("approval.asked", NOW.isoformat())
    data = message["data"]
    assert (data["to"], data["code"], data["revision"], data["effect"]) == ("U-bo", "K7Q2FM", 1, "Pay 3")
    assert data["rows"][0]["value"] == "Bo"
    assert (data["whole"], data["decides"]) == (True, True)
    asked = ApprovalRequestPart.model_validate(data["part"]["content"]["inline"])
    assert (data["part"]["type"], asked.approval_id, asked.code) == ("approval-request", data["approval"], "K7Q2FM")
    assert (asked.arguments[0].value, asked.where.page) == ("Bo", data["link"])


async def test_digest_has_no_token() -> None:
    line = Line()
    channel = webhook(line)
    await channel.deliver(notice("digest"), None)
    assert line.posts[0][2]["data"]["token"] == ""
    for kind, token in {"ask": "t" * 26, "remind.2": "t" * 26, "closed": "t" * 26, "digest": ""}.items():
        body = json.dumps(
            {"type": "message", "data": {"identity": "U-bo", "text": "yes", "in_reply_to": f"{'t' * 26}.{kind}"}}
        )
        raw = InboundRequest(body.encode(), {"webhook-id": "m1", "content-type": "application/json; charset=utf-8"})
        action = channel.parse(raw).actions[0]
        assert (action.token, bool(action.vendor_ids)) == (token, not token)


async def test_secret_is_rotated_without_a_gap() -> None:
    line = Line()
    both = webhook(line, secret=OTHER, previous_secret=SECRET)
    await both.deliver(notice(), None)
    assert len(line.posts[0][1]["webhook-signature"].split(" ")) == 2
    body = b"{}"
    for secret in (SECRET, OTHER):
        raw = InboundRequest(body, signed_headers([read_secret(secret)], "m1", NOW, body))
        both.verify(raw)
    with pytest.raises(Forged):
        webhook(line, secret=OTHER).verify(InboundRequest(body, signed_headers([read_secret(SECRET)], "m1", NOW, body)))


async def test_our_own_message_is_no_answer() -> None:
    line = Line()
    channel = webhook(line)
    await channel.deliver(notice(), None)
    _, headers, message = line.posts[0]
    raw = InboundRequest(json.dumps(message).encode(), headers)
    assert channel.receive(raw).actions == ()


@table(
    ("expected", "known"),
    ("delivered", "delivered"),
    ("read", "read"),
    ("failed", "failed"),
    ("sent", "unknown"),
    ("", "unknown"),
)
def test_status_is_applied_to_the_card(expected: str, known: str) -> None:
    for message in ("ask", "remind.1", "closed"):
        data = {"id": f"{'t' * 26}.{message}", "state": expected, "code": "E1", "message": "why"}
        body = json.dumps({"type": "status", "data": data}).encode()
        received = webhook(Line()).parse(InboundRequest(body, {"webhook-id": "m1", "content-type": "application/json"}))
        status = received.statuses[0]
        # The card was delivered, although its follow-up was not.
        state = "unknown" if known == "failed" and message != "ask" else known
        assert (status.vendor_id, status.state, status.code, status.message) == (f"{'t' * 26}.ask", state, "E1", "why")


@table(
    ("data", "message"),
    ({"identity": "U-bo", "verdict": "maybe"}, "verdict"),
    ({"identity": "U-bo", "verdict": "happened"}, "verdict"),
    ({"verdict": "approved"}, "identity"),
    ({"identity": "", "verdict": "approved"}, "identity"),
    ({"identity": 3, "verdict": "approved"}, "identity"),
    ({"identity": "U-bo", "verdict": "approved"}, "names no request"),
    ({"identity": "U-bo", "verdict": "approved", "token": "", "in_reply_to": ""}, "names no request"),
    ({"identity": "U-bo", "verdict": "approved", "token": "a", "code": "K7Q2FM"}, "code"),
    ({"identity": "U-bo", "verdict": "approved", "token": "a", "revision": 3}, "revision"),
    ([], "no object"),
    (None, "no object"),
)
def test_malformed_message_is_refused(data: Any, message: str) -> None:
    body = json.dumps({"type": "decision", "data": data}).encode()
    with pytest.raises(Malformed, match=message):
        webhook(Line()).parse(InboundRequest(body, {"webhook-id": "m1", "content-type": "application/json"}))


async def test_check_compares_clocks() -> None:
    assert [each.ok for each in await webhook(Line(at=NOW)).check()] == [True]
    wrong = await webhook(Line(at=NOW + timedelta(minutes=4))).check()
    assert [each.ok for each in wrong] == [True, False]
    assert "240 s from ours" in wrong[1].what
    assert [each.ok for each in await webhook(Line(500)).check()] == [False]


async def test_message_id_of_a_reply_depends_on_its_id_and_not_on_its_text() -> None:
    line = Line()
    channel = webhook(line)
    for name, words in (("a1", "Approved."), ("a2", "Approved."), ("a1", "Approved, 14:00.")):
        await channel.answer({"to": "U-bo"}, ChannelReply(id=name, text=words))
    assert [headers["webhook-id"] for _, headers, _ in line.posts] == ["answer.a1", "answer.a2", "answer.a1"]
