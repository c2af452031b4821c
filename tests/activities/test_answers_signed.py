import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from activity_kit import about, asked, decision, environment, worker_deps
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.answers_activity import AnswersActivity
from signoff.contracts.activity_messages import AnswersReply, AnswersTask, Authority
from signoff.contracts.decision import Decision
from signoff.contracts.person import Delegation, Person
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.authority import check_authority
from signoff.people.directory import FixedDirectory
from signoff.store.store import Store
from signoff.testing.builders import a_person, a_request
from signoff.testing.questions import answer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECEIVED = NOW - timedelta(minutes=30)
KEY = new_key(NOW - timedelta(days=30))
SIGNER = Signer(PrivateKeys(keys=(KEY,)))
ANA = a_person("ana", name="Ana", delegations=(Delegation(to="bo", until=NOW),))
BO = Person(id="bo", name="Bo")
UNPROVEN = Authority(allowed=False, code="assurance")


GIVEN = {"subject": "ana", "channel": "inbox", "assurance": "session", "received_at": RECEIVED}


def signed(**fields: Any) -> Decision:
    return SIGNER.sign_decision(decision(**GIVEN | fields))


async def sent(store: Store, decision: Decision, verifier: Verifier, *, profile: Any = "production") -> AnswersReply:
    plain = worker_deps(store, pay_tool(Ledger()), people=[ANA, BO], profile=profile)
    activity = AnswersActivity(dataclasses.replace(plain, verifier=verifier, clock=lambda: NOW))
    raw = Decision.model_validate_json(decision.model_dump_json())
    task = AnswersTask(approval=raw.approval_id, revision=raw.revision or 1, raw=raw)
    return await environment().run(activity.read_answers, task)


def refused(reply: AnswersReply) -> bool:
    """A refusal reveals nothing about the question."""
    return some(reply.receipt).status == "refused" and reply.seen == 0


FOUND = Authority(allowed=True, subject="ana", person_id="ana", name="Ana", assurance="session", received_at=RECEIVED)


async def taken(store: Store, *, authority: Authority = FOUND, **fields: Any) -> Decision:
    tool = pay_tool(Ledger())
    request = await asked(worker_deps(store, tool), tool)
    decision = SIGNER.sign_decision(about(request, **GIVEN | fields))
    await answer(store, decision, authority=authority)
    return decision


async def test_copy_of_a_stored_answer_returns_the_state_of_the_store(store: Store) -> None:
    reply = await sent(store, await taken(store), SIGNER.verifier())
    assert (some(reply.receipt).status, reply.seen, reply.settlement.state) == ("accepted", 1, "approved")
    assert reply.settlement.decided_by == "ana"


async def test_signed_answer_that_is_not_stored_is_rejected(store: Store) -> None:
    reply = await sent(store, signed(), SIGNER.verifier())
    assert (some(reply.receipt).code, reply.author) == ("assurance", replace(UNPROVEN, subject="ana"))
    decision = await taken(store)
    for other in ({"delivery_id": "another"}, {"reason": "because"}, {"revision": 2}):
        again = SIGNER.sign_decision(replace(decision, **other))
        assert refused(await sent(store, again, SIGNER.verifier(), profile="development"))


@table(
    "altered",
    {"subject": "bo"},
    {"verdict": "denied"},
    {"reason": "go on!"},
    {"assurance": "mfa"},
    {"received_at": RECEIVED - timedelta(days=1)},
    {"approval_id": "main.s.t.c1.2"},
    {"revision": 2},
    {"edited_args": {"amount": 1}},
    {"signature": ""},
    {"key_id": ""},
    {"key_id": "0" * 16},
)
@table("profile", "production", "development")
async def test_altered_answer_is_rejected_in_every_profile(store: Store, altered: dict[str, Any], profile: Any) -> None:
    decision = replace(await taken(store), **altered)
    reply = await sent(store, decision, SIGNER.verifier(), profile=profile)
    assert (refused(reply), reply.author) == (True, UNPROVEN)


async def test_answer_stripped_of_its_signature_counts_as_unsigned(store: Store) -> None:
    decision = replace(signed(), signature="", key_id="")
    reply = await sent(store, decision, SIGNER.verifier())
    assert (refused(reply), reply.author) == (True, Authority(allowed=False, code="assurance", unsigned=True))


async def test_unknown_or_retired_key_proves_nothing(store: Store) -> None:
    decision = await taken(store)
    assert refused(await sent(store, decision, Verifier()))
    for retired_at, allowed in ((RECEIVED, False), (RECEIVED + timedelta(microseconds=1), True)):
        keys = PrivateKeys(keys=(replace(KEY, retired_at=retired_at),))
        reply = await sent(store, decision, Verifier(keys.public().keys))
        assert refused(reply) is not allowed


def test_delegation_is_judged_at_the_time_of_the_answer() -> None:
    people = FixedDirectory([ANA, BO])
    for moment, expected in ((RECEIVED, (True, "bo", "ana")), (NOW, (False, "bo", ""))):
        decision = signed(subject="bo", received_at=moment)
        request = a_request(approvers=("role:approvers",), min_assurance="session")
        found = check_authority(request, decision, moment, people, unsigned=False, development=False)
        assert (found.allowed, found.subject, found.on_behalf) == expected
        assert found.code == ("" if found.allowed else "not_allowed")
