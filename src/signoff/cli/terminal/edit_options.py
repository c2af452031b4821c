"""Edits a call's arguments from a terminal before approval: `--set` and `--edit`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
import typer

from signoff.approvals.edit_diff import row_changes
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import ConfigError


def read_settings(settings: Sequence[str], nulls: Sequence[str] = ()) -> dict[str, str | None]:
    """Raises typer's error for a bad invocation."""
    found: dict[str, str | None] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path.strip():
            raise typer.BadParameter("write the argument, `=` and its value, such as totalCost=380", param_hint="--set")
        found[path.strip()] = value
    if both := sorted(found.keys() & set(nulls)):
        raise typer.BadParameter(f"`{both[0]}` is also in --set; give one of the two", param_hint="--null")
    return found | dict.fromkeys(nulls)


def arguments_text(args: Mapping[str, Any]) -> str:
    return json.dumps(args, indent=2, ensure_ascii=False) + "\n"


def edit_text(text: str) -> str | None:
    """Return `None` if nothing was saved. Raises `ConfigError` without an editor."""
    try:
        return click.edit(text, extension=".json")
    except click.ClickException as error:
        raise ConfigError(f"{error.message}: name an editor in EDITOR, or use --set", field="EDITOR") from None


def change_lines(request: ApprovalRequest) -> list[str]:
    """Use one line per change: `Cost: 420 -> 380`."""
    if not request.edited_by:
        return []
    found = row_changes(request.before, request.card.rows)
    lines = [f"{each.label or each.name}: {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in found]
    return lines or ["the changed values are masked"]
