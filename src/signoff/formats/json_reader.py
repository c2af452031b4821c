"""Reads JSON that others wrote. Refuses text that two readers may read differently."""

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

from signoff.formats.nearest_name import quote_name


class NotJson(ValueError):
    """Raised for text that is not JSON, or that readers read differently.

    The message follows its subject, as in "the body is nested too deeply".
    """


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson("holds a number that is too large")
    return number


def read_json(text: bytes | str, parse_float: Callable[[str], float] = _finite) -> Any:
    """Return the value of `text`.

    Raises `NotJson`, also for a name that comes twice in one object, for NaN and for the infinities. Of two equal names
    some readers take the first and others the last: a check would see one value, and the call another.
    """
    try:
        return json.loads(text, parse_float=parse_float, parse_constant=_refuse_constant, object_pairs_hook=_object_of)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(f"is not JSON: {error.msg.lower()} in line {error.lineno}") from None
    except UnicodeDecodeError:
        raise NotJson("is not JSON") from None
    except RecursionError:
        raise NotJson("is nested too deeply") from None
    except ValueError:
        # Python refuses integers of more than 4,300 digits.
        raise NotJson("holds a number that is too large") from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise NotJson(f"has {quote_name(name)} twice in one object")
            seen.add(name)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"holds {name}, which is no JSON number")
