"""Implements CEL's operators by the specification, because celpy's mix types wrongly.

Numbers compare by value across types, a boolean is not a number, and values of different types are unequal, without an
error. A `TypeError` raised here becomes a CEL error.
"""

import datetime
import math
import re
import string
from collections.abc import Callable
from typing import Any, Final

from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_NO_OVERLOAD: Final = "no such overload"
_NUMBERS: Final = frozenset({"int", "uint", "double"})
_ORDERED: Final = frozenset({"bool", "string", "bytes", "timestamp", "duration"})
# Check texts before celpy converts them: its pattern for durations takes hours on 28 hostile characters. Numbers have
# 64 bits: 2^63-1 has 19 digits, 2^64-1 has 20. ASCII only, because Python accepts other digits.
_DURATION: Final = re.compile(r"[-+]?(?:\d{1,19}(?:\.\d{0,18})?(?:h|ms|m|s|us|ns)){1,8}\Z", re.ASCII)
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[-+]\d\d:\d\d)\Z", re.ASCII)
_INTEGER: Final = re.compile(r"-?\d{1,19}\Z", re.ASCII)
_UNSIGNED: Final = re.compile(r"\d{1,20}\Z", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[-+]?(?:(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,4})?|inf|infinity|nan)\Z", re.ASCII | re.I
)
# Order matters: celpy's boolean is an int, its timestamp a datetime.
_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    ((celtypes.BoolType, bool), "bool"),
    (celtypes.UintType, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (celtypes.TimestampType, "timestamp"),
    (celtypes.DurationType, "duration"),
    (list, "list"),
    (dict, "map"),
    (type, "type"),
)


def kind_of(value: Any) -> str:
    """Return "" for a value that is not celpy's."""
    if value is None:
        return "null"
    return next((name for cls, name in _KINDS if isinstance(value, cls)), "")


def equal(left: Any, right: Any) -> bool:
    # The names of some types are functions here. All values that may be one are hashable.
    if callable(left) or callable(right):
        left, right = (_TYPES.get(each, each) if callable(each) else each for each in (left, right))
    one, two = kind_of(left), kind_of(right)
    if one in _NUMBERS and two in _NUMBERS:
        # Python's numbers compare exactly across types. celpy's classes raise, or treat a boolean as 1.
        return bool(_plain(left) == _plain(right))
    if one != two:
        return False
    match one:
        case "list":
            return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
        case "map":
            return len(left) == len(right) and all(_same_entry(right, key, value) for key, value in left.items())
        case _:
            return bool(left == right)


def _same_entry(container: dict[Any, Any], key: Any, value: Any) -> bool:
    found, other = find(container, key)
    return found and equal(value, other)


def find(container: dict[Any, Any], key: Any) -> tuple[bool, Any]:
    """Use CEL's equality. Return whether the key exists, and its value."""
    if kind_of(key) == "string":
        return (True, container[key]) if key in container else (False, None)
    # Do not use the hash: in Python `true`, 1 and 1.0 are the same key, in CEL a boolean is no number.
    return next(((True, value) for name, value in container.items() if equal(name, key)), (False, None))


def less(left: Any, right: Any) -> bool:
    """Raise `TypeError` for types without an order."""
    one, two = _comparable(left, right)
    return bool(one < two)


def less_or_equal(left: Any, right: Any) -> bool:
    """Raise `TypeError` for types without an order. `<=` is not the opposite of `>`: for NaN both are false."""
    one, two = _comparable(left, right)
    return bool(one <= two)


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    one, two = kind_of(left), kind_of(right)
    if one in _NUMBERS and two in _NUMBERS:
        return (float(left), float(right)) if "double" in (one, two) else (int(left), int(right))
    if one != two or one not in _ORDERED:
        raise TypeError(_NO_OVERLOAD)
    return left, right


def logical_and(left: Any, right: Any) -> Any:
    """False if either operand is, even if the other is an error.

    If neither is false and one is no boolean, the result is an error.
    """
    return _join(left, right, decides=False)


def logical_or(left: Any, right: Any) -> Any:
    """True if either operand is, even if the other is an error.

    If neither is true and one is no boolean, the result is an error.
    """
    return _join(left, right, decides=True)


def _join(left: Any, right: Any, *, decides: bool) -> Any:
    # If neither operand is a boolean, celpy writes both into the error. Each round of a macro then repeats the text of
    # the previous round with every escape doubled: gigabytes after thirty rounds.
    for value in (left, right):
        if isinstance(value, celtypes.BoolType) and bool(value) is decides:
            return value
    wrong = next((value for value in (left, right) if not isinstance(value, celtypes.BoolType)), None)
    if wrong is None:
        return celtypes.BoolType(not decides)
    return wrong if isinstance(wrong, CELEvalError) else CELEvalError(_NO_OVERLOAD)


def _contains(item: Any, container: Any) -> bool:
    if kind_of(container) == "list":
        return any(equal(item, other) for other in container)
    if kind_of(container) == "map":
        return find(container, item)[0]
    raise TypeError(_NO_OVERLOAD)


def _index(container: Any, key: Any) -> Any:
    if kind_of(container) == "map":
        found, value = find(container, key)
        if not found:
            raise KeyError("no such key")
        return value
    if kind_of(container) == "list" and kind_of(key) in _NUMBERS and float(key).is_integer():
        # Python would count a negative index from the end. In CEL it is an error.
        if not 0 <= key < len(container):
            raise IndexError("invalid_argument")
        return container[int(key)]
    raise TypeError(_NO_OVERLOAD)


def _plain(value: Any) -> int | float:
    return float(value) if isinstance(value, float) else int(value)


def _boolean(function: Callable[..., bool]) -> Callable[..., Any]:
    return _strict(lambda *args: celtypes.BoolType(function(*args)))


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    # celpy passes errors as values, which `||` or `&&` may absorb. Operators must pass them on.
    def call(*args: Any) -> Any:
        return next((arg for arg in args if isinstance(arg, CELEvalError)), None) or function(*args)

    return call


def _arithmetic(name: str, allowed: frozenset[tuple[str, str]]) -> Callable[..., Any]:
    original: Callable[..., Any] = base_functions[name]

    def calculate(left: Any, right: Any) -> Any:
        # celpy's classes would also add a boolean, which is an int. Allow only the specification's overloads.
        if (kind_of(left), kind_of(right)) not in allowed:
            raise TypeError(_NO_OVERLOAD)
        return _as_cel(original(left, right))

    return _strict(calculate)


def _as_cel(value: Any) -> Any:
    if type(value) is float:
        return celtypes.DoubleType(value)
    if type(value) is str:
        return celtypes.StringType(value)
    if type(value) is bytes:
        return celtypes.BytesType(value)
    if type(value) is datetime.timedelta:
        return celtypes.DurationType(value)
    return celtypes.ListType(value) if type(value) is list else value


def _divide(left: Any, right: Any) -> Any:
    # celpy returns infinity for any division by 0.0, even for 0.0 / 0.0.
    if kind_of(left) == kind_of(right) == "double" and right == 0.0:
        return celtypes.DoubleType(float(left) * math.copysign(math.inf, right))
    return _DIVIDE(left, right)


def _same(*kinds: str) -> frozenset[tuple[str, str]]:
    return frozenset((kind, kind) for kind in kinds)


def _size(value: Any) -> Any:
    if kind_of(value) not in ("string", "bytes", "list", "map"):
        raise TypeError(_NO_OVERLOAD)
    return celtypes.IntType(len(value))


def _texts(function: Callable[[str, str], bool]) -> Callable[..., Any]:
    def call(text: Any, part: Any) -> bool:
        if kind_of(text) != "string" or kind_of(part) != "string":
            raise TypeError(_NO_OVERLOAD)
        return function(text, part)

    return _boolean(call)


def _includes(holder: Any, item: Any) -> bool:
    if kind_of(holder) == "list":
        return _contains(item, holder)
    if kind_of(holder) != "string" or kind_of(item) != "string":
        raise TypeError(_NO_OVERLOAD)
    return str(item) in str(holder)


def _change_letters(change: Callable[[str], str]) -> Callable[..., Any]:

    def call(text: Any) -> Any:
        if kind_of(text) != "string":
            raise TypeError(_NO_OVERLOAD)
        return celtypes.StringType(change(str(text)))

    return _strict(call)


def lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


def split_text(text: str, separator: str) -> list[str]:
    """Return the characters for an empty separator."""
    return text.split(separator) if separator else list(text)


def _split_text(text: Any, separator: Any) -> Any:
    if kind_of(text) != "string" or kind_of(separator) != "string":
        raise TypeError(_NO_OVERLOAD)
    return celtypes.ListType([celtypes.StringType(each) for each in split_text(str(text), str(separator))])


def _join_texts(items: Any, separator: Any) -> Any:
    if kind_of(items) != "list" or kind_of(separator) != "string" or any(kind_of(each) != "string" for each in items):
        raise TypeError(_NO_OVERLOAD)
    return celtypes.StringType(str(separator).join(str(each) for each in items))


def _to_duration(value: Any) -> Any:
    if kind_of(value) == "duration":
        return value
    return celtypes.DurationType(_check(value, _DURATION))


def _to_timestamp(value: Any) -> Any:
    if kind_of(value) == "int":
        return celtypes.TimestampType(1970, 1, 1) + celtypes.DurationType(f"{int(value)}s")
    return value if kind_of(value) == "timestamp" else celtypes.TimestampType(_check(value, _TIMESTAMP))


def _check(value: Any, pattern: re.Pattern[str]) -> str:
    if kind_of(value) != "string":
        raise TypeError(_NO_OVERLOAD)
    if pattern.match(value) is None:
        raise ValueError("not convertible")
    return str(value)


def _to_int(value: Any) -> Any:
    match kind_of(value):
        case "int" | "uint" | "double":
            # CEL's integers have 64 bits, but Python's `int()` accepts any finite number.
            if isinstance(value, float) and not (math.isfinite(value) and abs(value) < 2**63):
                raise ValueError("range")
            return celtypes.IntType(int(value))
        case "timestamp":
            return celtypes.IntType(value)
        case _:
            return celtypes.IntType(int(_check(value, _INTEGER)))


def _to_uint(value: Any) -> Any:
    match kind_of(value):
        case "int" | "uint" | "double":
            if not 0 <= value < 2**64:
                raise ValueError("range")
            return celtypes.UintType(int(value))
        case _:
            return celtypes.UintType(int(_check(value, _UNSIGNED)))


def _to_double(value: Any) -> Any:
    return celtypes.DoubleType(_plain(value) if kind_of(value) in _NUMBERS else float(_check(value, _DOUBLE)))


def _to_bool(value: Any) -> Any:
    if kind_of(value) == "bool":
        return value
    if kind_of(value) != "string":
        raise TypeError(_NO_OVERLOAD)
    # Only the specification's words: Python's `bool()` returns true for any text, even `false`.
    words = {"1": True, "t": True, "true": True, "TRUE": True, "True": True}
    words |= {"0": False, "f": False, "false": False, "FALSE": False, "False": False}
    if str(value) not in words:
        raise ValueError("not convertible")
    return celtypes.BoolType(words[str(value)])


_DIVIDE: Final = _arithmetic("_/_", _same("int", "uint", "double"))

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "_&&_": logical_and,
    "_||_": logical_or,
    "_==_": _boolean(equal),
    "_!=_": _boolean(lambda left, right: not equal(left, right)),
    "_<_": _boolean(less),
    "_<=_": _boolean(less_or_equal),
    "_>_": _boolean(lambda left, right: less(right, left)),
    "_>=_": _boolean(lambda left, right: less_or_equal(right, left)),
    "_in_": _boolean(_contains),
    "_[_]": _strict(_index),
    "_+_": _arithmetic(
        "_+_",
        _same("int", "uint", "double", "string", "bytes", "list", "duration")
        | {("timestamp", "duration"), ("duration", "timestamp")},
    ),
    "_-_": _arithmetic("_-_", _same("int", "uint", "double", "duration", "timestamp") | {("timestamp", "duration")}),
    "_*_": _arithmetic("_*_", _same("int", "uint", "double")),
    "_/_": _strict(_divide),
    "_%_": _arithmetic("_%_", _same("int", "uint")),
    "size": _strict(_size),
    "contains": _texts(lambda text, part: part in text),
    "includes": _boolean(_includes),
    "startsWith": _texts(lambda text, part: text.startswith(part)),
    "endsWith": _texts(lambda text, part: text.endswith(part)),
    "lowerAscii": _change_letters(lower_ascii),
    "upperAscii": _change_letters(upper_ascii),
    "split": _strict(_split_text),
    "join": _strict(_join_texts),
    "duration": _strict(_to_duration),
    "timestamp": _strict(_to_timestamp),
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "bool": _to_bool,
}
"""Replacements for celpy's `base_functions`."""
_TYPES: Final[dict[Any, type]] = {
    FUNCTIONS["int"]: celtypes.IntType,
    FUNCTIONS["uint"]: celtypes.UintType,
    FUNCTIONS["double"]: celtypes.DoubleType,
    FUNCTIONS["bool"]: celtypes.BoolType,
    FUNCTIONS["duration"]: celtypes.DurationType,
    FUNCTIONS["timestamp"]: celtypes.TimestampType,
}
"""The types whose names are functions."""
