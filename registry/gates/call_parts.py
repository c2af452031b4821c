"""Converts the calls of a completion for the gates: numbered, parsed and within limits."""

import json
from collections.abc import Sequence
from typing import Any

from signoff.contracts.completion import ProposedCall
from signoff.contracts.content import Content
from signoff.contracts.ids import call_id
from signoff.contracts.limits import (
    ARGUMENTS_BYTES,
    CALLS_BYTES_PER_COMPLETION,
    CALLS_KEPT_PER_COMPLETION,
    CALLS_PER_COMPLETION,
)
from signoff.contracts.message import CallPart
from signoff.formats.bounds import SEND_IN_PARTS, bounds_problem, bounds_remedy
from signoff.formats.json_reader import NotJson, read_json
from signoff.registry.tool_result import render_value

_NAME_CHARS = 200
_UNREADABLE = "the text of the arguments"
_REMEDY = "send one JSON object with each name once and finite numbers"


def call_parts(proposed: Sequence[ProposedCall], completion: int) -> tuple[CallPart, ...]:
    """Convert the calls of completion number `completion`, with inline arguments.

    Calls above the limit stay without arguments, for their refusal. Calls far above it are dropped.
    """
    parts: list[CallPart] = []
    budget = CALLS_BYTES_PER_COMPLETION
    for index, each in enumerate(proposed[:CALLS_KEPT_PER_COMPLETION], 1):
        args, malformed, size = parse_call(each)
        surplus = index > CALLS_PER_COMPLETION or size > budget
        part = CallPart(
            call=call_id(completion, index),
            provider_call=render_value(each.provider_call[:_NAME_CHARS]),
            tool=render_value(each.tool[:_NAME_CHARS]),
            args=Content(inline={} if surplus else args),
            malformed="" if surplus else malformed,
            surplus=surplus,
        )
        # Dropped arguments use none of the budget of later calls.
        budget -= 0 if surplus else size
        parts.append(part)
    return tuple(parts)


def parse_call(proposed: ProposedCall) -> tuple[dict[str, Any], str, int]:
    """Return a call's arguments object, the reason if they are invalid, and their size in bytes of JSON."""
    args, malformed, size = parse_arguments(proposed.args)
    if malformed.startswith(_UNREADABLE) and proposed.cut:
        malformed = "your answer was cut at its greatest length, within these arguments; send less in one call"
    return args, malformed, size


def parse_arguments(raw: Any) -> tuple[dict[str, Any], str, int]:
    """Parse raw arguments as `parse_call` does."""
    if isinstance(raw, str):
        try:
            raw = read_json(raw) if raw.strip() else {}
        except NotJson as error:
            return {}, f"{_UNREADABLE} {error}; {_REMEDY}", 0
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        return {}, "the arguments are not a JSON object", 0
    why = bounds_problem(raw)
    if why:
        return {}, f"the arguments hold {why}; {bounds_remedy(why)}", 0
    size = len(json.dumps(raw, ensure_ascii=False, separators=(",", ":")).encode())
    if size > ARGUMENTS_BYTES:
        return {}, f"the arguments are {size} bytes, at most {ARGUMENTS_BYTES} are taken; {SEND_IN_PARTS}", 0
    return raw, "", size
