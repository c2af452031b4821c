"""Holds the closed set of tools of one process: exact names, no change after it is made (P01-P14)."""

import hashlib
from collections.abc import Iterable

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import RegistrationError
from signoff.registry.tool import Tool
from signoff.registry.tool_checks import check_declaration, check_fallbacks
from signoff.registry.tool_fields import hashed_content


class ToolRegistry:
    """Holds tools by exact name. Raises `RegistrationError` for a wrong or duplicate declaration.

    Its face is `resolve`, `list`, `size` and `hash`; it cannot be changed: another set of tools is another deploy.
    """

    __slots__ = ("_hash", "_names", "_tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        known: dict[str, Tool] = {}
        folded: dict[str, str] = {}
        for tool in tools:
            check_declaration(tool, known)
            # On a card or in a log two such names read as one, so that a person would approve what they did not mean.
            twin = folded.setdefault(tool.name.casefold(), tool.name)
            if twin != tool.name:
                raise RegistrationError(
                    f"tools `{twin}` and `{tool.name}` differ by case only; rename one of them",
                    tool_name=tool.name,
                    field="name",
                    value=tool.name,
                )
            known[tool.name] = tool
        # When all are known, as a fallback may be declared behind the tool that names it.
        check_fallbacks(known)
        self._tools = known
        self._names = tuple(sorted(known))
        self._hash = _hash(known[name] for name in self._names)

    def resolve(self, name: str) -> Tool | None:
        """Returns the tool of exactly this name, or None."""
        return self._tools.get(name)

    def list(self) -> tuple[str, ...]:
        """Returns all names, sorted; for displays and tests."""
        return self._names

    @property
    def size(self) -> int:
        """The number of tools."""
        return len(self._tools)

    @property
    def hash(self) -> str:
        """Returns the sha-256 over every declaration except handlers; the same in every process."""
        return self._hash


def _hash(tools: Iterable[Tool]) -> str:
    """Computes `sha256_hex` of the list of all contents, one after the other: one float makes only its own tool
    slow.
    """
    return hashlib.sha256(b"[" + b",".join(canonical_json(tool_content(tool)) for tool in tools) + b"]").hexdigest()


def create_tool_registry(tools: Iterable[Tool]) -> ToolRegistry:
    """Makes `ToolRegistry(tools)` (P01)."""
    return ToolRegistry(tools)


def definition_hash(tool: Tool) -> str:
    """Returns what an approval is bound to: sha-256 over what the tool does and takes, not its policy or words.

    Raises `RegistrationError` or `NotCanonical` for a tool no registry would take.
    """
    return tool.definition


def tool_content(tool: Tool) -> dict[str, object]:
    """Returns all of a tool that the registry's hash covers: its declaration, and which functions it has."""
    return {"definition": definition_hash(tool), **hashed_content(tool)}
