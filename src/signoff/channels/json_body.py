"""Reads the JSON that vendors and mail providers send to channels."""

from typing import Any

from signoff.channels.channel_errors import Malformed
from signoff.formats.json_reader import NotJson, read_json


def read_object(body: bytes | str) -> dict[str, Any]:
    """Return the JSON object in `body`. Raises `Malformed` for anything else."""
    try:
        value = read_json(body)
    except NotJson as error:
        raise Malformed(f"the body {error}") from None
    if not isinstance(value, dict):
        raise Malformed("the body is not a JSON object")
    return value
