"""Who answered, by real signatures: what the gateway vouched for counts, what only looks like it does not."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import decision, environment, room_of
from desk_fixtures import Ledger, pay_tool

from signoff.activities.identify import IdentifyActivity
from signoff.contracts.decision import Decision
from signoff.contracts.person import Delegation, Person
from signoff.contracts.steps import Authority, IdentifyTask
from signoff.signing import PrivateKeys, Signer, Verifier, new_key
from signoff.store.store import Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECEIVED = NOW - timedelta(minutes=30)
KEY = new_key(NOW - timedelta(days=30))
SIGNER = Signer(PrivateKeys(keys=(KEY,)))
ANA = Person(id="ana", name="Ana", roles=("approvers",), delegations=(Delegation(to="bo", until=NOW),))
BO = Person(id="bo", name="Bo")
UNPROVEN = Authority(allowed=False, code="assurance")


def signed(**fields: Any) -> Decision:
    """Ana's approval in a session, as the gateway signs it."""
    given = {"subject": "ana", "channel": "inbox", "assurance": "session", "received_at": RECEIVED, **fields}
    return SIGNER.sign_decision(decision(**given))


async def identified(
    store: Store, said: Decision, verifier: Verifier, *, accept: bool = False, profile: Any = "production"
) -> Authority:
    """What a worker with this verifier says of an answer."""
    plain = room_of(store, pay_tool(Ledger()), people=[ANA, BO], profile=profile)
    activity = IdentifyActivity(dataclasses.replace(plain, verifier=verifier), clock=lambda: NOW)
    task = IdentifyTask(
        decision=Decision.model_validate_json(said.model_dump_json()),
        tenant="main",
        approvers=("role:approvers",),
        requester="guest",
        allow_self=False,
        min_assurance="session",
        accept_unsigned=accept,
    )
    return await environment().run(activity.identify, task)


async def test_what_the_gateway_vouched_for_counts(store: Store) -> None:
    """Who, how surely and when; in production, where nothing unsigned does."""
    found = await identified(store, signed(), SIGNER.verifier())
    assert found == Authority(
        allowed=True, subject="ana", person_id="ana", name="Ana", assurance="session", received_at=RECEIVED
    )


@pytest.mark.parametrize(
    "altered",
    [
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
    ],
)
@pytest.mark.parametrize("profile", ["production", "development"])
async def test_an_altered_answer_is_refused_everywhere(store: Store, altered: dict[str, Any], profile: Any) -> None:
    """A field changed, or half of the proof taken off: refused in both profiles, also where unsigned ones are taken."""
    said = signed().model_copy(update=altered)
    assert await identified(store, said, SIGNER.verifier(), accept=True, profile=profile) == UNPROVEN


async def test_without_its_proof_a_signed_answer_is_an_unsigned_one(store: Store) -> None:
    """Both halves taken off, nothing claims to be signed: production refuses it as that."""
    said = signed().model_copy(update={"signature": "", "key_id": ""})
    found = await identified(store, said, SIGNER.verifier())
    assert found == Authority(allowed=False, code="assurance", unsigned=True)


async def test_a_key_that_is_unknown_or_retired_proves_nothing(store: Store) -> None:
    """Another gateway's key; and this one's, from the moment it was retired."""
    assert await identified(store, signed(), Verifier()) == UNPROVEN
    for retired_at, allowed in ((RECEIVED, False), (RECEIVED + timedelta(microseconds=1), True)):
        keys = PrivateKeys(keys=(KEY.model_copy(update={"retired_at": retired_at}),))
        found = await identified(store, signed(), Verifier(keys.public().keys))
        assert found.allowed is allowed


async def test_a_delegation_that_ended_since_the_answer_was_given_still_counts(store: Store) -> None:
    """Bo answered half an hour ago, Ana's delegation ends now; what is received now is too late."""
    found = await identified(store, signed(subject="bo"), SIGNER.verifier())
    assert (found.allowed, found.subject, found.on_behalf) == (True, "bo", "ana")
    late = await identified(store, signed(subject="bo", received_at=NOW), SIGNER.verifier())
    assert (late.allowed, late.code) == (False, "not_allowed")
