"""Who may decide, by the directory of the moment: never an error, always an authority with its reason."""

from typing import Any

import pytest
from activity_kit import decision, environment, room_of
from desk_fixtures import Ledger, pay_tool
from hypothesis import given, settings
from hypothesis import strategies as st

from signoff.activities.identify import UNSIGNED, IdentifyActivity, authority
from signoff.contracts.decision import ASSURANCES
from signoff.contracts.person import Person
from signoff.contracts.steps import Authority, IdentifyTask
from signoff.store.store import Store

ANA = Person(id="ana", name="Ana", roles=("approvers", "finance"))


def asked(said: dict[str, Any] | None = None, **fields: Any) -> IdentifyTask:
    """May Ana's answer, given in a session, decide guest's request?"""
    given_: dict[str, Any] = {
        "decision": decision(**{"subject": "ana", "assurance": "session"} | (said or {})),
        "tenant": "main",
        "approvers": ("role:approvers",),
        "requester": "guest",
        "allow_self": False,
        "min_assurance": "channel",
        "accept_unsigned": False,
    }
    return IdentifyTask(**given_ | fields)


def test_a_listed_person_may() -> None:
    """By role or by name; the authority says who, how sure, and that nothing was signed."""
    yes = Authority(allowed=True, subject="ana", name="Ana", assurance="session", unsigned=True)
    assert authority(asked(), ANA, development=True) == yes
    for approvers in (("user:ana",), ("role:finance",), ("role:x", "user:y", "role:finance")):
        assert authority(asked(approvers=approvers), ANA, development=True) == yes


@pytest.mark.parametrize(
    ("person", "approvers"),
    [
        (None, ("user:ana",)),
        (ANA.model_copy(update={"active": False}), ("user:ana", "role:approvers")),
        (ANA, ()),
        (ANA, ("role:ana", "user:approvers", "role:admin")),
        (ANA.model_copy(update={"roles": ()}), ("role:approvers",)),
    ],
)
def test_unknown_inactive_and_unlisted_people_may_not(person: Person | None, approvers: tuple[str, ...]) -> None:
    """Not known here, not active any more, neither named nor in a named role."""
    found = authority(asked(approvers=approvers), person, development=True)
    assert found == Authority(allowed=False, code="not_allowed", subject="ana", unsigned=True)


def test_who_asked_does_not_decide_unless_the_policy_lets_them() -> None:
    """A requester's own answer is refused as such, also in development; `allow_self` takes it."""
    found = authority(asked(requester="ana"), ANA, development=True)
    assert found == Authority(allowed=False, code="self_approval", subject="ana", name="Ana", unsigned=True)
    assert authority(asked(requester="ana", allow_self=True), ANA, development=True).allowed
    listed_first = authority(asked(requester="ana", approvers=()), ANA, development=True)
    assert listed_first.code == "not_allowed"


@pytest.mark.parametrize("signature", ["", "anything"])
def test_outside_development_nothing_unsigned_counts(signature: str) -> None:
    """No signature can be checked yet, so one that is sent along is worth as much as none."""
    said = {"signature": signature, "key_id": "k"}
    refused = Authority(allowed=False, code="assurance", unsigned=True)
    assert authority(asked(said), ANA, development=False) == refused
    taken = authority(asked(said, accept_unsigned=True), ANA, development=False)
    assert (taken.allowed, taken.unsigned) == (True, True)


@pytest.mark.parametrize("need", ASSURANCES)
@pytest.mark.parametrize("have", ASSURANCES)
def test_assurance_is_at_least_what_the_policy_asks(have: Any, need: Any) -> None:
    """Weaker is refused by name; development takes a bare message where a channel would do, and no further."""
    found = authority(asked({"assurance": have}, min_assurance=need), ANA, development=True)
    enough = ASSURANCES.index(have) >= ASSURANCES.index(need)
    assert found.allowed == (enough or (have == "none" and need in ("link", "channel")))
    assert found.code == ("" if found.allowed else "assurance")
    assert (found.subject, found.name, found.assurance) == ("ana", "Ana", have)
    strict = authority(asked({"assurance": have}, min_assurance=need, accept_unsigned=True), ANA, development=False)
    assert strict.allowed == (enough or have == "none")


@pytest.mark.parametrize(
    ("development", "accept", "need", "allowed"),
    [
        (True, False, "channel", True),
        (True, False, "session", False),
        (True, True, "mfa", True),
        (False, True, "channel", True),
        (False, True, "none", True),
        (False, False, "none", False),
    ],
)
def test_an_answer_that_names_nobody(development: bool, accept: bool, need: Any, allowed: bool) -> None:
    """A raw message counts only where unsigned answers are taken, and never as a person's."""
    task = asked({"subject": "", "assurance": "mfa"}, min_assurance=need, accept_unsigned=accept)
    found = authority(task, None, development=development)
    assert found.allowed is allowed
    assert found.code == ("" if allowed else "assurance")
    assert found.unsigned
    assert found.subject == (UNSIGNED if development or accept else "")
    assert (found.name, found.assurance) == ("", "none")


@settings(max_examples=60, deadline=None)
@given(
    person=st.none() | st.builds(Person, id=st.just("ana"), active=st.booleans(), tenant=st.just("main")),
    development=st.booleans(),
    allow_self=st.booleans(),
    accept=st.booleans(),
    requester=st.sampled_from(["ana", "guest"]),
    have=st.sampled_from(ASSURANCES),
    need=st.sampled_from(ASSURANCES),
)
def test_allowed_means_every_rule_was_kept(
    person: Person | None, development: bool, allow_self: bool, accept: bool, requester: str, have: Any, need: Any
) -> None:
    """Whoever is allowed is known, active, listed, not the requester and has no code; whoever is not has one."""
    task = asked(
        {"assurance": have},
        approvers=("user:ana",),
        requester=requester,
        allow_self=allow_self,
        accept_unsigned=accept,
        min_assurance=need,
    )
    found = authority(task, person, development=development)
    assert found.allowed == (found.code == "")
    if found.allowed:
        assert person is not None
        assert person.active
        assert allow_self or requester != "ana"
        assert development or accept


@pytest.mark.parametrize(
    ("profile", "said", "tenant", "code"),
    [
        ("development", {}, "main", ""),
        ("development", {}, "other", "not_allowed"),
        ("development", {"subject": "nobody"}, "main", "not_allowed"),
        ("development", {"subject": ""}, "main", ""),
        ("production", {}, "main", "assurance"),
    ],
)
async def test_the_activity_looks_in_the_tenant_of_the_turn(
    store: Store, profile: Any, said: dict[str, Any], tenant: str, code: str
) -> None:
    """The directory is asked at the moment of the decision, in the request's own tenant and the room's profile."""
    room = room_of(store, pay_tool(Ledger()), people=[ANA], profile=profile)
    found = await environment().run(IdentifyActivity(room).identify, asked(said, tenant=tenant))
    assert (found.allowed, found.code) == (not code, code)
    assert found.subject != UNSIGNED or said == {"subject": ""}
