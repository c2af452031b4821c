import math
from typing import Any

import pytest
from celpy import celtypes
from celpy.evaluation import CELEvalError
from tables import table
from test_operators import call

from signoff.policy.first_engine import first_program
from signoff.policy.operators import find
from signoff.policy.second_engine import as_celpy, second_program

INT, UINT, DOUBLE = celtypes.IntType, celtypes.UintType, celtypes.DoubleType
TEXT, BOOL, LIST, MAP = celtypes.StringType, celtypes.BoolType, celtypes.ListType, celtypes.MapType
NUMBERED = MAP({INT(1): TEXT("one")})
INF = math.inf


@table("key", INT(2), DOUBLE(1.5), BOOL(True), TEXT("1"))
def test_missing_key_is_an_error(key: Any) -> None:
    assert find(NUMBERED, key) == (False, None)
    assert call("_in_", key, NUMBERED) == BOOL(False)
    with pytest.raises(KeyError) as failed:
        call("_[_]", NUMBERED, key)
    assert failed.value.args == ("no such key",)


@table("key", INT(1), UINT(1), DOUBLE(1.0))
def test_number_finds_its_key_in_every_numeric_type(key: Any) -> None:
    assert find(NUMBERED, key) == (True, TEXT("one"))
    assert call("_[_]", NUMBERED, key) == TEXT("one")


@table(
    ("left", "right", "result"),
    (2.5, 0.0, INF),
    (2.5, -0.0, -INF),
    (-2.5, 0.0, -INF),
    (-2.5, -0.0, INF),
    (INF, 0.0, INF),
    (-INF, 0.0, -INF),
    (-INF, -0.0, INF),
    (5e-324, 0.0, INF),
)
def test_division_by_signed_zero_gives_signed_infinity(left: float, right: float, result: float) -> None:
    found = call("_/_", DOUBLE(left), DOUBLE(right))
    assert (found, type(found)) == (result, DOUBLE)


@table("left", 0.0, -0.0, math.nan)
@table("right", 0.0, -0.0)
def test_zero_divided_by_zero_is_nan(left: float, right: float) -> None:
    found = call("_/_", DOUBLE(left), DOUBLE(right))
    assert math.isnan(found)
    assert type(found) is DOUBLE


@table("kind", INT, UINT)
@table("name", "_/_", "_%_")
def test_integer_division_by_zero_is_an_error(kind: Any, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        call(name, kind(1), kind(0))


@table(
    ("name", "value", "result"),
    ("int", DOUBLE(200.0), INT(200)),
    ("int", DOUBLE(-(2.0**62)), INT(-(2**62))),
    ("int", DOUBLE(math.nextafter(2.0**63, 0)), INT(2**63 - 1024)),
    ("int", UINT(2**63 - 1), INT(2**63 - 1)),
    ("int", TEXT("9223372036854775807"), INT(2**63 - 1)),
    ("uint", DOUBLE(200.0), UINT(200)),
    ("uint", INT(2**63 - 1), UINT(2**63 - 1)),
    ("uint", DOUBLE(math.nextafter(2.0**64, 0)), UINT(2**64 - 2048)),
    ("uint", TEXT("18446744073709551615"), UINT(2**64 - 1)),
    ("double", TEXT("-inf"), DOUBLE(-INF)),
    ("double", INT(2**53), DOUBLE(2.0**53)),
    ("timestamp", INT(0), celtypes.TimestampType("1970-01-01T00:00:00Z")),
    ("timestamp", INT(-1), celtypes.TimestampType("1969-12-31T23:59:59Z")),
    ("duration", TEXT("-1.5h"), celtypes.DurationType("-5400s")),
)
def test_conversion_at_the_end_of_its_range_succeeds(name: str, value: Any, result: Any) -> None:
    found = call(name, value)
    assert found == result
    assert type(found) is type(result)


@table(
    ("name", "value"),
    ("int", DOUBLE(-INF)),
    ("int", UINT(2**63)),
    ("int", TEXT("9223372036854775808")),
    ("uint", DOUBLE(math.nan)),
    ("uint", DOUBLE(INF)),
    ("uint", DOUBLE(-1.0)),
    ("uint", TEXT("18446744073709551616")),
)
def test_conversion_beyond_its_range_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"range|overflow"):
        call(name, value)


@table("name", "int", "uint", "double", "bool")
def test_conversion_of_an_error_is_an_error(name: str) -> None:
    earlier = CELEvalError("divide by zero")
    assert second_program(f"{name}(1 / 0) == {name}('1')").run({}).kind == "error"
    with pytest.raises(TypeError, match=r"^no such overload$"):
        call(name, earlier)


AGREED = [
    ("{1: 'a'}[2] == 'a'", "error"),
    ("{1: 'a'}[args.d] == 'a'", "true"),
    ("2 in {1: 'a'}", "false"),
    ("[1, 2][args.d] == 2", "true"),
    ("[1, 2][2] == 2", "error"),
    ("-1.0 / 0.0 < -1.0e300", "true"),
    ("int(200.9) == 200", "true"),
    ("int(9223372036854775808.0) > 0", "error"),
    ("uint(200.9) == 200u", "true"),
    ("uint(-1) == 1u", "error"),
    ("double('1.5') == 1.5", "true"),
    ("bool('true')", "true"),
    ("bool('yes')", "error"),
    ("null == null", "true"),
    ("[null] == [null]", "true"),
    ("{'a': null} == {'a': null}", "true"),
    ("args.none == args.yes", "false"),
    ("type(1) == type(2)", "true"),
    ("type(1) == type(1.0)", "false"),
    ("true == true && false != true", "true"),
    ("[args.yes] == [args.one]", "false"),
    ("timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')", "true"),
    ("duration('1h30m') == duration('5400s')", "true"),
    ("'a' + 'b' == 'ab' && [1] + [2] == [1, 2]", "true"),
    ("1 + 9223372036854775807 > 0", "error"),
    ("-7 / 2 == -3 && -7 % 2 == -1", "true"),
]


@table(("text", "kind"), *AGREED)
def test_both_engines_agree_at_the_borders(text: str, kind: str) -> None:
    # The first engine checks literals against their types, but not data.
    data = {"one": 1, "d": 1.0, "yes": True, "none": None}
    assert first_program(text, ["args"]).run({"args": data}).kind == kind
    assert second_program(text).run({"args": as_celpy(data)}).kind == kind
