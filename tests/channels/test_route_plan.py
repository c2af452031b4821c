from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.channels.outbound.dispatcher import RoutePlan, due, find_asked, plan, rest_ends
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.person import ContactPreferences, Delegation, Person
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.testing import a_request
from signoff.testing.builders import a_person

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
KINDS = {"chat": "slack", "mail": "email", "phone": "whatsapp"}


def request(**changes: Any) -> ApprovalRequest:
    given = {"approvers": ("role:approvers",), "notify": ("chat", "mail", "phone")}
    return a_request(**given | {"opened_at": NOON, "expires_at": NOON + timedelta(days=1)} | changes)


def somebody(name: str, **more: object) -> Person:
    identities = {"slack": (f"T1:{name}",), "email": (f"{name}@example.com", f"{name}@example.org")}
    given = {"id": name, "roles": ("approvers",), "identities": identities, **more}
    return Person.model_validate(given)


def planned(asks: ApprovalRequest, people: Sequence[Person], rules: RoutingRules, now: datetime) -> RoutePlan:
    addresses = {
        name: {each.id: each.identities[kind][0] for each in people if each.identities.get(kind)}
        for name, kind in KINDS.items()
    }
    return plan(asks, people, addresses, rules, now)


def summary(found: RoutePlan) -> list[tuple[str, str, str, timedelta]]:
    return [(each.person.id, each.channel, each.address, each.due_at - NOON) for each in found.cards]


def test_each_channel_follows_after_an_unread_card() -> None:
    found = planned(request(), [somebody("ana")], RoutingRules(fallback_after=900), NOON)
    assert summary(found) == [
        ("ana", "chat", "T1:ana", timedelta(0)),
        ("ana", "mail", "ana@example.com", timedelta(minutes=15)),
    ]
    assert [each.rank for each in found.cards] == [0, 1]
    assert found.unreached == ()


def test_all_channels_are_used_at_once_if_configured() -> None:
    found = planned(request(), [somebody("ana")], RoutingRules(all=True), NOON)
    assert [each.due_at for each in found.cards] == [NOON, NOON]


def test_person_chooses_among_the_channels_of_the_request() -> None:
    reach = ContactPreferences(channels=("mail", "chat"))
    names = [each[1] for each in summary(planned(request(), [somebody("ana", reach=reach)], RoutingRules(), NOON))]
    assert names == ["mail", "chat"]
    only_chat = request(notify=("chat",))
    assert [e.channel for e in planned(only_chat, [somebody("ana", reach=reach)], RoutingRules(), NOON).cards] == [
        "chat"
    ]


def test_unreachable_person_is_named() -> None:
    bare = a_person("bob")
    elsewhere = somebody("cho", reach=ContactPreferences(channels=("phone",)))
    found = planned(request(), [bare, elsewhere], RoutingRules(), NOON)
    assert found.cards == ()
    assert [person.id for person in found.unreached] == ["bob", "cho"]


def test_only_permitted_approvers_get_a_card() -> None:
    stand_in = Delegation(to="eva", until=NOON + timedelta(hours=1))
    people = FixedDirectory(
        [
            somebody("guest"),
            somebody("ana", delegations=(stand_in,)),
            somebody("bob", active=False),
            somebody("cho", roles=()),
            somebody("eva", roles=()),
        ]
    )
    assert [person.id for person in find_asked(request(), people, NOON)] == ["ana", "eva"]
    assert [person.id for person in find_asked(request(), people, NOON + timedelta(hours=1))] == ["ana"]
    assert [person.id for person in find_asked(request(allow_self=True), people, NOON)] == ["guest", "ana", "eva"]


NIGHT = ContactPreferences(quiet_from="22:00", quiet_to="07:00", timezone="Europe/Lisbon")


@table(
    ("at", "ends"),
    ("2026-11-23T21:59:59", None),
    ("2026-11-23T22:00:00", "2026-11-24T07:00:00"),
    ("2026-11-24T06:59:59", "2026-11-24T07:00:00"),
    ("2026-11-24T07:00:00", None),
)
def test_quiet_period_over_midnight_ends_in_the_morning(at: str, ends: str | None) -> None:
    zone = ZoneInfo("Europe/Lisbon")
    found = rest_ends(NIGHT, datetime.fromisoformat(at).replace(tzinfo=zone).astimezone(UTC))
    assert found == (None if ends is None else datetime.fromisoformat(ends).replace(tzinfo=zone))


@table(("night", "utc"), ("2026-10-24", "2026-10-25T06:00"), ("2026-03-28", "2026-03-29T05:00"))
def test_quiet_period_follows_the_wall_clock_at_a_clock_change(night: str, utc: str) -> None:
    reach = ContactPreferences(quiet_from="22:00", quiet_to="07:00", timezone="Europe/Berlin")
    late = datetime.fromisoformat(f"{night}T23:00").replace(tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)
    assert rest_ends(reach, late) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


def test_quiet_days_join_the_nights_around_them() -> None:
    reach = ContactPreferences(quiet_from="22:00", quiet_to="07:00", timezone="UTC", quiet_days=("sat", "sun"))
    friday_night = datetime(2026, 11, 27, 23, tzinfo=UTC)
    assert rest_ends(reach, friday_night) == datetime(2026, 11, 30, 7, tzinfo=UTC)


def test_person_with_only_quiet_days_is_notified_anyway() -> None:
    """A quiet period without an end would mean a person who never gets a card."""
    every_day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    assert due(ContactPreferences(quiet_days=every_day, timezone="UTC"), NOON, None) == NOON


def test_card_with_a_deadline_in_the_quiet_period_is_sent_at_once() -> None:
    midnight = datetime(2026, 11, 24, 0, tzinfo=UTC)
    seven = datetime(2026, 11, 24, 7, tzinfo=UTC)
    reach = replace(NIGHT, timezone="UTC")
    assert due(reach, midnight, seven + timedelta(hours=1)) == seven
    assert due(reach, midnight, seven + timedelta(seconds=59)) == midnight
    assert due(reach, midnight, seven + timedelta(seconds=60)) == seven
    assert due(reach, midnight, None) == seven
    assert due(None, midnight, None) == midnight


CLOCK = st.times().map(lambda each: each.strftime("%H:%M"))
REACH = st.builds(
    ContactPreferences,
    channels=st.lists(st.sampled_from(["chat", "mail", "phone"]), unique=True).map(tuple),
    quiet_from=CLOCK,
    quiet_to=CLOCK,
    quiet_days=st.lists(st.sampled_from(["mon", "wed", "sat", "sun"]), unique=True).map(tuple),
    timezone=st.sampled_from(["UTC", "Europe/Lisbon", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia"]),
)


@given(
    st.lists(st.one_of(st.none(), REACH), max_size=4),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(lambda each: each.replace(tzinfo=UTC)),
    st.booleans(),
    st.lists(st.sampled_from(["chat", "mail", "phone", "chat"]), max_size=4),
)
def test_plan_has_one_card_for_each_person_and_channel(
    reaches: list[ContactPreferences | None], now: datetime, at_once: bool, notify: list[str]
) -> None:
    people = [somebody(f"p{number}", reach=reach) for number, reach in enumerate(reaches)]
    rules = RoutingRules(all=at_once, fallback_after=60)
    asks = request(notify=tuple(notify), expires_at=now + timedelta(days=3))
    found = planned(asks, people, rules, now)
    pairs = [(each.person.id, each.channel) for each in found.cards]
    assert len(pairs) == len(set(pairs))
    assert {each.channel for each in found.cards} <= set(notify)
    assert all(now <= each.due_at for each in found.cards)
    reached = {each.person.id for each in found.cards}
    assert reached | {person.id for person in found.unreached} == {person.id for person in people}
    assert reached.isdisjoint(person.id for person in found.unreached)
    for person in people:
        mine = [each for each in found.cards if each.person == person]
        assert [each.rank for each in mine] == list(range(len(mine)))
        ends = None if person.reach is None else rest_ends(person.reach, now)
        assert not mine or mine[0].due_at in (now, ends)
