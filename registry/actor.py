"""Declares actors: a model with instructions and the tools it may use."""

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field

from signoff.contracts.activity_messages import TurnLimits
from signoff.contracts.call import Callback
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import RESULT_BYTES
from signoff.formats.declared_fields import IN_CODE, FieldSpec
from signoff.formats.record_section import Reference
from signoff.registry.hooks import Select
from signoff.registry.results.domain_data import DomainMerge
from signoff.registry.tool import Tool

LayerMode: TypeAlias = Literal["inherit", "only"]
Shadowing: TypeAlias = Literal["allow", "warn", "forbid"]


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """A tool that a route or step names, with its conditions there."""

    tool: Annotated[str | Tool, FieldSpec(key=IN_CODE)]
    """A name, resolved in the registry, then the route, then the actor. Or a tool of the route or step itself."""
    optional: bool = False
    min_step: str = ""
    """The first step of the route at which the tool is visible."""
    loosens: str = ""
    """For a reviewer: why the tool may drop the policies of the tools that it shadows."""

    @property
    def name(self) -> str:
        return self.tool if isinstance(self.tool, str) else self.tool.name


ListedTool: TypeAlias = str | Tool | ToolUse
"""A listed tool: its name, an own tool, or a `ToolUse` of either."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The common fields of a route and a step."""

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    description: str = ""
    """For people."""
    instructions: Annotated[str, FieldSpec(aliases=("prompt",))] = ""
    """Added to the system prompt here. Alias: `prompt`."""
    prompt: InitVar[str] = ""
    tools: Annotated[tuple[ListedTool, ...], FieldSpec(key=list[Any])] = ()
    """Names, or `{name, optional, min_step, loosens}`.

    An `optional` tool may be missing. The model sees a tool with `min_step` from that step on.
    """
    mode: LayerMode = "inherit"
    """`inherit` adds the tools of the outer levels, `only` does not."""
    tool_filter: Annotated[str, FieldSpec(unset="all")] = ""
    """CEL over `tool`, `actor` and `ctx`. The model sees a tool only if it is exactly `true`."""
    tool_filter_reason: str = ""
    """Why the filter hides a tool.

    A model that calls it reads `Tool NAME is not available here: REASON`. Without a reason, or if a list, rule or
    surface also hides it, the tool does not exist.
    """
    select: Annotated[Select | None, FieldSpec(key=Reference, unset="all")] = field(
        default=None, repr=False, compare=False
    )
    """`module:function`: selects among visible tools. If it fails, the model sees none.

    An `async (context, data)` that returns tool names within 2 s, for each completion.
    """

    def __post_init__(self, prompt: str) -> None:
        if prompt and self.instructions not in ("", prompt):
            why = f"`instructions` and `prompt` of `{self.name}` mean the same and differ; keep one"
            raise ConfigError(why, field="prompt", value=prompt)
        object.__setattr__(self, "instructions", self.instructions or prompt)


@dataclass(frozen=True, kw_only=True)
class Step(Level):
    """One step of a conversation on a route: its instructions and tools, and the data that completes it.

    Data fields are read from `data` in the context of the turn.
    """

    requires: tuple[str, ...] = ()
    """The data that a step's tools wait for."""
    collect: Annotated[
        Mapping[str, Mapping[str, Any] | None], FieldSpec(key=dict[str, dict[str, Any] | None] | list[str])
    ] = field(default_factory=dict)
    """The data that a step brings: a list of names, or by name a JSON Schema or nothing.

    The model stores it with the tool `collect`.
    """

    def __post_init__(self, prompt: str) -> None:
        super().__post_init__(prompt)
        if not isinstance(self.collect, Mapping):
            object.__setattr__(self, "collect", dict.fromkeys(self.collect))


@dataclass(frozen=True, kw_only=True)
class Route(Level):
    """One course a conversation may take, with its steps in order."""

    steps: Annotated[tuple[Step, ...], FieldSpec(key=dict[str, Any])] = ()
    """The steps of a route, in order."""


def tool_uses(listed: tuple[ListedTool, ...]) -> tuple[ToolUse, ...]:
    return tuple(each if isinstance(each, ToolUse) else ToolUse(tool=each) for each in listed)


_SIGNAL: Final = "signoff.call"
"""The default signal for callbacks to workflows."""
OWN_WORKFLOWS: Final = ("turn/", "session/")
"""Prefixes of Signoff's own workflow ids. Agents cannot send signals to these."""
_HIDDEN_STEPS: Final = ("\\", "%2e", "%2f", "%5c")
"""Spellings with which a path can lead elsewhere than it appears to."""


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """The allowed targets of an external agent's callbacks."""

    urls: tuple[str, ...] = ()
    """Allowed addresses, with scheme, host and path; a final `/` includes all paths below it.

    Posts are signed. Any other address gets 403 `not_allowed`.
    """
    secret: str = ""
    """The signing secret, `env:NAME`; its value is `whsec_` and base64."""
    previous_secret: str = ""
    """The former secret, which also signs during a rotation."""
    allow_networks: tuple[str, ...] = ()
    """Allowed private networks of the addresses, such as `10.0.0.0/8`.

    All other addresses must be public and use https.
    """
    workflows: tuple[str, ...] = ()
    """Ids of workflows in the namespace, or prefixes with `*`; never Signoff's own."""
    signals: tuple[str, ...] = (_SIGNAL,)
    """The allowed signals."""

    def allows(self, callback: Callback) -> bool:
        if callback.workflow is not None:
            named = callback.workflow
            return named.signal in self.signals and self._allows_workflow(named.id)
        return self._allows_url(callback.url)

    def _allows_url(self, url: str) -> bool:
        # Compare the text itself: scheme, host and port equal the declaration up to its first `/`. Reject every
        # spelling that another parser could read as a different path.
        if not url.isascii() or not url.isprintable() or " " in url or "#" in url:
            return False
        path = url.partition("?")[0].lower()
        if any(each in path for each in _HIDDEN_STEPS) or any(each in (".", "..") for each in path.split("/")):
            return False
        return any(url.startswith(each) if each.endswith("/") else url == each for each in self.urls)

    def _allows_workflow(self, name: str) -> bool:
        if name.startswith(OWN_WORKFLOWS):
            return False
        return any(
            name.startswith(each.removesuffix("*")) if each.endswith("*") else name == each for each in self.workflows
        )


def is_callback_address(url: str) -> bool:
    """Return whether an address has a host and a path. Without a path, it would match other hosts as a prefix."""
    try:
        parts = urlsplit(url)
        # Reads the port for its check: otherwise an invalid one would fail only at the first call.
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not {" ", "?", "#", "\\"}.intersection(url)
    whole = bool(parts.hostname) and parts.path.startswith("/") and "@" not in parts.netloc
    return plain and whole and parts.scheme in ("https", "http")


_HASH_CHARS: Final = 16


@dataclass(frozen=True, kw_only=True)
class Surface:
    """The tools that do not exist on one channel.

    No rule brings them back.
    """

    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Autonomy:
    """The limits on an actor's calls without approval. Policies still apply.

    CEL over `tool`, `actor` and `ctx`. An expression that fails asks, or denies.
    """

    unasked_if: Annotated[str, FieldSpec(unset="what policies say")] = ""
    """CEL: ask unless true."""
    deny_if: str = ""
    """CEL: never run if true."""


@dataclass(frozen=True, kw_only=True)
class EscalationPath:
    """The approvers of an actor's requests if the tool's policy names none.

    Without `approvers`, the default ones decide.
    """

    approvers: Annotated[tuple[str, ...], FieldSpec(unset="`defaults.approvers`")] = ()
    """Approvers if the tool's policy names none."""
    escalate_after: Annotated[float | None, FieldSpec(unset="never")] = None
    """When `escalate_to` may also decide."""
    escalate_to: tuple[str, ...] = ()
    """Approvers after the escalation."""


Undeclared = Literal["deny", "ask"]


@dataclass(frozen=True, kw_only=True)
class ExternalAgent:
    """The permissions of an actor whose model runs elsewhere, with a token of the scope `call`."""

    acts_for: tuple[str, ...]
    """The possible requesters of its calls: `role:<role>` and `user:<id>`.

    With a single `user:`, that person is the requester of a call that names none.
    """
    callbacks: Callbacks | None = None
    """The allowed callbacks. `None` forbids callbacks."""
    undeclared: Undeclared = "deny"
    """The treatment of undeclared tools: deny, or ask about each call.

    The agent runs such a call.
    """


@dataclass(frozen=True, kw_only=True)
class Actor:
    """One actor. Its name is its key. No `tools` means all of them, `[]` none.

    `build_catalog` checks it. Each field is declared only here: the manifest's section, the JSON Schema and the table
    in docs/manifest.md are generated from it.
    """

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    """The name in requests for turns. An id of at most 48 characters."""
    description: str = ""
    """For people."""
    external: ExternalAgent | None = None
    """Its model runs elsewhere: no `model`, no `instructions`.

    `acts_for`: its requesters. `undeclared`: `deny` or `ask`. `callbacks`: [allowed
    targets](external-calls.md#callbacks). [external-calls.md](external-calls.md).
    """
    instructions: str = ""
    """The model's system prompt."""
    model: Annotated[str, FieldSpec(unset="`defaults.model`")] = ""
    """`provider:name`, `scripted:module:attribute`, or `offline`.

    [models.md](models.md).
    """
    tools: Annotated[tuple[str, ...] | None, FieldSpec(unset="all")] = None
    """Names, in the model's order. `[]`: none."""
    toolset: Annotated[str | None, FieldSpec(unset="all")] = None
    """Only own tools with this `toolset`.

    [tools.md](tools.md#filters).
    """
    allowed_plugins: Annotated[tuple[str, ...] | None, FieldSpec(unset="all")] = None
    """These plugins' tools, and those without one."""
    allowed_mcp_servers: Annotated[tuple[str, ...] | None, FieldSpec(unset="all")] = None
    """These MCP servers' tools, and those without one."""
    allowed_mcp_tools: Annotated[Mapping[str, tuple[str, ...]] | None, FieldSpec(unset="all")] = None
    """Allowed tools (bare names) by server. Other servers keep theirs."""
    read_rest: bool = False
    """May read the rest of cut results.

    [results.md](results.md#the-rest).
    """
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    """`{exclude: [...]}` by channel: tools missing there."""
    mode: Literal["parallel", "sequential"] = "parallel"
    """`parallel` or `sequential` calls."""
    leave_open: bool = False
    """Its session turns may end while approvers decide.

    [approvals.md](approvals.md#continue-while-approvers-decide).
    """
    on_failure: Literal["continue", "abort_siblings"] = "continue"
    """`abort_siblings`: a failure stops its completion's other calls."""
    result_chars: Annotated[int | None, Field(ge=1, le=RESULT_BYTES), FieldSpec(unset="`SIGNOFF_RESULT_CHARS`")] = None
    """Most characters of one completion's results.

    [results.md](results.md#budgets).
    """
    domain_data: Mapping[str, Any] | None = None
    """JSON Schema of the data in its answers.

    [tools.md](tools.md#data-of-answers).
    """
    domain_merge: DomainMerge = "replace"
    """`replace`, `append` or `deep-merge`."""
    limits: Annotated[TurnLimits, FieldSpec(key=dict[str, Any], unset="see [limits.md](limits.md#limits)")] = field(
        default_factory=TurnLimits
    )
    """`completions`, `calls`, `cost` (USD), `active_seconds` (without waits for approvers) of one turn."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the provider. Write secrets as `env:NAME`."""
    scope: str = ""
    """A word for rules, such as `admin`."""
    tags: tuple[str, ...] = ()
    """Words for rules."""
    autonomy: Annotated[Autonomy | None, FieldSpec(unset="what policies say")] = None
    """Bounds on calls without approval."""
    escalation: Annotated[EscalationPath | None, FieldSpec(unset="what policies say")] = None
    """Approvers and escalation, if a policy names none."""
    own_tools: Annotated[tuple[Tool | ToolUse, ...], FieldSpec(key=dict[str, Any])] = ()
    """[Tools](#tools) of this actor alone, by name."""
    routes: Annotated[tuple[Route, ...], FieldSpec(key=dict[str, Any])] = ()
    """Its routes by name, and `select`.

    [routes.md](routes.md).
    """
    route_select: Annotated[Select | None, FieldSpec(key=IN_CODE)] = field(default=None, repr=False, compare=False)
    """Selects the available routes for each completion. A turn on any other route sees no tools."""
    select: Annotated[Select | None, FieldSpec(key=Reference, unset="all")] = field(
        default=None, repr=False, compare=False
    )
    """`module:function`: selects among visible tools.

    [routes.md](routes.md#keys).
    """
    trace: Annotated[bool, FieldSpec(unset="`SIGNOFF_TRACE`")] = False
    """Logs each call's tool, with the reason.

    [routes.md](routes.md#tracing).
    """
    shadowing: Shadowing = "forbid"
    """Own tools with another tool's name: `forbid`, `warn`, `allow`."""

    @property
    def facts(self) -> dict[str, Any]:
        return actor_facts(self.name, self.scope, self.tags)

    @property
    def own_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.own)

    @property
    def own(self) -> tuple[Tool, ...]:
        """At any level. Two of them may have the same name."""
        steps = (step for route in self.routes for step in route.steps)
        listed = (self.own_tools, *(route.tools for route in self.routes), *(step.tools for step in steps))
        return tuple(use.tool for each in listed for use in tool_uses(each) if not isinstance(use.tool, str))


def instructions_at(actor: Actor, route: str, step: str) -> str:
    """Return the system prompt: instructions of the actor, the route and the step."""
    course = next((each for each in actor.routes if each.name == route), None)
    at = next((each for each in course.steps if each.name == step), None) if course is not None else None
    levels = (actor, *(each for each in (course, at) if each is not None))
    return "\n\n".join(each.instructions for each in levels if each.instructions)


def instructions_hash(actor: Actor, route: str, step: str) -> str:
    """Return the first 16 digits of the SHA-256 of an actor's instructions at a place.

    Evaluations compare it to detect changes.
    """
    return sha256_hex(instructions_at(actor, route, step))[:_HASH_CHARS]


def actor_facts(name: str, scope: str = "", tags: Iterable[str] = ()) -> dict[str, Any]:
    """Return the `actor` variable of rules in plain JSON types, even if only the name is known."""
    return {"name": name, "scope": scope, "tags": list(tags)}
