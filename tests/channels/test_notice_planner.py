import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import request_state
from signoff.audit.event_sources import EventSources
from signoff.channels.outbound import notice_planner
from signoff.channels.outbound.notice_planner import NoticePlanner, PlannerDeps
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import CallContext, CallOutcome
from signoff.contracts.decision import Decision, Verdict
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.keys.signatures import Verifier
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.messages.notices import Notices
from signoff.store.questions.questions import Questions
from signoff.store.request_reader import ProvedQuestion, RequestReader
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES
from signoff.store.tickets import ticket_key
from signoff.testing.questions import answer, ask

TELL = {"requester": ("waiting", "decided", "ran"), "role:audit": ("waiting",)}


class Planning:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.notices = Notices(store)
        self.tell: dict[str, Sequence[str]] = dict(TELL)
        self.seen: list[AuditEntry] = []
        self.planner = self.another()

    def another(self) -> NoticePlanner:
        people = (
            Person(id=GUEST.user, identities={"slack": ("T1:guest",)}),
            Person(id="eve", roles=("audit",), identities={"slack": ("T1:eve",)}),
        )
        deps = PlannerDeps(
            notices=self.notices,
            questions=Questions(self.store),
            requests=RequestReader(self.store, Verifier, development=True),
            sources=EventSources(self.store),
            people=FixedDirectory(people),
            tell=lambda question: self.tell,
            may_read=lambda person, request: person.id == request.requester.user,
            record=self._record,
            clock=lambda: datetime.now(UTC),
        )
        return NoticePlanner(deps, {"chat": "slack"}, RoutingRules(default=("chat",)))

    async def ask(self, call: str = "c1.1", **policy: Any) -> ApprovalRequest:
        tool = pay_tool(Ledger(), ApprovalPolicy(approvers=("role:approvers",), **policy))
        catalog = catalog_of([tool])
        deps = WorkerDeps(catalog=catalog, store=self.store, people=catalog.people, drivers={}, mark_key=b"k" * 32)
        ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=GUEST)
        return await ask(deps, ctx, tool, {"amount": 20, "to": "Ana"}, call=call)

    async def answer(self, request: ApprovalRequest, verdict: Verdict = "approved", **fields: Any) -> None:
        given = {"approval_id": request.id, "revision": request.revision, "question_hash": request.question_hash}
        given |= {"verdict": verdict, "subject": "approver", "delivery_id": request.id}
        await answer(self.store, Decision.model_validate(given | fields))

    async def run(self, request: ApprovalRequest, code: Any = "ok", *, nonce: str | None = None) -> None:
        key = ticket_key(request.digest, 1)
        turn = TurnKey(request.tenant, request.session, request.turn).workflow_id
        nonce = request.requester.nonce if nonce is None else nonce
        await self.store.claim(key, workflow=turn, call=request.call, tool=request.tool, nonce=nonce)
        await self.store.record(key, CallOutcome(call=request.call, tool=request.tool, code=code))

    async def kinds(self, request: ApprovalRequest) -> list[str]:
        return [row.notice.kind for row in await self.notices.of_request(request.id) if row.channel]

    async def until(self, request: ApprovalRequest, kind: str) -> None:
        async with asyncio.timeout(60):
            while kind not in await self.kinds(request):
                await self.planner.step()
                await asyncio.sleep(0.02)

    async def _record(self, entries: Sequence[AuditEntry]) -> None:
        self.seen += entries


@pytest.fixture
def planning(store: Store) -> Planning:
    return Planning(store)


async def test_each_event_is_planned_once_by_any_number_of_planners(planning: Planning) -> None:
    other = planning.another()
    request = await planning.ask()
    for planner in (planning.planner, other, planning.another()):
        await planner.step()
    assert await planning.kinds(request) == ["waiting"]
    await planning.answer(request)
    await asyncio.gather(planning.planner.step(), other.step())
    await planning.run(request)
    await asyncio.gather(planning.planner.step(), other.step())
    assert await planning.kinds(request) == ["waiting", "decided", "ran"]
    assert [await planner.step() for planner in (planning.planner, other)] == [0, 0]


async def test_watcher_who_may_not_read_the_request_is_recorded_as_skipped(planning: Planning) -> None:
    await planning.ask()
    await planning.planner.step()
    (entry,) = planning.seen
    assert (entry.data["event"], entry.data["person"], entry.data["code"]) == ("notice skipped", "eve", "not_allowed")


async def test_undeclared_notices_are_not_planned(planning: Planning) -> None:
    planning.tell = {}
    request = await planning.ask()
    await planning.answer(request)
    await planning.run(request)
    assert await planning.planner.step() == 0
    assert await planning.notices.of_request(request.id) == []


async def test_new_planner_catches_up_after_an_outage(planning: Planning) -> None:
    await planning.planner.step()
    request = await planning.ask()
    await planning.answer(request)
    await planning.run(request)
    planning.planner = planning.another()
    await planning.until(request, "ran")
    assert await planning.kinds(request) == ["decided", "ran"]


async def test_timeout_has_a_notice_after_the_grace(planning: Planning) -> None:
    request = await planning.ask(timeout=0.3)
    await planning.planner.step()
    assert await planning.kinds(request) == ["waiting"]
    await planning.until(request, "decided")
    (told,) = [row for row in await planning.notices.of_request(request.id) if row.notice.kind == "decided"]
    assert told.notice.request is not None
    assert told.notice.request.state == "timed_out"
    assert told.created_at >= told.notice.at + notice_planner.GRACE


async def test_denial_has_a_notice_once_undo_has_ended(planning: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_state, "UNDO_SECONDS", 0.5)
    request = await planning.ask()
    await planning.answer(request, "denied", channel="inbox", delivery_id="a/undo/b")
    await planning.planner.step()
    assert await planning.kinds(request) == []
    await planning.until(request, "decided")
    assert await planning.notices.list_finished() == []


async def test_end_drops_the_waiting_notice_of_a_tool_without_a_later_one(planning: Planning) -> None:
    planning.tell = {"requester": ("waiting",)}
    request = await planning.ask()
    await planning.planner.step()
    (row,) = await planning.notices.claim_due(9, "chat")
    await planning.notices.begin(row.token)
    await planning.notices.record_failure(row.token, "busy", "later", again_after=0.0)
    await planning.answer(request)
    await planning.planner.step()
    assert await planning.notices.claim_due(9, "chat") == []


async def test_failed_run_has_a_notice_of_failure(planning: Planning) -> None:
    request = await planning.ask()
    await planning.answer(request)
    await planning.planner.step()
    await planning.run(request, "execution_failed")
    await planning.planner.step()
    assert (await planning.kinds(request))[-1] == "failed"


async def test_unknown_outcome_has_a_notice_once_it_is_known(planning: Planning) -> None:
    request = await planning.ask()
    await planning.answer(request)
    await planning.planner.step()
    await planning.run(request, "in_doubt")
    await planning.planner.step()
    assert await planning.kinds(request) == ["decided"]
    outcome = CallOutcome(call=request.call, tool=request.tool, code="ok")
    await planning.store.record(ticket_key(request.digest, 1), outcome)
    free = update(DELIVERIES).values(claimed_until=0)
    await planning.store.run(lambda connection: connection.execute(free).close())
    await planning.planner.step()
    assert await planning.kinds(request) == ["decided", "ran"]


async def test_run_of_another_turn_with_the_same_id_has_no_notice(planning: Planning) -> None:
    request = await planning.ask()
    await planning.answer(request)
    await planning.planner.step()
    await planning.run(request, nonce="another")
    await planning.planner.step()
    assert await planning.kinds(request) == ["decided"]


async def test_outcome_that_cannot_be_planned_does_not_stop_the_others(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = await planning.ask(), await planning.ask(call="c2.1")
    for request in (broken, sound):
        await planning.answer(request)
    await planning.planner.step()
    for request in (broken, sound):
        await planning.run(request)
    find = RequestReader.find

    async def fail(self: RequestReader, approval: str, revision: int | None = None) -> ProvedQuestion:
        if approval == broken.id:
            raise KeyError("secrets")
        return await find(self, approval, revision)

    monkeypatch.setattr(RequestReader, "find", fail)
    assert await planning.planner.step() == 1
    assert await planning.kinds(sound) == ["decided", "ran"]
    # It is set aside for a while, rather than first in each look.
    assert await planning.notices.list_finished() == []
    assert await planning.kinds(broken) == ["decided"]
