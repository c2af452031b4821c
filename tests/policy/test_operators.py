import datetime
import importlib.util
import logging
from types import ModuleType
from typing import Any

import pytest
from celpy import celtypes
from celpy.evaluation import CELEvalError
from tables import table

from signoff.policy import operators as imported
from signoff.policy.second_engine import as_celpy, second_program

INT, UINT, DOUBLE = celtypes.IntType, celtypes.UintType, celtypes.DoubleType
TEXT, BYTES, BOOL = celtypes.StringType, celtypes.BytesType, celtypes.BoolType
LIST, MAP = celtypes.ListType, celtypes.MapType
NAN = DOUBLE("nan")
TIME = celtypes.TimestampType("2026-01-02T03:04:05Z")
HOUR = celtypes.DurationType("3600s")
ERROR = CELEvalError("earlier")
OF_TWO = [
    "_==_",
    "_!=_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "_in_",
    "_[_]",
    "_+_",
    "_-_",
    "_*_",
    "_/_",
    "_%_",
    "contains",
    "startsWith",
    "endsWith",
]


def fresh() -> ModuleType:
    """Rebuild the module's import-time tables."""
    spec = importlib.util.spec_from_file_location(imported.__name__, imported.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(name: str, *args: Any) -> Any:
    return fresh().FUNCTIONS[name](*args)


KINDS = [
    (None, "null"),
    (BOOL(True), "bool"),
    (True, "bool"),
    (UINT(1), "uint"),
    (INT(1), "int"),
    (DOUBLE(1), "double"),
    (TEXT("a"), "string"),
    (BYTES(b"a"), "bytes"),
    (TIME, "timestamp"),
    (HOUR, "duration"),
    (LIST([]), "list"),
    (MAP({}), "map"),
    (INT, "type"),
    (object(), ""),
]


@table(("value", "kind"), *KINDS)
def test_every_value_has_its_kind(value: Any, kind: str) -> None:
    assert imported.kind_of(value) == kind


def test_only_the_listed_functions_are_replaced() -> None:
    table = fresh().FUNCTIONS
    joined = ["_&&_", "_||_"]
    texts = ["includes", "join", "lowerAscii", "split", "upperAscii"]
    assert sorted(table) == sorted(
        [*OF_TWO, *joined, *texts, "size", "duration", "timestamp", "int", "uint", "double", "bool"]
    )
    assert all(callable(each) for each in table.values())


YES, NO, WRONG, OTHER = celtypes.BoolType(True), celtypes.BoolType(False), CELEvalError("divide by zero"), INT(1)


@table(
    ("left", "right", "conjunction", "disjunction"),
    (YES, YES, "true", "true"),
    (YES, NO, "false", "true"),
    (NO, NO, "false", "false"),
    (YES, WRONG, "divide by zero", "true"),
    (NO, WRONG, "false", "divide by zero"),
    (YES, OTHER, "no such overload", "true"),
    (NO, OTHER, "false", "no such overload"),
    (WRONG, WRONG, "divide by zero", "divide by zero"),
    (OTHER, OTHER, "no such overload", "no such overload"),
)
def test_deciding_operand_absorbs_errors(left: Any, right: Any, conjunction: str, disjunction: str) -> None:
    for one, two in ((left, right), (right, left)):
        assert summary(imported.logical_and(one, two)) == conjunction
        assert summary(imported.logical_or(one, two)) == disjunction


def summary(value: Any) -> str:
    if isinstance(value, celtypes.BoolType):
        return "true" if value else "false"
    assert isinstance(value, CELEvalError)
    assert len(value.args) == 1
    return str(value.args[0])


EQUAL = [
    (INT(1), DOUBLE(1.0), True),
    (INT(1), UINT(1), True),
    (INT(1), DOUBLE(1.5), False),
    (INT(2**53 + 1), DOUBLE(2.0**53), False),
    (BOOL(True), INT(1), False),
    (BOOL(True), BOOL(True), True),
    (BOOL(True), BOOL(False), False),
    (TEXT("a"), TEXT("a"), True),
    (TEXT("a"), TEXT("b"), False),
    (TEXT("a"), BYTES(b"a"), False),
    (None, None, True),
    (None, INT(0), False),
    (NAN, NAN, False),
    (INT, INT, True),
    (INT, UINT, False),
    (LIST([INT(1)]), LIST([DOUBLE(1.0)]), True),
    (LIST([INT(1)]), LIST([INT(1), INT(1)]), False),
    (LIST([INT(1), INT(2)]), LIST([INT(1), INT(3)]), False),
    (LIST([INT(1), INT(2)]), LIST([INT(3), INT(2)]), False),
    (MAP({TEXT("a"): INT(1)}), MAP({TEXT("a"): DOUBLE(1)}), True),
    (MAP({TEXT("a"): INT(1)}), MAP({TEXT("b"): INT(1)}), False),
    (MAP({TEXT("a"): INT(1)}), MAP({TEXT("a"): INT(2)}), False),
    (MAP({TEXT("a"): INT(1)}), MAP({TEXT("a"): INT(1), TEXT("b"): INT(1)}), False),
    (MAP({INT(1): INT(1)}), MAP({DOUBLE(1): INT(1)}), True),
    (MAP({TEXT("a"): None}), MAP({TEXT("b"): None}), False),
    (TIME, TIME, True),
    (TIME, HOUR, False),
]


@table(("left", "right", "same"), *EQUAL)
def test_equality_follows_the_specification(left: Any, right: Any, same: bool) -> None:
    for one, two in ((left, right), (right, left)):
        assert call("_==_", one, two) == BOOL(same)
        assert isinstance(call("_==_", one, two), BOOL)
        assert call("_!=_", one, two) == BOOL(not same)


ORDER = [
    (INT(1), INT(2)),
    (INT(1), DOUBLE(1.5)),
    (DOUBLE(0.5), INT(1)),
    (UINT(1), INT(2)),
    (INT(2**60), INT(2**60 + 1)),
    (UINT(2**60), INT(2**60 + 1)),
    (TEXT("a"), TEXT("b")),
    (BYTES(b"a"), BYTES(b"b")),
    (BOOL(False), BOOL(True)),
    (TIME, TIME + HOUR),
    (HOUR, HOUR + HOUR),
]


@table(("low", "high"), *ORDER)
def test_ordering_follows_the_specification(low: Any, high: Any) -> None:
    found = [
        [bool(call(name, *pair)) for name in ("_<_", "_<=_", "_>_", "_>=_")]
        for pair in ((low, high), (high, low), (low, low))
    ]
    assert found == [[True, True, False, False], [False, False, True, True], [False, True, False, True]]
    assert isinstance(call("_<_", low, high), BOOL)


@table("name", "_<_", "_<=_", "_>_", "_>=_")
def test_nan_compares_false_in_every_order(name: str) -> None:
    assert call(name, NAN, DOUBLE(1)) == BOOL(False)
    assert call(name, NAN, NAN) == BOOL(False)


OVERLOADS = [
    ("_<_", BOOL(True), INT(2)),
    ("_<_", TEXT("a"), INT(2)),
    ("_<=_", LIST([]), LIST([])),
    ("_>_", None, None),
    ("_>=_", INT(1), BOOL(True)),
    ("_in_", INT(1), TEXT("1")),
    ("_[_]", LIST([1]), TEXT("0")),
    ("_[_]", LIST([1]), BOOL(False)),
    ("_[_]", LIST([1]), DOUBLE(0.5)),
    ("_[_]", TEXT("abc"), INT(0)),
    ("_+_", INT(1), UINT(1)),
    ("_+_", INT(1), DOUBLE(1)),
    ("_+_", BOOL(True), BOOL(True)),
    ("_+_", TEXT("a"), INT(1)),
    ("_+_", TIME, TIME),
    ("_-_", TEXT("a"), TEXT("a")),
    ("_-_", HOUR, TIME),
    ("_-_", LIST([]), LIST([])),
    ("_*_", TEXT("a"), INT(3)),
    ("_*_", HOUR, INT(3)),
    ("_*_", INT(2), DOUBLE(2)),
    ("_/_", INT(2), DOUBLE(2)),
    ("_/_", TEXT("a"), TEXT("a")),
    ("_%_", DOUBLE(2), DOUBLE(2)),
    ("_%_", BOOL(True), BOOL(True)),
    ("size", INT(3)),
    ("size", None),
    ("contains", TEXT("a"), BYTES(b"a")),
    ("contains", BYTES(b"a"), TEXT("a")),
    ("startsWith", LIST([TEXT("a")]), TEXT("a")),
    ("endsWith", TEXT("a"), INT(1)),
    ("int", BOOL(True)),
    ("int", None),
    ("uint", TIME),
    ("double", BOOL(True)),
    ("bool", INT(1)),
    ("bool", None),
    ("duration", INT(1)),
    ("timestamp", DOUBLE(1)),
]


@table(("name", "args"), *[(name, args) for name, *args in OVERLOADS])
def test_unspecified_overload_is_an_error(name: str, args: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"^no such overload$"):
        call(name, *args)


VALUES = [
    ("_in_", (INT(1), LIST([DOUBLE(1)])), BOOL(True)),
    ("_in_", (INT(2), LIST([DOUBLE(1)])), BOOL(False)),
    ("_in_", (BOOL(True), LIST([INT(1)])), BOOL(False)),
    ("_in_", (TEXT("a"), MAP({TEXT("a"): INT(0)})), BOOL(True)),
    ("_in_", (TEXT("b"), MAP({TEXT("a"): INT(0)})), BOOL(False)),
    ("_in_", (DOUBLE(1), MAP({INT(1): INT(0)})), BOOL(True)),
    ("_[_]", (MAP({TEXT("a"): INT(7)}), TEXT("a")), INT(7)),
    ("_[_]", (MAP({INT(1): INT(7)}), DOUBLE(1)), INT(7)),
    ("_[_]", (LIST([INT(7), INT(8)]), INT(0)), INT(7)),
    ("_[_]", (LIST([INT(7), INT(8)]), INT(1)), INT(8)),
    ("_[_]", (LIST([INT(7), INT(8)]), DOUBLE(1.0)), INT(8)),
    ("_[_]", (LIST([INT(7), INT(8)]), UINT(1)), INT(8)),
    ("_+_", (INT(1), INT(2)), INT(3)),
    ("_+_", (UINT(1), UINT(2)), UINT(3)),
    ("_+_", (DOUBLE(1.5), DOUBLE(2)), DOUBLE(3.5)),
    ("_+_", (TEXT("a"), TEXT("b")), TEXT("ab")),
    ("_+_", (BYTES(b"a"), BYTES(b"b")), BYTES(b"ab")),
    ("_+_", (LIST([INT(1)]), LIST([INT(2)])), LIST([INT(1), INT(2)])),
    ("_+_", (TIME, HOUR), celtypes.TimestampType("2026-01-02T04:04:05Z")),
    ("_+_", (HOUR, TIME), celtypes.TimestampType("2026-01-02T04:04:05Z")),
    ("_+_", (HOUR, HOUR), celtypes.DurationType("7200s")),
    ("_-_", (INT(3), INT(2)), INT(1)),
    ("_-_", (UINT(3), UINT(2)), UINT(1)),
    ("_-_", (DOUBLE(3), DOUBLE(0.5)), DOUBLE(2.5)),
    ("_-_", (TIME, HOUR), celtypes.TimestampType("2026-01-02T02:04:05Z")),
    ("_-_", (TIME + HOUR, TIME), HOUR),
    ("_-_", (HOUR, HOUR), celtypes.DurationType("0s")),
    ("_*_", (INT(3), INT(2)), INT(6)),
    ("_*_", (UINT(3), UINT(2)), UINT(6)),
    ("_*_", (DOUBLE(3), DOUBLE(0.5)), DOUBLE(1.5)),
    ("_/_", (INT(7), INT(2)), INT(3)),
    ("_/_", (INT(-7), INT(2)), INT(-3)),
    ("_/_", (UINT(7), UINT(2)), UINT(3)),
    ("_/_", (DOUBLE(7), DOUBLE(2)), DOUBLE(3.5)),
    ("_%_", (INT(7), INT(4)), INT(3)),
    ("_%_", (INT(-7), INT(4)), INT(-3)),
    ("_%_", (UINT(7), UINT(4)), UINT(3)),
    ("size", (TEXT("é"),), INT(1)),
    ("size", (BYTES("é".encode()),), INT(2)),
    ("size", (LIST([INT(1)]),), INT(1)),
    ("size", (MAP({}),), INT(0)),
    ("contains", (TEXT("abc"), TEXT("b")), BOOL(True)),
    ("contains", (TEXT("b"), TEXT("abc")), BOOL(False)),
    ("startsWith", (TEXT("abc"), TEXT("ab")), BOOL(True)),
    ("startsWith", (TEXT("abc"), TEXT("bc")), BOOL(False)),
    ("endsWith", (TEXT("abc"), TEXT("bc")), BOOL(True)),
    ("endsWith", (TEXT("abc"), TEXT("ab")), BOOL(False)),
    ("duration", (HOUR,), HOUR),
    ("duration", (TEXT("1h"),), HOUR),
    ("duration", (TEXT("60m"),), HOUR),
    ("timestamp", (TIME,), TIME),
    ("timestamp", (TEXT("2026-01-02T03:04:05Z"),), TIME),
    ("timestamp", (INT(86_400),), celtypes.TimestampType("1970-01-02T00:00:00Z")),
    ("int", (INT(5),), INT(5)),
    ("int", (UINT(5),), INT(5)),
    ("int", (DOUBLE(5.9),), INT(5)),
    ("int", (DOUBLE(-5.9),), INT(-5)),
    ("int", (TEXT("-5"),), INT(-5)),
    ("int", (celtypes.TimestampType("1970-01-02T00:00:00Z"),), INT(86_400)),
    ("uint", (INT(5),), UINT(5)),
    ("uint", (INT(0),), UINT(0)),
    ("uint", (UINT(2**64 - 1),), UINT(2**64 - 1)),
    ("uint", (DOUBLE(5.9),), UINT(5)),
    ("uint", (TEXT("5"),), UINT(5)),
    ("double", (INT(5),), DOUBLE(5)),
    ("double", (UINT(5),), DOUBLE(5)),
    ("double", (DOUBLE(0.5),), DOUBLE(0.5)),
    ("double", (TEXT("-1.5e3"),), DOUBLE(-1500)),
    ("double", (TEXT(".5"),), DOUBLE(0.5)),
    ("double", (TEXT("Infinity"),), DOUBLE("inf")),
    *[("bool", (TEXT(word),), BOOL(True)) for word in ("1", "t", "true", "TRUE", "True")],
    *[("bool", (TEXT(word),), BOOL(False)) for word in ("0", "f", "false", "FALSE", "False")],
    ("bool", (BOOL(True),), BOOL(True)),
    ("bool", (BOOL(False),), BOOL(False)),
]


@table(("name", "args", "result"), *VALUES)
def test_operator_returns_the_specified_value_and_type(name: str, args: tuple[Any, ...], result: Any) -> None:
    found = call(name, *args)
    assert found == result
    assert imported.kind_of(found) == imported.kind_of(result)
    assert type(found).__module__ == "celpy.celtypes"


WRONG = [
    ("_[_]", (MAP({TEXT("a"): INT(7)}), TEXT("b")), KeyError, "no such key"),
    ("_[_]", (LIST([INT(7)]), INT(1)), IndexError, "invalid_argument"),
    ("_[_]", (LIST([INT(7)]), INT(-1)), IndexError, "invalid_argument"),
    ("int", (DOUBLE(2.0**63),), ValueError, "range"),
    ("int", (DOUBLE(-(2.0**63)),), ValueError, "range"),
    ("int", (NAN,), ValueError, "range"),
    ("int", (DOUBLE("inf"),), ValueError, "range"),
    ("int", (TEXT("5.0"),), ValueError, "not convertible"),
    ("int", (TEXT(" 5"),), ValueError, "not convertible"),
    ("int", (TEXT(""),), ValueError, "not convertible"),
    ("uint", (INT(-1),), ValueError, "range"),
    ("uint", (DOUBLE(2.0**64),), ValueError, "range"),
    ("uint", (TEXT("-5"),), ValueError, "not convertible"),
    ("double", (TEXT("1_000"),), ValueError, "not convertible"),
    ("bool", (TEXT("yes"),), ValueError, "not convertible"),
    ("bool", (TEXT("tRUE"),), ValueError, "not convertible"),
    ("duration", (TEXT("1"),), ValueError, "not convertible"),
    ("duration", (TEXT("1h "),), ValueError, "not convertible"),
    ("timestamp", (TEXT("2026-01-02"),), ValueError, "not convertible"),
]


@table(("name", "args", "error", "words"), *WRONG)
def test_impossible_operation_is_the_specified_error(
    name: str, args: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as failed:
        call(name, *args)
    assert failed.value.args == (words,)


@table("name", *OF_TWO)
def test_error_operand_is_returned_unchanged(name: str) -> None:
    assert call(name, ERROR, INT(1)) is ERROR
    assert call(name, INT(1), ERROR) is ERROR
    assert call("size", ERROR) is ERROR


def test_python_results_become_cel_values() -> None:
    wrap = imported._as_cel
    plain: list[tuple[Any, type]] = [
        (1.5, DOUBLE),
        ("a", TEXT),
        (b"a", BYTES),
        (datetime.timedelta(hours=1), celtypes.DurationType),
        ([INT(1)], LIST),
    ]
    for value, kind in plain:
        assert type(wrap(value)) is kind
        assert wrap(value) == value
    for value in (INT(1), TIME, MAP({})):
        assert wrap(value) is value


def test_values_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    data = {"args": as_celpy({"iban": "DE89 secret", "n": [0, 1]})}
    for text in ("args.iban + 'x' == 'y'", "args.n.exists(n, 10 / n > 5 || args.iban > n)", "args.iban.gone"):
        second_program(text).run(data)
    assert [record.name for record in caplog.records if record.name.startswith("celpy")] == []
