"""Arguments that are changed before they are approved, as far as it takes neither schemas nor an editor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from signoff.approvals.edit_diff import changes
from signoff.contracts.approval import ApprovalRequest

# For types alone: to load the registry would cost every answer that is given at a gateway.
if TYPE_CHECKING:
    from signoff.registry.catalog import Catalog
    from signoff.registry.tool import Tool


@dataclass(frozen=True)
class Editable:
    """Arguments to be changed, the tool if it is known here, and which of them are hidden by us: elsewhere a mask
    stands for what is hidden, and is sent back as it is. `catalog` is that of this installation, None elsewhere."""

    args: dict[str, Any]
    tool: "Tool | None" = None
    secrets: tuple[str, ...] = ()
    catalog: "Catalog | None" = None


def read_settings(settings: Sequence[str]) -> dict[str, str]:
    """`path=value` each. Raises typer's error of a bad invocation."""
    found: dict[str, str] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not path.strip():
            raise typer.BadParameter("write the argument, `=` and its value, such as totalCost=380", param_hint="--set")
        found[path.strip()] = value
    return found


def change_lines(request: ApprovalRequest) -> list[str]:
    """What the last edit of a request changed, a line each: `Cost: 420 -> 380`."""
    if not request.edited_by:
        return []
    found = changes(request.before, request.card.rows)
    lines = [f"{each.label or each.name}: {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in found]
    return lines or ["what was changed is hidden"]
