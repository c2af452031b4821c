import asyncio
import json
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    TURN,
    WHO,
    about,
    asked,
    codes,
    environment,
    free,
    in_another_turn,
    outcome_of_lost,
    pinned,
    run,
    summary,
    task_for,
    worker_deps,
)
from some import some
from tables import table
from temporalio.exceptions import ApplicationError
from turn_fixtures import Ledger, pay_tool

from signoff.activities.results.result_processor import ResultProcessor
from signoff.activities.run_handler import ProbeRunner, recorded_reply
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import OutcomeTask, RunTask, ToolReply
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.registry.actor import Actor
from signoff.registry.hooks import CannotTell, DidNotHappen, Happened
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.store import Store
from signoff.store.tickets import Claim, ticket_key
from signoff.testing import a_tool_context
from signoff.testing.questions import answer

NOTE = "The tool did not answer; it was looked up, and this happened."
UNDONE = "it was looked up, and did not happen"
RAN = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid"))


class Finder:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[dict[str, Any], ToolContext]] = []

    async def __call__(self, args: dict[str, Any], context: ToolContext) -> Any:
        self.asked.append((args, context))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def probed(answer: Any, ledger: Ledger | None = None, **fields: Any) -> tuple[Tool, Finder]:
    finder = Finder(answer)
    return free(ledger or Ledger(), probe=finder, **fields), finder


async def outcome(store: Store, tool: Tool, task: RunTask | None = None) -> ToolReply:
    return await outcome_of_lost(worker_deps(store, tool), OutcomeTask(run=task or task_for(tool)))


async def claimed(store: Store, tool: Tool, number: int = 1) -> str:
    key = ticket_key(task_for(tool).digest, number)
    await store.claim(key, **WHO)
    return key


async def words(store: Store) -> list[str]:
    records = await AuditLog(store).stream(TURN.workflow_id)
    return [json.loads(each.data)["probe"] for each in records if each.kind == "in_doubt" and "probe" in each.data]


async def test_probe_that_finds_a_result_gives_the_outcome(store: Store) -> None:
    """The ticket keeps it, so the probe does not run again."""
    tool, finder = probed(Happened(ToolResult("booking 7", structured={"booking": 7}, cost=0.5)))
    key = await claimed(store, tool)
    found = await outcome(store, tool)
    assert found.outcome is not None
    assert summary(found) == ("ok", "booking 7")
    assert (found.outcome.note, found.outcome.cost) == (NOTE, 0.5)
    assert some(found.outcome.structured).inline == {"booking": 7}
    ((args, context),) = finder.asked
    assert (args, context.idempotency_key, context.call_id, context.user_id) == (ARGS, key, "c1.1", "guest")
    again = await outcome(store, tool)
    assert (again.outcome, len(finder.asked)) == (found.outcome, 1)
    assert (await run(worker_deps(store, tool), tool, task_for(tool))).outcome == found.outcome
    assert await words(store) == ["happened"]


async def test_probe_result_of_a_specialist_call_is_recorded_in_full(store: Store) -> None:
    tool, _ = probed(Happened("booking 7"), scope="specialist", justification="only the desk looks at bookings")
    await claimed(store, tool)
    deps = worker_deps(store, tool, actors=[Actor(name="desk", model="scripted", read_rest=True)])
    task = OutcomeTask(run=task_for(tool, budget_chars=7))
    found = some((await outcome_of_lost(deps, task)).outcome)
    assert (str(found.value.inline).partition("\n")[0], found.truncated) == ("booking", True)
    assert found.note == f'{NOTE} The rest is read by read_rest(handle="{found.rest}", start=7).'
    (record,) = [each for each in await AuditLog(store).stream(TURN.workflow_id) if each.kind == "outcome"]
    facts = json.loads(record.data)
    assert (facts["result"], facts["arguments"]) == ("booking 7", ARGS)
    assert (facts["actor"], facts["scope"], facts["code"]) == ("desk", "specialist", "ok")


@table(
    ("claim", "reply"),
    (Claim(kind="open"), None),
    (Claim(kind="other", outcome=RAN), None),
    (Claim(kind="done"), None),
    (Claim(kind="done", outcome=RAN), ToolReply(outcome=RAN)),
    (Claim(kind="undone"), ToolReply(again="undone", note=UNDONE)),
    (Claim(kind="void"), ToolReply(again="lapsed", note="the approval was not used in time")),
)
def test_claimed_ticket_gives_only_the_reply_of_its_call(claim: Claim, reply: ToolReply | None) -> None:
    assert recorded_reply(claim) == reply


async def test_probe_that_finds_a_failure_gives_a_failure(store: Store) -> None:
    tool, _ = probed(Happened(ToolFailure("the card was declined")))
    await claimed(store, tool)
    assert summary(await outcome(store, tool)) == ("execution_failed", "the card was declined")


async def test_call_that_did_not_happen_runs_under_the_next_ticket(store: Store, ledger: Ledger) -> None:
    tool, finder = probed(DidNotHappen(), ledger)
    key = await claimed(store, tool)
    for _ in range(2):
        reply = await outcome(store, tool)
        assert (reply.outcome, reply.again, reply.note) == (None, "undone", UNDONE)
    deps = worker_deps(store, tool)
    first = await run(deps, tool, task_for(tool))
    assert (first.again, first.note, ledger.rows) == ("undone", UNDONE, [])
    assert summary(await run(deps, tool, task_for(tool, ticket=2))) == ("ok", "paid")
    assert [row[2] for row in ledger.rows] == [f"{key}/2"]
    assert (len(finder.asked), await words(store)) == (1, ["did_not_happen"])


@table(
    "answer",
    CannotTell(),
    None,
    True,
    "happened",
    Happened,
    ValueError("x"),
    SystemExit(2),
    asyncio.CancelledError(),
)
async def test_invalid_probe_answer_leaves_the_call_in_doubt(store: Store, answer: Any) -> None:
    tool, finder = probed(answer)
    key = await claimed(store, tool)
    for _ in range(2):
        assert summary(await outcome(store, tool)) == ("in_doubt", IN_DOUBT_TEXT)
    assert await store.claim(key, **WHO) == Claim(kind="open")
    assert (len(finder.asked), await words(store)) == (2, ["unknown"])


@table(
    ("answer", "line"),
    (ValueError("Ana owes 20"), "the probe of pay failed (ValueError)"),
    ("booking 7", "the probe of pay returned a str that is no answer"),
    (CannotTell(), ""),
)
async def test_probe_without_an_answer_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture, answer: Any, line: str
) -> None:
    tool, _ = probed(answer)
    await claimed(store, tool)
    await outcome(store, tool)
    lines = [record.getMessage().partition(" ({")[0] for record in caplog.records if "probe" in record.getMessage()]
    assert lines == ([line] if line else [])


async def test_hanging_probe_is_abandoned_after_its_timeout(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def hang(args: dict[str, Any], context: ToolContext) -> Happened:
        await asyncio.Event().wait()
        return Happened()

    tool = free(Ledger(), probe=hang)
    deps = worker_deps(store, tool)
    probing = ProbeRunner(deps, tool, ResultProcessor(deps, tool), seconds=0.05)

    async def ask() -> ToolReply | None:
        return await probing.reply(task_for(tool), ARGS, _context(await claimed(store, tool)))

    assert await asyncio.wait_for(environment().run(ask), 60) is None
    lines = [record.getMessage().partition(" ({")[0] for record in caplog.records]
    assert "the probe of pay gave no answer within 0.05 s" in lines


@table("answer", DidNotHappen(), Happened("booking 7"))
async def test_outcome_of_a_slow_worker_overrides_the_probe(store: Store, answer: Any) -> None:
    late = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid late"))

    async def slow(args: dict[str, Any], context: ToolContext) -> Any:
        await store.record(context.idempotency_key, late)
        return answer

    tool = free(Ledger(), probe=slow)
    key = await claimed(store, tool)
    assert summary(await outcome(store, tool)) == ("ok", "paid late")
    assert (await store.claim(key, **WHO)).outcome == late


async def test_second_attempt_on_a_claimed_ticket_runs_the_probe(store: Store) -> None:
    tool, finder = probed(CannotTell())
    await claimed(store, tool)
    with pytest.raises(ApplicationError) as caught:
        await run(worker_deps(store, tool), tool, task_for(tool))
    assert caught.value.type == "InDoubt"
    finder.answer = Happened("booking 7")
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("ok", "booking 7")


@table(("answer", "expected"), (Happened("late"), "ok"), (DidNotHappen(), "undone"), (CannotTell(), "in_doubt"))
async def test_handler_timeout_runs_the_probe_immediately(store: Store, answer: Any, expected: str) -> None:
    async def slow(args: dict[str, Any], context: ToolContext) -> None:
        await asyncio.Event().wait()

    tool, _ = probed(answer, handler=slow, timeout=0.05)
    reply = await run(worker_deps(store, tool), tool, task_for(tool))
    assert codes([reply]) == [expected]


async def test_probe_receives_the_approved_arguments(store: Store) -> None:
    async def spoils(args: dict[str, Any], context: ToolContext) -> None:
        args.clear()
        await asyncio.Event().wait()

    tool, finder = probed(CannotTell(), handler=spoils, timeout=0.05)
    await run(worker_deps(store, tool), tool, task_for(tool, args=dict(ARGS)))
    assert [args for args, _ in finder.asked] == [{"amount": 20, "to": "Ana"}]


@table(
    "changed",
    {"args": Content(inline={"amount": 21})},
    {"args": Content(inline={"amount": float(2**60)})},
    {"ctx": pinned(user=Principal(user="guest", name="Guest", key_id="k", signature="forged"))},
)
async def test_probe_runs_only_for_the_exact_call(store: Store, changed: dict[str, Any]) -> None:
    tool, finder = probed(DidNotHappen())
    await claimed(store, tool)
    assert summary(await outcome(store, tool, replace(task_for(tool), **changed))) == ("in_doubt", IN_DOUBT_TEXT)
    assert finder.asked == []


async def test_call_that_is_not_in_doubt_is_not_probed(store: Store, ledger: Ledger) -> None:
    tool, finder = probed(Happened(), ledger)
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("ok", "paid")
    assert summary(await outcome(store, tool)) == ("ok", "paid")
    assert (await outcome(store, tool, task_for(tool, ticket=2))).again == "lapsed"
    repeatable, other = probed(Happened(), ledger, idempotent=True)
    again = in_another_turn(repeatable)
    await store.claim(again.digest, **WHO, nonce=again.ctx.user.nonce)
    assert summary(await run(worker_deps(store, repeatable), repeatable, again)) == ("ok", "paid")
    assert (finder.asked, other.asked) == ([], [])


async def test_lost_idempotent_call_is_probed(store: Store) -> None:
    tool, finder = probed(Happened("booking 7"), idempotent=True)
    await claimed(store, tool)
    assert summary(await outcome(store, tool)) == ("ok", "booking 7")
    assert len(finder.asked) == 1


def _context(key: str) -> ToolContext:
    return a_tool_context(idempotency_key=key)


@table(("stored", "approver"), (True, "approver"), (False, ""))
async def test_probe_receives_the_approver_from_the_store(store: Store, stored: bool, approver: str) -> None:
    finder = Finder(CannotTell())
    tool = pay_tool(Ledger(), probe=finder)
    if stored:
        await answer(store, about(await asked(worker_deps(store, tool), tool)))
    task = task_for(tool, revision=1)
    await store.claim(task.digest, **WHO)
    await outcome(store, tool, task)
    ((_, context),) = finder.asked
    assert context.decided_by == approver
