from datetime import UTC, datetime, timedelta
from typing import Any

from some import some
from tables import table

from signoff.approvals import deadlines
from signoff.contracts.approval import ApprovalRequest
from signoff.formats.replace import replace
from signoff.testing import a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after(hours: float) -> datetime:
    return NOW + timedelta(hours=hours)


def waiting(**fields: Any) -> ApprovalRequest:
    return a_request(opened=NOW, **{"timeout": 36_000.0, "approvers": ("role:finance",)} | fields)


FULL = {"remind_after": 3_600.0, "escalate_after": 7_200.0, "escalate_to": ("role:cfo", "role:finance")}


def steps(request: ApprovalRequest) -> list[tuple[str, datetime]]:
    seen: list[tuple[str, datetime]] = []
    while (happening := deadlines.next_event(request)) is not None:
        assert len(seen) < 9
        seen.append((happening.what, happening.at))
        request = deadlines.apply_event(request, happening, happening.at)
    assert request.state == "timed_out"
    return seen


def test_plain_request_has_only_its_deadline() -> None:
    assert steps(waiting()) == [("deadline", after(10))]


def test_reminder_escalation_and_deadline_have_absolute_times() -> None:
    assert steps(waiting(**FULL)) == [("remind", after(1)), ("escalate", after(2)), ("deadline", after(10))]
    request = waiting(**FULL)
    first = some(deadlines.next_event(request))
    late = deadlines.apply_event(request, first, after(9))
    assert deadlines.next_event(late) == deadlines.DueEvent(after(2), "escalate")


def test_events_are_listed_before_a_moment_and_not_at_it() -> None:
    for hours, kinds in ((1, []), (1.5, ["remind"]), (2, ["remind"]), (11, ["remind", "escalate", "deadline"])):
        events = deadlines.list_events(waiting(**FULL), after(hours))
        assert [event.what for event, _ in events] == kinds
    assert [request.state for _, request in events] == ["pending", "pending", "timed_out"]


def test_every_reminder_is_sent_once() -> None:
    request = replace(waiting(), remind_at=(after(1), after(3)))
    assert steps(request) == [("remind", after(1)), ("remind", after(3)), ("deadline", after(10))]
    assert deadlines.apply_event(request, deadlines.DueEvent(after(1), "remind"), after(1)).reminded == 1


def test_zero_delay_escalates_at_once() -> None:
    assert steps(waiting(escalate_after=0.0)) == [("escalate", NOW), ("deadline", after(10))]


def test_escalation_adds_approvers_once() -> None:
    once = deadlines.escalate(waiting(**FULL))
    assert (once.approvers, once.escalated) == (("role:finance", "role:cfo"), True)
    assert deadlines.escalate(once) is once


def test_deadline_with_escalation_is_extended_once() -> None:
    request = waiting(on_timeout="escalate", escalate_to=("role:cfo",))
    assert steps(request) == [("deadline", after(10)), ("deadline", after(20))]
    put_off = deadlines.expire(request, after(10))
    assert (put_off.state, put_off.expires_at, put_off.approvers) == (
        "pending",
        after(20),
        ("role:finance", "role:cfo"),
    )
    gone = deadlines.expire(put_off, after(20))
    assert (gone.state, gone.decided_at, gone.decided_by) == ("timed_out", after(20), "")


def test_last_moment_is_the_extended_deadline() -> None:
    assert deadlines.last_moment(waiting()) == after(10)
    request = waiting(on_timeout="escalate", escalate_to=("role:cfo",))
    assert deadlines.last_moment(request) == after(20)
    assert deadlines.last_moment(deadlines.expire(request, after(10))) == after(20)


@table(
    ("asked", "timeout", "moved"),
    (0, 10, 10), (9.75, 10, 10), (9.9, 10, 10.15), (10, 10, 10.25), (99, 10, 10.25), (0.1, 0.1, 0.2), (0.05, 0.1, 0.2),
)  # fmt: skip
def test_question_leaves_a_quarter_hour_or_at_most_the_timeout(asked: float, timeout: float, moved: float) -> None:
    request = waiting(timeout=timeout * 3_600)
    later = deadlines.put_off(request, after(asked))
    assert later.expires_at == max(after(moved), after(timeout))
    assert deadlines.put_off(later, after(asked)) == later
    assert deadlines.put_off(request, None) == request


def test_question_moves_no_deadline_that_escalates() -> None:
    request = waiting(on_timeout="escalate", escalate_to=("role:cfo",))
    assert deadlines.put_off(request, after(10)) == request


def test_deadline_is_last_among_simultaneous_events() -> None:
    request = waiting(**FULL | {"remind_after": 36_000.0, "escalate_after": 36_000.0})
    assert [what for what, _ in steps(request)] == ["remind", "escalate", "deadline"]


def test_outdated_event_changes_nothing() -> None:
    request = waiting(**FULL)
    old = some(deadlines.next_event(request))
    asked_again = deadlines.open_request(request, after(5))
    assert deadlines.apply_event(asked_again, old, after(6)) is asked_again
    settled = replace(request, state="approved")
    assert deadlines.next_event(settled) is None
    assert deadlines.apply_event(settled, old, after(6)) is settled
    assert deadlines.escalate(settled) is settled
    assert deadlines.expire(settled, after(20)) is settled


def test_first_approvers_are_known_after_an_escalation() -> None:
    asked = waiting(**FULL | {"approvers": ("role:finance", "role:ops")})
    assert deadlines.first_approvers(asked) == ("role:finance", "role:ops")
    assert deadlines.first_approvers(deadlines.escalate(asked)) == ("role:ops",)
