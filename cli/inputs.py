"""JSON that a person types on a command line."""

import json
from typing import Any

import typer


def read_object(text: str, option: str) -> dict[str, Any]:
    """One JSON object. Raises typer's error of a bad invocation, which names the option."""
    try:
        value = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter("write one JSON object, such as '{\"amount\": 5}'", param_hint=option)
    return value


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
