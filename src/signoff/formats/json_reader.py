"""Reads external JSON. Rejects text that two readers may read differently."""

import json
import math
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from signoff.formats.nearest_name import quote_name

if TYPE_CHECKING:
    from signoff.contracts.content import Words


class NotJson(ValueError):
    """Raised for text that is not JSON, or that readers read differently.

    The message follows its subject, as in "the body is nested too deeply".
    """

    def __init__(self, words: "Words") -> None:
        from signoff.languages.remarks import english  # noqa: PLC0415

        super().__init__(english(words))
        self.words = words


def _remarks() -> ModuleType:
    # Import late: a hook starts before each call of a coding agent, and usually reads valid JSON.
    from signoff.languages import json_remarks  # noqa: PLC0415

    return json_remarks


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotJson(_remarks().LARGE_NUMBER)
    return number


def read_json(text: bytes | str, parse_float: Callable[[str], float] = _finite) -> Any:
    """Raise `NotJson`, also for a repeated name in one object, for NaN and for infinities.

    Some readers use the first and others the last of two equal names: a check would see one value, and the call
    another.
    """
    try:
        return json.loads(text, parse_float=parse_float, parse_constant=_refuse_constant, object_pairs_hook=_object_of)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(_remarks().syntax_error(error)) from None
    except UnicodeDecodeError:
        raise NotJson("is not JSON") from None
    except RecursionError:
        raise NotJson(_remarks().DEEP) from None
    except ValueError:
        # Python rejects integers of more than 4,300 digits.
        raise NotJson(_remarks().LARGE_NUMBER) from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise NotJson(_remarks().double_name(quote_name(name)))
            seen.add(name)
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(_remarks().constant_number(name))
