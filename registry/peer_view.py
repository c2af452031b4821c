"""The tools of a catalog for other agents."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from signoff.registry.catalog import Catalog
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool


class PeerTool(BaseModel):
    """One tool as a peer sees it. `approval`: whether its calls need approval."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    approval: Literal["never", "maybe", "always"]
    definition: str


def peer_view(catalog: Catalog) -> tuple[PeerTool, ...]:
    """Return the `peer_exposed` generalists of the registry, sorted by name.

    A tool that never asks alone, but that a global rule may make ask, is `maybe`.
    """
    return tuple(_show(catalog, tool) for tool in catalog.tools() if tool.for_peers)


def _show(catalog: Catalog, tool: Tool) -> PeerTool:
    needs = catalog.policy(tool.activity).needs_person
    return PeerTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema.schema,
        output_schema=None if tool.output is None else tool.output.schema,
        approval="maybe" if needs == "never" and _rules_ask(catalog) else needs,
        definition=definition_hash(tool),
    )


def _rules_ask(catalog: Catalog) -> bool:
    found = (each.rules for each in (catalog.rules, catalog.bounds) if each is not None)
    return any(rule.effect == "require_approval" for rules in found for rule, _ in rules)
