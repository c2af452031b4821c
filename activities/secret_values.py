"""Collects the values of secret arguments of calls, which may not stand in a text of their turn."""

from collections.abc import Iterable
from typing import Any

from signoff.approvals.redaction import secret_values
from signoff.registry.catalog import Catalog


def secrets_of(catalog: Catalog, calls: Iterable[tuple[str, Any]]) -> frozenset[str]:
    """Returns the texts within the secret arguments of `calls`, pairs of tool name and arguments; unknown tools are
    skipped.
    """
    found: set[str] = set()
    for name, args in calls:
        # What any tool of this name hides, also one that the turn does not see: its secret was told all the same.
        for tool in catalog.named(name):
            found |= secret_values(args, tool.masked_arguments)
    return frozenset(found)
