"""`signoff.outcome`: the ticket tells what became of a call that nobody heard of again."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import ARGS, WHO, about, environment, free, outcome_of_lost, permit_for, summary, worker_deps
from activity_kit import asked as ask
from temporalio.testing import ActivityEnvironment
from turn_fixtures import Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.approvals.doubt_report import HAPPENED_NOTE
from signoff.contracts.activity_messages import GateTask, OutcomeTask, ToolReply
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.contracts.names import OUTCOME
from signoff.contracts.person import Person
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict
from signoff.registry.capabilities import Capabilities
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool import Tool
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
PERMIT = permit_for(TOOL)
DONE = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid"))


async def asked(store: Store, tool: Tool = TOOL, env: ActivityEnvironment | None = None, **fields: Any) -> ToolReply:
    """What became of the one call?"""
    deps = worker_deps(store, tool, people=fields.pop("people", ()), profile=fields.pop("profile", "development"))
    deps = dataclasses.replace(deps, verifier=SIGNER.verifier())
    task = OutcomeTask(**{"permit": PERMIT, "tool": "pay"} | fields)
    return await outcome_of_lost(deps, task, env)


async def test_a_recorded_outcome_is_the_answer(store: Store) -> None:
    """What happened before the worker was lost is not lost."""
    await store.claim(PERMIT.digest, **WHO)
    await store.record(PERMIT.digest, DONE)
    reply = await asked(store)
    assert (reply.outcome, reply.again) == (DONE, "")


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_claimed_ticket_is_in_doubt(store: Store, idempotent: bool) -> None:
    """Begun and never told."""
    await store.claim(PERMIT.digest, **WHO)
    reply = await asked(store, idempotent=idempotent)
    assert summary(reply) == ("in_doubt", IN_DOUBT_TEXT)
    assert (reply.outcome.call, reply.outcome.tool, reply.outcome.gate) == ("c1.1", "pay", "execute")


async def test_an_unclaimed_ticket_is_given_up(store: Store) -> None:
    """Nothing ran, and a late worker cannot run it any more; asked twice, the same answer."""
    for _ in range(2):
        reply = await asked(store)
        assert (reply.outcome, reply.again, reply.note) == (None, "lapsed", "the approval was not used in time")
    ticket = await store.read_ticket(PERMIT.digest)
    assert (ticket.state, ticket.workflow, ticket.call, ticket.tool) == ("void", *WHO.values())
    assert (await store.claim(PERMIT.digest, **WHO)).kind == "void"


async def test_it_looks_at_the_ticket_that_was_used(store: Store) -> None:
    """The second ticket has a key of its own."""
    await store.claim(PERMIT.digest, **WHO)
    assert (await asked(store, ticket=2)).again == "lapsed"
    assert (await store.read_ticket(ticket_key(PERMIT.digest, 2))).state == "void"


async def test_a_read_only_call_simply_failed(store: Store) -> None:
    """It has no ticket and no effect that could be in doubt."""
    reads = free(LEDGER, read_only=True)
    permit = permit_for(reads)
    reply = await asked(store, reads, permit=permit, args=Content(inline=ARGS))
    assert summary(reply) == ("execution_failed", "The tool did not answer in time.")
    assert await store.read_ticket(permit.digest) is None


@pytest.mark.parametrize("args", [Content(inline=ARGS), None])
async def test_what_only_reads_by_now_may_have_acted_when_it_was_begun(store: Store, args: Content | None) -> None:
    """A deploy made it read-only meanwhile: what its ticket says stands, and where it says nothing nobody may act."""
    reads: dict[str, Any] = {"tool": free(LEDGER, read_only=True), "args": args}
    assert (await asked(store, **reads)).again == "lapsed"
    assert (await store.read_ticket(PERMIT.digest)).state == "void"
    await store.claim(ticket_key(PERMIT.digest, 2), **WHO)
    assert summary(await asked(store, ticket=2, **reads)) == ("in_doubt", IN_DOUBT_TEXT)
    await store.record(ticket_key(PERMIT.digest, 2), DONE)
    assert (await asked(store, ticket=2, **reads)).outcome == DONE


async def test_a_tool_that_is_gone_has_its_ticket_all_the_same(store: Store) -> None:
    """The catalog need not have the tool any more to say what became of the call."""
    await store.claim(PERMIT.digest, **WHO)
    assert summary(await asked(store, free(LEDGER, name="other")))[0] == "in_doubt"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({"workflow_type": "Foreign"}, "this tool runs only inside a turn"),
        ({"workflow_type": None}, "this tool runs only inside a turn"),
        ({"workflow_id": None}, "the permit names another turn"),
        ({"workflow_id": "turn/main/s/other"}, "the permit names another turn"),
    ],
)
async def test_nobody_else_may_give_a_ticket_up(store: Store, info: Any, why: str) -> None:
    """A foreign caller could otherwise void the approved call of another turn."""
    reply = await asked(store, env=environment(OUTCOME, **info))
    assert summary(reply) == ("refused", f"Not executed: {why}.")
    assert await store.read_ticket(PERMIT.digest) is None


SAID: dict[str, Any] = {"verdict": "happened", "result": "booking 7"}
HELD: dict[str, Any] = {"args": Content(inline=ARGS)}


async def begun(store: Store, tool: Tool = TOOL, **fields: Any) -> Decision:
    """The approver's word that the one call happened, which was begun and about which people were asked."""
    await store.claim(permit_for(tool).digest, **WHO)
    request = await ask(worker_deps(store, tool, people=[BOSS, BO, ANA]), tool, doubt=1)
    return about(request, **SAID | fields)


async def test_the_word_that_it_happened_is_written(store: Store) -> None:
    """To the ticket in question, once: a later word, or a doubt, changes nothing."""
    word = await begun(store)
    reply = await asked(store, people=[APPROVER], **HELD | {"happened": word})
    assert summary(reply) == ("ok", "booking 7")
    assert (reply.outcome.decided_by, reply.outcome.note) == ("approver", HAPPENED_NOTE)
    assert (await store.read_ticket(PERMIT.digest)).outcome == reply.outcome
    other = word.model_copy(update={"result": "booking 8"})
    assert summary(await asked(store, people=[APPROVER], **HELD | {"happened": other})) == ("ok", "booking 7")


async def test_a_stored_word_is_written_and_the_turns_own_copy_of_a_signed_one_is_not(store: Store) -> None:
    """What is signed counts as it lies in the store: a turn cannot bring a signed word that nobody's answer is."""
    raw = await begun(store)
    word = SIGNER.sign_decision(raw.model_copy(update={"received_at": NOW, "assurance": "session"}))
    given = HELD | {"happened": word, "people": [APPROVER]}
    assert await asked(store, **given) == ToolReply()
    await answer(store, word)
    assert summary(await asked(store, **given)) == ("ok", "booking 7")


@pytest.mark.parametrize(
    "word",
    [
        {"verdict": "approved"},
        {"verdict": "denied"},
        {"subject": "guest"},
        {"subject": "stranger"},
        {"subject": ""},
        {"approval_id": "main.s.t.c1.2"},
        {"question_hash": "0" * 64},
        {"question_hash": ""},
        {"signature": "c2lnbmVk", "key_id": "k"},
    ],
)
async def test_a_word_that_nobody_gave_is_not_written(store: Store, word: Any) -> None:
    """By somebody without a seat, about another try or call, or under a wrong signature: the ticket stays open."""
    decision = (await begun(store)).model_copy(update=word)
    assert await asked(store, people=[APPROVER], **HELD | {"happened": decision}) == ToolReply()
    assert (await store.read_ticket(PERMIT.digest)).state == "claimed"


async def test_a_word_about_another_try_is_not_written(store: Store) -> None:
    """People were asked about the second try; of the first nobody has said anything."""
    word = await begun(store)
    await Questions(store).end(word.approval_id, 1, "superseded")
    second = about(await ask(worker_deps(store, TOOL), TOOL, doubt=2), **SAID)
    assert await asked(store, people=[APPROVER], **HELD | {"happened": second}) == ToolReply()
    assert (await store.read_ticket(PERMIT.digest)).state == "claimed"


@pytest.mark.parametrize("fields", [{"tool": free(LEDGER, name="other")}, {"args": None}, {"profile": "production"}])
async def test_a_word_that_cannot_be_checked_is_not_written(store: Store, fields: Any) -> None:
    """Without the tool, its arguments, or somebody who vouches for the turn."""
    word = await begun(store)
    assert await asked(store, people=[APPROVER], **HELD | {"happened": word} | fields) == ToolReply()
    assert (await store.read_ticket(PERMIT.digest)).state == "claimed"


async def test_what_nobody_began_cannot_have_happened(store: Store) -> None:
    """No ticket, or a void one, takes no word."""
    word = about(await ask(worker_deps(store, TOOL), TOOL, doubt=1), **SAID)
    given = HELD | {"happened": word, "people": [APPROVER]}
    assert await asked(store, **given) == ToolReply()
    await store.void_unclaimed(PERMIT.digest, **WHO)
    assert await asked(store, **given) == ToolReply()
    assert (await store.read_ticket(PERMIT.digest)).state == "void"


def by_amount(call: HandlerCall, context: dict[str, Any]) -> HandlerVerdict:
    """The handler of a policy: who pays much asks an administrator."""
    return HandlerVerdict("ask", "admin" if call.args["amount"] > 10 else "user", "much")


BOSS, BO, ANA = Person(id="boss", roles=("admin",)), a_person("bo"), Person(id="ana")
ROUTED = ApprovalPolicy(route_to="args.amount > 10.0 ? ['user:ana'] : ['role:approvers']")
ADMIN = ApprovalPolicy(handler="test_outcome_activity:by_amount", approvers=("role:approvers",))
LATER = ApprovalPolicy(approvers=("role:approvers",), escalate_to=("user:ana",), escalate_after=60)


@pytest.mark.parametrize(
    ("policy", "subject", "written"),
    [
        (ROUTED, "ana", True),
        (ROUTED, "bo", False),
        (ADMIN, "boss", True),
        (ADMIN, "bo", False),
        (LATER, "bo", True),
        (LATER, "ana", False),
        (LATER, "boss", False),
    ],
)
async def test_the_word_is_of_those_whom_this_very_call_asks(
    store: Store, policy: ApprovalPolicy, subject: str, written: bool
) -> None:
    """As its arguments route it, and as its policy's handler says; nobody to whom it has not escalated yet."""
    tool = pay_tool(LEDGER, policy)
    permit = permit_for(tool)
    word = await begun(store, tool, subject=subject)
    reply = await asked(store, tool, people=[BOSS, BO, ANA], **HELD | {"permit": permit, "happened": word})
    assert (reply.outcome is not None) == written
    if reply.outcome is not None:
        assert (reply.outcome.decided_by, reply.outcome.value.inline) == (subject, "booking 7")


async def never(context: HookContext) -> bool:
    """A tool that is not there now."""
    return False


async def forbids(args: Any, context: HookContext) -> Permission:
    """A tool whose calls are not permitted now."""
    return Permission.deny("not now")


@pytest.mark.parametrize(
    "fields",
    [
        {"hours": ("Mo 12:00-12:01 UTC",)},
        {"available": never},
        {"check_permissions": forbids},
        {"capabilities": Capabilities(secrets=("KEY",))},
    ],
)
async def test_whom_a_call_asked_does_not_hang_on_whether_it_could_be_made_now(store: Store, fields: Any) -> None:
    """A doubt is about the past: those to whom the call was routed are asked, and nobody else, whatever is now."""
    tool = pay_tool(LEDGER, ROUTED, **fields)
    permit = permit_for(tool)
    await store.claim(permit.digest, **WHO)
    deps = worker_deps(store, tool, people=[BOSS, BO, ANA])
    deps = dataclasses.replace(deps, verifier=SIGNER.verifier(), clock=lambda: datetime(2026, 1, 6, 9, tzinfo=UTC))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    doubt = GateTask(ctx=permit.ctx, calls=(call,), withheld=("pay",), doubt=1, doubt_of=permit.digest)
    asks = await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, doubt)
    assert asks.gate_decisions[0].request.approvers == ("user:ana",)
    word = about(asks.gate_decisions[0].request, **SAID)
    written = []
    for subject in ("bo", "ana"):
        answer = word.model_copy(update={"subject": subject})
        task = OutcomeTask(permit=permit, tool="pay", **HELD | {"happened": answer})
        written.append(await environment(OUTCOME, activity_id="17").run(OutcomeActivity(deps).outcome, task))
    assert written[0] == ToolReply()
    assert summary(written[1]) == ("ok", "booking 7")


async def test_the_word_may_be_of_somebody_for_whom_a_login_vouches(store: Store) -> None:
    """Whom nobody declared is looked up before they are taken for a stranger."""
    login = "https://login.example.com#7"
    cy = a_person(id_from_login(login), name="Cy", identities={"oidc": (login,)})
    word = await begun(store, subject=cy.id)
    assert await asked(store, **HELD | {"happened": word}) == ToolReply()
    await store.run(vouched_writer(vouch(SIGNER, cy, names=(), now=NOW, lifetime=timedelta(days=1))))
    assert summary(await asked(store, **HELD | {"happened": word})) == ("ok", "booking 7")


async def test_the_log_says_which_word_was_not_written(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """And why, for who runs the worker: a turn goes on asking then."""

    def lines() -> list[str]:
        found = [record.getMessage().partition(" ({")[0] for record in caplog.records if "happened" in record.msg]
        caplog.clear()
        return found

    word = about(await ask(worker_deps(store, TOOL), TOOL, doubt=1), **SAID)
    await asked(store, people=[APPROVER], **HELD | {"happened": word.model_copy(update={"subject": "guest"})})
    assert lines() == ["nobody who may say so says that pay happened"]
    await asked(store, people=[APPROVER], **HELD | {"happened": word})
    why = "an outcome was reported for a ticket that nobody claimed"
    assert lines() == [f"that pay happened cannot be written: {why}"]
