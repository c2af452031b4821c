from typing import Any

from signoff.contracts.call import CallOutcome, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.limits import TURN_RESULT_BYTES
from signoff.contracts.turn import TurnResult
from signoff.contracts.updates import Updates
from signoff.formats.replace import replace
from signoff.workflows.turn_state import bound_result, json_size

EURO = "€"


def outcome(number: int, **fields: Any) -> CallOutcome:
    """The value has 7,500 bytes."""
    given = {"call": f"c1.{number}", "tool": "look", "code": "ok", "value": Content(inline=EURO * 2_500)} | fields
    return CallOutcome(**given)


def finished(calls: list[CallOutcome]) -> TurnResult:
    return TurnResult(state="complete", calls=tuple(calls))


def test_result_within_the_limit_is_unchanged() -> None:
    calls = [outcome(n, structured=Content(inline=EURO * 2_500)) for n in range(90)]
    # Start with one character, because an empty value is omitted from a result.
    deps = TURN_RESULT_BYTES - json_size(finished([*calls, outcome(90, value=Content(inline="a"))])) + 1
    full = finished([*calls, outcome(90, value=Content(inline="a" * deps))])
    assert json_size(full) == TURN_RESULT_BYTES
    assert bound_result(full) is full
    more = bound_result(finished([*calls, outcome(90, value=Content(inline="a" * (deps + 1)))]))
    assert json_size(more) <= TURN_RESULT_BYTES
    assert [each.left_out for each in more.calls] == [("structured",), *[()] * 90]


def test_structured_data_and_updates_are_dropped_before_values() -> None:
    wide = {"structured": Content(inline=EURO * 2_700), "updates": Updates(data={"x": EURO * 2_700})}
    found = bound_result(finished([outcome(n, **wide) for n in range(80)]))
    assert TURN_RESULT_BYTES - 20_000 < json_size(found) <= TURN_RESULT_BYTES
    without = [each for each in found.calls if each.left_out]
    assert without == list(found.calls[: len(without)])
    assert all(each.left_out == ("structured", "updates") and each.updates is None for each in without)
    assert all(each.value.inline == EURO * 2_500 for each in found.calls)
    assert found.calls[-1] == outcome(79, **wide)


def test_values_and_notes_are_dropped_from_a_still_larger_result() -> None:
    denied = ToolDenied(source="human", tool="pay", call_id="c1.0", decided_by="ana", reason=EURO * 2_000)
    calls = [
        outcome(0, code="denied", denied=denied, note="n" * 2_000),
        outcome(1, value=Content(inline="ok")),
        *(outcome(n, structured=Content(inline="s")) for n in range(2, 300)),
    ]
    found = bound_result(finished(calls))
    assert json_size(found) <= TURN_RESULT_BYTES
    first, second, third = found.calls[:3]
    assert (first.code, first.note, first.left_out) == ("denied", "", ("value", "note"))
    assert first.value.inline == "[left out: the turn's result would be too large]"
    assert first.denied == replace(denied, reason="")
    assert second == calls[1]
    assert third.left_out == ("structured", "value")
    assert found.calls[-1].value == calls[-1].value
