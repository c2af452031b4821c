"""The sections of the manifest: their keys and the types of their values."""

from typing import Annotated, Any, Literal

from pydantic import Field

from signoff.contracts.limits import RESULT_BYTES
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.durations import Seconds
from signoff.formats.yaml_section import Section


class ManifestSection(Section):
    """The whole file; the values of the inner sections are read one by one."""

    version: Literal[1] = Field(description="Of the manifest's format: `1`.")
    path: list[str] = Field(["."], description="Folders, relative to the file, from which handlers are imported.")
    context: dict[str, dict[str, Any]] = Field(
        {}, description="More fields of `ctx` for rules: JSON Schema by dotted name."
    )
    timezone: str = Field("UTC", description="By whose clocks rules are told the time, as `ctx.now`: `Europe/Lisbon`.")
    defaults: dict[str, Any] = Field({}, description="What actors and policies fall back on.")
    people: list[Any] | str = Field([], description="Persons, or the name of a YAML file with a list of them.")
    actors: dict[str, Any] = Field({}, description="Actor by name.")
    tools: dict[str, Any] = Field({}, description="Tool by name.")
    mcp_servers: dict[str, Any] = Field({}, description="MCP servers whose tools Signoff runs, by name.")
    policies: list[Any] = Field([], description="Global rules.")
    part_types: list[str] = Field([], description="Types of parts of answers that your own programs read.")
    requires_peer_consumes: list[str] = Field(
        [], description="Types of parts that other agents get only where they say that they take them."
    )
    destinations: dict[str, Any] = Field({}, description="Where records of tools go, by name.")
    observer: str | None = Field(None, description="`module:function`: is told of records that did not arrive.")
    channels: dict[str, Any] = Field({}, description="How people are reached beside the inbox, by name.")
    routing: dict[str, Any] = Field({}, description="By which channel people are reached first.")
    subscriptions: dict[str, Any] = Field({}, description="Other systems that are sent events, by name.")


class Defaults(Section):
    """Fallbacks of actors and policies."""

    approvers: list[str] = Field(["role:approvers"], description="Who decides where a policy names nobody.")
    model: str = Field("", description="The model of actors that name none.")


class LimitsSection(Section):
    """Caps of one turn; cost in USD."""

    completions: Annotated[int, Field(ge=1)] | None = Field(None, description="Answers of the model.")
    calls: Annotated[int, Field(ge=1)] | None = Field(None, description="Calls of tools.")
    cost: Annotated[float, Field(gt=0)] | None = Field(None, description="US dollars.")
    active_seconds: Seconds | None = Field(
        None, description="How long something of it may run; waiting for people does not count."
    )


class SurfaceSection(Section):
    """One channel by which people come, and the tools that are left out there."""

    exclude: list[str] = Field([], description="Tools that do not exist there.")


class UseSection(Section):
    """A tool that a route or step names, with more to say than its name."""

    name: str = Field(description="The tool's name.")
    optional: bool = Field(False, description="It may be missing.")
    min_step: str = Field("", description="Seen from this step of the route on.")
    loosens: str = Field("", description="Why what it shadows need not be obeyed.")


class LevelSection(Section):
    """The common keys of a route and a step."""

    description: str = Field("", description="For people.")
    tools: list[Any] = Field([], description="Names, or names with more to say.")
    own_tools: dict[str, Any] = Field({}, description="Tools that are there and nowhere else, by name.")
    mode: Literal["inherit", "only"] = Field("inherit", description="Whether there are other tools beside these.")
    tool_filter: str = Field("", description="CEL over `tool`, `actor` and `ctx`: what it is not true of is not seen.")
    tool_filter_reason: str = Field(
        "", description="Why it refuses, for the trace and the model; without it such a tool does not exist."
    )
    select: str | None = Field(None, description="`module:function` that chooses among the tools that would be seen.")


class StepSection(LevelSection):
    """One step of a route; its name is its key."""

    requires: list[str] = Field([], description="Data that its tools wait for.")
    collect: dict[str, dict[str, Any] | None] = Field({}, description="Data that it brings: JSON Schema by field.")


class RouteSection(LevelSection):
    """One route; its name is its key."""

    steps: dict[str, Any] = Field({}, description="Its steps, in order.")


class AutonomySection(Section):
    """What an actor may do unasked, beside every policy and in place of none."""

    unasked_if: str = Field("", description="CEL over `tool`, `actor` and `ctx`: ask people unless it is true.")
    deny_if: str = Field("", description="CEL over `tool`, `actor` and `ctx`: never run when it is true.")


class EscalationSection(Section):
    """To whom an actor's requests go, where the tool's policy does not say who decides."""

    approvers: list[str] = Field([], description="Who is asked: `role:<role>` and `user:<id>`.")
    escalate_after: Seconds | None = Field(None, description="When those of `escalate_to` may decide too.")
    escalate_to: list[str] = Field([], description="To whom it is escalated.")


class CallbacksSection(Section):
    """Whom an external agent may have told that its calls are settled."""

    urls: list[str] = Field(
        [], description="Addresses; one that ends with `/` stands for all below it. What is posted there is signed."
    )
    secret: str = Field("", description="The signing secret, `env:NAME`; its value is `whsec_` and base64.")
    previous_secret: str = Field("", description="The secret before this one, while both are in use.")
    allow_networks: list[str] = Field([], description="Private networks they may lie in, such as `10.0.0.0/8`.")
    workflows: list[str] = Field([], description="Ids of workflows of the namespace, or their beginnings with `*`.")
    signals: list[str] = Field(["signoff.call"], description="The signals that workflows may be sent.")


class ExternalSection(Section):
    """What an actor that thinks elsewhere may do, with a token of the scope `call`."""

    acts_for: list[str] = Field(description="In whose name it may propose calls: `role:<role>` and `user:<id>`.")
    callbacks: CallbacksSection | None = Field(
        None, description="Whom its calls may name to be told that they are settled; nobody when left out."
    )
    undeclared: Literal["deny", "ask"] = Field(
        "deny", description="What becomes of tools that nobody declared: denied, or people are asked about each call."
    )


class ActorSection(Section):
    """One actor; its name is its key. No `tools` means all of them, `[]` none."""

    description: str = Field("", description="For people.")
    instructions: str = Field("", description="The model's system prompt.")
    model: str = Field("", description="`provider:name`, or `scripted:module:attribute`.")
    tools: list[str] | None = Field(
        None, description="Names, in the order the model sees. Left out: every tool. `[]`: none."
    )
    toolset: str | None = Field(None, description="Only tools of this toolset.")
    allowed_plugins: list[str] | None = Field(None, description="Only these plugins' tools.")
    allowed_mcp_servers: list[str] | None = Field(None, description="Only these MCP servers' tools.")
    allowed_mcp_tools: dict[str, list[str]] | None = Field(
        None, description="Of an MCP server only these tools, by their bare names."
    )
    surfaces: dict[str, SurfaceSection] = Field({}, description="What is left out, by channel.")
    read_rest: bool = Field(False, description="It may read what was cut off a result.")
    leave_open: bool = Field(
        False, description="Its turns in a session may end over calls that people still decide (`while_waiting`)."
    )
    mode: Literal["parallel", "sequential"] = Field(
        "parallel", description="Whether the calls of one completion run beside each other."
    )
    on_failure: Literal["continue", "abort_siblings"] = Field(
        "continue", description="What a call that fails does to those beside it."
    )
    result_chars: Annotated[int, Field(ge=1, le=RESULT_BYTES)] | None = Field(
        None, description="Characters of results that it reads of one completion's calls together."
    )
    domain_data: dict[str, Any] | None = Field(None, description="JSON Schema of data that its answers may bring.")
    domain_merge: Literal["replace", "append", "deep-merge"] = Field(
        "replace", description="How they join the data that the turn began with."
    )
    limits: dict[str, Any] = Field({}, description="Caps of one turn.")
    model_settings: dict[str, Any] = Field(
        {}, description="Passed to the provider as they are; a secret as `env:NAME`, never itself."
    )
    scope: str = Field("", description="One word for rules, such as `admin`: how far it may go as a whole.")
    tags: list[str] = Field([], description="Words for rules.")
    autonomy: AutonomySection | None = Field(None, description="What it may do unasked: rules that only tighten.")
    escalation: EscalationSection | None = Field(
        None, description="To whom its requests go and escalate, where a policy does not say."
    )
    own_tools: dict[str, Any] = Field({}, description="Tools that only this actor has, by name.")
    routes: dict[str, Any] = Field(
        {}, description="Where it may stand, and what it has there, by name; and `select`, which chooses among them."
    )
    select: str | None = Field(None, description="`module:function` that chooses among the tools that would be seen.")
    trace: bool = Field(False, description="Log and record tell which tool the name of each of its calls means.")
    shadowing: Literal["allow", "warn", "forbid"] = Field(
        "forbid", description="Whether a tool may have the name of one behind it."
    )
    external: ExternalSection | None = Field(
        None, description="It thinks elsewhere and proposes its calls over HTTP; no `model`, no `instructions`."
    )


class DestinationSection(Section):
    """One place that records of tools go to; its name is its key."""

    filter: str | None = Field(
        None, description="What it gets of a record: `module:function`, or `identity` for all of it."
    )
    sink: str | None = Field(None, description="`module:function`: takes what the filter left.")
    reads: list[str] = Field([], description="Namespaces of the slots that it is given.")


class RoutingSection(Section):
    """By which channel people are reached first, where neither a policy nor they themselves say so."""

    default: list[str] | None = Field(None, description="Names of channels, in order.")
    fallback_after: Seconds | None = Field(
        None, description="How long a card is left unread before the next channel is tried."
    )
    all: bool | None = Field(None, description="Try all channels at once.")
    digest_over: Annotated[int, Field(ge=1)] | None = Field(
        None, description="More cards than this for one person at once become one."
    )


class SubscriptionSection(Section):
    """Another system that is sent events, signed as Standard Webhooks, or a function; its name is its key."""

    events: list[str] = Field(description="Types of events, or their beginnings with `*`.")
    to: Literal["webhook", "handler"] = Field("webhook", description="Whether they are posted, or given to a function.")
    handler: str | None = Field(None, description="Of `handler`: `module:function`, an `async def (event)`.")
    timeout: Seconds = Field(30.0, description="Of `handler`: how long it may take for one event.")
    url: str = Field("", description="Of `webhook`: the address they are sent to.")
    secret: str = Field(
        "", description="Of `webhook`: the signing secret, `env:NAME`; its value is `whsec_` and base64."
    )
    previous_secret: str = Field("", description="The secret before this one, while both are in use.")
    tenant: str = Field(DEFAULT_TENANT, description="The tenant whose events they are.")
    actor: str = Field("", description="The actor whose specialists' events it is sent as well.")
    allow_networks: list[str] = Field([], description="Private networks it may lie in, such as `10.0.0.0/8`.")


class ToolServerSection(Section):
    """An MCP server whose tools Signoff runs; its name is its key."""

    url: str = Field("", description="The address of its Streamable HTTP endpoint.")
    command: list[str] | str = Field(
        "", description="In place of `url`: the program that speaks by its standard streams, and its arguments."
    )
    headers: dict[str, str] = Field({}, description="What each request to `url` carries; a secret as `env:NAME`.")
    env: dict[str, str] = Field({}, description="Variables of the program; a secret as `env:NAME`.")
    timeout: Seconds = Field(30.0, description="How long it has to be connected, and to list its tools.")
    allow_networks: list[str] = Field([], description="Private networks `url` may lie in, such as `10.0.0.0/8`.")
    requires_approval: bool | dict[str, Any] | None = Field(
        None, description="Whether its tools ask people, where a tool does not say so itself. Left out: they ask."
    )
    trust_hints: bool = Field(
        False, description="Believe what was imported of effects: what only reads is `read_only` and does not ask."
    )
