from datetime import UTC, datetime
from typing import Any

from signoff.contracts.person import Person
from signoff.gateway.pages.timeline_view import delivery_lines
from signoff.people.directory import FixedDirectory
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.delivery_queue import DeliveryRow
from signoff.testing import a_request

NOW = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)
PEOPLE = FixedDirectory([Person(id="ana", name="Ana Sousa")])
DECLARED = {"chat": DeclaredChannel("chat", "slack"), "email": DeclaredChannel("email", "email")}


def row(**given: Any) -> DeliveryRow:
    usual = {"person": "ana", "channel": "chat", "state": "sent", "kind": "ask", "code": "", "message": ""}
    request = a_request()
    about = {"tenant": request.tenant, "approval": request.id, "revision": 1, "request": request}
    times = {"due_at": NOW, "created_at": NOW, "changed_at": NOW}
    return DeliveryRow(token="t", address="T1:ana", **about, **times, **usual | given)


def summary(*rows: DeliveryRow) -> list[tuple[str, str, str, str]]:
    return [(each.who, each.channel, each.words, each.why) for each in delivery_lines(rows, DECLARED, PEOPLE, "en")]


def test_summary_has_person_channel_and_state_for_each_card() -> None:
    assert summary(row(state="read"), row(channel="email"), row(channel="old", state="closed")) == [
        ("Ana Sousa", "chat (slack)", "read", ""),
        ("Ana Sousa", "email", "sent", ""),
        ("Ana Sousa", "old", "shows the decision", ""),
    ]


def test_failed_card_shows_the_vendors_message() -> None:
    failed = row(state="failed", code="550", message="no such mailbox")
    again = row(state="planned", code="ratelimited")
    fine = row(state="sent", code="old trouble")
    assert [each[2:] for each in summary(failed, again, fine)] == [
        ("not delivered", "no such mailbox"),
        ("not sent yet", "ratelimited"),
        ("sent", ""),
    ]


def test_dropped_card_is_left_out() -> None:
    assert summary(row(state="dropped")) == []


def test_replaced_card_shows_no_decision() -> None:
    assert [each[2] for each in summary(row(state="closed", replaced=True), row())] == [
        "Replaced by a newer card",
        "sent",
    ]
