"""Writes what a dry run answers instead of running a tool (E17)."""

import json
from collections.abc import Mapping
from typing import Any, Final

from signoff.approvals.redaction import HIDDEN, hide
from signoff.registry.tool import Tool

DRY_RUN_CHARS: Final = 500
"""Characters of one string argument that are repeated."""
_ALL_CHARS: Final = 1_500
"""Characters of all arguments that are repeated: a batch of such calls has to fit into one gate decision."""


def dry_run_text(tool: Tool, args: Mapping[str, Any]) -> str:
    """Writes the sentence for the model: the tool and its arguments, secret ones hidden and long ones cut."""
    # Hidden before cut: the first 500 characters of a secret are the secret.
    shown = hide(args, tool.masked_arguments, lambda _: HIDDEN)
    # Not as `\u` escapes: the limits count characters, and text that is not English would be cut six times as soon.
    written = json.dumps(_shorten(shown), ensure_ascii=False)
    written = written if len(written) <= _ALL_CHARS else f"{written[:_ALL_CHARS]}...[truncated, {len(written)} chars]"
    return f"[dry-run] {tool.name} would be called with: {written}"


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shorten(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    if isinstance(value, str) and len(value) > DRY_RUN_CHARS:
        return f"{value[:DRY_RUN_CHARS]}...[truncated, {len(value)} chars]"
    return value
