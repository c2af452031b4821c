import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from activity_kit import about, asked, decision, environment, worker_deps
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.identify_activity import IdentifyActivity
from signoff.contracts.activity_messages import Authority
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


async def identified(store: Store, decision: Decision, verifier: Verifier, *, profile: Any = "production") -> Authority:
    plain = worker_deps(store, pay_tool(Ledger()), people=[ANA, BO], profile=profile)
    activity = IdentifyActivity(dataclasses.replace(plain, verifier=verifier, clock=lambda: NOW))
    sent = Decision.model_validate_json(decision.model_dump_json())
    return await environment().run(activity.identify, sent)


FOUND = Authority(allowed=True, subject="ana", person_id="ana", name="Ana", assurance="session", received_at=RECEIVED)


async def taken(store: Store, *, authority: Authority = FOUND, **fields: Any) -> Decision:
    tool = pay_tool(Ledger())
    request = await asked(worker_deps(store, tool), tool)
    decision = SIGNER.sign_decision(about(request, **GIVEN | fields))
    await answer(store, decision, authority=authority)
    return decision


async def test_answer_signed_by_the_gateway_counts(store: Store) -> None:
    assert await identified(store, await taken(store), SIGNER.verifier()) == FOUND


async def test_delegator_and_groups_come_from_the_gateway(store: Store) -> None:
    given = replace(FOUND, on_behalf="cy", entries=("role:finance",))
    assert await identified(store, await taken(store, authority=given), SIGNER.verifier()) == given


async def test_signed_answer_that_is_not_stored_is_rejected(store: Store) -> None:
    assert await identified(store, signed(), SIGNER.verifier()) == replace(UNPROVEN, subject="ana")
    decision = await taken(store)
    for other in ({"delivery_id": "another"}, {"reason": "because"}, {"revision": 2}):
        again = SIGNER.sign_decision(replace(decision, **other))
        assert not (await identified(store, again, SIGNER.verifier(), profile="development")).allowed


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
    assert await identified(store, decision, SIGNER.verifier(), profile=profile) == UNPROVEN


async def test_answer_stripped_of_its_signature_counts_as_unsigned(store: Store) -> None:
    decision = replace(signed(), signature="", key_id="")
    found = await identified(store, decision, SIGNER.verifier())
    assert found == Authority(allowed=False, code="assurance", unsigned=True)


async def test_unknown_or_retired_key_proves_nothing(store: Store) -> None:
    decision = await taken(store)
    assert await identified(store, decision, Verifier()) == UNPROVEN
    for retired_at, allowed in ((RECEIVED, False), (RECEIVED + timedelta(microseconds=1), True)):
        keys = PrivateKeys(keys=(replace(KEY, retired_at=retired_at),))
        found = await identified(store, decision, Verifier(keys.public().keys))
        assert found.allowed is allowed


def test_delegation_is_judged_at_the_time_of_the_answer() -> None:
    people = FixedDirectory([ANA, BO])
    for moment, expected in ((RECEIVED, (True, "bo", "ana")), (NOW, (False, "bo", ""))):
        decision = signed(subject="bo", received_at=moment)
        request = a_request(approvers=("role:approvers",), min_assurance="session")
        found = check_authority(request, decision, moment, people, unsigned=False, development=False)
        assert (found.allowed, found.subject, found.on_behalf) == expected
        assert found.code == ("" if found.allowed else "not_allowed")
