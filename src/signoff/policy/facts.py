"""Defines what policies see as `tool`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolFacts:
    """The facts of one tool, as its declaration states them."""

    name: str
    scope: str
    routing: str
    tags: tuple[str, ...]
    toolset: str = ""
    plugin: str = ""

    def as_cel(self) -> dict[str, Any]:
        """Returns the `tool` variable in plain JSON types."""
        return {
            "name": self.name,
            "scope": self.scope,
            "routing": self.routing,
            "tags": list(self.tags),
            "toolset": self.toolset,
            "plugin": self.plugin,
        }
