from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.contracts.approval import ApproverGroup, Terms
from signoff.contracts.decision import Decision
from signoff.contracts.person import Delegation, Person
from signoff.formats.replace import replace
from signoff.people.authority import check_authority
from signoff.people.directory import FixedDirectory
from signoff.people.eligibility import ApproverSpec, can_remember, resolve_eligibility
from signoff.people.on_call import KEPT, OnCallDirectory, Rotas, Shift, has_unread, is_named
from signoff.people.voter_set import Escalation, VoterSet
from signoff.people.vouched_directory import VouchedDirectory
from signoff.testing import a_request

NOW = datetime(2026, 9, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
PEOPLE = FixedDirectory(
    [
        Person(id="ana", name="Ana Silva", identities={"email": ("ana@example.com",)}),
        Person(id="bo", name="Bo Berg", delegations=(Delegation(to="cy", until=NOW + 100 * HOUR),)),
        Person(id="cy", name="Cy Chan", person_id="bo"),
        Person(id="di", name="Same Name"),
        Person(id="ed", name="Same Name"),
        Person(id="ex", name="Ex", active=False),
        Person(id="ana", name="Ana Silva", tenant="acme", identities={"email": ("ana@example.com",)}),
    ]
)
TERMS = Terms(approvers=("oncall:payments",))
SPEC = ApproverSpec("main", TERMS, "guest", allow_self=False)


def on_call(*names: str, since: datetime = NOW - HOUR, until: datetime = NOW + HOUR) -> OnCallDirectory:
    rotas = Rotas()
    rotas.keep("payments", tuple(Shift(each, since, until) for each in names), NOW)
    return OnCallDirectory(PEOPLE, rotas, {"payments": "main"})


def may(people: OnCallDirectory, person: str, moment: datetime = NOW, spec: ApproverSpec = SPEC) -> str:
    found = resolve_eligibility(people.find(person, spec.tenant), people, spec, moment)
    return found.code or found.on_behalf or "own"


@table(
    ("name", "person", "expected"),
    ("ana@example.com", "ana", True),
    ("ANA@Example.com", "ana", True),
    ("other@example.com", "ana", False),
    ("ana", "ana", True),
    ("Ana Silva", "ana", True),
    ("ana silva", "ana", True),
    ("Ana", "ana", False),
    ("On call: ana", "ana", False),
    ("", "ana", False),
    ("Same Name", "di", False),
    ("di", "di", True),
)
def test_rota_names_a_person_by_email_id_or_name_that_is_theirs_alone(name: str, person: str, expected: bool) -> None:
    people = [each for each in PEOPLE.all("main") if each.id == person]
    assert is_named(people[0], [name], PEOPLE) is expected


def test_person_on_call_may_decide_and_others_may_not() -> None:
    people = on_call("ana@example.com", "ex")
    assert may(people, "ana") == "own"
    assert [may(people, each) for each in ("bo", "di", "ex")] == ["not_allowed"] * 3
    assert may(people, "ana", spec=replace_spec(requester="ana")) == "self_approval"
    assert may(people, "ana", spec=replace_spec(proposers=("ana",))) == "self_approval"
    assert may(people, "ana", spec=replace_spec(gave=("ana",))) == "not_allowed"


def replace_spec(**fields: object) -> ApproverSpec:
    return ApproverSpec(**{**vars(SPEC), **fields})


def test_shift_begins_and_ends_to_the_instant() -> None:
    people = on_call("ana", since=NOW, until=NOW + timedelta(minutes=3))
    end, tick = NOW + timedelta(minutes=3), timedelta(microseconds=1)
    moments = [NOW - tick, NOW, end - tick, end]
    assert [may(people, "ana", each) for each in moments] == ["not_allowed", "own", "own", "not_allowed"]


def test_old_reading_makes_no_person_eligible() -> None:
    people = on_call("ana")
    assert may(people, "ana", NOW + KEPT - timedelta(microseconds=1)) == "own"
    assert may(people, "ana", NOW + KEPT) == "not_allowed"


def test_unread_rota_makes_no_person_eligible() -> None:
    assert may(OnCallDirectory(PEOPLE, Rotas(), {"payments": "main"}), "ana") == "not_allowed"


@table(
    ("entries", "tenant", "expected"),
    (("oncall:payments", "role:x"), "main", True),
    (("oncall:payments",), "acme", False),
    (("oncall:gone", "role:payments"), "main", False),
)
def test_only_a_declared_rota_of_the_tenant_can_be_unread(
    entries: tuple[str, ...], tenant: str, expected: bool
) -> None:
    unread = VouchedDirectory(OnCallDirectory(PEOPLE, Rotas(), {"payments": "main"}))
    assert has_unread(unread, entries, tenant, NOW) is expected
    assert not has_unread(on_call(), entries, tenant, NOW)
    assert has_unread(on_call(), entries, tenant, NOW + KEPT) is expected
    assert not has_unread(PEOPLE, entries, tenant, NOW)


@table(
    ("fields", "expected"),
    ({"approvers": ("oncall:payments",)}, ("oncall:payments",)),
    ({"approvers": ("user:bo",), "escalate_to": ("oncall:payments",)}, ("oncall:payments",)),
    ({"approvers": ("role:x", "user:ana")}, ()),
    ({"approvers": ("oncall:search", "user:ana")}, ()),
)
def test_decision_names_only_rotas_that_the_request_asks(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    found = check_authority(
        a_request(**fields), signed(assurance="session"), NOW, on_call("ana"), unsigned=False, development=False
    )
    assert found.on_call == expected


def test_rota_counts_in_its_own_tenant_alone() -> None:
    people = on_call("ana@example.com")
    assert people.on_call("ana", "main", NOW) == ("oncall:payments",)
    assert people.on_call("ana", "acme", NOW) == ()
    assert people.on_call("stranger", "main", NOW) == ()


def test_delegation_does_not_pass_a_shift_on() -> None:
    assert may(on_call("bo"), "cy") == "not_allowed"


def test_person_on_call_may_not_answer_for_later_calls() -> None:
    people = on_call("ana", "di")
    request = a_request(approvers=("oncall:payments", "user:di"), allow_remember=True)
    may_remember = [can_remember(request, each, people, NOW) for each in PEOPLE.all("main") if each.id in ("ana", "di")]
    assert may_remember == [False, True]


def signed(**fields: object) -> Decision:
    given = {"approval_id": "a", "verdict": "approved", "subject": "ana", "received_at": NOW, "signature": "s"}
    return Decision(**{**given, **fields})


def voters(terms: Terms = TERMS, *escalations: Escalation) -> VoterSet:
    return VoterSet(PEOPLE, (ApproverSpec("main", terms, "guest", allow_self=False),), NOW, escalations)


def test_worker_counts_a_signed_shift_without_a_rota() -> None:
    on_shift = signed(on_call=("oncall:payments",))
    assert voters().suffices([on_shift])
    assert not voters().suffices([signed()])
    assert not voters().suffices([signed(on_call=("oncall:search",))])
    assert not voters().suffices([replace(on_shift, signature="")])


def test_signed_shift_fills_groups_and_escalations() -> None:
    both = Terms(
        approvers=("oncall:payments", "user:bo"),
        groups=(ApproverGroup(of=("oncall:payments",)), ApproverGroup(of=("user:bo",))),
        quorum=2,
    )
    on_shift, bo = signed(on_call=("oncall:payments",)), signed(subject="bo")
    assert voters(both).suffices([on_shift, bo])
    assert not voters(both).suffices([signed(subject="di", on_call=("oncall:payments",)), on_shift])
    alone, later = Terms(approvers=("user:bo",)), Escalation(NOW, ("oncall:payments",))
    assert voters(alone, later).suffices([on_shift])
    assert not voters(alone, later).suffices([replace(on_shift, received_at=NOW - HOUR)])
