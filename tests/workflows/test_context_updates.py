import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from session_rig import message
from some import some
from tables import table
from turn_fixtures import GUEST

from signoff.contracts import names
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.limits import SESSION_UPDATES_BYTES
from signoff.contracts.session_messages import SessionInput, TurnReport
from signoff.contracts.turn import TurnInput
from signoff.contracts.updates import NO_UPDATES, Updates
from signoff.formats.replace import replace
from signoff.workflows.context_updates import AppliedUpdates, ContextUpdates
from signoff.workflows.conversation import Conversation
from signoff.workflows.outcomes import fallback_outcome


def refused(taken: AppliedUpdates) -> list[tuple[str, tuple[str, ...], str]]:
    return [(each.outcome.call, each.names, each.why) for each in taken.refused]


def turn(**fields: Any) -> TurnInput:
    given = {"engine": names.ENGINE, "session_id": "s", "turn_id": "t", "actor": "desk", "messages": ()}
    return TurnInput(**given | {"principal": GUEST} | fields)


def outcome(call: str, data: dict[str, Any] | None = None, **context: Any) -> CallOutcome:
    updates = Updates(data=data or {}, context=context)
    return CallOutcome(call=call, tool="choose", code="ok", gate="execute", direct=True, updates=updates)


@pytest.mark.row("F44")
def test_updates_apply_in_call_order() -> None:
    updating = ContextUpdates(turn(context={"channel_no": 1}, updates=Updates(data={"city": "Rome"})))
    assert updating.extra == {"channel_no": 1, "data": {"city": "Rome"}}
    plain = CallOutcome(call="c1.3", tool="look", code="ok")
    batch = [outcome("c1.1", {"city": "Porto"}, project="a"), outcome("c1.2", {"city": "Faro"}), plain]
    taken = updating.apply(batch)
    assert taken.outcomes == batch
    assert updating.extra == {"channel_no": 1, "data": {"city": "Faro"}, "project": "a"}
    assert updating.changed == Updates(data={"city": "Faro"}, context={"project": "a"})
    assert refused(taken) == []


@pytest.mark.row("P18")
def test_context_from_the_caller_is_neither_changed_nor_kept() -> None:
    updating = ContextUpdates(turn(context={"project": "a", "data": {"city": "Rome"}}))
    taken = updating.apply([outcome("c1.1", {"city": "x"}, project="b"), outcome("c1.2", {"city": "x", "date": 1})])
    (one, two) = taken.outcomes
    assert (one.code, one.updates) == ("ok", None)
    assert two.updates is not None
    assert updating.extra == {"project": "a", "data": {"city": "Rome", "date": 1}}
    assert updating.changed == Updates(data={"date": 1})
    assert refused(taken) == [("c1.1", ("data.city", "project"), "given"), ("c1.2", ("data.city",), "given")]


@pytest.mark.row("F44")
@table("order", *list(itertools.permutations("abc")))
def test_updates_over_the_size_limit_fail_the_last_call(order: tuple[str, ...]) -> None:
    updating = ContextUpdates(turn())
    third = SESSION_UPDATES_BYTES // 5 * 2
    taken = updating.apply([outcome(f"c1.{name}", {name: "x" * third}) for name in order])
    found = taken.outcomes
    assert [each.code for each in found] == ["ok", "ok", "execution_failed"]
    last = found[-1]
    assert (last.gate, last.direct, last.updates) == ("update", False, None)
    assert str(last.value.inline).startswith("update_invalid: `choose` ran and took effect")
    assert refused(taken) == [(f"c1.{order[2]}", (f"data.{order[2]}",), "full")]
    assert set(updating.changed.data) == set(order[:2])
    assert updating.changed.size <= SESSION_UPDATES_BYTES


def test_failed_call_with_oversized_updates_keeps_its_error() -> None:
    updating = ContextUpdates(turn())
    failed = replace(
        outcome("c1.1", {"a": "x" * SESSION_UPDATES_BYTES}),
        code="execution_failed",
        value=Content(inline="sold out"),
        note="Read on.",
    )
    [result] = updating.apply([failed]).outcomes
    assert (result.code, result.gate, result.value.inline, result.updates) == (
        "execution_failed",
        "execute",
        "sold out",
        None,
    )
    assert result.note.startswith("Read on. None of the changes of `choose` to the conversation were applied: ")
    assert updating.changed == NO_UPDATES


def test_updates_of_a_call_and_its_fallbacks_merge_in_order() -> None:
    first = replace(outcome("c1.1", {"city": "Porto", "seat": "1A"}), code="execution_failed")
    second = outcome("c1.1-1", {"city": "Faro"}, project="x")
    found = fallback_outcome(first, [second])
    assert (found.call, found.code) == ("c1.1", "ok")
    assert found.updates == Updates(data={"city": "Faro", "seat": "1A"}, context={"project": "x"})
    plain = CallOutcome(call="c1.1", tool="choose", code="execution_failed")
    assert fallback_outcome(plain, [plain]).updates is None


def test_recorded_outcome_without_updates_changes_nothing() -> None:
    updating = ContextUpdates(turn())
    old = CallOutcome(call="c1.1", tool="choose", code="ok", data_update=Content(inline={"city": "Porto"}))
    assert updating.apply([old]).outcomes == [old]
    assert (updating.extra, updating.changed) == ({}, NO_UPDATES)


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def session(*turns: str) -> Conversation:
    found = Conversation(SessionInput(engine=names.ENGINE, session_id="s", actor="desk"))
    for each in turns:
        begun(found, each)
    return found


def begun(found: Conversation, turn_id: str, **fields: Any) -> TurnInput:
    found.say([message("go", turn_id, **fields).model_dump(mode="json")], NOW)
    item = some(found.next(NOW))
    given = found.begin(item, NOW)
    found.step_aside(turn_id)
    return given


def ended(found: Conversation, turn_id: str, state: Any = "complete", **updates: Any) -> None:
    report = TurnReport(turn=turn_id, state=state, updates=Updates(**updates))
    found.report([report.model_dump(mode="json")], NOW)


@pytest.mark.row("F03")
def test_session_passes_updates_of_its_turns_to_later_turns() -> None:
    found = session("a", "b", "c")
    ended(found, "b", data={"city": "Faro"}, context={"project": "x"})
    ended(found, "a", "error", data={"city": "Porto"})
    given = begun(found, "d", context={"project": "y"})
    assert given.updates == Updates(data={"city": "Porto"}, context={"project": "x"})
    assert given.context == {"project": "y"}
    anew = Conversation(SessionInput.model_validate_json(found.snapshot().model_dump_json()))
    assert begun(anew, "e").updates == given.updates
    ended(anew, "b", data={"city": "Rome"})
    assert begun(anew, "f").updates == given.updates, "a turn that has ended tells nothing more"


@table(("to", "there"), ("bank", ("", "")), ("desk", ("trip", "book")))
def test_passed_turn_keeps_its_place_only_with_the_same_actor(to: str, there: tuple[str, str]) -> None:
    found = session()
    begun(found, "a", route="trip", step="book")
    found.report([TurnReport(turn="a", state="passed", pass_to=to).model_dump(mode="json")], NOW)
    for number in (2, 3):
        item = some(found.next(NOW))
        given = found.begin(item, NOW)
        assert (given.turn_id, given.actor, given.route, given.step) == (f"a-{number}", to, *there)
        found.report([TurnReport(turn=given.turn_id, state="passed", pass_to=to).model_dump(mode="json")], NOW)


def test_parallel_turns_cannot_exceed_the_session_update_limit() -> None:
    found = session("a", "b")
    half = "x" * (SESSION_UPDATES_BYTES // 2)
    ended(found, "a", data={"city": half})
    ended(found, "b", data={"date": half})
    given = begun(found, "c")
    assert given.updates == Updates(data={"city": half})
    assert [(each.what, each.id, each.code) for each in given.session_events] == [("report", "b", "full")]
    assert [each.state for each in found.view().turns] == ["complete", "complete", "waiting"]


def test_recorded_session_without_updates_has_none() -> None:
    old = SessionInput(engine=names.ENGINE, session_id="s", actor="desk").model_dump(mode="json")
    del old["updates"]
    found = Conversation(SessionInput.model_validate(old))
    begun(found, "a")
    found.report([{"turn": "a", "state": "complete"}], NOW)
    assert begun(found, "b").updates == NO_UPDATES
