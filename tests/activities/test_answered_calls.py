import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import ARGS, TURN, about, asked, free, run, task_for, worker_deps
from some import some
from tables import table
from temporalio.exceptions import ApplicationError
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.activities.worker_deps import WorkerDeps
from signoff.audit.log import AuditLog
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.decision import Decision
from signoff.contracts.errors import RegistrationError
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.policy.approval_policy import ApprovalPolicy, ShownArguments
from signoff.store.questions.questions import end_question
from signoff.store.store import Store
from signoff.testing.questions import answer

SCHEMA = {"type": "object", "properties": {"hotel": {"type": "string"}}, "required": ["hotel"]}
GIVEN = {"hotel": "Luz"}
UNPASSED = "Not executed: a person answered this instead, and the answer could not be passed on:"


def tool_of(ledger: Ledger, policy: ApprovalPolicy | None = None, **fields: Any) -> Any:
    return pay_tool(ledger, policy or ApprovalPolicy(), **({"answer_schema": SCHEMA} | fields))


def word(request: ApprovalRequest, **fields: Any) -> Decision:
    return about(request, **({"verdict": "answered", "answer": GIVEN, "reason": ""} | fields))


async def test_answer_takes_the_ticket_once_and_runs_nothing(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger)
    deps, task = worker_deps(store, tool), task_for(tool, revision=1)
    await answer(store, word(await asked(deps, tool)))
    reply = await run(deps, tool, task)
    outcome = some(reply.outcome)
    assert (outcome.code, outcome.value.inline["answer"], outcome.decided_by) == ("answered", GIVEN, "approver")
    assert await run(deps, tool, task) == reply
    ticket = some(await store.read_ticket(task.digest))
    assert (ticket.state, ticket.outcome, ledger.rows) == ("done", outcome, [])


async def lapse(store: Store, request: ApprovalRequest) -> None:
    """End a question without a run, so that the next one is a new revision."""
    await store.run(lambda connection: end_question(connection, request.id, request.revision, "lapsed"))


async def test_later_approval_of_an_answered_action_runs_nothing(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger)
    deps = worker_deps(store, tool)
    first = await asked(deps, tool)
    await answer(store, word(first))
    await lapse(store, first)
    second = await asked(deps, tool)
    await answer(store, about(second, delivery_id="later"))
    outcome = some((await run(deps, tool, task_for(tool, revision=2))).outcome)
    assert (second.revision, outcome.code, ledger.rows) == (2, "refused", [])
    assert outcome.value.inline == "Not executed: somebody answered this instead."


@table(
    ("fields", "why"),
    ({"answer": {"hotel": 5}}, "the answer of a person does not fit its schema"),
    ({"answer": None}, "the answer of a person does not fit its schema"),
    ({"subject": "guest"}, "the requester has approved this"),
    ({"subject": "nobody"}, "an approver of this may not decide it now"),
    ({"subject": ""}, "a decision is about something else"),
    ({"key_id": "k", "signature": "forged"}, "the gateway did not sign this answer"),
)
async def test_stored_answer_without_the_right_reaches_no_model(
    store: Store, ledger: Ledger, fields: dict[str, Any], why: str
) -> None:
    policy = ApprovalPolicy(allow_self_approval=True, approvers=("role:approvers", "user:guest"))
    tool = tool_of(ledger, policy)
    deps = worker_deps(store, tool)
    await answer(store, word(await asked(deps, tool), **fields))
    outcome = some((await run(deps, tool, task_for(tool, revision=1))).outcome)
    assert (outcome.code, outcome.value.inline) == ("refused", f"{UNPASSED} {why}.")
    assert ledger.rows == []


async def test_unsigned_answer_counts_in_development_alone(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger)
    deps = worker_deps(store, tool)
    await answer(store, word(await asked(deps, tool)))
    production = worker_deps(store, tool, profile="production")
    outcome = some((await run(production, tool, task_for(tool, revision=1))).outcome)
    assert (outcome.code, ledger.rows) == ("refused", [])


async def test_answer_is_not_enough_under_a_larger_quorum_of_now(store: Store, ledger: Ledger) -> None:
    asked_of_one = tool_of(ledger)
    await answer(store, word(await asked(worker_deps(store, asked_of_one), asked_of_one)))
    tool = tool_of(ledger, ApprovalPolicy(quorum=2))
    outcome = some((await run(worker_deps(store, tool), tool, task_for(tool, revision=1))).outcome)
    assert (outcome.code, outcome.value.inline) == ("refused", f"{UNPASSED} more people have to approve this now.")


async def test_answer_outlasts_a_change_of_the_shown_arguments(store: Store, ledger: Ledger) -> None:
    before = tool_of(ledger)
    await answer(store, word(await asked(worker_deps(store, before), before)))
    tool = tool_of(ledger, ApprovalPolicy(show=ShownArguments(only=("amount",))))
    outcome = some((await run(worker_deps(store, tool), tool, task_for(tool, revision=1))).outcome)
    assert (outcome.code, outcome.value.inline["answer"], ledger.rows) == ("answered", GIVEN, [])


async def test_answer_that_a_deployed_rule_denies_at_question_time_ends_in_words(store: Store, ledger: Ledger) -> None:
    before = tool_of(ledger)
    await answer(store, word(await asked(worker_deps(store, before), before)))
    turning = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    tool = tool_of(ledger, ApprovalPolicy(deny_if=f"ctx.now.at < '{turning}'"))
    later = dataclasses.replace(worker_deps(store, tool), clock=lambda: datetime.now(UTC) + timedelta(hours=2))
    reply = await run(later, tool, task_for(tool, revision=1))
    why = "by the policy of now this would have been denied when it was asked"
    assert (reply.again, some(reply.outcome).value.inline) == ("", f"{UNPASSED} {why}.")


async def test_late_outcome_of_a_run_is_not_recorded_as_an_answer(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger, ApprovalPolicy(audit="best_effort"))
    deps, task = worker_deps(store, tool), task_for(tool, revision=1)
    request = await asked(deps, tool)
    await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    await store.record(task.digest, CallOutcome(call="c1.1", tool="pay", code="ok"))
    await answer(store, word(request))
    assert some((await run(deps, tool, task)).outcome).code == "ok"
    records = await AuditLog(store).stream(TURN.workflow_id)
    assert [each.kind for each in records if "answered" in each.data] == []


async def test_answer_by_another_schema_is_asked_again(store: Store, ledger: Ledger) -> None:
    before = tool_of(ledger)
    await answer(store, word(await asked(worker_deps(store, before), before)))
    tool = tool_of(ledger, answer_schema={"type": "string"})
    assert tool.definition != before.definition
    reply = await run(worker_deps(store, tool), tool, task_for(before, revision=1))
    assert (reply.again, reply.outcome is not None and reply.outcome.code, ledger.rows) == ("stale", "refused", [])


async def test_rule_runs_no_answered_call(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger)
    await answer(store, word(await asked(worker_deps(store, tool), tool)))
    loose = free(ledger, answer_schema=SCHEMA)
    reply = await run(worker_deps(store, loose), loose, task_for(loose))
    assert (reply.again, ledger.rows) == ("stale", [])


async def test_answer_to_a_begun_call_leaves_its_outcome_unknown(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger)
    deps, task = worker_deps(store, tool), task_for(tool, revision=1)
    request = await asked(deps, tool)
    await store.claim(task.digest, workflow=task.turn.workflow_id, call="c1.1", tool="pay")
    await answer(store, word(request))
    with pytest.raises(ApplicationError) as raised:
        await run(deps, tool, task)
    assert (raised.value.type, ledger.rows) == ("InDoubt", [])


async def edited_before(store: Store, tool: Any, deps: WorkerDeps) -> ApprovalRequest:
    """Return the request about arguments that `approver` edited, after that edit's own approval lapsed."""
    edited = ARGS | {"amount": 7}
    first = await asked(deps, tool)
    await lapse(store, await asked(deps, tool, edited, edit=about(first, edited_args=edited, delivery_id="edit")))
    return await asked(deps, tool, edited)


async def test_editor_of_the_arguments_gives_no_answer(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger, ApprovalPolicy(edit="approve"))
    deps = worker_deps(store, tool)
    request = await edited_before(store, tool, deps)
    taker = RawAnswerTaker(store, deps.clock, lambda tool, definition: True, development=True)
    own = word(request, delivery_id="own")
    taken = some(await taker.keep_and_take("own", own, deps.people))
    assert (request.revision, taken.receipt.status, taken.receipt.code) == (3, "refused", "self_approval")
    assert some(await taker.keep_and_take("yes", about(request, delivery_id="yes"), deps.people)).receipt.code == ""


async def test_stored_answer_of_an_editor_reaches_no_model(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger, ApprovalPolicy(edit="approve"))
    deps = worker_deps(store, tool)
    request = await edited_before(store, tool, deps)
    await answer(store, word(request, delivery_id="own"))
    reply = await run(deps, tool, task_for(tool, ARGS | {"amount": 7}, revision=3))
    assert some(reply.outcome).value.inline == f"{UNPASSED} an approver of this may not decide it now."


async def test_answer_is_too_late_once_the_call_has_begun(store: Store, ledger: Ledger) -> None:
    tool = tool_of(ledger)
    deps = worker_deps(store, tool)
    request = await asked(deps, tool)
    task = task_for(tool, revision=1)
    await store.claim(task.digest, workflow=task.turn.workflow_id, call="c1.1", tool="pay")
    taker = RawAnswerTaker(store, deps.clock, lambda tool, definition: True, development=True)
    taken = some(await taker.keep_and_take("late", word(request), deps.people))
    assert (taken.receipt.status, taken.receipt.code, taken.receipt.why) == ("refused", "already_decided", "begun")


def test_tool_schema_is_checked_when_it_is_declared(ledger: Ledger) -> None:
    with pytest.raises(RegistrationError, match="`answer_schema` of tool `pay` is not valid JSON Schema"):
        catalog_of([pay_tool(ledger, answer_schema={"type": "thing"})])
