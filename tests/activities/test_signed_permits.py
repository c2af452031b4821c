from datetime import UTC, datetime, timedelta
from typing import Any

from activity_kit import (
    ARGS,
    MARK_KEY,
    TURN,
    about,
    asked,
    decision,
    environment,
    pinned,
    run,
    task_for,
    worker_deps,
)
from signed_askers import signed_asker
from some import some
from tables import table
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.run_rules import SignaturePolicy, is_believed, is_given_up, voter_set, words_on
from signoff.activities.worker_deps import Profile, WorkerDeps
from signoff.contracts.activity_messages import GateReply, GateTask, RunTask, ToolReply
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person, Principal
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.tool import Tool
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_person
from signoff.testing.questions import answer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD, NEW = new_key(NOW - timedelta(days=90)), new_key(NOW - timedelta(days=1))
SIGNER = Signer(PrivateKeys(keys=(NEW,)))
STRANGER = Signer(PrivateKeys(keys=(OLD,)))
PEOPLE = (Person(id="guest", name="Guest"), a_person("approver"), a_person("ana"))


def asks(user: Principal = GUEST, *, signer: Signer = SIGNER, turn: TurnKey = TURN) -> Principal:
    return signed_asker(signer, user, *turn, at=NOW)


def signed(request: ApprovalRequest, signer: Signer = SIGNER, **fields: Any) -> Decision:
    return signer.sign_decision(about(request, **{"received_at": NOW, "assurance": "session"} | fields))


def deps_with(
    store: Store, tool: Tool, *, profile: Profile = "production", verifier: Verifier | None = None
) -> WorkerDeps:
    return WorkerDeps(
        catalog=catalog_of([tool]),
        store=store,
        people=FixedDirectory(PEOPLE),
        drivers={},
        mark_key=MARK_KEY,
        profile=profile,
        verifier=verifier or SIGNER.verifier(),
        clock=lambda: NOW,
    )


class PermitKit:
    def __init__(self, store: Store, requires_approval: Any = True, **fields: Any) -> None:
        self.ledger = Ledger()
        self.store = store
        self.tool = pay_tool(self.ledger, requires_approval)
        self.deps = deps_with(store, self.tool, **fields)

    async def ask(self, args: Any = None, **more: Any) -> ApprovalRequest:
        return await asked(self.deps, self.tool, args, ctx=pinned(user=asks()), **more)

    def task(self, args: Any = None, **fields: Any) -> RunTask:
        return task_for(self.tool, args, **{"revision": 1, "ctx": pinned(user=asks())} | fields)

    async def run(self, task: RunTask | None = None, args: Any = None, **fields: Any) -> ToolReply:
        given = fields if args is None else {"args": Content(inline=args)} | fields
        return await run(self.deps, self.tool, replace(task or self.task(), **given))

    async def refused(self, task: RunTask | None = None, **fields: Any) -> str:
        reply = await self.run(task, **fields)
        assert self.ledger.rows == []
        assert reply.outcome is not None
        assert reply.outcome.code == "refused", reply
        return str(reply.outcome.value.inline)

    async def refused_with(self, *stored: Decision, **fields: Any) -> str:
        for each in stored:
            await answer(self.store, each)
        return await self.refused(**fields)


async def test_signed_answer_is_verified_with_public_keys_only(store: Store) -> None:
    kit = PermitKit(store)
    await answer(store, signed(await kit.ask()))
    reply = await kit.run()
    assert some(reply.outcome).code == "ok"
    assert len(kit.ledger.rows) == 1


@table("profile", "development", "production")
@table(
    "change",
    {"reason": "altered"},
    {"subject": "ana"},
    {"assurance": "mfa"},
    {"received_at": NOW - timedelta(days=1)},
    {"channel": "slack"},
    {"signature": ""},
    {"key_id": ""},
    {"key_id": OLD.id},
)
async def test_altered_reason_or_author_is_refused(store: Store, profile: Profile, change: Any) -> None:
    # An answer changed after signing is refused, also in development, where unsigned answers count. Write access to the
    # store is enough to forge an answer's row, but not its signature.
    kit = PermitKit(store, profile=profile)
    altered = replace(signed(await kit.ask()), **change)
    assert "too few people" in await kit.refused(kit.task())
    assert "the gateway did not sign" in await kit.refused_with(altered)


@table("approval_id", "main.s.t.c1.2", "main.s.other.c1.1", "other.s.t.c1.1")
@table(("hash_too", "why"), (False, "about something else"), (True, "the gateway did not sign"))
async def test_decision_copied_from_another_call_is_refused(
    store: Store, approval_id: str, hash_too: bool, why: str
) -> None:
    kit = PermitKit(store)
    request = await kit.ask()
    other = signed(request, approval_id=approval_id, question_hash="0" * 64)
    change = {"approval_id": request.id} | ({"question_hash": request.question_hash} if hash_too else {})
    assert why in await kit.refused_with(replace(other, **change))


async def test_decision_replayed_to_another_revision_or_question_is_refused(store: Store) -> None:
    kit = PermitKit(store)
    first = signed(await kit.ask())
    assert "about something else" in await kit.refused_with(signed(await kit.ask(), question_hash="0" * 64))
    await Questions(store).end(first.approval_id, 1, "superseded")
    other = {"amount": 2_000_000, "to": "Eve"}
    second = await kit.ask(other)
    moved = replace(first, revision=2)
    task = task_for(kit.tool, other, ctx=pinned(user=asks()), revision=2)
    assert "about something else" in await kit.refused_with(moved, task=task, args=other)
    assert second.revision == 2


async def test_terms_altered_in_the_row_invalidate_the_signature(store: Store) -> None:
    kit = PermitKit(store, ApprovalPolicy(quorum=2))
    await answer(store, signed(await kit.ask()))
    body = "UPDATE questions SET body = replace(body, '\"quorum\":2', '\"quorum\":1')"
    await store.run(lambda connection: connection.exec_driver_sql(body).close())
    assert "about something else" in await kit.refused()


@table("development", True, False)
def test_requester_must_be_signed_by_the_gateway(development: bool) -> None:
    policy = SignaturePolicy(SIGNER.verifier(), development)
    user = asks()
    unsigned = "" if development else "the requester is not signed"
    forged = "the gateway did not sign this request or requester"
    for given, problem in (
        (user, ""),
        (replace(user, key_id="", signature=""), unsigned),
        (replace(user, key_id=""), forged),
        (replace(user, signature=""), forged),
        (replace(user, tier="board"), forged),
        (asks(signer=STRANGER), forged),
    ):
        assert policy.requester_problem(pinned(user=given)) == problem


@table("development", True, False)
@table("accept_unsigned", True, False)
def test_decision_must_be_signed_by_the_gateway(development: bool, accept_unsigned: bool) -> None:
    policy = SignaturePolicy(SIGNER.verifier(), development)
    answer = SIGNER.sign_decision(decision(received_at=NOW, question_hash="0" * 64))
    unsigned = "" if development or accept_unsigned else "an answer is not signed"
    forged = "the gateway did not sign this answer"
    for change, problem in (
        ({}, ""),
        ({"key_id": "", "signature": ""}, unsigned),
        ({"key_id": ""}, forged),
        ({"signature": ""}, forged),
        ({"subject": "somebody"}, forged),
    ):
        given = replace(answer, **change)
        assert policy.decision_problem(given, accept_unsigned=accept_unsigned) == problem


def test_signed_decision_without_a_question_is_refused(store: Store) -> None:
    signature_policy = PermitKit(store).deps.signature_policy
    for vague in ({"question_hash": ""}, {"revision": None}):
        answer = SIGNER.sign_decision(decision(**{"received_at": NOW, "question_hash": "0" * 64} | vague))
        problem = signature_policy.decision_problem(answer, accept_unsigned=False)
        assert problem == "a signed decision names no question"


@table("key_id", OLD.id, NEW.id)
async def test_decision_signed_by_the_wrong_key_is_refused(store: Store, key_id: str) -> None:
    kit = PermitKit(store)
    foreign = replace(signed(await kit.ask(), STRANGER), key_id=key_id)
    assert "the gateway did not sign" in await kit.refused_with(foreign)


async def test_worker_without_keys_believes_no_signed_decision(store: Store) -> None:
    bare = PermitKit(store, verifier=Verifier(), profile="development")
    request = await asked(bare.deps, bare.tool)
    assert "the gateway did not sign" in await bare.refused_with(signed(request), task=bare.task(ctx=pinned()))


async def test_retired_key_counts_for_answers_received_before(store: Store) -> None:
    keys = PrivateKeys(keys=(replace(OLD, retired_at=NOW), NEW))
    kit = PermitKit(store, verifier=Signer(keys).verifier())
    late = signed(await kit.ask(), STRANGER)
    assert "the gateway did not sign" in await kit.refused_with(late)
    await Questions(store).end(late.approval_id, 1, "superseded")
    await answer(store, signed(await kit.ask(), STRANGER, received_at=NOW - timedelta(seconds=1)))
    reply = await kit.run(kit.task(revision=2))
    assert some(reply.outcome).code == "ok"


async def test_quorum_may_span_a_key_rotation(store: Store) -> None:
    keys = PrivateKeys(keys=(OLD, NEW))
    kit = PermitKit(store, ApprovalPolicy(quorum=2), verifier=Signer(keys).verifier())
    request = await kit.ask()
    twice = (signed(request, STRANGER), signed(request, delivery_id="again"))
    assert "too few people" in await kit.refused_with(*twice)
    await answer(store, signed(request, subject="ana"))
    reply = await kit.run()
    assert some(reply.outcome).code == "ok"


@table(
    ("profile", "policy", "runs"),
    ("development", ApprovalPolicy(), True),
    ("production", ApprovalPolicy(), False),
    ("production", ApprovalPolicy(accept_unsigned=True), True),
)
async def test_unsigned_decisions_need_the_profile_or_the_policy(
    store: Store, profile: Profile, policy: ApprovalPolicy, runs: bool
) -> None:
    kit = PermitKit(store, policy, profile=profile)
    request = await kit.ask()
    assert "too few people" in await kit.refused(kit.task())
    await answer(store, about(request))
    if not runs:
        assert "is not signed" in await kit.refused(kit.task())
        return
    reply = await kit.run(kit.task())
    assert some(reply.outcome).code == "ok"


FORGED = "the gateway did not sign this request or requester"


@table("profile", "development", "production")
@table(
    "user",
    replace(asks(), tier="trusted"),
    replace(asks(), user="ana"),
    replace(asks(), signature=""),
    replace(asks(), key_id=""),
    replace(asks(), issued_at=None),
    asks(turn=TurnKey("main", "s", "other")),
    asks(turn=TurnKey("other", "s", "t")),
    asks(signer=STRANGER),
)
async def test_permit_with_an_edited_context_is_refused(store: Store, profile: Profile, user: Principal) -> None:
    kit = PermitKit(store, profile=profile)
    await answer(store, signed(await kit.ask()))
    assert FORGED in await kit.refused(kit.task(ctx=pinned(user=user)))
    free = PermitKit(store, False, profile=profile)
    assert FORGED in await free.refused(task_for(free.tool, ctx=pinned(user=user)))


async def gated(deps: WorkerDeps, user: Principal) -> GateReply:
    task = GateTask(ctx=pinned(user=user), calls=(CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS)),))
    return await environment("signoff.gate").run(GateActivity(deps).gate, task)


async def test_gates_refuse_a_forged_requester(store: Store) -> None:
    for policy in (False, True):
        deps = PermitKit(store, policy).deps
        for user in (GUEST, asks(signer=STRANGER)):
            [gate_decision] = (await gated(deps, user)).gate_decisions
            assert gate_decision.request is None
            assert (gate_decision.kind, some(gate_decision.outcome).code) == ("settled", "refused")
        [good] = (await gated(deps, asks())).gate_decisions
        assert good.kind == ("ask" if policy else "run")
        assert (good.request is None) == (not policy)


async def test_question_carries_the_signature_of_the_requester(store: Store) -> None:
    [gate_decision] = (await gated(PermitKit(store).deps, asks())).gate_decisions
    assert gate_decision.request is not None
    assert gate_decision.request.requester == asks()
    rows = some(await Questions(store).read(gate_decision.request.id))
    assert SIGNER.verifier().check_asker(rows.latest)


@table(
    ("policy", "fields", "refused", "again"),
    (ApprovalPolicy(), {"subject": "guest"}, "the requester has approved this", "a person other"),
    (
        ApprovalPolicy(min_assurance="mfa"),
        {},
        "an approver of this was not identified strongly enough",
        "a stronger sign-in",
    ),
)
async def test_decisions_below_the_policy_are_refused_or_asked_again(
    store: Store, policy: ApprovalPolicy, fields: Any, refused: str, again: str
) -> None:
    kit = PermitKit(store, policy)
    request = await kit.ask()
    assert refused in await kit.refused_with(signed(request, **fields))
    await Questions(store).end(request.id, 1, "superseded")
    before = PermitKit(store, replace(policy, remind_after=60.0))
    await answer(store, signed(await before.ask(), **fields))
    reply = await kit.run(kit.task(revision=2))
    assert reply.again == "policy"
    assert again in reply.note
    assert kit.ledger.rows == []


EDITED = {"amount": 15, "to": "Ana"}


async def test_edit_approves_only_the_edited_arguments(store: Store) -> None:
    kit = PermitKit(store, ApprovalPolicy(edit="approve"))
    change = signed(await kit.ask(), edited_args=EDITED)
    await answer(store, change)
    # It does not approve the original call.
    assert "too few people" in await kit.refused()
    request = await kit.ask(EDITED, edit=change)
    assert (request.revision, request.edited_by) == (2, "approver")
    task = task_for(kit.tool, EDITED, ctx=pinned(user=asks()), revision=2)
    assert (await kit.run()).again == "stale"
    more = {"amount": 16, "to": "Ana"}
    dearer = task_for(kit.tool, more, ctx=pinned(user=asks()), revision=2)
    assert (await kit.run(dearer, args=more)).again == "stale"
    third = replace(task, revision=3)
    assert (await kit.run(third, args=EDITED)).again == "stale"
    assert kit.ledger.rows == []
    reply = await kit.run(task, args=EDITED)
    assert some(reply.outcome).code == "ok"
    assert [row[1] for row in kit.ledger.rows] == [EDITED]


async def test_second_ticket_needs_a_signed_decision_about_the_first(store: Store) -> None:
    """The first attempt's outcome is unknown: only a signed decision that it did not happen permits another run."""
    kit = PermitKit(store)
    call = signed(await kit.ask())
    await answer(store, call)
    task = kit.task()
    await store.claim(task.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    await kit.refused(task, ticket=2)
    asked_of_it = await kit.ask(doubt=1)
    good = signed(asked_of_it)
    await kit.refused(task, ticket=2)
    await answer(store, good)
    await kit.refused(task, ticket=3)
    reply = await kit.run(task, ticket=2)
    assert some(reply.outcome).code == "ok"


@table("wrong", "the call", "another try", "unsigned", "a stranger", "denied")
async def test_unrelated_decision_does_not_permit_the_second_ticket(store: Store, wrong: str) -> None:
    # A stored answer that was signed for the call itself, another attempt, or with another key does not count. With
    # only the signature checked, an approval of the call, copied to the question about its outcome, ran the call twice.
    kit = PermitKit(store)
    call = signed(await kit.ask())
    await answer(store, call)
    await store.claim(kit.task().digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    request = await kit.ask(doubt=1)
    answers = {
        "the call": signed(request, question_hash=call.question_hash),
        "another try": signed(request, question_hash="0" * 64),
        "unsigned": about(request),
        "a stranger": signed(request, STRANGER),
        "denied": signed(request, verdict="denied"),
    }
    why = await kit.refused_with(answers[wrong], ticket=2)
    assert ("too few people have said that it did not" in why, kit.ledger.rows) == (True, [])


async def test_decision_about_an_attempt_does_not_rerun_a_finished_call(store: Store) -> None:
    kit = PermitKit(store)
    await answer(store, signed(await kit.ask()))
    reply = await kit.run()
    assert reply.outcome is not None
    await answer(store, signed(await kit.ask(doubt=1)))
    again = await kit.run(ticket=2)
    assert again.outcome == reply.outcome
    assert len(kit.ledger.rows) == 1


async def test_unsigned_decision_about_an_attempt_counts_where_unsigned_answers_do(store: Store) -> None:
    for accepts, development, counts in ((False, False, False), (False, True, True), (True, False, True)):
        tool = pay_tool(Ledger(), ApprovalPolicy(accept_unsigned=accepts))
        deps = worker_deps(store, tool)
        request = await asked(deps, tool, doubt=1)
        task = task_for(tool)
        await answer(store, about(request, revision=request.revision, delivery_id=f"of {accepts} {development}"))
        seats = voter_set(deps.catalog, deps.people, task.ctx, "pay", deps.catalog.terms("pay"), NOW)
        signature_policy = SignaturePolicy(Verifier(), development=development)
        words = words_on(task.digest, await Questions(store).read(request.id), 1)
        assert is_given_up(words, 1, deps.catalog.policy("pay"), signature_policy, seats) is counts


@table("development", True, False)
@table(
    ("extra", "sure"),
    ({"user.team": "red", "route": "x"}, True),
    ({"user.team": "blue"}, False),
    ({"user.team": "red", "user.rank": 9}, False),
    ({}, False),
)
def test_user_fields_of_the_context_must_match_the_directory(
    extra: dict[str, Any], sure: bool, development: bool
) -> None:
    person = Person(id="guest", attributes={"team": "red"})
    assert is_believed(pinned(extra=extra), person, development=development) is sure
