"""Parses command line input: messages for an actor, durations, times and JSON."""

from datetime import datetime
from typing import Any

import typer

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_id
from signoff.formats.bounds import bounds_problem
from signoff.formats.durations import seconds
from signoff.formats.json_reader import NotJson, read_json


def spoken(text: str) -> str:
    """Raises typer's error if the message is empty or unwritable."""
    if not text.strip():
        raise typer.BadParameter("say something: the text is empty", param_hint="TEXT")
    if why := bounds_problem(text):
        raise typer.BadParameter(f"the text holds {why}", param_hint="TEXT")
    return text


def session_id(text: str) -> str:
    """Return "" for none. Raises typer's error."""
    if text and not is_id(text):
        raise typer.BadParameter(
            "a session is named with letters, digits, `_` and `-`, at most 48", param_hint="--session"
        )
    return text


def read_object(text: str, option: str) -> dict[str, Any]:
    """Raises typer's error, which names the option."""
    try:
        value = read_json(text)
    except NotJson as error:
        raise typer.BadParameter(f"the text {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter("write one JSON object, such as '{\"amount\": 5}'", param_hint=option)
    return value


def read_duration(text: str, option: str) -> float:
    """Parse a duration such as `30d` to seconds. Raises `ConfigError` that names `option`."""
    try:
        return seconds(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", field=option.removeprefix("--"), value=text) from None


def read_moment(text: str, option: str) -> datetime:
    """The time must include its zone. Raises `ConfigError` that names `option`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        message = f"{option}: `{text}` is no time with its zone, such as `2026-11-21T10:00:00+01:00`"
        raise ConfigError(message, field=option.removeprefix("--"), value=text)
    return found
