"""The values of secret arguments of calls: none of them is to stand in a text of their turn."""

from collections.abc import Iterable
from typing import Any

from signoff.approvals.redaction import secret_values
from signoff.registry.catalog import Catalog


def secrets_of(catalog: Catalog, calls: Iterable[tuple[str, Any]]) -> frozenset[str]:
    """The texts within the secret arguments of `calls`, tools' names and their arguments, as far as tools are known."""
    found: set[str] = set()
    for name, args in calls:
        # What any tool of this name hides, also one that the turn does not see: its secret was told all the same.
        for tool in catalog.named(name):
            found |= secret_values(args, tool.masked_arguments)
    return frozenset(found)
