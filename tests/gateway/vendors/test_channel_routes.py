import asyncio
import dataclasses
import random
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from failures import Failure
from gateway_rig import BASE, PEOPLE, SIGNER, GatewayRig, fresh, gateway_rig, http_of, react, rig_catalog, turn_of
from polling import until
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from turn_fixtures import Ledger, running_turns

from signoff.audit.log import AuditLog
from signoff.channels.envelopes import ChannelReply, ClosedCard, InboundBatch, InboundRequest
from signoff.channels.outbound.dispatcher import TICK
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import TurnKey, show_code
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.approvals import answer_handover
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.transport.server import serve
from signoff.gateway.vendors.channel_tasks import run_channels, run_forever
from signoff.people.directory import development_directory
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.settings import Settings
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.inbound_queue import InboundQueue
from signoff.store.questions.answers import OwedAnswer
from signoff.store.store import Store, open_store
from signoff.temporal.embedded_server import free_port
from signoff.testing.builders import a_person
from signoff.testing.recording_channel import RecordingChannel, recording_channel
from signoff.testing.scripted_model import ScriptedModel

CROWD = tuple(
    a_person(f"boss{number}", name=f"Boss {number}", identities={"recording": (f"b{number}",)}) for number in range(10)
)
_SLACK_SECONDS = 3.0
"""Slack's deadline for an acknowledgement, the shortest of all vendors."""
_AT_ONCE = 20


def reached(person: Person) -> Person:
    return replace(person, identities={"recording": (person.id,)})


def channel_catalog(ledger: Ledger) -> Catalog:
    people = development_directory([*map(reached, PEOPLE), *CROWD])
    chat = DeclaredChannel("chat", "signoff.testing.recording_channel")
    channels = Channels({"chat": chat}, RoutingRules(default=("chat",)))
    return dataclasses.replace(rig_catalog(ledger), people=people, channels=channels)


@dataclass
class Spoken:
    rig: GatewayRig
    http: httpx2.AsyncClient
    channel: RecordingChannel
    keys: list[str] = field(default_factory=list)

    async def asked(self, text: str) -> tuple[ApprovalRequest, dict[str, DeliveryRow]]:
        request = await self.rig.turns.signoff.request(await self.rig.asked(text))
        return request, await summary(self.rig.deps.store, request)

    async def post(self, **fields: Any) -> httpx2.Response:
        return await self.sent(self.channel.raw(**fields))

    async def sent(self, raw: InboundRequest, **more: Any) -> httpx2.Response:
        headers = {**raw.headers, **more.pop("headers", {})}
        return await self.http.post("/channels/chat", content=raw.body, headers=headers, **more)

    async def say(self, identity: str, **fields: Any) -> ChannelReply:
        before = len(self.channel.replies)
        key = uuid.uuid4().hex
        answer = await self.post(key=key, identity=identity, **fields)
        assert (answer.status_code, answer.content) == (200, b"")
        self.keys.append(key)
        await until(lambda: len(self.channel.replies) > before)
        return self.channel.replies[before][1]


async def summary(store: Store, request: ApprovalRequest) -> dict[str, DeliveryRow]:
    async with asyncio.timeout(30):
        while True:
            rows = await DeliveryQueue(store).of_request(request.id, request.revision)
            if rows and all(row.state != "planned" for row in rows):
                return {row.person: row for row in rows}
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
async def spoken(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Spoken]:
    folder = tmp_path_factory.mktemp("channels")
    queue = f"channels-{uuid.uuid4().hex[:12]}"
    channel = recording_channel("chat")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, queue, catalog_of_ledger=channel_catalog) as rig,
        run_channels(rig.deps, {"chat": channel}, RoutingRules()) as receiver,
        http_of(build_app(rig.deps, receiver)) as http,
    ):
        yield Spoken(rig, http, channel)


async def test_approval_on_a_channel_counts_and_returns_its_receipt(spoken: Spoken) -> None:
    request, cards = await spoken.asked("pay")
    assert "guest" not in cards
    reply = await spoken.say("ana", token=cards["ana"].token, verdict="approved", reason="fine")
    assert reply.receipt is not None
    assert (reply.receipt.status, reply.receipt.state) == ("accepted", "approved")
    settled = await spoken.rig.turns.signoff.request(request.id)
    vote = settled.votes[0]
    assert (vote.subject, vote.channel, vote.assurance, vote.reason) == ("ana", "recording", "channel", "fine")
    assert (vote.unsigned, bool(vote.decision.signature)) == (False, True)
    arrival = await InboundQueue(spoken.rig.deps.store).read("chat", "action", spoken.keys[-1])
    assert arrival is not None
    assert vote.decision.received_at == arrival.received_at
    await until_runs(spoken, request)


async def test_request_page_lists_its_channel_messages(spoken: Spoken) -> None:
    request, cards = await spoken.asked("pay")
    page = await spoken.http.get(f"/approvals/{request.id}")
    assert page.status_code == 200
    assert f"Messages sent outside the inbox: {len(cards)}" in page.text
    assert "chat (signoff.testing.recording_channel): sent" in page.text


async def until_runs(spoken: Spoken, request: ApprovalRequest) -> None:
    async with asyncio.timeout(30):
        while not await spoken.rig.runs(request.id):
            await asyncio.sleep(0.05)
    assert await spoken.rig.runs(request.id) == 1


async def test_late_click_names_the_decider(spoken: Spoken) -> None:
    request, cards = await spoken.asked("pay")
    await spoken.say("ana", token=cards["ana"].token, verdict="denied", reason="no")
    reply = await spoken.say("approver", token=cards["approver"].token, verdict="approved")
    assert reply.receipt is not None
    assert (reply.receipt.code, reply.receipt.decided_by, reply.receipt.channel) == (
        "already_decided",
        "ana",
        "recording",
    )
    assert "Ana" in reply.text
    assert (await spoken.rig.turns.signoff.request(request.id)).state == "denied"


async def test_every_card_shows_the_decision_within_two_seconds(spoken: Spoken) -> None:
    """Two pauses of the dispatcher and the work, in processor time: a busy machine does not increase it."""
    request, cards = await spoken.asked("pay")
    decided = await spoken.rig.decide(request.id, verdict="denied", reason="no", revision=1, **{"as": "ana"})
    assert decided.json()["status"] == "accepted"
    begun = time.process_time()

    def closings() -> list[ClosedCard]:
        return [closed for _, closed in spoken.channel.closings if closed.request.id == request.id]

    await until(lambda: len(closings()) == len(cards))
    assert time.process_time() - begun + 2 * TICK < 2.0
    assert {closed.token for closed in closings()} == {row.token for row in cards.values()}
    assert {(closed.request.state, closed.request.decided_by) for closed in closings()} == {("denied", "ana")}


async def test_answer_to_an_older_revision_is_stale(spoken: Spoken) -> None:
    request, cards = await spoken.asked("trip")
    edited = await spoken.rig.decide(
        request.id,
        verdict="approved",
        revision=1,
        **{"as": "ana"},
        edited_args={**(request.args.inline or {}), "cost": 99},
    )
    assert edited.json()["status"] == "counted", edited.text
    reply = await spoken.say("bo", token=cards["bo"].token, verdict="approved")
    assert reply.receipt is not None
    assert reply.receipt.code == "stale"
    now = await spoken.rig.turns.signoff.request(request.id)
    assert (now.revision, now.state, [vote.subject for vote in now.votes]) == (2, "pending", ["ana"])


async def test_stranger_on_a_channel_decides_and_learns_nothing(spoken: Spoken) -> None:
    request, cards = await spoken.asked("pay")
    reply = await spoken.say("mallory", token=cards["ana"].token, verdict="approved")
    assert reply.receipt is None
    assert request.code not in reply.text.replace("-", "")
    assert (await spoken.rig.turns.signoff.request(request.id)).state == "pending"


async def test_person_who_may_not_decide_is_refused_and_recorded(spoken: Spoken) -> None:
    request, cards = await spoken.asked("pay")
    reply = await spoken.say("guest", token=cards["ana"].token, verdict="approved")
    assert reply.receipt is not None
    assert reply.receipt.code in ("not_allowed", "self_approval")
    stream = await AuditLog(spoken.rig.deps.store).stream(_turn(request).workflow_id)
    tries = [(r.subject, r.facts["receipt"], r.facts["channel"]) for r in stream if r.kind == "attempt"]
    assert ("guest", reply.receipt.code, "recording") in tries


@pytest.mark.row("N31")
async def test_plain_yes_with_two_open_requests_asks_for_a_code(spoken: Spoken) -> None:
    first, _ = await spoken.asked("easy")
    second, _ = await spoken.asked("easy")
    reply = await spoken.say("approver", text="yes")
    assert reply.receipt is None
    assert {show_code(first.code), show_code(second.code)} <= set(reply.choices)
    decided = await spoken.say("approver", text=f"approve {show_code(second.code)}")
    assert decided.receipt is not None
    assert decided.receipt.approval_id == second.id
    states = [(await spoken.rig.turns.signoff.request(each.id)).state for each in (first, second)]
    assert states == ["pending", "approved"]


async def test_code_answers_a_request_without_a_card(spoken: Spoken) -> None:
    approval = await spoken.rig.asked("pay")
    request = await spoken.rig.turns.signoff.request(approval)
    refused = await spoken.say("bo", text=f"deny {request.code} no")
    assert refused.receipt is None
    reply = await spoken.say("ana", text=f"ablehnen {request.code} zu teuer")
    assert reply.receipt is not None
    assert (reply.receipt.status, reply.receipt.reason) == ("accepted", "zu teuer")


async def test_typed_confirmation_on_a_channel_leads_to_the_inbox(spoken: Spoken) -> None:
    request, cards = await spoken.asked("typed")
    reply = await spoken.say("ana", token=cards["ana"].token, verdict="approved")
    assert reply.receipt is None
    assert f"{BASE}/approvals/{request.id}" in reply.text
    assert (await spoken.rig.turns.signoff.request(request.id)).state == "pending"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_get_and_head_on_a_channel_decide_nothing(spoken: Spoken, method: str) -> None:
    request, cards = await spoken.asked("pay")
    key = uuid.uuid4().hex
    raw = spoken.channel.raw(key=key, identity="ana", token=cards["ana"].token, verdict="approved")
    answer = await spoken.http.request(method, "/channels/chat", content=raw.body, headers=raw.headers)
    assert answer.status_code == 400
    assert await InboundQueue(spoken.rig.deps.store).read("chat", "action", key) is None
    assert (await spoken.rig.turns.signoff.request(request.id)).state == "pending"


async def test_forged_unreadable_or_too_large_message_is_refused_without_a_body(spoken: Spoken) -> None:
    raw = spoken.channel.raw(key=uuid.uuid4().hex, identity="ana", text="yes")
    forged = await spoken.sent(InboundRequest(raw.body + b" ", headers=raw.headers))
    unreadable = await spoken.sent(spoken.channel.raw(nothing=1))
    nowhere = await spoken.http.post("/channels/nowhere", content=raw.body, headers=raw.headers)
    assert [(each.status_code, each.content) for each in (forged, unreadable)] == [(401, b""), (400, b"")]
    assert (nowhere.status_code, nowhere.json()["message"]) == (404, "there is nothing at this address")
    large = await spoken.sent(InboundRequest(b"x" * (spoken.channel.max_bytes + 1), headers=raw.headers))
    just = await spoken.sent(InboundRequest(b"x" * spoken.channel.max_bytes, headers=raw.headers))
    assert (large.status_code, just.status_code) == (413, 401)
    assert (await spoken.http.head("/channels/nowhere")).status_code == 404
    assert (await spoken.http.put("/channels/chat", content=b"")).status_code == 405


async def test_vendors_address_check_is_answered(spoken: Spoken, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[InboundRequest] = []

    def challenged(raw: InboundRequest) -> InboundBatch:
        seen.append(raw)
        return InboundBatch(status=200, body=raw.query["hub.challenge"].encode())

    monkeypatch.setattr(spoken.channel, "receive", challenged)
    answer = await spoken.http.get("/channels/chat?hub.challenge=11%2F58&a=b", headers={"X-Some": "Thing"})
    assert (answer.status_code, answer.text) == (200, "11/58")
    assert answer.headers["content-type"].startswith("text/plain")
    assert seen[0].url == f"{BASE}/channels/chat?hub.challenge=11%2F58&a=b"
    assert (seen[0].method, seen[0].headers["x-some"]) == ("GET", "Thing")


async def test_failing_adapter_does_not_break_the_gateway(spoken: Spoken, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(raw: InboundRequest) -> InboundBatch:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(spoken.channel, "receive", broken)
        assert (await spoken.post(key="k", identity="ana")).status_code == 400
    assert (await spoken.post(key=uuid.uuid4().hex, identity="nobody at all")).status_code == 200


async def test_message_is_not_acknowledged_if_the_store_is_down(client: Client, tmp_path: Any) -> None:
    """The 503 for an unavailable store makes the vendor deliver again."""
    channel = recording_channel("chat")
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        deps = GatewayDeps(
            client=TurnClient(client, task_queue="nobody"),
            catalog=channel_catalog(Ledger()),
            people=development_directory(),
            store=store,
            settings=Settings(),
            signer=SIGNER,
        )
        async with (
            run_channels(deps, {"chat": channel}, RoutingRules()) as receiver,
            http_of(build_app(deps, receiver)) as http,
        ):
            await store.close()
            raw = channel.raw(key="k", identity="ana", text="yes")
            answer = await http.post("/channels/chat", content=raw.body, headers=raw.headers)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


@pytest.mark.failure("the listener of channel ... failed and begins again")
async def test_failed_listener_restarts(caplog: pytest.LogCaptureFixture, failure: Failure) -> None:
    begun = 0

    async def failing() -> None:
        nonlocal begun
        begun += 1
        if begun < 4:
            raise OSError("the mailbox is shut")

    await run_forever("the listener of channel `mail`", failing, first_pause=0.001)
    failure.assert_seen(caplog.text)
    failure.follow("it begins again within 5 minutes")
    assert begun == 4
    assert sum("failed and begins again" in each.message for each in caplog.records) == 3


async def test_channels_stop_with_the_gateway(client: Client, tmp_path: Any) -> None:
    channel = recording_channel("chat")
    requests: list[str] = []

    async def listen(take: Any) -> None:
        requests.append("listening")
        try:
            await take(channel.raw(key="k", identity="nobody", text="yes"))
            requests.append("taken")
            await asyncio.Event().wait()
        finally:
            requests.append("stopped")

    async def close_down() -> None:
        requests.append("closed")
        raise OSError("closed already")

    channel.listen, channel.close_down = listen, close_down  # type: ignore[method-assign]
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        deps = GatewayDeps(
            client=TurnClient(client, task_queue="nobody"),
            catalog=channel_catalog(Ledger()),
            people=development_directory(),
            store=store,
            settings=Settings(),
        )
        async with run_channels(deps, {"chat": channel}, RoutingRules()):
            await until(lambda: "taken" in requests and len(channel.replies) == 1)
    assert requests == ["listening", "taken", "stopped", "closed"]
    async with run_channels(deps, {}, RoutingRules()) as receiver:
        assert receiver is None


async def test_answer_without_a_worker_is_accepted_and_sent_once(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy server must not end the wait before the Signal: the answer would stay owed, without a dispatcher.
    monkeypatch.setattr(answer_handover, "WAKE_SECONDS", 30)
    channel, queue = recording_channel("chat"), f"stopped-{fresh()}"
    async with gateway_rig(client, store, queue, catalog_of_ledger=channel_catalog) as running:
        request = await running.request(await running.asked("pay"))
    away = TurnClient(client, task_queue=queue, patience=timedelta(seconds=0.3))
    deps = dataclasses.replace(running.deps, client=away)
    async with run_channels(deps, {"chat": channel}, RoutingRules()) as receiver:
        assert receiver is not None
        token = (await summary(store, request))["ana"].token
        await receiver.take("chat", channel.raw(key="k", identity="ana", token=token, verdict="approved"))
        async with asyncio.timeout(30):
            while (row := await InboundQueue(store).read("chat", "action", "k")) is None or row.state != "done":
                await asyncio.sleep(0.1)
    history = await client.get_workflow_handle(_turn(request).workflow_id).fetch_history()
    signals = [each for each in history.events if each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED]
    assert len(signals) == 1
    assert [reply.receipt.status for _, reply in channel.replies if reply.receipt] == ["accepted"]
    assert (await running.request(request.id)).state == "approved"


async def test_burst_is_acknowledged_without_a_worker_and_counts_each_decision_once(
    client: Client, tmp_path: Any
) -> None:
    queue, ledger, channel = f"burst-{uuid.uuid4().hex[:12]}", Ledger(), recording_channel("chat")
    catalog = channel_catalog(ledger)
    port = free_port()
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        settings = Settings(port=port)
        away = HeldTurnClient(client, task_queue=queue)
        deps = GatewayDeps(
            client=away, catalog=catalog, people=catalog.people, store=store, settings=settings, signer=SIGNER
        )

        def work() -> Any:
            return running_turns(client, store, queue, catalog, ScriptedModel(react), verifier=SIGNER.verifier())

        async with work() as turns:
            keys = await asyncio.gather(*(turns.start("pay") for _ in CROWD))
            views = await asyncio.gather(*map(turns.waiting, keys))
        requests = [next(call.approval for call in view.calls if call.approval is not None) for view in views]
        async with run_channels(deps, {"chat": channel}, RoutingRules()) as receiver:
            cards = [await summary(store, request) for request in requests]
            decisive = [
                channel.raw(key=f"yes {at}", identity=f"b{at}", token=cards[at][f"boss{at}"].token, verdict="approved")
                for at in range(len(CROWD))
            ]
            denial = channel.raw(key="no", identity="b0", token=cards[1]["boss0"].token, verdict="denied")
            forged = [InboundRequest(denial.body, headers=raw.headers) for raw in decisive]
            stranger = [channel.raw(key=f"s {at}", identity="mallory", text="yes") for at in range(10)]
            burst = [(raw, 200) for raw in decisive * 60 + stranger * 10] + [(raw, 401) for raw in forged * 30]
            assert len(burst) == 1_000
            random.Random(5).shuffle(burst)
            stop, ready = asyncio.Event(), asyncio.Event()
            app = build_app(deps, receiver)
            serving = asyncio.create_task(serve(app, "127.0.0.1", port, stop=stop, ready=ready.set))
            await ready.wait()
            begun = time.process_time()
            await _bring(port, burst)
            # Processor time, which a busy machine does not increase: all work for messages earlier in the queue.
            each = (time.process_time() - begun) / len(burst)
            assert _AT_ONCE * each < _SLACK_SECONDS
            assert ledger.rows == []
            await until(lambda: len(_receipts(channel, "accepted")) >= len(CROWD), 90)
            away.released.set()
            async with work() as turns:
                await until(lambda: len(ledger.rows) >= len(CROWD), 90)
                settled = [await turns.signoff.request(each.id) for each in requests]
            stop.set()
            await serving
    assert [(each.state, each.decided_by) for each in settled] == [("approved", person.id) for person in CROWD]
    assert all(len(each.votes) == 1 and each.votes[0].decision.signature for each in settled)
    assert len(ledger.rows) == len({row[2] for row in ledger.rows}) == len(CROWD)
    assert len(_receipts(channel, "accepted")) == len(CROWD)


class HeldTurnClient(TurnClient):
    """Until its release, waiting for a turn blocks forever."""

    def __init__(self, client: Client, *, task_queue: str) -> None:
        super().__init__(client, task_queue=task_queue)
        self.released = asyncio.Event()

    async def wake(self, owed: OwedAnswer) -> Receipt:
        await self.released.wait()
        return await super().wake(owed)


async def _bring(port: int, burst: list[tuple[InboundRequest, int]]) -> None:
    """A client library would add its own cost."""
    left = deque(burst)

    async def bring() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left:
            raw, status = left.popleft()
            marks = "".join(f"{name}: {value}\r\n" for name, value in raw.headers.items())
            head = f"POST /channels/chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(raw.body)}\r\n{marks}\r\n"
            writer.write(head.encode() + raw.body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert b"content-length: 0\r\n" in answer
        writer.close()

    await asyncio.gather(*(bring() for _ in range(_AT_ONCE)))


def _receipts(channel: RecordingChannel, status: str) -> list[str]:
    found = (reply.receipt for _, reply in channel.replies if reply.receipt is not None)
    return [receipt.approval_id for receipt in found if receipt.status == status]


def _turn(request: ApprovalRequest) -> TurnKey:
    return turn_of(request.id)
