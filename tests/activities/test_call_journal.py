from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    TURN,
    about,
    asked,
    decision,
    environment,
    free,
    pinned,
    run,
    summary,
    task_for,
    worker_deps,
)
from some import some
from sqlalchemy import Connection, text
from tables import table
from temporalio.exceptions import ApplicationError
from turn_fixtures import Ledger, pay_tool

from signoff.activities.call_journal import Journal, RecordActivity, make_hand_over
from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks.tool_hooks import judge_past_call
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.approvals.audit_events import attempt_entry, fingerprint
from signoff.audit.log import TURNS_KEYS, AuditLog
from signoff.audit.record import Record
from signoff.contracts.activity_messages import GateReply, GateTask, OutcomeTask, RecordTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import CallOutcome, RunRight
from signoff.contracts.content import Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.message import CallPart
from signoff.contracts.names import RECORD
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.handler_adapters import run_elsewhere
from signoff.store.questions import approval_rows
from signoff.store.questions import questions as stored_questions
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.refusal_counts import refusals_since
from signoff.store.store import Store
from signoff.testing.questions import answer, keep, number_of

AT = datetime(2026, 3, 1, tzinfo=UTC)
FREE = ApprovalPolicy(auto_approve_if="true")
SECRET = {"amount": 20, "to": "Ana Sousa of Lisbon"}


async def written(store: Store, stream: str = TURN.workflow_id) -> list[Record]:
    found = await AuditLog(store).stream(stream)
    assert not [record for record in found if "Lisbon" in record.data or '"amount"' in record.data]
    return found


async def kinds(store: Store) -> list[str]:
    return [record.kind for record in await written(store)]


async def gated(deps: Any, *calls: CallPart, **fields: Any) -> GateReply:
    if "edit" in fields:
        await keep(deps.store, fields["edit"])
        fields["edit"] = await number_of(deps.store, fields["edit"])
    task = GateTask(ctx=pinned(), calls=calls, **fields)
    reply: GateReply = await environment("signoff.gate").run(GateActivity(deps).gate, task)
    return reply


def call_of(tool: str = "pay", args: Any = None) -> CallPart:
    return CallPart(call="c1.1", tool=tool, args=Content(inline=SECRET if args is None else args))


async def break_record(store: Store) -> None:
    """Tickets and freezes remain."""
    await store.run(lambda connection: connection.execute(text("DROP TABLE audit_records")).close())


@pytest.mark.row("N26")
async def test_automatic_call_is_recorded_from_its_rule_to_its_outcome(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, FREE)
    deps = worker_deps(store, tool)
    task = task_for(tool)
    await run(deps, tool, task)
    await run(deps, tool, task)
    auto, began, ended = await written(store)
    assert (auto.kind, began.kind, ended.kind) == ("auto", "execution", "outcome")
    assert auto.facts["rule"] == {"kind": "policy", "name": "auto_approve_if"}
    assert auto.facts["policy_hash"] == deps.catalog.policy("pay").hash
    assert auto.facts["engines"] == deps.catalog.policy("pay").evaluators
    assert (began.facts["ticket"], began.facts["digest"]) == (task.digest, task.digest)
    assert (ended.facts["code"], ended.facts["value"]) == ("ok", fingerprint("paid"))
    assert (began.subject, began.facts["claimed_subject"]) == ("", "guest")


async def test_audit_log_of_an_approved_call_names_its_approver(store: Store) -> None:
    tool = pay_tool(Ledger())
    deps = worker_deps(store, tool)
    await answer(store, about(await asked(deps, tool), delivery_id="d1"))
    task = task_for(tool, revision=1)
    await run(deps, tool, task)
    _, began, ended = await written(store)
    assert began.facts["permit"] == "approved"
    assert began.facts["decisions"] == [{"subject": "approver", "revision": 1, "delivery_id": "d1", "key_id": ""}]
    assert ended.facts["code"] == "ok"


@pytest.mark.row("F20")
@table("read_only", False, True)
async def test_call_does_not_run_if_its_audit_entry_fails(store: Store, read_only: bool) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, FREE, read_only=read_only)
    deps, task = worker_deps(store, tool), task_for(tool)
    await break_record(store)
    with pytest.raises(StoreUnavailable):
        await run(deps, tool, task)
    assert ledger.rows == []
    assert await store.read_ticket(task.digest) is None


@table("read_only", False, True)
async def test_best_effort_audit_runs_without_an_entry_and_logs_it(
    store: Store, caplog: pytest.LogCaptureFixture, read_only: bool
) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, replace(FREE, audit="best_effort"), read_only=read_only)
    await break_record(store)
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("ok", "paid")
    assert len(ledger.rows) == 1
    assert {message.partition(": ")[0] for message in caplog.messages} == {"pay continues without its audit entry"}
    assert all("did not answer as a store" in message for message in caplog.messages)


@table("read_only", False, True)
async def test_best_effort_audit_records_if_the_store_is_available(store: Store, read_only: bool) -> None:
    tool = pay_tool(Ledger(), replace(FREE, audit="best_effort"), read_only=read_only)
    await run(worker_deps(store, tool), tool, task_for(tool))
    assert await kinds(store) == ["auto", "execution", "outcome"]


async def test_unavailable_store_runs_no_tool(store: Store, ledger: Ledger) -> None:
    tool = pay_tool(ledger, FREE)
    deps, task = worker_deps(store, tool), task_for(tool)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await run(deps, tool, task)
    assert ledger.rows == []


async def test_entries_of_the_turn_are_written_before_its_tool_runs(store: Store, ledger: Ledger) -> None:
    order: list[list[str]] = []

    async def paid(args: Any, ctx: Any) -> str:
        order.append(await kinds(store))
        return "paid"

    tool = pay_tool(ledger, FREE, handler=paid)
    mine = attempt_entry(decision(delivery_id="d1"), Receipt(status="accepted"), AT)
    other = replace(mine, stream="turn/main/s/other")
    await run(worker_deps(store, tool), tool, task_for(tool, audit=(mine, other)))
    assert order == [["attempt", "auto", "execution"]]
    assert await written(store, other.stream) == []


SEEN = attempt_entry(decision(delivery_id="d1"), Receipt(status="accepted"), AT)


@table("audit", "required", "best_effort")
@table("read_only", False, True)
async def test_entries_of_the_turn_come_first_in_every_audit_mode(store: Store, read_only: bool, audit: Any) -> None:
    policy = ApprovalPolicy(auto_approve_if="true", audit=audit)
    tool = pay_tool(Ledger(), policy, read_only=read_only)
    deps = worker_deps(store, tool)
    for _ in range(2):
        await run(deps, tool, task_for(tool, audit=(SEEN,)))
    assert (await kinds(store))[:3] == ["attempt", "auto", "execution"]
    seen = [record.key for record in await written(store) if record.kind == "attempt"]
    assert seen == [f"{TURNS_KEYS}{SEEN.key}"]


async def test_entries_of_the_turn_are_written_even_if_nothing_runs(store: Store) -> None:
    tool = pay_tool(Ledger(), FREE)
    deps = worker_deps(store, tool)
    await run(deps, tool, task_for(tool, digest="0" * 64, audit=(SEEN,)))
    assert await kinds(store) == ["attempt", "execution"]
    lost = replace(SEEN, key="attempt/lost")
    task = task_for(tool, audit=(lost,))
    await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    with pytest.raises(ApplicationError):
        await run(deps, tool, task)
    assert [record.key for record in await written(store)][2:] == [f"{TURNS_KEYS}attempt/lost"]
    ended = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="paid"))
    await store.record(task.digest, ended)
    late = replace(SEEN, key="attempt/late")
    reply = await run(deps, tool, task_for(tool, audit=(late,)))
    assert reply.outcome == ended
    assert [record.key for record in await written(store)][3:] == [f"{TURNS_KEYS}attempt/late"]


async def test_end_of_a_turn_writes_its_own_entries_only(store: Store) -> None:
    record = RecordActivity(worker_deps(store, pay_tool(Ledger(), FREE)))
    other = replace(SEEN, stream="turn/main/s/other")
    for _ in range(2):
        await environment(RECORD).run(record.record, RecordTask(audit=(SEEN, other)))
    assert [each.key for each in await written(store)] == [f"{TURNS_KEYS}{SEEN.key}"]
    assert await written(store, other.stream) == []
    await environment(RECORD, workflow_type="other").run(
        record.record, RecordTask(audit=(replace(SEEN, key="attempt/late"),))
    )
    assert [each.key for each in await written(store)] == [f"{TURNS_KEYS}{SEEN.key}"]


@table(
    ("kind", "named", "state"),
    ("ending", "own", "cancelled"),
    ("ending", "own, of no revision", "pending"),
    ("attempt", "own", "pending"),
    ("ending", "other", "pending"),
    ("ending", "none", "pending"),
)
async def test_turn_may_report_only_the_end_of_its_question(store: Store, kind: str, named: str, state: str) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(require_approval_if="true"))
    deps = worker_deps(store, tool)
    question = await asked(deps, tool)
    other = await asked(deps, tool, ctx=pinned(turn="t2"))
    approval = {"other": other.id, "none": 7}.get(named, question.id)
    facts = {"approval": approval, "state": "cancelled"} | ({} if "revision" in named else {"revision": 1})
    seen = replace(SEEN, key="e", kind=kind, data=facts)
    await environment(RECORD).run(RecordActivity(deps).record, RecordTask(audit=(seen,)))
    rows = [await Questions(store).read(each.id) for each in (question, other)]
    assert [each is not None and each.request(each.latest).state for each in rows] == [state, "pending"]
    assert f"{TURNS_KEYS}e" in [each.key for each in await AuditLog(store).stream(TURN.workflow_id)]


async def test_ended_questions_are_locked_in_one_order_and_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row stays locked: writes of two turns in different orders would deadlock."""
    tool = pay_tool(Ledger(), ApprovalPolicy(require_approval_if="true"))
    deps = worker_deps(store, tool)
    first, second, third = [await asked(deps, tool, call=call) for call in ("c1.1", "c1.3", "c1.2")]
    rows = await Questions(store).read(first.id)
    locked: list[str] = []
    anew: list[str] = []
    lock, read = stored_questions.lock_approval, approval_rows.read_rows

    def lock_approval(connection: Connection, approval: str) -> None:
        locked.append(approval)
        lock(connection, approval)

    def read_rows(connection: Connection, approval: str) -> ApprovalRows | None:
        anew.append(approval)
        return read(connection, approval)

    def ending(approval: str) -> AuditEntry:
        facts = {"approval": approval, "revision": 1, "state": "cancelled"}
        return replace(SEEN, key=f"e/{approval}", kind="ending", data=facts)

    async def end() -> None:
        journal = Journal(deps, tool)
        await journal.receive((ending(first.id),), first.id)
        write = some(journal.together([], rows))
        await store.run(write)

    monkeypatch.setattr(stored_questions, "lock_approval", lock_approval)
    monkeypatch.setattr(approval_rows, "read_rows", read_rows)
    await environment().run(end)
    assert (locked, anew) == ([first.id], [])
    task = RecordTask(audit=(ending(second.id), ending(third.id)))
    await environment(RECORD).run(RecordActivity(deps).record, task)
    assert locked == [first.id, third.id, second.id]
    monkeypatch.undo()
    ended = [await Questions(store).read(each.id) for each in (first, second, third)]
    assert [each is not None and each.request(each.latest).state for each in ended] == ["cancelled"] * 3


async def test_hand_over_is_skipped_without_entries_of_the_turn() -> None:
    other = replace(SEEN, stream="turn/main/s/other")

    async def writes() -> list[bool]:
        given: list[tuple[Any, Any]] = [((SEEN,), ()), ((), ()), ((other,), ()), ((other,), (SEEN,))]
        return [make_hand_over(seen, beside) is not None for seen, beside in given]

    assert await environment().run(writes) == [True, False, False, True]
    assert await environment(workflow_type="Foreign").run(writes) == [False, False, False, True]


async def test_entries_of_a_turn_are_marked_as_written_by_the_turn(store: Store) -> None:
    foreign = replace(SEEN, stream="", tenant="other", data={"by": "gateway", "note": "n"})
    await environment(RECORD).run(
        RecordActivity(worker_deps(store, pay_tool(Ledger(), FREE))).record, RecordTask(audit=(foreign,))
    )
    (record,) = await written(store)
    assert (record.key, record.tenant) == (f"{TURNS_KEYS}{SEEN.key}", "main")
    assert (record.facts["by"], record.facts["note"]) == ("turn", "n")


@table(
    ("facts", "at_once"),
    ({"kind": "ending", "approval": "another"}, True),
    ({"kind": "ending", "approval": "own"}, False),
    ({"kind": "attempt", "approval": "another"}, False),
)
async def test_only_endings_of_other_questions_are_written_before_the_call(
    store: Store, facts: dict[str, str], at_once: bool
) -> None:
    entry = replace(SEEN, kind=facts["kind"], data={"approval": facts["approval"]})
    deps, tool = worker_deps(store, free(Ledger())), free(Ledger())
    journal = Journal(deps, tool)

    async def receive() -> None:
        await journal.receive((entry,), "own")

    await environment().run(receive)
    assert len(await written(store)) == int(at_once)
    await environment().run(journal.settle)
    assert len(await written(store)) == 1


@table("vouched", True, False)
async def test_refusal_is_marked_as_turn_entry_unless_the_turn_is_signed(store: Store, vouched: bool) -> None:
    """Without the signature, all facts come from the caller and the entry is marked so."""
    tool = free(Ledger())
    journal = Journal(worker_deps(store, tool), tool)

    async def refuse() -> None:
        await journal.record_refusal(task_for(tool), "not today", **({} if vouched else {"vouched": False}))

    await environment().run(refuse)
    (record,) = await written(store)
    assert (record.key.startswith(TURNS_KEYS), record.facts.get("by")) == (not vouched, None if vouched else "turn")
    assert record.facts["refused"] == "not today"


@table("external", True, False)
async def test_call_run_by_an_external_agent_records_that_agent(store: Store, external: bool) -> None:
    fields = {"runs": "external", "handler": run_elsewhere} if external else {}
    agent = ExternalAgent(acts_for=("user:guest",)) if external else None
    tool = free(Ledger(), **fields)
    deps = worker_deps(store, tool, actors=[Actor(name="desk", model="" if external else "scripted", external=agent)])
    await run(deps, tool, task_for(tool))
    started = next(record for record in await written(store) if record.kind == "execution")
    assert started.facts.get("run_by") == (pinned().actor if external else None)


@table("info", {"workflow_type": "Foreign"}, {"activity_id": "c9.9"}, {"workflow_type": None})
async def test_forged_turn_writes_nothing_and_is_counted_as_unproved(store: Store, info: Any) -> None:
    # An attacker runs a tool outside its turn: neither the refusal nor the claimed entry enters that turn's log. With
    # refusals written there, an attacker filled the log of an uninvolved turn.
    ledger = Ledger()
    tool = free(ledger)
    claim = AuditEntry(stream=TURN.workflow_id, key="x", kind="attempt", at=AT, tenant="main", subject="eve")
    for _ in range(2):
        await run(worker_deps(store, tool), tool, task_for(tool, audit=(claim,)), environment("pay", **info))
    await store._refusals.flush()
    assert await refusals_since(store.run, timedelta(days=1)) == {"unproved": 2}
    assert await written(store) == []
    assert ledger.rows == []


@table("denied", False, True)
async def test_entries_without_a_ticket_name_no_ticket(store: Store, denied: bool) -> None:
    # Reads, and calls that a rule denies in the last check, have no ticket: the call's digest is in their keys. Anyone
    # who can start the activity can repeat a read, so each run has separate entries.
    policy = ApprovalPolicy(deny_if="true") if denied else FREE
    tool = pay_tool(Ledger(), policy, read_only=not denied)
    task = task_for(tool)
    for number in (1, 2):
        await run(worker_deps(store, tool), tool, task, environment(tool.name, attempt=number))
    records = await written(store)
    kinds = Counter(each.kind for each in records)
    assert kinds == ({"outcome": 1} if denied else {"auto": 1, "execution": 2, "outcome": 2})
    assert all(task.digest[:16] in each.key for each in records)
    assert [each.facts for each in records if "ticket" in each.facts] == []


async def test_effects_are_recorded_per_ticket_and_reads_per_run(store: Store) -> None:
    kept: dict[bool, list[str]] = {}
    runs = [{}, {"attempt": 2}, {"workflow_run_id": "another"}]
    for read_only in (False, True):
        tool = free(Ledger(), read_only=read_only)
        deps, task = worker_deps(store, tool), task_for(tool)
        for info in runs:
            await run(deps, tool, task, environment(tool.name, **info))
        keys = [each.key.split("/") for each in await written(store) if task.digest in each.key]
        kept[read_only] = ["/".join(["digest" if part == task.digest else part for part in key]) for key in keys]
    assert kept[False] == ["execution/c1.1/digest", "outcome/c1.1/digest/ok"]
    tries = [key.split("/")[3] for key in kept[True] if key.startswith("execution/")]
    assert kept[True] == [
        key for each in tries for key in (f"execution/c1.1/digest/{each}", f"outcome/c1.1/digest/{each}/ok")
    ]
    assert (len(set(tries)), {len(each) for each in tries}) == (3, {16})


async def test_call_without_a_rule_verdict_records_no_engines(store: Store) -> None:
    tool = pay_tool(Ledger(), FREE)
    deps, task = worker_deps(store, tool), task_for(tool)
    found = await judge_past_call(deps.catalog, pinned(), call_of(), SECRET, AT)
    for verdict, engines in ((found.verdict, deps.catalog.policy("pay").evaluators), (None, None)):
        judged = found._replace(verdict=verdict)
        entries = await Journal(deps, tool).start_entries(task, RunRight(), judged, SECRET, task.digest)
        assert [entry.data.get("engines") for entry in entries] == [engines, None]


async def test_stale_permit_is_recorded_as_refused(store: Store) -> None:
    tool = pay_tool(Ledger(), FREE)
    reply = await run(worker_deps(store, tool), tool, task_for(tool, digest="0" * 64))
    assert reply.again == "stale"
    (record,) = await written(store)
    assert record.facts["refused"] == "the tool changed while the request was waiting"


async def test_request_entry_holds_the_hash_of_its_card(store: Store) -> None:
    policy = ApprovalPolicy(require_approval_if="true", approvers=("role:finance",))
    for revision, title in ((1, ""), (1, ""), (2, "Payment")):
        deps = worker_deps(store, pay_tool(Ledger(), policy, title=title))
        reply = await gated(deps, call_of(), revision=revision)
    first, second = await written(store)
    request = some(reply.gate_decisions[0].request)
    assert (first.kind, second.kind) == ("request", "revision")
    assert second.facts["card"] == fingerprint(request.card.model_dump(mode="json"))
    assert second.facts["card"] != first.facts["card"]
    assert (first.facts["rule"]["name"], first.facts["approvers"]) == ("require_approval_if", ["role:finance"])
    assert (second.facts["digest"], second.facts["definition"]) == (request.digest, request.definition)
    assert (second.facts["note"], second.facts["revision"]) == ("the tool changed while the request was waiting", 2)


async def test_call_settled_by_gates_is_recorded_with_gate_and_rule(store: Store) -> None:
    rule = GlobalRule(name="no-pay", rule='tool.name == "pay"', effect="deny", reason="not today")
    deps = worker_deps(store, pay_tool(Ledger(), FREE), policies=(rule,))
    await gated(deps, call_of(), replace(call_of("nothing"), call="c1.2"))
    denied, absent = await written(store)
    assert (denied.kind, denied.facts["code"], denied.facts["source"]) == ("verdict", "denied", "policy")
    assert (absent.facts["code"], absent.facts["tool"]) == ("not_available", "nothing")
    other = worker_deps(store, pay_tool(Ledger(), FREE))
    await gated(other, replace(call_of(), call="c2.1"))
    assert len(await written(store)) == 2


async def test_gates_ask_nothing_if_the_audit_entry_fails(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger()))
    await break_record(store)
    with pytest.raises(StoreUnavailable):
        await gated(deps, call_of())


async def test_call_in_doubt_is_recorded(store: Store) -> None:
    tool = pay_tool(Ledger(), FREE)
    deps, task = worker_deps(store, tool), task_for(tool)
    await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    with pytest.raises(ApplicationError):
        await run(deps, tool, task)
    lost = OutcomeTask(run=task)
    await environment("signoff.outcome").run(OutcomeActivity(deps).outcome, lost)
    (record,) = await written(store)
    assert (record.kind, record.facts["code"], record.facts["ticket"]) == ("in_doubt", "in_doubt", task.digest)


def test_secret_arguments_of_these_tests_are_detectable() -> None:
    assert "Lisbon" in str(SECRET)
    assert set(ARGS) == set(SECRET)


async def test_edit_is_recorded_with_its_author_and_changed_names(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), ApprovalPolicy(edit="approve")))
    first_asked = some((await gated(deps, call_of())).gate_decisions[0].request)
    args = SECRET | {"to": "Bo Berg of Lisbon"}
    await gated(deps, call_of(args=args), edit=about(first_asked, subject="ana", edited_args=args))
    first, edit = await written(store)
    assert (first.kind, first.facts["claimed_subject"], first.facts.get("changed")) == ("request", "guest", None)
    assert (edit.kind, edit.subject, edit.facts["revision"]) == ("revision", "ana", 2)
    assert (edit.facts["edited_by"], edit.facts["changed"]) == ("ana", ["to"])
