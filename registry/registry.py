"""Holds and builds the fixed set of tools of one process, by exact names (P01-P14)."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.formats.nearest_name import did_you_mean
from signoff.registry.tool import Tool
from signoff.registry.tool_checks import check_declaration, check_fallbacks
from signoff.registry.tool_fields import hashed_content


@runtime_checkable
class ToolResolver(Protocol):
    """Resolves exact names to tools: a registry, a catalog, or a test's own."""

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of exactly this name, or None."""


class ToolRegistry:
    """Holds tools by exact name. Raises `RegistrationError` for a wrong or duplicate declaration.

    Immutable: another set of tools needs another deploy.
    """

    __slots__ = ("_hash", "_names", "_tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        known: dict[str, Tool] = {}
        folded: dict[str, str] = {}
        for tool in tools:
            check_declaration(tool, known)
            # Readers of a card or log confuse two such names, and could approve the wrong call.
            twin = folded.setdefault(tool.name.casefold(), tool.name)
            if twin != tool.name:
                raise RegistrationError(
                    f"tools `{twin}` and `{tool.name}` differ by case only; rename one of them",
                    tool_name=tool.name,
                    field="name",
                    value=tool.name,
                )
            known[tool.name] = tool
        # After all are known: a fallback may be declared after the tool that names it.
        check_fallbacks(known)
        self._tools = MappingProxyType(known)
        self._names = tuple(sorted(known))
        self._hash = _hash(known[name] for name in self._names)

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of exactly this name, or `None`."""
        return self._tools.get(name)

    def list(self) -> tuple[str, ...]:
        """Return the names of all tools, sorted. For displays and tests."""
        return self._names

    @property
    def size(self) -> int:
        """Return the number of tools."""
        return len(self._tools)

    @property
    def hash(self) -> str:
        """The SHA-256 over every declaration except handlers. The same in every process."""
        return self._hash


class ToolRegistryBuilder:
    """Collects tools before there is a registry. Later changes of the builder do not affect built registries.

    For the start of a program, when plugins add tools. A running process has a `ToolRegistry` or a `Catalog`, which
    cannot be reopened.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.register_many(tools)

    def register(self, tool: Tool, *, plugin_id: str = "") -> Tool:
        """Add a tool, as one of `plugin_id` if given, and return the added tool.

        Raises `RegistrationError` as `ToolRegistry` does, and for a tool that claims another plugin.
        """
        added = tool if not plugin_id else _of_plugin(tool, plugin_id)
        check_declaration(added, self._tools)
        self._tools[added.name] = added
        return added

    def register_many(self, tools: Iterable[Tool]) -> None:
        """Add all these tools, or none if one is invalid. Raises as `register` does."""
        before = dict(self._tools)
        try:
            for tool in tools:
                self.register(tool)
        except BaseException:
            self._tools = before
            raise

    register_all = register_many

    def unregister(self, name: str) -> Tool:
        """Remove a tool and return it. Raises `ConfigError` for an unknown name."""
        if name not in self._tools:
            why = f"there is no tool `{name}` to take out{did_you_mean(name, self._tools)}"
            raise ConfigError(why, tool_name=name, field="name", value=name)
        return self._tools.pop(name)

    def get_registered(self) -> Mapping[str, Tool]:
        """Return a read-only copy of the tools so far, by name, in the order of registration."""
        return MappingProxyType(dict(self._tools))

    def is_registered(self, name: str) -> bool:
        """Return whether there is a tool of exactly this name so far."""
        return name in self._tools

    def build(self) -> ToolRegistry:
        """Make the registry of the tools so far. Registries of the same tools have the same hash.

        Raises `RegistrationError` for errors between tools: an unknown fallback, names that differ by case only.
        """
        return ToolRegistry(self._tools.values())


def _hash(tools: Iterable[Tool]) -> str:
    """Compute `sha256_hex` of the list of all contents. Encodes one by one: a float makes only its own tool slow."""
    return hashlib.sha256(b"[" + b",".join(canonical_json(tool_content(tool)) for tool in tools) + b"]").hexdigest()


def create_tool_registry(tools: Iterable[Tool]) -> ToolRegistry:
    """Make the registry of these tools. Raises `RegistrationError`."""
    return ToolRegistry(tools)


def definition_hash(tool: Tool) -> str:
    """Return the hash that binds an approval: SHA-256 over a tool's behaviour and inputs, not its policy or texts.
    Raises `RegistrationError` or `NotCanonical` for a tool that no registry accepts.
    """
    return tool.definition


def tool_content(tool: Tool) -> dict[str, object]:
    """Return the part under the registry's hash: the declaration and the presence of functions."""
    return {"definition": definition_hash(tool), **hashed_content(tool)}


def _of_plugin(tool: Tool, plugin_id: str) -> Tool:
    if tool.plugin not in ("", plugin_id):
        why = f"tool `{tool.name}` is of plugin `{tool.plugin}`, and is registered as one of `{plugin_id}`; keep one"
        raise RegistrationError(why, tool_name=tool.name, field="plugin", value=plugin_id)
    return dataclasses.replace(tool, plugin=plugin_id)
