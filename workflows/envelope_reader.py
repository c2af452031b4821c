"""Parses arguments of signals and updates."""

from typing import Any, TypeVar

from pydantic import ValidationError

from signoff.contracts.canonical_json import NotCanonical, canonical_json, nesting
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.limits import MAX_NESTING

_ShapeT = TypeVar("_ShapeT", bound=FrozenModel)


def read_envelope(body: Any, shape: type[_ShapeT]) -> _ShapeT | str:
    """Return `body` parsed as `shape`, or a description of the problem.

    Never raises, because no input may stop the processing of other messages.
    """
    try:
        found = shape.model_validate(body, strict=False)
        plain = found.model_dump(mode="json")
        # Pydantic accepts numbers and lone surrogates that digests and histories cannot hold.
        canonical_json(plain)
    except ValidationError as error:
        # Omit the input: it may be secret and of any length, so a receipt must not repeat it.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"`{'.'.join(str(part) for part in first['loc'])}`: {first['msg'].lower()}"
    except (NotCanonical, ValueError, RecursionError):
        return "it holds a number or text that JSON cannot carry; send it as a string"
    return found if nesting(plain) <= MAX_NESTING else f"it is nested deeper than {MAX_NESTING} levels; send it flat"
