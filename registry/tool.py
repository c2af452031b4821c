"""A tool: the declaration of one thing an agent may call."""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import RegistrationError
from signoff.contracts.usage import UsageLimit
from signoff.formats.json_schema import CompiledSchema, compile_schema
from signoff.policy.approval_policy import ApprovalPolicy, RequiresApproval
from signoff.policy.facts import ToolFacts
from signoff.registry.capabilities import NO_CAPABILITIES, Capabilities
from signoff.registry.hooks import Available, Handler, InputCheck, PermissionCheck, Probe
from signoff.registry.results.annotated_record import Filter
from signoff.registry.secret_arguments import secret_paths, uncovered

Scope: TypeAlias = Literal["generalist", "specialist"]
Routing: TypeAlias = Literal["routed", "bypass"]
Concurrency: TypeAlias = Literal["safe", "exclusive"]
Validation: TypeAlias = Literal["strict", "warn", "off"]

DEFAULT_TIMEOUT: Final = 300.0
REPEATABLE_TRIES: Final = 3
# `<string>` is where dataclasses say that the methods they write come from.
_OWN_FRAMES: Final = (__file__, dataclasses.__file__, "<string>")


@dataclass(frozen=True)
class BypassRouting:
    """Why a specialist tool needs no routing (B10)."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A declared tool. The record is checked when a `ToolRegistry` is made of it (B17), not before.

    `handler` is `async (args, context)`; `effect` a sentence with `{argument}` places, for people who approve.
    `secrets` are names of top-level arguments that are masked; schema `writeOnly` adds to them, nested names dotted.
    `timeout` is in seconds, `max_result_chars` in code points, `version` the author's own text.
    `validate_input` is a pure check after the schema's, before any policy or person sees the arguments (gate 9); it
    may answer with `Correction` ones. `validation` says what a misfit with the schema does: `strict` refuses the call,
    `warn` tells of it, `off` does not look (X09).
    `available` (gate 8) and `check_permissions` (gate 10) are asked before each call and again where it runs.
    `capabilities` are what the handler is given in `context.capabilities` (gate 12).
    What is read as text from outside (`untrusted_output`) reaches the model between fences (E49); a call of a tool with
    `return_direct` that succeeds ends the turn with its value (E50).
    `concurrency`: `exclusive` runs alone, `safe` beside others (X16). `attempts` is how often it is tried when a
    connection breaks; None is by nature, see `tries`. `fallbacks` are tried in its place, in order (F40).
    `tenants` are those for whom it exists, None: for all, `()`: for nobody.
    `hours` are the windows in which it is there, see formats/hours.py; `()` is always. `usage_limit` is how often it
    may be used (F18): a use is taken with the ticket of a call and given back when it failed.
    `updates` are the data and fields of the context that its results may change, and no others (F44).
    `filters` are by destination: what each gets of a record that the handler returns (B36).
    `always_include` is for the framework's own tools: no actor's list or toolset leaves them out (X25).
    `probe` finds out whether a call happened of which nobody knows, before people are asked.
    `place` is where an actor, route or step has it as its own; the catalog says it, never its author.
    `site` is where it was declared, `file:line`, or empty when that cannot be known (B20).
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    handler: Handler
    scope: Scope
    output_schema: Mapping[str, Any] | None = None
    routing: Routing = "routed"
    bypass_routing: BypassRouting | None = None
    justification: str = ""
    requires_approval: RequiresApproval = False
    tags: tuple[str, ...] = ()
    peer_exposed: bool = False
    title: str = ""
    effect: str = ""
    secrets: tuple[str, ...] = ()
    version: str = "1"
    read_only: bool = False
    idempotent: bool = False
    timeout: float = DEFAULT_TIMEOUT
    max_result_chars: int | None = None
    task_queue: str = ""
    toolset: str = ""
    plugin: str = ""
    concurrency: Concurrency = "safe"
    attempts: int | None = None
    fallbacks: tuple[str, ...] = ()
    tenants: tuple[str, ...] | None = None
    hours: tuple[str, ...] = ()
    usage_limit: UsageLimit | None = None
    updates: tuple[str, ...] = ()
    validation: Validation = "strict"
    capabilities: Capabilities = NO_CAPABILITIES
    untrusted_output: bool = False
    return_direct: bool = False
    filters: Mapping[str, Filter] = field(default_factory=dict, repr=False, compare=False)
    always_include: bool = False
    available: Available | None = field(default=None, repr=False, compare=False)
    check_permissions: PermissionCheck | None = field(default=None, repr=False, compare=False)
    probe: Probe | None = field(default=None, repr=False, compare=False)
    validate_input: InputCheck | None = field(default=None, repr=False, compare=False)
    place: str = ""
    site: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.site:
            object.__setattr__(self, "site", _call_site())

    @cached_property
    def schema(self) -> CompiledSchema:
        """The input schema, compiled on a copy of its own. Raises `RegistrationError`."""
        return compile_schema(self.input_schema, tool_name=self.name)

    @cached_property
    def output(self) -> CompiledSchema | None:
        """The output schema, compiled on a copy of its own, if there is one. Raises `RegistrationError`."""
        if self.output_schema is None:
            return None
        return compile_schema(self.output_schema, tool_name=self.name, field="output_schema", of_object=False)

    @cached_property
    def definition(self) -> str:
        """The definition hash, worked out once; see `definition_hash`. Raises `RegistrationError` or `NotCanonical`."""
        return sha256_hex(self.declaration)

    @cached_property
    def declaration(self) -> dict[str, Any]:
        """What the definition hash covers, and all that a card is drawn from beside a question and its arguments."""
        # Only what a tool does and takes: with its description or its policy in it, correcting a typo would make what
        # waits stale.
        return {
            "name": self.name,
            "title": self.title,
            "input_schema": self.schema.schema,
            "effect": self.effect,
            "scope": self.scope,
            "routing": self.routing,
            "idempotent": self.idempotent,
            "read_only": self.read_only,
            "secret_arguments": self.secret_arguments,
            "version": self.version,
            # An approval of a tool must not carry over to another one of the same name.
            **({"place": self.place} if self.place else {}),
        }

    @property
    def activity(self) -> str:
        """What no other tool of a catalog is called: its name, or `<name>@<actor>.<route>.<step>` of an actor's own."""
        return f"{self.name}@{self.place}" if self.place else self.name

    @property
    def for_peers(self) -> bool:
        """Whether other agents may see and call it: a generalist of the application that says so (B14)."""
        return self.peer_exposed and self.scope == "generalist" and not self.place

    @property
    def tries(self) -> int:
        """How often it is tried: 3 times where it only reads or is idempotent, once where it has effects (X18)."""
        if self.attempts is not None:
            return self.attempts
        return REPEATABLE_TRIES if self.read_only or self.idempotent else 1

    @property
    def facts(self) -> ToolFacts:
        """The tool as policies see it."""
        return ToolFacts(
            name=self.name,
            scope=self.scope,
            routing=self.routing,
            tags=self.tags,
            toolset=self.toolset,
            plugin=self.plugin,
        )

    @cached_property
    def secret_arguments(self) -> tuple[str, ...]:
        """Sorted dotted names of arguments that are secret by declaration: `secrets`, and schema `writeOnly` anywhere.

        Raises `RegistrationError` where `writeOnly` is said of arguments that have no name.
        """
        # Where the schema is not enforced, a secret may lie anywhere within its argument.
        paths = secret_paths(self.schema.schema, whole=self.validation != "strict")
        if () in paths:
            why = f"`input_schema` of tool `{self.name}` says `writeOnly` of arguments without a name of their own"
            why = f"{why}, which nothing can hide; name them in its `properties`"
            raise RegistrationError(why, tool_name=self.name, field="input_schema", value="writeOnly")
        found = uncovered(paths | {(name,) for name in self.secrets})
        return tuple(sorted(".".join(path) for path in found))

    @property
    def masked_arguments(self) -> tuple[str, ...]:
        """Sorted dotted names of arguments no page, log or summary may show: secret ones and those the policy masks."""
        policy = self.requires_approval
        masked = policy.show.secret if isinstance(policy, ApprovalPolicy) else ()
        return tuple(sorted({*self.secret_arguments, *masked}))


def _call_site() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _OWN_FRAMES:
        frame = frame.f_back
    name = frame.f_code.co_filename
    return "" if name in _OWN_FRAMES else f"{name}:{frame.f_lineno}"
