from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.approvals.notifications import RequestEvent, events_between
from signoff.contracts.approval import ApprovalRequest, Card, Vote
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANSWER = Vote(subject="bo", verdict="denied", at=NOW, decision=a_decision(verdict="denied"))
HANDED_ON = Vote(subject="ana", verdict="handed_on", at=NOW, decision=a_decision(verdict="handed_on", to="bo"))
ENDING: dict[str, Any] = {
    "state": "denied",
    "votes": (ANSWER,),
    "decided_by": "bo",
    "decided_name": "Bo",
    "decided_at": NOW,
    "decided_channel": "slack",
    "reason": "too expensive",
    "edited_by": "cy",
    "edited_name": "Cy",
}


def request(**fields: Any) -> ApprovalRequest:
    return a_request(**{"notify": ("slack",)} | fields)


def summary(before: ApprovalRequest | None, after: ApprovalRequest) -> list[tuple[str, ApprovalRequest]]:
    return [(event.kind, event.request) for event in events_between(before, after, NOW)]


def test_question_is_opened_once() -> None:
    asked = request()
    assert events_between(None, asked, NOW) == (RequestEvent("opened", asked),)
    assert summary(asked, asked) == []
    assert summary(asked, replace(asked, votes=(ANSWER,))) == []
    assert summary(None, request(state="denied")) == []


def test_request_is_closed_once_with_its_end() -> None:
    asked = request(card=Card(effect="Pay 5"))
    ended = replace(asked, **ENDING | {"card": Card(effect="Pay 6"), "reminded": 1})
    assert summary(asked, ended) == [("closed", replace(asked, **ENDING))]
    assert summary(ended, replace(ended, state="lapsed")) == []


def test_new_revision_closes_the_previous_one_and_is_opened() -> None:
    asked = request()
    again = request(revision=2, card=Card(effect="Pay 6", note="cy changed it"), edited_by="cy", edited_name="Cy")
    closing = {"state": "cancelled", "decided_by": "cy", "decided_name": "Cy", "decided_at": NOW}
    closed = replace(asked, **closing | {"reason": "cy changed it"})
    assert summary(asked, again) == [("closed", closed), ("opened", again)]
    bare = request(revision=2)
    assert summary(asked, bare) == [
        (
            "closed",
            replace(asked, state="cancelled", decided_at=NOW, reason="A newer revision of this request is waiting."),
        ),
        ("opened", bare),
    ]
    assert summary(replace(asked, state="approved"), again) == [("opened", again)]


def test_revision_that_ends_at_once_closes_the_one_shown() -> None:
    asked = request()
    assert summary(asked, request(revision=2, **ENDING)) == [("closed", replace(asked, **ENDING))]


@table(
    ("before", "after", "kinds"),
    ({}, {"reminded": 1}, ["reminded"]),
    ({"reminded": 1}, {"reminded": 1}, []),
    ({"reminded": 2}, {"reminded": 1}, []),
    ({}, {"escalated": True}, ["escalated"]),
    ({}, {"assignments": (HANDED_ON,)}, ["assigned"]),
    ({"assignments": (HANDED_ON,)}, {"assignments": (HANDED_ON,)}, []),
    ({}, {"extended": True}, ["escalated"]),
    ({"escalated": True}, {"escalated": True}, []),
    ({}, {"asked_at": NOW}, ["put_off"]),
    ({"asked_at": NOW}, {"asked_at": NOW}, []),
    ({"escalated": True}, {"escalated": True, "extended": True}, ["escalated"]),
    ({}, {"reminded": 1, "escalated": True}, ["reminded", "escalated"]),
    ({}, {"reminded": 1, "escalated": True, "revision": 2}, ["closed", "opened"]),
    ({}, {"reminded": 1, "escalated": True, "state": "denied"}, ["closed"]),
    ({"state": "approved"}, {"reminded": 1, "escalated": True}, ["opened"]),
)
def test_timer_events_are_reported_while_the_request_is_open(
    before: dict[str, Any], after: dict[str, Any], kinds: list[str]
) -> None:
    events = events_between(request(**before), request(**after), NOW + timedelta(hours=1))
    assert [event.kind for event in events] == kinds
    assert all(event.request == request(**after) for event in events if event.kind != "closed")


def test_each_revision_is_reported_on_its_own_channels() -> None:
    silent, notified = request(notify=()), request(revision=2)
    assert summary(None, silent) == []
    assert summary(silent, replace(silent, **ENDING)) == []
    assert summary(silent, notified) == [("opened", notified)]
    assert [kind for kind, _ in summary(request(), request(notify=(), revision=2))] == ["closed"]
