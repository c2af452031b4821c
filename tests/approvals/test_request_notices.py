"""What is told of a request: each revision that people saw is opened once and closed once, however it ended."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from channel_kit import a_request
from hypothesis import given
from hypothesis import strategies as st

from signoff.approvals import deadlines
from signoff.approvals.desk import Desk
from signoff.approvals.notices import notices, number
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.steps import DeliverTask

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TIMES: dict[str, Any] = {
    "timeout": 400.0, "remind_after": 100.0, "escalate_after": 200.0, "escalate_to": ("role:cfo",),
    "on_timeout": "escalate",
}  # fmt: skip


def asked(**fields: Any) -> ApprovalRequest:
    """A request that names two channels."""
    return a_request(**({"notify": ("mail", "chat")} | fields))


class Told:
    """A desk, and what it tells."""

    def __init__(self) -> None:
        self.heard: list[DeliverTask] = []
        self.desk = Desk(self.heard.append)

    @property
    def words(self) -> list[tuple[str, int, int]]:
        """Event, revision and number of each notice."""
        return [(each.event, each.request.revision, number(each)) for each in self.heard]


def test_a_request_that_names_no_channel_is_not_told() -> None:
    """There is the inbox, and the turn costs what it did."""
    told = Told()
    told.desk.open(asked(notify=()), NOW)
    told.desk.cancel("main.s.t.c1.1", "ana", "", NOW)
    assert told.heard == []


def test_what_people_are_told_of_as_it_happens() -> None:
    """Opened with its deadline, reminded, escalated with those who may decide now, put off, closed as timed out."""
    told = Told()
    request = told.desk.open(asked(approvers=("role:approvers",), **TIMES), NOW)
    for _ in range(4):
        request = told.desk.get(request.id) or request
        happening = deadlines.due(request)
        assert happening is not None
        told.desk.reach(request.id, happening, happening.at)
    assert told.words == [
        ("opened", 1, 1), ("reminded", 1, 1), ("escalated", 1, 1), ("escalated", 1, 2), ("closed", 1, 1)
    ]  # fmt: skip
    opened, _, escalated, put_off, closed = (each.request for each in told.heard)
    assert opened.expires_at == NOW + timedelta(seconds=400)
    assert escalated.approvers == ("role:approvers", "role:cfo")
    assert put_off.expires_at == NOW + timedelta(seconds=800)
    assert (closed.state, closed.decided_at) == ("timed_out", NOW + timedelta(seconds=800))


def test_what_is_put_off_without_an_escalation_before_is_told_once() -> None:
    """Both happen at the deadline."""
    told = Told()
    request = told.desk.open(asked(timeout=9.0, escalate_to=("role:cfo",), on_timeout="escalate"), NOW)
    happening = deadlines.due(request)
    assert happening is not None
    told.desk.reach(request.id, happening, happening.at)
    assert told.words == [("opened", 1, 1), ("escalated", 1, 2)]


def test_a_revision_that_is_replaced_is_closed_and_says_by_whom() -> None:
    """Its card showed other arguments; it must not look as if it could still be answered."""
    first = deadlines.opened(asked(), NOW)
    card = first.card.model_copy(update={"note": "Bo changed the arguments"})
    second = first.model_copy(update={"revision": 2, "card": card, "edited_by": "bo", "edited_name": "Bo"})
    closed, opened = notices(first, second, NOW)
    assert (closed.event, closed.request.revision, opened.event, opened.request) == ("closed", 1, "opened", second)
    assert (closed.request.state, closed.request.decided_name) == ("cancelled", "Bo")
    assert (closed.request.reason, closed.request.card) == ("Bo changed the arguments", first.card)


def test_an_edit_that_is_the_approval_closes_the_card_that_people_have() -> None:
    """Nobody was asked about the second revision, so nobody is told of it."""
    first = deadlines.opened(asked(), NOW)
    settled = {
        "state": "approved",
        "decided_by": "bo",
        "decided_name": "Bo",
        "decided_channel": "web",
        "reason": "less",
    }
    second = first.model_copy(update={"revision": 2, "edited_by": "bo", **settled})
    (closed,) = notices(first, second, NOW)
    request = closed.request
    assert (closed.event, request.revision, request.args) == ("closed", 1, first.args)
    assert {name: dict(request)[name] for name in settled} == settled
    assert request.edited_by == "bo"


def test_what_is_over_is_not_closed_again() -> None:
    """An approval that lapses was closed when it was given; asked again, it is opened anew."""
    told = Told()
    opened = told.desk.open(asked(), NOW)
    approved = opened.model_copy(update={"state": "approved"})
    assert [each.event for each in notices(opened, approved, NOW)] == ["closed"]
    assert notices(approved, approved.model_copy(update={"state": "lapsed"}), NOW) == ()
    lapsed = approved.model_copy(update={"state": "lapsed"})
    again = deadlines.opened(asked(revision=2), NOW)
    assert [(each.event, each.request.revision) for each in notices(lapsed, again, NOW)] == [("opened", 2)]


@pytest.mark.parametrize("field", ["votes", "reason"])
def test_a_counted_vote_is_not_told(field: str) -> None:
    """The request waits as before for the others."""
    opened = deadlines.opened(asked(quorum=2), NOW)
    assert notices(opened, opened.model_copy(update={field: "x"}), NOW) == ()


STEPS = st.lists(st.sampled_from(["open", "time", "cancel", "approve", "lapse"]), max_size=12)


@given(STEPS)
def test_each_revision_is_opened_once_and_closed_once(steps: list[str]) -> None:
    """Whatever happens to a call, in whatever order; and no notice is told twice."""
    told, now, revision = Told(), NOW, 0
    for step in (*steps, "open", "cancel"):
        now += timedelta(seconds=1)
        request = told.desk.get("main.s.t.c1.1")
        if step == "open":
            revision += 1
            told.desk.open(asked(revision=revision, **TIMES), now)
        elif request is not None and step == "time":
            happening = deadlines.due(request)
            if happening is not None:
                now = happening.at
                told.desk.reach(request.id, happening, now)
        elif request is not None and step == "cancel":
            told.desk.cancel(request.id, "ana", "", now)
        elif request is not None and step == "approve" and request.state == "pending":
            told.desk._put(request.model_copy(update={"state": "approved"}), now)
        elif request is not None and step == "lapse":
            told.desk.lapse(request.id, now)
    counted = Counter(told.words)
    assert set(counted.values()) == {1}
    assert {(event, each) for event, each, _ in counted if event in ("opened", "closed")} == {
        (event, each) for event in ("opened", "closed") for each in range(1, revision + 1)
    }
