"""Defines the `tool` variable of policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from signoff.formats.read_only import writable_copy


@dataclass(frozen=True)
class ToolFacts:
    """The facts of one tool, from its declaration."""

    name: str
    scope: str
    routing: str
    tags: tuple[str, ...]
    toolset: str = ""
    plugin: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def as_cel(self) -> dict[str, Any]:
        """Use plain JSON types."""
        return {
            "name": self.name,
            "scope": self.scope,
            "routing": self.routing,
            "tags": list(self.tags),
            "toolset": self.toolset,
            "plugin": self.plugin,
            "metadata": writable_copy(self.metadata),
        }
