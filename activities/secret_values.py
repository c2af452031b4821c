"""Collects the secret values that may not stand in a text of a turn."""

from collections.abc import Iterable
from typing import Any

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.redaction import secret_values


def secrets_of(room: WorkerDeps, calls: Iterable[tuple[str, Any]]) -> frozenset[str]:
    """Returns what this worker read of secrets, and the texts within the secret arguments of `calls`.

    `calls` are tools' names and their arguments; of tools that nobody knows there are no secret arguments.
    """
    found = set(room.secrets.handed_out)
    for name, args in calls:
        # What any tool of this name hides, also one that the turn does not see: its secret was told all the same.
        for tool in room.catalog.named(name):
            found |= secret_values(args, tool.masked_arguments)
    return frozenset(found)
