import asyncio
import dataclasses
import time
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from activity_kit import about, decision, environment, worker_deps
from activity_kit import asked as asked_by_gates
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.answers_activity import AnswersActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import AnswersReply, AnswersTask, Authority
from signoff.contracts.approval import ApproverGroup, Settlement
from signoff.contracts.decision import UNSIGNED, Decision, GrantRequest
from signoff.contracts.errors import Unavailable
from signoff.contracts.person import Person, Principal
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions, put_off_deadline
from signoff.store.questions.raw_answers import RawAnswers
from signoff.store.store import Store
from signoff.testing.builders import a_question
from signoff.testing.questions import answer

ANA = Person(id="ana", name="Ana", roles=("approvers", "finance"))
BO = Person(id="bo", name="Bo")
END = datetime.max.replace(tzinfo=UTC)
UNPROVEN = Authority(allowed=False, code="assurance", unsigned=True)


def given(**change: Any) -> Decision:
    return decision(**{"subject": "ana", "assurance": "session"} | change)


async def state_of(deps: WorkerDeps, approval: str, revision: int = 1, **fields: Any) -> AnswersReply:
    return await AnswersActivity(deps).read_answers(AnswersTask(approval=approval, revision=revision, **fields))


async def test_turn_receives_the_state_by_valid_answers(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(quorum=2))
    deps = worker_deps(store, tool)
    request = await asked_by_gates(deps, tool)
    assert await state_of(deps, request.id) == AnswersReply()
    for number, (name, state) in enumerate((("ana", "pending"), ("bo", "approved")), 1):
        await answer(store, about(request, subject=name, delivery_id=f"of {name}", reason=f"said {name}"))
        reply = await state_of(deps, request.id)
        assert (reply.seen, reply.settlement.state) == (number, state)
    assert (reply.settlement.decided_by, reply.edits, reply.word) == ("bo", (), None)
    assert ("said ana" in reply.remarks, "said bo" in reply.remarks) == (True, True)
    assert await Answers(store).void(request.id, "of bo")
    assert (await state_of(deps, request.id)).settlement == Settlement()
    assert await state_of(deps, request.id, 2) == AnswersReply()
    assert await state_of(deps, "main.s.t.c9.9") == AnswersReply()


async def test_edit_is_reported_until_the_gates_have_refused_it(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(edit="approve"))
    deps = worker_deps(store, tool)
    request = await asked_by_gates(deps, tool)
    await answer(store, about(request, subject="ana", edited_args={"amount": 1}))
    reply = await state_of(deps, request.id)
    assert (reply.edits, reply.settlement.state) == ((1,), "pending")
    assert (await state_of(deps, request.id, refused=(1,))).edits == ()


async def test_last_look_expires_only_a_question_without_answer_and_edit(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(edit="approve"))
    deps = worker_deps(store, tool)
    request = await asked_by_gates(deps, tool)
    await answer(store, about(request, subject="ana", edited_args={"amount": 1}))
    assert (await state_of(deps, request.id, deadline=END)).settlement.state == "pending"
    over = await state_of(deps, request.id, deadline=END, refused=(1,))
    assert over.settlement.state == "timed_out"
    rows = some(await Questions(store).read(request.id))
    assert rows.latest.ended_as == "expired"
    # A later answer changes nothing.
    assert (await state_of(deps, request.id, deadline=END)).settlement == over.settlement


async def test_last_look_leaves_a_question_whose_deadline_the_turn_does_not_know(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(timeout=60.0))
    deps = worker_deps(store, tool)
    request = await asked_by_gates(deps, tool)
    known, asked_at = some(request.expires_at), some(request.opened_at) + timedelta(seconds=50)
    await Questions(store).run_locked(
        request.id, lambda connection, rows: put_off_deadline(connection, some(rows).latest, asked_at)
    )
    reply = await state_of(deps, request.id, deadline=known)
    assert (reply.settlement.state, reply.asked_at) == ("pending", asked_at)
    moved = known + timedelta(seconds=60)
    assert (await state_of(deps, request.id, deadline=moved)).settlement.state == "timed_out"
    assert some(await Questions(store).read(request.id)).latest.ended_as == "expired"


async def test_last_look_leaves_an_approved_question(store: Store) -> None:
    tool = pay_tool(Ledger())
    deps = worker_deps(store, tool)
    request = await asked_by_gates(deps, tool)
    await answer(store, about(request, subject="ana"))
    assert (await state_of(deps, request.id, deadline=END)).settlement.state == "approved"
    assert some(await Questions(store).read(request.id)).latest.ended_at is None


class Found(NamedTuple):
    """The fate of a raw answer."""

    reply: AnswersReply

    @property
    def allowed(self) -> bool:
        return some(self.reply.receipt).status in ("accepted", "counted")

    @property
    def code(self) -> str:
        return some(self.reply.receipt).code

    @property
    def author(self) -> Authority:
        return self.reply.author or Authority(allowed=False)


async def taken(deps: WorkerDeps, raw: Decision, *, number: str = "1") -> Found:
    """`number` is the activity's number in its run."""
    task = AnswersTask(approval=raw.approval_id, revision=raw.revision or 1, raw=raw)
    return Found(await environment(activity_id=number).run(AnswersActivity(deps).read_answers, task))


OPEN_TOOL = ApprovalPolicy(accept_unsigned=True, min_assurance="none")


@table(
    ("profile", "change", "code"),
    ("development", {}, ""),
    ("development", {"subject": "nobody"}, "not_allowed"),
    ("development", {"subject": ""}, ""),
    ("production", {}, "assurance"),
)
async def test_raw_answer_is_judged_by_profile_and_directory(
    store: Store, profile: Any, change: dict[str, Any], code: str
) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA], profile=profile)
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    found = await taken(deps, given(**change))
    assert (found.allowed, found.code) == (not code, code)
    assert (found.author.subject == UNSIGNED) == (change == {"subject": ""})
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    assert [each.vote.unsigned for each in rows.answers] == [True] * (not code)


async def test_raw_answer_is_stored_with_its_missing_fields_filled(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA])
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    short = {"revision": None, "question_hash": "", "delivery_id": ""}
    found = await taken(deps, given(**short))
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    [stored] = rows.answers
    kept = stored.vote.decision
    assert (kept.revision, kept.question_hash) == (1, rows.request(rows.latest).question_hash)
    assert kept.received_at is not None
    assert len(kept.delivery_id) == 32
    assert (found.reply.seen, found.reply.settlement.state) == (1, "approved")
    # A retried task may renumber its activities. The repeated answer is still the same answer.
    for number in ("1", "2"):
        again = (await taken(deps, given(**short), number=number)).reply
        assert (again.receipt, again.settlement) == (found.reply.receipt, found.reply.settlement)
    again = await taken(deps, given(**short | {"reason": "once more"}), number="2")
    assert (some(again.reply.receipt).status, again.code) == ("refused", "already_decided")
    after = some(await Questions(store).read("main.s.t.c1.1"))
    assert len(after.answers) == 1


async def test_disabled_raw_answers_are_rejected_even_in_development(store: Store) -> None:
    plain = worker_deps(store, pay_tool(Ledger()), people=[ANA])
    deps = dataclasses.replace(plain, raw_answers=False)
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    found = await taken(deps, given())
    assert (found.code, found.author) == ("assurance", UNPROVEN)


async def test_unsigned_withdrawal_does_not_reveal_the_named_person(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA], profile="production")
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    found = await taken(deps, given(verdict="withdrawn"))
    assert (found.allowed, found.author, found.reply.seen) == (True, UNPROVEN, 0)


async def test_raw_answer_resent_after_a_rejection_has_a_new_time(store: Store) -> None:
    plain = worker_deps(store, pay_tool(Ledger()), people=[BO])
    await Questions(store).ask(a_question(approvers=("role:approvers",), timeout=2.0), b"{}")
    assert (await taken(plain, given())).code == "not_allowed"
    over = time.monotonic() + 2.1
    while time.monotonic() < over:
        await asyncio.sleep(0.05)
    known = dataclasses.replace(plain, people=FixedDirectory([ANA]))
    found = await taken(known, given())
    assert (found.allowed, found.code) == (False, "expired")


async def test_raw_answers_above_the_storage_limit_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.store.questions.raw_answers.ANSWERS_KEPT", 1)
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA, BO])
    await Questions(store).ask(a_question(approvers=("user:ana", "user:bo"), quorum=2), b"{}")
    assert (await taken(deps, given())).allowed
    more = await taken(deps, given(subject="bo"), number="2")
    receipt = some(more.reply.receipt)
    assert (receipt.status, receipt.why) == ("refused", "enough")
    assert (await taken(deps, given(subject="bo", verdict="denied"), number="3")).allowed


async def test_raw_answer_without_the_database_right_waits_for_a_gateway(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA], profile="production")
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    store.role = "worker"
    found = await taken(deps, given())
    assert some(found.reply.receipt).status == "pending"
    kept = await RawAnswers(store).list_untaken(10)
    assert [each.decision for each in kept] == [given()]
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    assert rows.answers == ()


class Moody(FixedDirectory):
    def __init__(self, error: Exception) -> None:
        super().__init__([ANA])
        self.error = error

    def find(self, person_id: str, tenant: str = "main") -> Person | None:
        raise self.error


@table("error", Unavailable("the directory does not answer"), RuntimeError("secret words"))
async def test_failing_directory_allows_no_decision_and_keeps_the_answer(
    store: Store, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    plain = worker_deps(store, pay_tool(Ledger()))
    deps = WorkerDeps(plain.catalog, store, Moody(error), {}, plain.mark_key)
    await Questions(store).ask(a_question(approvers=("role:approvers",)), b"{}")
    found = await taken(deps, given())
    assert (found.code, found.reply.author) == ("unavailable", None)
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == [type(error).__name__]
    # The answer is kept: it counts after the directory recovers.
    kept = await RawAnswers(store).list_untaken(10)
    assert [each.decision for each in kept] == [given()]


async def test_worker_without_keys_believes_no_signature(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA])
    assert deps.verifier.key_ids == ()
    for change in ({"signature": "anything"}, {"key_id": "k"}, {"signature": "anything", "key_id": "k"}):
        found = await taken(deps, given(**change))
        assert (found.code, found.author) == ("assurance", Authority(allowed=False, code="assurance"))


@table("profile", "production", "development")
async def test_rejected_raw_answer_reveals_a_name_only_in_development(store: Store, profile: Any) -> None:
    bo = Person(id="bo", name="Bo Berg", identities={"email": ("bo@example.com",)})
    tool = pay_tool(Ledger(), OPEN_TOOL)
    deps = worker_deps(store, tool, people=[ANA, bo], profile=profile)
    request = await asked_by_gates(deps, tool)
    names = {"subject": "bo", "approval_id": request.id, "question_hash": request.question_hash}
    found = await taken(deps, given(**names))
    assert (found.allowed, found.code) == (False, "not_allowed")
    assert ("Berg" in found.reply.model_dump_json()) is (profile == "development")
    assert profile == "development" or found.author.subject == ""


@table("role", "approvers", "finance")
async def test_approvers_come_from_the_stored_question(store: Store, role: str) -> None:
    bo = Person(id="bo", name="Bo", roles=(role,))
    tool = pay_tool(Ledger(), OPEN_TOOL)
    deps = worker_deps(store, tool, people=[ANA, bo], profile="production")
    request = await asked_by_gates(deps, tool)
    answer = given(subject="bo", approval_id=request.id, question_hash=request.question_hash)
    assert (await taken(deps, answer)).allowed is (role == "approvers")


@table("known", True, False)
async def test_present_policy_decides_whether_unsigned_answers_count(store: Store, known: bool) -> None:
    deps = worker_deps(store, pay_tool(Ledger()), people=[ANA], profile="production")
    if known:
        await Questions(store).ask(a_question(approvers=("role:approvers",), accept_unsigned=True), b"{}")
    found = await taken(deps, given())
    assert (found.code, found.author) == ("assurance", UNPROVEN)
    assert await RawAnswers(store).list_untaken(1) == []


GROUP = ApproverGroup(of=("role:approvers",), quorum=1)


@table(
    ("question", "subject", "code"),
    ({}, "ana", ""),
    ({"requester": Principal(user="ana")}, "ana", "self_approval"),
    ({"requester": Principal(user="x", person_id="ana")}, "ana", "self_approval"),
    ({"requester": Principal(user="ana"), "allow_self": True}, "ana", ""),
    ({"proposers": ("ana",)}, "ana", "self_approval"),
    ({"escalate_to": ("user:bo",)}, "bo", "not_allowed"),
)
async def test_requester_and_approvers_come_from_the_stored_question(
    store: Store, question: dict[str, Any], subject: str, code: str
) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA, BO], profile="production")
    await Questions(store).ask(a_question(**{"approvers": ("role:approvers",)} | question), b"{}")
    found = await taken(deps, given(subject=subject))
    assert (found.allowed, found.code) == (not code, code)


async def test_raw_answer_counts_only_for_the_latest_revision(store: Store) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA, BO], profile="production")
    for who in ("user:ana", "user:bo"):
        await Questions(store).ask(a_question(approvers=(who,)), b"{}")
    codes = {}
    for number, revision in enumerate((1, 2, None, 3)):
        codes[revision] = (await taken(deps, given(revision=revision), number=str(number))).code
    assert codes == {1: "stale", 2: "not_allowed", None: "stale", 3: "stale"}


@table("grouped", True, False)
async def test_groups_come_from_the_stored_question(store: Store, grouped: bool) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA], profile="production")
    row = a_question(approvers=("role:approvers",), groups=(GROUP,) if grouped else ())
    await Questions(store).ask(row, b"{}")
    found = await taken(deps, given())
    assert found.allowed
    assert found.author.entries == (("role:approvers",) if grouped else ())


@table("profile", "production", "development")
async def test_raw_answer_with_a_grant_request_is_malformed(store: Store, profile: Any) -> None:
    deps = worker_deps(store, pay_tool(Ledger(), OPEN_TOOL), people=[ANA, BO], profile=profile)
    row = a_question(approvers=("role:approvers",), groups=(GROUP,), allow_remember=True)
    await Questions(store).ask(row, b"{}")
    wish = GrantRequest()
    found = await taken(deps, given(remember=wish))
    assert (found.allowed, found.code) == (False, "malformed")
    assert found.author.subject == ("ana" if profile == "development" else "")
    assert some(found.reply.receipt).message == "`remember`: only an answer given through the gateway is remembered"
    other = await taken(deps, given(remember=wish, subject="bo"), number="2")
    assert (other.allowed, other.code, some(other.reply.receipt).message) == (False, "not_allowed", "")
