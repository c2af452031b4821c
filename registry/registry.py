"""The closed set of tools of one process: exact names, no change after it is made (P01-P14)."""

import dataclasses
import hashlib
from collections.abc import Iterable

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import RegistrationError
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.capabilities import NO_CAPABILITIES
from signoff.registry.conduct import check_fallbacks
from signoff.registry.tool import Tool
from signoff.registry.tool_checks import check_declaration


class ToolRegistry:
    """Tools by exact name. Raises `RegistrationError` for a wrong or duplicate declaration.

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
        """The tool of exactly this name, or None."""
        return self._tools.get(name)

    def list(self) -> tuple[str, ...]:
        """All names, sorted; for displays and tests."""
        return self._names

    @property
    def size(self) -> int:
        """How many tools there are."""
        return len(self._tools)

    @property
    def hash(self) -> str:
        """sha-256 over every declaration except handlers; the same in every process."""
        return self._hash


def _hash(tools: Iterable[Tool]) -> str:
    """As `sha256_hex` of the list of all contents, one after the other: one float makes only its own tool slow."""
    return hashlib.sha256(b"[" + b",".join(canonical_json(tool_content(tool)) for tool in tools) + b"]").hexdigest()


def create_tool_registry(tools: Iterable[Tool]) -> ToolRegistry:
    """`ToolRegistry(tools)` as a function (P01)."""
    return ToolRegistry(tools)


def definition_hash(tool: Tool) -> str:
    """What an approval is bound to: sha-256 over what the tool does and takes, not its policy or words (contracts.md).

    Raises `RegistrationError` or `NotCanonical` for a tool no registry would take.
    """
    return tool.definition


def tool_content(tool: Tool) -> dict[str, object]:
    """Everything of a tool that a hash covers: its declaration but for its functions."""
    policy = tool.requires_approval
    return {
        "definition": definition_hash(tool),
        "description": tool.description,
        "title": tool.title,
        "output_schema": tool.output_schema,
        "justification": tool.justification,
        "bypass_reason": tool.bypass_routing.reason if tool.bypass_routing else "",
        "requires_approval": _policy_content(policy) if isinstance(policy, ApprovalPolicy) else policy,
        "tags": tool.tags,
        "peer_exposed": tool.peer_exposed,
        # RFC 8785 writes both alike; without a float `canonical_json` takes its quick way.
        "timeout": int(tool.timeout) if tool.timeout == int(tool.timeout) else tool.timeout,
        "max_result_chars": tool.max_result_chars,
        "task_queue": tool.task_queue,
        "toolset": tool.toolset,
        "plugin": tool.plugin,
        **_if_declared("validation", tool.validation, "strict"),
        **({} if tool.capabilities == NO_CAPABILITIES else {"capabilities": dataclasses.asdict(tool.capabilities)}),
        **_if_declared("untrusted_output", tool.untrusted_output, False),
        **_if_declared("return_direct", tool.return_direct, False),
        **_if_declared("concurrency", tool.concurrency, "safe"),
        **_if_declared("attempts", tool.attempts, None),
        **_if_declared("fallbacks", tool.fallbacks, ()),
        **_if_declared("tenants", tool.tenants, None),
        **_if_declared("updates", tool.updates, ()),
        **_if_declared("hours", tool.hours, ()),
        **({} if tool.usage_limit is None else {"usage_limit": tool.usage_limit.content}),
        **_if_declared("filters", sorted(tool.filters), []),
        **_if_declared("always_include", tool.always_include, False),
        **_if_declared("asks_whether_available", tool.available is not None, False),
        **_if_declared("checks_permissions", tool.check_permissions is not None, False),
    }


def _policy_content(policy: ApprovalPolicy) -> dict[str, object]:
    # Left out where it is not given, as by `_if_declared`: the hashes of policies without it stay what they were.
    return policy.model_dump(mode="json", exclude={"notify"} if policy.notify is None else None)


def _if_declared(key: str, value: object, default: object) -> dict[str, object]:
    """What is added to the hash of a tool only where it is used: the hashes of all other tools stay what they were."""
    return {} if value == default else {key: value}
