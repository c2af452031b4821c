from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.approvals.notifications import Notice, NoticeEvent, NoticeKind
from signoff.channels.outbound.notice_planner import find_recipients, route_notice
from signoff.channels.outbound.receipt_text import notice_words
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.person import ContactPreferences, Person, Principal
from signoff.formats.replace import replace
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.testing import a_request
from signoff.testing.builders import a_person
from signoff.texts.formatter import formatter_for

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
KINDS = {"chat": "slack", "mail": "email"}
GUEST = Person(id="guest")
AUDITOR = Person(id="eve", roles=("audit",))
ANA = a_person("ana", identities={"slack": ("T1:ana",), "email": ("ana@example.com",)})


def notice(kind: NoticeKind = "decided", **changes: Any) -> Notice:
    given = {"requester": Principal(user="guest"), "card": Card(effect="Pay 3"), "code": "K7Q2FM", "notify": ("chat",)}
    request = a_request(**given | changes)
    return Notice(kind=kind, about=request.id, at=NOON, request=request)


def told(event: NoticeEvent, tell: dict[str, Sequence[str]], people: Sequence[Person]) -> list[str]:
    return [person.id for person in find_recipients(event, notice(), tell, people, lambda *_: True).people]


@table(
    ("tell", "names"),
    ({"requester": ("decided",)}, ["guest"]),
    ({"role:audit": ("decided", "ran")}, ["eve"]),
    ({"user:ana": ("decided",), "requester": ("waiting",)}, ["ana"]),
    ({"requester": ("decided",), "user:guest": ("decided",)}, ["guest"]),
    ({"role:other": ("decided",)}, []),
    ({}, []),
)
def test_only_declared_people_get_a_notice_and_each_once(tell: dict[str, Sequence[str]], names: list[str]) -> None:
    assert told("decided", tell, [GUEST, ANA, AUDITOR]) == names


def test_inactive_recipient_gets_no_notice() -> None:
    assert told("ran", {"role:audit": ("ran",)}, [replace(AUDITOR, active=False)]) == []


def test_watcher_who_may_not_read_the_request_is_refused() -> None:
    def may_read(person: Person, request: ApprovalRequest) -> bool:
        return person.id == request.requester.user

    tell = {"requester": ("ran",), "role:audit": ("ran",)}
    found = find_recipients("ran", notice("ran"), tell, [GUEST, AUDITOR], may_read)
    assert [person.id for person in found.people] == ["guest"]
    assert [person.id for person in found.refused] == ["eve"]


def test_person_without_an_order_is_reached_on_the_channels_of_the_request() -> None:
    rows = route_notice(notice(), ANA, KINDS, RoutingRules(default=("mail",)), NOON)
    assert [(row.channel, row.address, row.due_at) for row in rows] == [("chat", "T1:ana", None)]
    rows = route_notice(notice(notify=()), ANA, KINDS, RoutingRules(default=("mail",)), NOON)
    assert [row.channel for row in rows] == ["mail"]


def test_order_of_the_person_decides_and_later_channels_wait() -> None:
    ana = replace(ANA, reach=ContactPreferences(channels=("mail", "chat")))
    first, second = route_notice(notice(), ana, KINDS, RoutingRules(), NOON)
    assert (first.channel, first.due_at, second.channel) == ("mail", None, "chat")
    assert second.due_at is not None
    assert second.due_at > NOON + timedelta(days=300)
    assert [row.due_at for row in route_notice(notice(), ana, KINDS, RoutingRules(all=True), NOON)] == [None, None]


def test_notice_waits_for_the_end_of_quiet_hours() -> None:
    ana = replace(ANA, reach=ContactPreferences(quiet_from="11:00", quiet_to="14:00"))
    (row,) = route_notice(notice(), ana, KINDS, RoutingRules(), NOON)
    assert row.due_at == NOON + timedelta(hours=2)


def test_new_passkey_uses_all_channels_at_once() -> None:
    reach = ContactPreferences(channels=("mail",), quiet_from="11:00", quiet_to="14:00")
    passkey = Notice(kind="passkey", about="main.p", at=NOON)
    rows = route_notice(passkey, replace(ANA, reach=reach), KINDS, RoutingRules(), NOON)
    assert [(row.channel, row.due_at) for row in rows] == [("chat", None), ("mail", None)]


def test_topics_separate_events_but_not_outcomes() -> None:
    assert notice("ran").topic == notice("failed").topic != notice("decided").topic
    assert [notice(kind, revision=3).revision for kind in ("waiting", "decided", "ran")] == [1, 3, 1]


def test_texts_name_the_outcome_without_a_way_to_answer() -> None:
    ended = {"state": "denied", "decided_name": "Bo", "decided_channel": "slack", "decided_at": NOON, "reason": "no"}
    formatter = formatter_for(GUEST, NOON)
    title, words = notice_words(notice(**ended), formatter, "https://signoff.example/approvals/a")
    assert title.startswith("Denied by Bo in Slack")
    assert all(part in words for part in ("Reason: no", "Pay 3 (K7Q-2FM)", "https://signoff.example/approvals/a"))
    for kind, said in (("waiting", "Waiting for approval"), ("ran", "call ran"), ("failed", "call failed")):
        assert said in notice_words(notice(kind), formatter)[1]
    assert "A passkey was added" in notice_words(Notice(kind="passkey", about="p", at=NOON), formatter)[1]
