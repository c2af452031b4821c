"""The values of secret arguments of calls: none of them is to stand in a text of their turn."""

from collections.abc import Iterable
from typing import Any

from signoff.approvals.redaction import secret_values
from signoff.contracts.call import Pinned
from signoff.registry.catalog import Catalog


def secrets_of(catalog: Catalog, ctx: Pinned, calls: Iterable[tuple[str, Any]]) -> frozenset[str]:
    """The texts within the secret arguments of `calls`, tools' names and their arguments, as far as tools are known."""
    sight = catalog.sight(ctx)
    found: set[str] = set()
    for name, args in calls:
        tool = sight.tool(name)
        if tool is not None and tool.masked_arguments:
            found |= secret_values(args, tool.masked_arguments)
    return frozenset(found)
