"""Declares actors: a model with instructions and the tools it may use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from signoff.contracts.activity_messages import TurnLimits
from signoff.contracts.canonical_json import sha256_hex
from signoff.registry.hooks import Select
from signoff.registry.manifest.callbacks import Callbacks
from signoff.registry.results.domain_data import DomainMerge
from signoff.registry.scopes.route import Route, Shadowing, ToolUse, tool_uses
from signoff.registry.tool import Tool

_HASH_CHARS: Final = 16


@dataclass(frozen=True, kw_only=True)
class Surface:
    """A channel by which people come to an actor, and the tools it lacks there; no rule brings them back (E12)."""

    exclude: tuple[str, ...] = ()
    """Names of tools that do not exist there."""


@dataclass(frozen=True, kw_only=True)
class Autonomy:
    """What an actor may do unasked: CEL over `tool`, `actor` and `ctx`, beside every policy and in place of none (P19).

    What cannot be evaluated asks, or denies.
    """

    unasked_if: str = ""
    """People are asked about each of its calls of which this is not true; "" leaves that to the tools' policies."""
    deny_if: str = ""
    """Its calls of which this is true are denied."""


@dataclass(frozen=True, kw_only=True)
class EscalationPath:
    """To whom an actor's requests go, and escalate, where the tool's policy does not say who decides (P19)."""

    approvers: tuple[str, ...] = ()
    """Who is asked: `role:<role>` and `user:<id>`; empty: the default ones."""
    escalate_after: float | None = None
    """When those of `escalate_to` may decide too, in seconds."""
    escalate_to: tuple[str, ...] = ()
    """To whom it is escalated."""


Undeclared = Literal["deny", "ask"]


@dataclass(frozen=True, kw_only=True)
class ExternalAgent:
    """What an actor that thinks elsewhere may do: it proposes calls with a token of the scope `call`."""

    acts_for: tuple[str, ...]
    """The people in whose name it may propose: `role:<role>` and `user:<id>`. With a single `user:` that is whom it
    acts for where a call names nobody."""
    callbacks: Callbacks | None = None
    """Whom it may have told that a call is settled; None: nobody."""
    undeclared: Undeclared = "deny"
    """What becomes of calls of tools that nobody declared: `deny`, or `ask` people about each, whatever its arguments
    are; the agent runs it."""


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A declared actor. It is checked when a catalog is built of it."""

    name: str
    """The name by which turns ask for it; an id of at most 48 characters."""
    model: str
    """Provider and model, `openai:gpt-5`, or `scripted:module:attribute`."""
    description: str = ""
    """For people."""
    instructions: str = ""
    """The model's system prompt."""
    tools: tuple[str, ...] | None = None
    """Names, in the order the model sees. None means every tool, `()` means none (N04)."""
    toolset: str | None = None
    """Only tools of this toolset; None is no filter (see registry/gates/actor_filters.py)."""
    allowed_plugins: tuple[str, ...] | None = None
    """Only tools of these plugins, and those of no plugin; None is no filter, `()` lets none through."""
    allowed_mcp_servers: tuple[str, ...] | None = None
    """Only tools of these MCP servers, and those of no server; None is no filter, `()` lets none through."""
    allowed_mcp_tools: Mapping[str, tuple[str, ...]] | None = None
    """By MCP server, the bare names of its tools; a server that is not named keeps all of them."""
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    """What is left out, by channel."""
    read_rest: bool = False
    """Whether it has the framework's own tool that reads on in results that were cut."""
    leave_open: bool = False
    """Whether its turns in a session may end over calls that people still decide."""
    mode: Literal["parallel", "sequential"] = "parallel"
    """Whether the calls of one completion run beside each other, or one after the other."""
    on_failure: Literal["continue", "abort_siblings"] = "continue"
    """Whether a call that fails stops those beside it, as far as they can be stopped (X17)."""
    result_chars: int | None = None
    """Characters of results that the model reads of one completion (E10); None: as the settings say."""
    limits: TurnLimits = field(default_factory=TurnLimits)
    """Caps of one turn."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the model's provider as they are; secrets are references."""
    scope: str = ""
    """One word for rules, such as `admin`: how far the actor as a whole may go."""
    tags: tuple[str, ...] = ()
    """Words for rules."""
    autonomy: Autonomy | None = None
    """What it may do unasked; None: what the tools' policies say."""
    escalation: EscalationPath | None = None
    """To whom its requests go and escalate; None: as the tools' policies and the defaults say."""
    domain_data: Mapping[str, Any] | None = None
    """JSON Schema of data that its answers may bring."""
    domain_merge: DomainMerge = "replace"
    """How such data join those that the turn began with (see registry/results/domain_data.py)."""
    own_tools: tuple[Tool | ToolUse, ...] = ()
    """Tools that it alone has; where it has `tools`, they are named there as well."""
    routes: tuple[Route, ...] = ()
    """Where it may stand, and what it has there (see registry/scopes/route.py)."""
    route_select: Select | None = field(default=None, repr=False, compare=False)
    """Chooses, for each completion, the routes that are there (F10); on another one nothing is seen."""
    trace: bool = False
    """Whether log and record tell of each of its calls which tool its name means, and why (F19)."""
    shadowing: Shadowing = "forbid"
    """Whether one of its own tools may have the name of another (Q3); a shadow never asks fewer people."""
    select: Select | None = field(default=None, repr=False, compare=False)
    """Chooses, for each completion, among the tools that would be seen."""
    external: ExternalAgent | None = None
    """Set where the actor thinks elsewhere: it has no model and no instructions, and proposes its calls over HTTP."""

    @property
    def facts(self) -> dict[str, Any]:
        """The actor as rules and filters see it."""
        return actor_facts(self.name, self.scope, self.tags)

    @property
    def own_names(self) -> frozenset[str]:
        """The names of the tools that are its own, at whatever place."""
        return frozenset(tool.name for tool in self.own)

    @property
    def own(self) -> tuple[Tool, ...]:
        """The tools that are its own, at whatever place; two of them may have one name."""
        steps = (step for route in self.routes for step in route.steps)
        listed = (self.own_tools, *(route.tools for route in self.routes), *(step.tools for step in steps))
        return tuple(use.tool for each in listed for use in tool_uses(each) if not isinstance(use.tool, str))


def instructions_hash(actor: Actor) -> str:
    """Returns the first 16 digits of the sha-256 of an actor's instructions, by which evaluations tell that they
    changed.
    """
    return sha256_hex(actor.instructions)[:_HASH_CHARS]


def actor_facts(name: str, scope: str = "", tags: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the `actor` variable of rules in plain JSON types, also for an actor of which only the name is known."""
    return {"name": name, "scope": scope, "tags": list(tags)}
