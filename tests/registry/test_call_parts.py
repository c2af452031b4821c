from typing import Any

from tables import table

from signoff.contracts.completion import ProposedCall
from signoff.contracts.limits import (
    ARGUMENTS_BYTES,
    CALLS_BYTES_PER_COMPLETION,
    CALLS_KEPT_PER_COMPLETION,
    CALLS_PER_COMPLETION,
)
from signoff.registry.gates.call_parts import call_parts


def proposed(args: Any, count: int = 1) -> list[ProposedCall]:
    return [ProposedCall("pay", args, f"p{number}") for number in range(count)]


@table(
    ("args", "parsed", "why"),
    ({"a": 1}, {"a": 1}, ""),
    ('{"a": 1}', {"a": 1}, ""),
    ("", {}, ""),
    (None, {}, ""),
    ("{", {}, "is not JSON"),
    ("[" * 100_000, {}, "nested too deeply"),
    ([1], {}, "not a JSON object"),
    ({"a": 2**60}, {}, "send it as a string"),
    ({"a": "x" * ARGUMENTS_BYTES}, {}, "at most"),
)
def test_arguments_are_one_object_or_malformed(args: Any, parsed: dict[str, Any], why: str) -> None:
    [part] = call_parts(proposed(args), 3)
    assert (part.call, part.provider_call, part.tool, part.args.inline) == ("c3.1", "p0", "pay", parsed)
    assert why in part.malformed
    assert bool(why) == bool(part.malformed)


def test_calls_above_the_limits_are_surplus_and_finally_dropped() -> None:
    parts = call_parts(proposed({}, CALLS_KEPT_PER_COMPLETION + 1), 1)
    assert len(parts) == CALLS_KEPT_PER_COMPLETION
    assert [part.surplus for part in parts].index(True) == CALLS_PER_COMPLETION
    large = {"a": "x" * (ARGUMENTS_BYTES - 20)}
    fitting = CALLS_BYTES_PER_COMPLETION // (ARGUMENTS_BYTES - 12)
    sized = call_parts([*proposed(large, fitting + 1), *proposed({})], 1)
    assert [part.surplus for part in sized] == [False] * fitting + [True, False]
    assert sized[fitting].args.inline == {}


def test_dropped_calls_use_no_room_of_later_ones() -> None:
    def sized(size: int) -> ProposedCall:
        return ProposedCall("pay", {"a": "x" * (size - len('{"a":""}'))}, "p")

    count, rest = divmod(CALLS_BYTES_PER_COMPLETION, ARGUMENTS_BYTES)
    assert (count > 1, rest) == (True, 0)
    malformed = [ProposedCall("pay", args, "p") for args in ("{", [1], {"a": 2**60}, {"a": "x" * ARGUMENTS_BYTES})]
    full = [sized(ARGUMENTS_BYTES)] * count
    calls = [*malformed, *full[1:], *proposed({}), full[0], sized(ARGUMENTS_BYTES - 2)]
    parts = call_parts(calls, 1)
    assert [bool(part.malformed) for part in parts] == [True] * len(malformed) + [False] * (count + 2)
    assert [part.surplus for part in parts] == [False] * (len(parts) - 2) + [True, False]
    assert call_parts(proposed("{", CALLS_PER_COMPLETION + 1), 1)[-1].malformed == ""


def test_model_learns_the_reason_for_malformed_arguments() -> None:
    cut = "your answer was cut at its greatest length, within these arguments; send less in one call"
    for args, why in (("{", cut), ([1], "the arguments are not a JSON object")):
        [part] = call_parts([ProposedCall("pay", args, "p", cut=True)], 1)
        assert part.malformed == why


@table("args", {"rows": [1] * 2_001}, {"text": "x" * 70_000})
def test_oversized_arguments_error_suggests_an_alternative(args: dict[str, Any]) -> None:
    [part] = call_parts([ProposedCall(tool="write", args=args)], 1)
    assert part.malformed.endswith("; split them over several calls, or name a file or record that holds them")
