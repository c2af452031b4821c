import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    TURN,
    WHO,
    about,
    environment,
    free,
    outcome_of_lost,
    pinned,
    summary,
    task_for,
    worker_deps,
)
from activity_kit import asked as ask
from sqlalchemy import text
from tables import table
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.approvals.approval_outcomes import HAPPENED_NOTE
from signoff.audit.log import TURNS_KEYS, AuditLog
from signoff.contracts.activity_messages import GateTask, OutcomeTask, ToolReply
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.message import CallPart
from signoff.contracts.names import OUTCOME
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.capabilities import Capabilities
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.hooks import CannotTell, HookContext, Permission
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.store.vouched_people import vouched_writer
from signoff.testing.builders import a_person
from signoff.testing.questions import answer

NOW = datetime.now(UTC)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=1)),)))
LEDGER = Ledger()
APPROVER = a_person("approver")
TOOL = free(LEDGER)
RUN = task_for(TOOL)
DONE = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid"))


async def asked(store: Store, tool: Tool = TOOL, env: ActivityEnvironment | None = None, **fields: Any) -> ToolReply:
    of_catalog = {name: fields.pop(name) for name in ("people", "profile", "actors") if name in fields}
    deps = dataclasses.replace(worker_deps(store, tool, **of_catalog), verifier=SIGNER.verifier())
    ahead = fields.pop("ahead", timedelta(0))
    deps = dataclasses.replace(deps, clock=lambda: datetime.now(UTC) + ahead)
    task = {"run": RUN} | fields
    task["run"] = replace(task["run"], ticket=task.pop("ticket", 1))
    return await outcome_of_lost(deps, OutcomeTask(**task), env)


async def test_recorded_outcome_is_returned(store: Store) -> None:
    await store.claim(RUN.digest, **WHO)
    await store.record(RUN.digest, DONE)
    reply = await asked(store)
    assert (reply.outcome, reply.again) == (DONE, "")


async def test_claimed_ticket_is_in_doubt(store: Store) -> None:
    await store.claim(RUN.digest, **WHO)
    reply = await asked(store)
    assert summary(reply) == ("in_doubt", IN_DOUBT_TEXT)
    assert (reply.outcome.call, reply.outcome.tool, reply.outcome.gate) == ("c1.1", "pay", "execute")


async def test_unclaimed_ticket_is_voided_and_the_call_lapses(store: Store) -> None:
    for _ in range(2):
        reply = await asked(store)
        assert (reply.outcome, reply.again, reply.note) == (None, "lapsed", "the approval was not used in time")
    ticket = await store.read_ticket(RUN.digest)
    assert (ticket.state, ticket.workflow, ticket.call, ticket.tool) == ("void", *WHO.values())
    assert (await store.claim(RUN.digest, **WHO)).kind == "void"


async def test_outcome_is_read_from_the_used_ticket(store: Store) -> None:
    await store.claim(RUN.digest, **WHO)
    assert (await asked(store, ticket=2)).again == "lapsed"
    assert (await store.read_ticket(ticket_key(RUN.digest, 2))).state == "void"


async def test_lost_read_only_call_fails(store: Store) -> None:
    reads = free(LEDGER, read_only=True)
    task = task_for(reads)
    reply = await asked(store, reads, run=task)
    assert summary(reply) == ("execution_failed", "The tool did not answer in time.")
    assert await store.read_ticket(task.digest) is None


async def test_call_begun_before_its_tool_became_read_only_is_in_doubt(store: Store) -> None:
    reads: dict[str, Any] = {"tool": free(LEDGER, read_only=True)}
    assert (await asked(store, **reads)).again == "lapsed"
    assert (await store.read_ticket(RUN.digest)).state == "void"
    await store.claim(ticket_key(RUN.digest, 2), **WHO)
    assert summary(await asked(store, ticket=2, **reads)) == ("in_doubt", IN_DOUBT_TEXT)
    await store.record(ticket_key(RUN.digest, 2), DONE)
    assert (await asked(store, ticket=2, **reads)).outcome == DONE


async def test_call_of_a_removed_tool_keeps_its_ticket(store: Store) -> None:
    await store.claim(RUN.digest, **WHO)
    assert summary(await asked(store, free(LEDGER, name="other")))[0] == "in_doubt"


@table(
    ("info", "why"),
    ({"workflow_type": "Foreign"}, "this tool runs only inside a turn"),
    ({"workflow_type": None}, "this tool runs only inside a turn"),
    ({"workflow_id": None}, "its task names another turn"),
    ({"workflow_id": "turn/main/s/other"}, "its task names another turn"),
)
async def test_caller_other_than_the_turn_cannot_void_a_ticket(store: Store, info: Any, why: str) -> None:
    """A foreign caller could otherwise void the approved call of another turn."""
    reply = await asked(store, env=environment(OUTCOME, **info))
    assert summary(reply) == ("refused", f"Not executed: {why}.")
    assert await store.read_ticket(RUN.digest) is None


SAID: dict[str, Any] = {"verdict": "happened", "result": "booking 7"}


async def begun(store: Store, tool: Tool = TOOL, **fields: Any) -> Decision:
    await store.claim(task_for(tool).digest, **WHO)
    request = await ask(worker_deps(store, tool, people=[BOSS, BO, ANA]), tool, doubt=1)
    return about(request, **SAID | fields)


async def said(store: Store, tool: Tool = TOOL, **fields: Any) -> Decision:
    word = await begun(store, tool, **fields)
    await answer(store, word)
    return word


async def test_decision_that_the_call_happened_is_recorded(store: Store) -> None:
    word = await said(store)
    reply = await asked(store, people=[APPROVER], happened=word)
    assert summary(reply) == ("ok", "booking 7")
    assert (reply.outcome.decided_by, reply.outcome.note) == ("approver", HAPPENED_NOTE)
    assert (await store.read_ticket(RUN.digest)).outcome == reply.outcome
    other = replace(word, result="booking 8")
    assert await asked(store, people=[APPROVER], happened=other) == ToolReply()
    assert summary(await asked(store, people=[APPROVER], happened=word)) == ("ok", "booking 7")


async def test_only_a_stored_decision_is_recorded_as_outcome(store: Store) -> None:
    raw = await begun(store)
    word = SIGNER.sign_decision(replace(raw, received_at=NOW, assurance="session"))
    given = {"happened": word, "people": [APPROVER]}
    assert await asked(store, **given) == ToolReply()
    await answer(store, word)
    assert summary(await asked(store, **given)) == ("ok", "booking 7")


@table(
    "word",
    {"verdict": "approved"},
    {"verdict": "denied"},
    {"subject": "guest"},
    {"subject": "stranger"},
    {"subject": ""},
    {"approval_id": "main.s.t.c1.2"},
    {"question_hash": "0" * 64},
    {"question_hash": ""},
    {"signature": "c2lnbmVk", "key_id": "k"},
)
async def test_invalid_happened_decision_is_not_recorded(store: Store, word: Any) -> None:
    decision = replace(await begun(store), **word)
    assert await asked(store, people=[APPROVER], happened=decision) == ToolReply()
    assert (await store.read_ticket(RUN.digest)).state == "claimed"


async def test_happened_decision_about_another_attempt_is_not_recorded(store: Store) -> None:
    word = await begun(store)
    await Questions(store).end(word.approval_id, 1, "superseded")
    second = about(await ask(worker_deps(store, TOOL), TOOL, doubt=2), **SAID)
    assert await asked(store, people=[APPROVER], happened=second) == ToolReply()
    assert (await store.read_ticket(RUN.digest)).state == "claimed"


@table("fields", {"tool": free(LEDGER, name="other")}, {"profile": "production"})
async def test_unverifiable_happened_decision_is_not_recorded(store: Store, fields: Any) -> None:
    word = await begun(store)
    assert await asked(store, people=[APPROVER], happened=word, **fields) == ToolReply()
    assert (await store.read_ticket(RUN.digest)).state == "claimed"


async def test_happened_decision_without_a_claimed_ticket_is_not_recorded(store: Store) -> None:
    word = about(await ask(worker_deps(store, TOOL), TOOL, doubt=1), **SAID)
    given = {"happened": word, "people": [APPROVER]}
    assert await asked(store, **given) == ToolReply()
    await store.void_unclaimed(RUN.digest, **WHO)
    assert await asked(store, **given) == ToolReply()
    assert (await store.read_ticket(RUN.digest)).state == "void"


def by_amount(call: HandlerCall, context: dict[str, Any]) -> HandlerVerdict:
    return HandlerVerdict("ask", "admin" if call.args["amount"] > 10 else "user", "much")


BOSS, BO, ANA = Person(id="boss", roles=("admin",)), a_person("bo"), Person(id="ana")
ROUTED = ApprovalPolicy(route_to="args.amount > 10.0 ? ['user:ana'] : ['role:approvers']")
ADMIN = ApprovalPolicy(handler="test_outcome_activity:by_amount", approvers=("role:approvers",))
LATER = ApprovalPolicy(approvers=("role:approvers",), escalate_to=("user:ana",), escalate_after=60)


@table(
    ("policy", "subject", "written"),
    (ROUTED, "ana", True),
    (ROUTED, "bo", False),
    (ADMIN, "boss", True),
    (ADMIN, "bo", False),
    (LATER, "bo", True),
    (LATER, "ana", False),
    (LATER, "boss", False),
)
async def test_happened_decision_must_come_from_approvers_of_this_call(
    store: Store, policy: ApprovalPolicy, subject: str, written: bool
) -> None:
    tool = pay_tool(LEDGER, policy)
    task = task_for(tool)
    word = await said(store, tool, subject=subject)
    reply = await asked(store, tool, people=[BOSS, BO, ANA], run=task, happened=word)
    assert (reply.outcome is not None) == written
    if reply.outcome is not None:
        assert (reply.outcome.decided_by, reply.outcome.value.inline) == (subject, "booking 7")


async def never(context: HookContext) -> bool:
    return False


async def forbids(args: Any, context: HookContext) -> Permission:
    return Permission.deny("not now")


@table(
    "fields",
    {"hours": ("Mo 12:00-12:01 UTC",)},
    {"available": never},
    {"check_permissions": forbids},
    {"capabilities": Capabilities(secrets=("KEY",))},
)
@table("subject", "bo", "ana")
async def test_approvers_of_an_in_doubt_call_ignore_present_availability(
    store: Store, fields: Any, subject: str
) -> None:
    tool = pay_tool(LEDGER, ROUTED, **fields)
    task = task_for(tool)
    await store.claim(task.digest, **WHO)
    deps = worker_deps(store, tool, people=[BOSS, BO, ANA])
    deps = dataclasses.replace(deps, verifier=SIGNER.verifier(), clock=lambda: datetime(2026, 1, 6, 9, tzinfo=UTC))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    doubt = GateTask(ctx=task.ctx, calls=(call,), withheld=("pay",), doubt=1, doubt_of=task.digest)
    asks = await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, doubt)
    assert asks.gate_decisions[0].request.approvers == ("user:ana",)
    word = about(asks.gate_decisions[0].request, **SAID | {"subject": subject})
    await answer(store, word)
    task = OutcomeTask(run=task, happened=word)
    written = await environment(OUTCOME, activity_id="17").run(OutcomeActivity(deps).outcome, task)
    if subject == "bo":
        assert written == ToolReply()
    else:
        assert summary(written) == ("ok", "booking 7")


async def test_signed_in_undeclared_person_may_decide_it_happened(store: Store) -> None:
    login = "https://login.example.com#7"
    cy = a_person(id_from_login(login), name="Cy", identities={"oidc": (login,)})
    word = await said(store, subject=cy.id)
    assert await asked(store, happened=word) == ToolReply()
    await store.run(vouched_writer(vouch(SIGNER, cy, names=(), now=NOW, lifetime=timedelta(days=1))))
    assert summary(await asked(store, happened=word)) == ("ok", "booking 7")


async def test_rejected_happened_decision_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        found = [record.getMessage().partition(" ({")[0] for record in caplog.records if "happened" in record.msg]
        caplog.clear()
        return found

    word = about(await ask(worker_deps(store, TOOL), TOOL, doubt=1), **SAID)
    await asked(store, people=[APPROVER], happened=replace(word, subject="guest"))
    assert lines() == ["no entitled person says that pay happened"]
    await answer(store, word)
    await asked(store, people=[APPROVER], happened=word)
    why = "an outcome was reported for an unclaimed ticket"
    assert lines() == [f"the decision that pay happened cannot be recorded: {why}"]


AGENT = Actor(name="desk", model="", external=ExternalAgent(acts_for=("user:guest",)))
OUTSIDE = free(LEDGER, runs="external", handler=run_elsewhere)


async def reported(store: Store, report: str, tool: Tool = OUTSIDE, **fields: Any) -> ToolReply:
    return await asked(store, tool, **{"actors": [AGENT], "run": task_for(tool), "report": report} | fields)


async def endings(store: Store) -> list[tuple[str, str, dict[str, Any]]]:
    records = await AuditLog(store).stream(TURN.workflow_id)
    return [(each.kind, each.key, json.loads(each.data)) for each in records if "outcome/" in each.key]


async def test_outcome_reported_by_an_agent_is_returned(store: Store) -> None:
    key = task_for(OUTSIDE).digest
    assert await reported(store, "look") == ToolReply()
    await store.claim(key, **WHO)
    assert await reported(store, "look") == ToolReply()
    await store.record(key, DONE)
    for report in ("look", "give_up"):
        assert (await reported(store, report)).outcome == DONE
    assert await endings(store) == []


@table("report", "look", "give_up")
@table(
    ("whose", "fields"),
    ({"workflow": "turn/main/s/other"}, {}),
    ({"call": "c1.2"}, {}),
    ({"tool": "other"}, {}),
    ({}, {"tool": TOOL, "actors": [Actor(name="desk", model="scripted")]}),
    ({}, {"tool": dataclasses.replace(OUTSIDE, name="other"), "run": task_for(OUTSIDE)}),
    ({}, {"profile": "production"}),
)
async def test_report_about_another_call_is_ignored(
    store: Store, report: str, whose: dict[str, str], fields: dict[str, Any]
) -> None:
    key = task_for(fields.get("tool", OUTSIDE)).digest if "run" not in fields else fields["run"].digest
    await store.claim(key, **WHO | whose)
    assert await reported(store, report, **fields) == ToolReply()
    assert (await store.read_ticket(key)).state == "claimed"
    await store.record(key, DONE)
    assert await reported(store, report, **fields) == ToolReply()
    assert await endings(store) == []


async def test_call_of_an_agent_that_is_given_up_is_in_doubt(store: Store) -> None:
    key = task_for(OUTSIDE).digest
    await store.claim(key, **WHO)
    for _ in range(2):
        assert summary(await reported(store, "give_up")) == ("in_doubt", IN_DOUBT_TEXT)
    assert (await store.read_ticket(key)).outcome.code == "in_doubt"
    ((kind, name, facts),) = await endings(store)
    assert (kind, name) == ("in_doubt", f"outcome/c1.1/{key}/in_doubt")
    assert (facts["ticket"], facts["actor"], facts["scope"]) == (key, "desk", "generalist")
    await store.record(key, DONE)
    assert (await reported(store, "look")).outcome == DONE


async def test_call_is_not_given_up_without_its_audit_entry(store: Store) -> None:
    key = task_for(OUTSIDE).digest
    await store.claim(key, **WHO)
    await store.run(lambda connection: connection.execute(text("DROP TABLE audit_records")).close())
    with pytest.raises(StoreUnavailable):
        await reported(store, "give_up")
    assert (await store.read_ticket(key)).state == "claimed"


async def test_ticket_that_cannot_be_given_up_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    key = task_for(OUTSIDE).digest
    await store.void_unclaimed(key, **WHO)
    assert await reported(store, "give_up") == ToolReply()
    lines = [
        record.getMessage().partition(" ({")[0] for record in caplog.records if "outcome of" in record.getMessage()
    ]
    why = "an outcome was reported for an unclaimed ticket"
    assert lines == [f"the outcome of pay cannot be recorded: {why}"]
    assert await endings(store) == []


@table("own", True, False)
async def test_outcome_of_a_call_unknown_to_the_store_is_marked_as_turn_entry(store: Store, own: bool) -> None:
    reads = free(LEDGER, read_only=True)
    task = task_for(reads)
    if own:
        await store.claim(task.digest, **WHO)
    await asked(store, reads, run=task)
    ((_, key, facts),) = await endings(store)
    assert (key.startswith(TURNS_KEYS), facts.get("by")) == (not own, None if own else "turn")
    assert (facts["code"], facts["actor"]) == ("execution_failed", "desk")


async def test_running_tool_is_not_probed_and_foreign_tickets_are_not_revealed(store: Store) -> None:
    """A probe would report that it did not happen."""
    await store.claim(RUN.digest, **WHO)
    await store.record_heartbeat(RUN.digest)
    with pytest.raises(ApplicationError, match="the tool may still be running") as caught:
        await asked(store)
    assert caught.value.type == "StillRuns"
    other = ticket_key(RUN.digest, 2)
    await store.claim(other, **WHO | {"workflow": "turn/main/s/other"})
    await store.record_heartbeat(other)
    assert summary(await asked(store, ticket=2)) == ("in_doubt", IN_DOUBT_TEXT)


async def test_voided_ticket_holds_the_nonce_of_its_turn(store: Store) -> None:
    task = task_for(TOOL, ctx=pinned(user=replace(GUEST, nonce="n1")))
    assert (await asked(store, run=task)).again == "lapsed"
    assert (await store.read_ticket(task.digest)).nonce == "n1"


@table(("revision", "approver"), (1, "approver"), (None, ""))
async def test_probe_receives_settings_and_only_a_needed_approval(store: Store, revision: Any, approver: str) -> None:
    told: list[ToolContext] = []

    async def look(args: dict[str, Any], context: ToolContext) -> CannotTell:
        told.append(context)
        return CannotTell()

    schema = {"type": "object", "properties": {"region": {"type": "string"}}}
    tool = pay_tool(LEDGER, probe=look, settings_schema=schema, settings={"region": "eu"})
    await answer(store, about(await ask(worker_deps(store, tool), tool)))
    task = task_for(tool, revision=revision)
    await store.claim(task.digest, **WHO)
    assert summary(await asked(store, tool, run=task))[0] == "in_doubt"
    assert [(each.decided_by, each.settings) for each in told] == [(approver, {"region": "eu"})]


def turning(words: str, **fields: Any) -> ApprovalPolicy:
    """Rules read SOON as an hour from now."""
    soon = f"'{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}'"
    return ApprovalPolicy.model_validate({"route_to": words.replace("SOON", soon)} | fields)


ANA_NOW = "ctx.now.at < SOON ? ['user:ana'] : ['role:approvers']"
DENIED_NOW = {"deny_if": "ctx.now.at < SOON", "route_to": "ctx.now.at < SOON ? ['user:bo'] : ['user:al']"}


@table(("subject", "written"), ("ana", True), ("bo", False))
async def test_happened_decision_uses_the_approvers_at_question_time(store: Store, subject: str, written: bool) -> None:
    tool = pay_tool(LEDGER, turning(ANA_NOW))
    word = await said(store, tool, subject=subject)
    given = {"run": task_for(tool), "happened": word}
    reply = await asked(store, tool, people=[BOSS, BO, ANA], ahead=timedelta(hours=30), **given)
    assert (reply.outcome is not None) == written


@table(("subject", "written"), ("al", True), ("bo", False))
async def test_happened_decision_uses_present_approvers_if_denied_at_question_time(
    store: Store, subject: str, written: bool
) -> None:
    people = [BOSS, BO, ANA, a_person("al")]
    soon = f"'{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}'"
    policy = ApprovalPolicy.model_validate({name: rule.replace("SOON", soon) for name, rule in DENIED_NOW.items()})
    tool = pay_tool(LEDGER, policy)
    word = await said(store, tool, subject=subject)
    given = {"run": task_for(tool), "happened": word}
    reply = await asked(store, tool, people=people, ahead=timedelta(hours=30), **given)
    assert (reply.outcome is not None) == written


@table(("subject", "written"), ("ana", True), ("bo", False))
async def test_happened_decision_by_an_approver_not_asked_is_not_recorded(
    store: Store, subject: str, written: bool
) -> None:
    asks_ana = ApprovalPolicy(approvers=("user:ana",))
    tool = pay_tool(LEDGER, ApprovalPolicy(approvers=("user:ana", "role:approvers")))
    word = await said(store, pay_tool(LEDGER, asks_ana), subject=subject)
    given = {"run": task_for(tool), "happened": word}
    reply = await asked(store, tool, people=[BOSS, BO, ANA], **given)
    assert (reply.outcome is not None) == written


async def test_happened_decision_of_another_turn_is_not_recorded(store: Store) -> None:
    await store.claim(RUN.digest, **WHO)
    word = about(await ask(worker_deps(store, TOOL), TOOL, ctx=pinned(turn="t2"), doubt=1), **SAID)
    assert await asked(store, people=[APPROVER], happened=word) == ToolReply()
    assert (await store.read_ticket(RUN.digest)).state == "claimed"
