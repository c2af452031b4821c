"""Texts about the manifest's tools, for an empty inbox and the page of a new conversation."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.registry.gates.inventory import inventory

_NAMED: Final = 3


@dataclass(frozen=True)
class FirstRun:
    """Titles of tools that need approval, also of this person, and a message that calls one."""

    asking: str
    own: str
    words: str
    actor: str
    command: str
    """The command that sends `words` to `actor`, or ""."""


def first_run(deps: GatewayDeps, person: Person) -> FirstRun:
    """Start with the tools that the person approves."""
    rows = [row for row in inventory(deps.catalog, person.tenant) if row.approvers]
    own = [row for row in rows if not set(row.approvers).isdisjoint(deps.rights(person))]
    titles = [row.title or row.tool for row in (*own, *rows)]
    return FirstRun(
        asking=_join(titles),
        own=_join([row.title or row.tool for row in own]),
        words=deps.first_words,
        actor=deps.first_actor,
        command=deps.first_command,
    )


def _join(titles: Collection[str]) -> str:
    named = list(dict.fromkeys(titles))
    return ", ".join(named[:_NAMED]) + (", …" if len(named) > _NAMED else "")
