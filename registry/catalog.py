"""The catalog: all declarations of a process, compiled, checked against each other and hashed."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final
from zoneinfo import ZoneInfo

from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.approval import Question
from signoff.contracts.call import CallContext
from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.message import PART_TYPES, WITHHELD_PART_TYPES
from signoff.contracts.names import COLLECT, READ_REST
from signoff.contracts.person import Person
from signoff.formats.bounds import bounds_problem
from signoff.formats.hours import read_zone
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.replace import replace
from signoff.people.directory import DevelopmentDirectory, Directory, FixedDirectory
from signoff.policy.approval_policy import APPROVER, GlobalRule, RequiresApproval
from signoff.policy.compiled_policy import (
    CompiledPolicy,
    CompiledRules,
    PolicyVerdict,
    RulesVerdict,
    compile_policy,
    compile_rules,
)
from signoff.policy.context_shapes import now_record
from signoff.policy.handler_verdict import PolicyHandler
from signoff.policy.policy_stack import UnderlyingPolicy, incomparable, stack_policies
from signoff.policy.terms import VerdictTerms, terms_of
from signoff.registry.actor import Actor
from signoff.registry.actor_checks import check_actors
from signoff.registry.built_in_tools import READ_REST_TOOL
from signoff.registry.catalog_hash import catalog_hash
from signoff.registry.cel_context import ContextFields, context_fields, context_mapping
from signoff.registry.gates.actor_bounds import autonomy_rules, check_escalation, reads_arguments
from signoff.registry.gates.actor_filters import needs_no_list
from signoff.registry.gates.tool_view import ToolView
from signoff.registry.hooks import load_policy_handler
from signoff.registry.manifest.channel_sections import (
    NO_CHANNELS,
    Channels,
    DeclaredChannel,
    RoutingRules,
    build_channels,
)
from signoff.registry.manifest.on_call_sections import OnCallRota, build_on_call
from signoff.registry.manifest.room_sections import TeamRoom
from signoff.registry.manifest.subscription_sections import Subscription, build_subscriptions
from signoff.registry.mcp.tool_server import ToolServer, build_servers
from signoff.registry.registry import ToolRegistry
from signoff.registry.respond_form import RespondForm, declared_part_types, respond_form, withheld_part_types
from signoff.registry.results.destinations import NOWHERE, Destination, Distribution, Observer, build_distribution
from signoff.registry.results.domain_data import schema_text
from signoff.registry.results.reducers import Reducer, ReducerRegistry
from signoff.registry.results.update_check import check_updates
from signoff.registry.scopes.actor_scopes import ActorScopes, policy_over
from signoff.registry.scopes.position import NO_RESOLUTION_CONTEXT, ResolutionContext
from signoff.registry.scopes.scope_builder import build_scopes
from signoff.registry.tool import Tool

# A worker serves turns without end, each with its own contexts: the cache needs a limit.
_SIGHTS_KEPT: Final = 200


@dataclass(frozen=True)
class Catalog:
    """All declarations of one worker. `build_catalog` makes it. It never changes."""

    registry: ToolRegistry
    """Lacks the tools of single actors."""
    actors: Mapping[str, Actor]
    policies: Mapping[str, CompiledPolicy]
    """By the tool's `activity`."""
    rules: CompiledRules
    default_approvers: tuple[str, ...]
    """The approvers if a policy names none."""
    people: Directory
    """The directory, with the built-in people of the development profile."""
    fields: ContextFields
    """Added by the manifest."""
    hash: str
    """SHA-256 over everything that affects behaviour. The same in every process."""
    part_types: tuple[str, ...] = PART_TYPES
    """The allowed types of parts of answers."""
    requires_peer_consumes: frozenset[str] = frozenset(WITHHELD_PART_TYPES)
    """The types that another agent gets only if it declares that it accepts them."""
    handlers: Mapping[str, PolicyHandler] = field(default_factory=dict, repr=False, compare=False)
    """By the tool's `activity`."""
    reducers: Mapping[str, Reducer] = field(default_factory=dict, repr=False, compare=False)
    """By the name of the tool."""
    scopes: Mapping[str, ActorScopes] = field(default_factory=dict, repr=False, compare=False)
    """The positions of each actor, by its name."""
    distribution: Distribution = field(default=NOWHERE, repr=False, compare=False)
    channels: Channels = field(default=NO_CHANNELS, repr=False, compare=False)
    """The channels to people apart from the inbox."""
    on_call: Mapping[str, OnCallRota] = field(default_factory=dict, repr=False, compare=False)
    """The rotas of people on call, by name. No hash covers them."""
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict, repr=False, compare=False)
    """Other systems that receive events, by name. They decide nothing, and no hash covers them."""
    insights_by_person: bool = field(default=False, repr=False, compare=False)
    """Whether operators and auditors see figures by person. No hash covers it."""
    mcp_servers: Mapping[str, ToolServer] = field(default_factory=dict, repr=False, compare=False)
    """MCP servers whose tools Signoff runs, by name; hashes cover their tools, each with its server's address."""
    bounds: CompiledRules | None = field(default=None, repr=False, compare=False)
    """The rules of actors' autonomy that read arguments."""
    zone: ZoneInfo = field(default=ZoneInfo("UTC"), repr=False, compare=False)
    """The time zone of `ctx.now`."""
    _rule_verdicts: dict[str, dict[str, RulesVerdict]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _views: dict[str, ToolView] = field(default_factory=dict, init=False, repr=False, compare=False)

    def actor(self, name: str) -> Actor:
        """Return the actor of this name. Raises `ConfigError` that suggests similar names."""
        found = self.actors.get(name)
        if found is None:
            near = (
                did_you_mean(name, self.actors)
                or f"; known: {', '.join(f'`{each}`' for each in self.actors) or 'none'}"
            )
            raise ConfigError(f"there is no actor {quote_name(name)}{near}", actor=name, field="actor", value=name)
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models of the actors, each once, without external agents."""
        return tuple(dict.fromkeys(actor.model for actor in self.actors.values() if actor.external is None))

    def resolve(self, name: str) -> Tool | None:
        """Return the registry's tool of exactly this name, or `None`. `tool_view` decides what an actor can see."""
        return self.registry.resolve(name)

    get = resolve

    def available(self, ctx: CallContext, withheld: frozenset[str] | None = None) -> tuple[Tool, ...]:
        """Return the tools that the actor of `ctx` has now, in the order for its model.

        `withheld` names the tools that hooks or hours remove. A catalog runs no hooks: with `None`, it leaves out every
        tool that depends on a hook or on the time.
        """
        view = self.tool_view(ctx)
        return view.without(_find_unanswered(view) if withheld is None else withheld).visible()

    def for_toolset(self, name: str, ctx: CallContext, withheld: frozenset[str] | None = None) -> tuple[Tool, ...]:
        """Return the tools of `available` whose toolset is exactly `name`."""
        return tuple(tool for tool in self.available(ctx, withheld) if tool.toolset == name)

    def definitions(self, ctx: CallContext, withheld: frozenset[str] | None = None) -> tuple[ModelTool, ...]:
        """Return the model's definitions of the `available` tools, and `respond`.

        Raises `ConfigError` as `offered_tools`, which a turn calls with the answers of all hooks.
        """
        # `offered_tools` reports an unknown actor.
        known = ctx.actor in self.actors
        left_out = _find_unanswered(self.tool_view(ctx)) if withheld is None and known else frozenset[str]()
        return self.offered_tools(ctx.actor, ctx, left_out if withheld is None else withheld)

    def tools(self) -> tuple[Tool, ...]:
        """Return the registry's tools, sorted by name, without the tools of single actors."""
        return self._registered

    @cached_property
    def _registered(self) -> tuple[Tool, ...]:
        found = (self.registry.resolve(name) for name in self.registry.list())
        return tuple(tool for tool in found if tool is not None)

    @cached_property
    def every_tool(self) -> tuple[Tool, ...]:
        """The registry's and every actor's own tools, sorted by activity."""
        placed = (each.tool for scopes in self.scopes.values() for each in scopes.placed.values())
        return (*self.tools(), *sorted(placed, key=lambda tool: tool.activity))

    @cached_property
    def may_block(self) -> bool:
        """Whether a rule runs in its own process, for which its caller waits."""
        rules = [expression for each in (self.rules, self.bounds) if each is not None for _, expression in each.rules]
        rules += [each for policy in self.policies.values() for each in policy.expressions.values()]
        places = (place for scopes in self.scopes.values() for place in scopes.positions.values())
        rules += [each.filter.expression for place in places for each in place.filters]
        return any(each.bounded for each in rules)

    def tool(self, activity: str) -> Tool | None:
        """Return the tool of an activity, or `None`.

        The activity is the name, except for own tools.
        """
        found = self.registry.resolve(activity)
        # An activity with a place contains `@`, which no registered name can have: the two never collide.
        placed = () if found is not None else self.every_tool[self.registry.size :]
        return next((tool for tool in placed if tool.activity == activity), found)

    def tools_named(self, name: str) -> tuple[Tool, ...]:
        """Return all tools of exactly this name, at any actor, the registry's first."""
        registered = self.registry.resolve(name)
        placed = () if not self.scopes else self.every_tool[self.registry.size :]
        return (*(() if registered is None else (registered,)), *(tool for tool in placed if tool.name == name))

    def find_definition(self, name: str, definition: str) -> Tool | None:
        """Return the tool of this name and definition, else the registry's tool of this name, or `None`."""
        found = self.tools_named(name)
        # Match an undeclared tool only by the exact definition of the question: any agent can use the name.
        views = (each.positions["", ""].resolve(name, NO_RESOLUTION_CONTEXT).tool for each in self.scopes.values())
        undeclared = (tool for tool in views if tool is not None and tool.undeclared)
        exact = (tool for tool in (*found, *undeclared) if tool.definition == definition)
        return next(exact, found[0] if found else None)

    def takes_unsigned(self, name: str, definition: str) -> bool:
        """Return whether the present policy of a tool accepts unsigned answers; False if the tool no longer exists."""
        tool = self.find_definition(name, definition)
        return tool is not None and self.policy(tool.activity).rules.accept_unsigned

    def policy(self, tool: str) -> CompiledPolicy:
        """Return the compiled policy of a tool by its activity.

        Raises `ConfigError` for an unknown activity.
        """
        found = self.policies.get(tool)
        if found is None:
            raise ConfigError(
                f"there is no tool {quote_name(tool)}{did_you_mean(tool, self.policies)}",
                tool_name=tool,
                field="name",
                value=tool,
            )
        return found

    def approvers(self, tool: str, verdict: PolicyVerdict | None = None) -> tuple[str, ...]:
        """Return the verdict's approvers, else the policy's, else the default ones."""
        return self.terms(tool, verdict).approvers

    def terms(self, tool: str, verdict: PolicyVerdict | None = None) -> VerdictTerms:
        """Return the verdict's terms if it has approvers, else the policy's.

        A policy without approvers gets the default ones.
        """
        if verdict is not None and verdict.terms.approvers:
            return verdict.terms
        policy = self.policy(tool).rules
        # Never return empty approvers if there are default ones: a request without approvers would wait until its
        # deadline.
        return terms_of(policy, policy.named_approvers or self.default_approvers)

    def declares(self, question: Question) -> bool:
        """Return whether the tool of a question exists, also in another definition."""
        return self.find_definition(question.tool, question.definition) is not None

    def tool_view(self, ctx: CallContext) -> ToolView:
        """Return the tools that the actor of `ctx` can see, none for an unknown actor.

        Recent views are cached: one turn asks at least four times.
        """
        # As text: a context holds mappings, and `1`, `1.0` and `True` are one key in Python but different facts in a
        # rule.
        key = repr(ctx.model_dump())
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= _SIGHTS_KEPT:
                self._views.clear()
            cel, actor = context_mapping(ctx, self.fields), self.actors.get(ctx.actor)
            # Share verdicts beyond this context only if it cannot have affected them. Out of bounds, every rule errs
            # and therefore applies: a shared verdict would hide or deny the actor's tools in later, valid turns.
            lasting = actor is not None and not self.rules.read_context and not bounds_problem(cel)
            verdicts = self._rule_verdicts.setdefault(ctx.actor, {}) if lasting else {}
            # Without `withheld`: it changes between completions, and the caller removes those tools.
            found = ToolView(
                self.registry, self.rules, actor, ctx.actor, cel, verdicts, self._unlisted, bounds=self.bounds
            )
            # Without scopes there is no position: an unknown actor sees nothing, rather than the whole registry.
            scopes = self.scopes.get(ctx.actor)
            if scopes is not None:
                moment = ResolutionContext(scopes.available_fields(ctx.extra), ctx.transient, found.actor_facts, cel)
                position = scopes.position(ctx.route, ctx.step)
                found = dataclasses.replace(found, position=position, moment=moment, over=scopes.policy_tools)
            self._views[key] = found
        return found

    def tool_view_at(self, ctx: CallContext, at: datetime | None) -> ToolView:
        """Return the view for a call judged at this instant. With `None`, rules that read the time fail."""
        return self.tool_view(ctx).at(None if at is None else now_record(at, self.zone))

    @property
    def declared_rules(self) -> tuple[GlobalRule, ...]:
        """Return the global rules without those from actors' autonomy."""
        bounds = {rule.name for rule in autonomy_rules(self.actors.values(), self.fields)}
        return tuple(rule for rule, _ in self.rules.rules if rule.name not in bounds)

    def needs_nobody(self, tool: str) -> bool:
        """Return whether no call of a tool, by its `activity`, ever needs approval, at any time."""
        bound = self.bounds is not None and bool(self.bounds.rules)
        return self.policy(tool).needs_person == "never" and not (self.rules.reads_now or bound)

    @cached_property
    def _unlisted(self) -> tuple[Tool, ...]:
        """The tools that an actor may see without listing them, sorted by name."""
        return tuple(tool for tool in self.tools() if needs_no_list(tool))

    def offered_tools(
        self, actor: str, ctx: CallContext, withheld: frozenset[str] = frozenset()
    ) -> tuple[ModelTool, ...]:
        """Return the tools for the model, `respond` last, without those in `withheld`.

        Raises `ConfigError` for an unknown actor, route or step, or a missing tool of the turn.
        """
        ctx = replace(ctx, actor=self.actor(actor).name)
        self.scopes[actor].check(ctx.route, ctx.step, ctx.transient)
        view = self.tool_view(ctx).without(withheld)
        return (*(_offer(tool) for tool in view.visible()), self.respond(actor).offer)

    def respond(self, actor: str) -> RespondForm:
        """Return the form with which this actor ends a turn. It may hand over to every other actor."""
        peers, asked = tuple(name for name in self.actors if name != actor), self.actors.get(actor)
        if asked is None or asked.domain_data is None:
            return respond_form(peers, self.part_types)
        return respond_form(peers, self.part_types, schema_text(asked.domain_data), asked.domain_merge)


def build_catalog(
    *,
    tools: Iterable[Tool] = (),
    actors: Iterable[Actor] = (),
    policies: Sequence[GlobalRule] = (),
    default_approvers: Sequence[str] = ("role:approvers",),
    people: Iterable[Person] | Directory = (),
    context: Mapping[str, Mapping[str, Any]] | None = None,
    part_types: Iterable[str] = (),
    requires_peer_consumes: Iterable[str] = (),
    reducers: ReducerRegistry | None = None,
    destinations: Iterable[Destination] = (),
    observer: Observer | None = None,
    channels: Iterable[DeclaredChannel] = (),
    routing: RoutingRules | None = None,
    rooms: Mapping[str, Sequence[TeamRoom]] | None = None,
    on_call: Iterable[OnCallRota] = (),
    subscriptions: Iterable[Subscription] = (),
    insights_by_person: bool = False,
    mcp_servers: Iterable[ToolServer] = (),
    timezone: str = "UTC",
) -> Catalog:
    """Compile and check all declarations. Raises `ConfigError` with the thing and the remedy.

    `people` join the built-in people of the development profile. `context` is JSON Schema by dotted name.
    `part_types` add to the types in contracts/message.py. Another agent gets a type of `requires_peer_consumes` only
    if it accepts the type. `reducers` shorten results. Later registrations have no effect. `destinations`
    receive the records of tools, and `observer` failed deliveries. `channels` reach people apart from the inbox, by
    the rules of `routing`. `rooms` show requests to teams. `on_call` are rotas of approvers. `subscriptions` are other
    systems that receive events. `insights_by_person` shows operators and auditors figures by person. `mcp_servers` are
    the servers of imported `tools`. `timezone` is the zone of `ctx.now`.
    """
    # The actors are iterated several times, and may come from a generator.
    actors = tuple(actors)
    registry = ToolRegistry(_with_own(tools, actors))
    known = check_actors(actors, registry)
    fields = context_fields(context)
    approvers = _approvers(default_approvers)
    # Scopes need the registry and the context's fields. Policies need the scopes, because own tools have policies too.
    scopes = {name: build_scopes(actor, registry, fields) for name, actor in known.items()}
    check_updates(_every_tool(registry, scopes), scopes.values(), fields)
    compiled = _policies(registry, scopes, fields, approvers)
    for name, policy in compiled.items():
        _check_somebody_decides(name, policy, approvers)
    own = autonomy_rules(known.values(), fields)
    rules = compile_rules(
        (*policies, *(rule for rule in own if not reads_arguments(rule))), context_schema=fields.declared
    )
    bounds = compile_rules([rule for rule in own if reads_arguments(rule)], fields.declared, with_args=True)
    for actor in known.values():
        check_escalation(actor)
    # A global rule names no approvers: it may require approval for a tool that has no policy, and so none.
    if not approvers and any(rule.effect == "require_approval" for rule, _ in (*rules.rules, *bounds.rules)):
        raise ConfigError(
            "a global rule requires approval, but there are no default approvers", field="default_approvers"
        )
    types = declared_part_types(part_types)
    withheld = withheld_part_types(requires_peer_consumes, types)
    zone = _zone(timezone)
    distribution = build_distribution(destinations, observer, _every_tool(registry, scopes))
    reached = build_channels(channels, routing, compiled, rooms)
    catalog = Catalog(
        registry=registry,
        actors=MappingProxyType(known),
        policies=MappingProxyType(compiled),
        rules=rules,
        default_approvers=approvers,
        # Production removes the built-in people again (`declared_people`): the profile is unknown here.
        people=DevelopmentDirectory(people if isinstance(people, Directory) else FixedDirectory(people)),
        fields=fields,
        hash=catalog_hash(
            registry, known, compiled, rules, bounds, approvers, fields, types, distribution, reached, zone
        ),
        part_types=types,
        requires_peer_consumes=withheld,
        handlers=MappingProxyType(_handlers(registry, scopes)),
        reducers=_reducers(reducers, registry),
        scopes=MappingProxyType(scopes),
        distribution=distribution,
        channels=reached,
        on_call=build_on_call(on_call, compiled, known, approvers),
        subscriptions=build_subscriptions(subscriptions, known, (tool.name for tool in _every_tool(registry, scopes))),
        insights_by_person=insights_by_person,
        mcp_servers=build_servers(mcp_servers),
        zone=zone,
        bounds=bounds,
    )
    # List now, so that the first turn does not list the registry.
    catalog.tools()
    return catalog


def _find_unanswered(view: ToolView) -> frozenset[str]:
    chosen = view.position is not None and view.position.is_selected
    routed = view.position is not None and view.position.route_select is not None
    seen = view.visible()
    return frozenset(
        tool.name
        for tool in seen
        if tool.available is not None
        or tool.hours
        or (chosen and not tool.of_framework)
        or (routed and tool.name == COLLECT)
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return read_zone(name)
    except ValueError as error:
        raise ConfigError(f"`timezone`: {error}", field="timezone", value=name) from None


def _with_own(tools: Iterable[Tool], actors: Sequence[Actor]) -> Iterator[Tool]:
    for tool in tools:
        if tool.name == READ_REST:
            raise RegistrationError(
                f"tool `{READ_REST}` has a reserved name: actors get it by `read_rest: true`",
                tool_name=READ_REST,
                field="name",
                value=READ_REST,
            )
        yield tool
    if any(actor.read_rest for actor in actors):
        # Only if an actor has it: otherwise every catalog's hash would change.
        yield READ_REST_TOOL


def _reducers(given: ReducerRegistry | None, registry: ToolRegistry) -> Mapping[str, Reducer]:
    found = ReducerRegistry().snapshot() if given is None else given.snapshot()
    for name in found:
        if registry.resolve(name) is None:
            near = did_you_mean(name, registry.list())
            raise ConfigError(
                f"there is a reducer for the unknown tool `{name}`{near}", tool_name=name, field="reducer", value=name
            )
    return found


def _every_tool(registry: ToolRegistry, scopes: Mapping[str, ActorScopes]) -> Iterator[Tool]:
    registered = (registry.resolve(name) for name in registry.list())
    yield from (tool for tool in registered if tool is not None)
    yield from (each.tool for of_actor in scopes.values() for each in of_actor.placed.values())


def _handlers(registry: ToolRegistry, scopes: Mapping[str, ActorScopes]) -> dict[str, PolicyHandler]:
    found = {
        tool.activity: load_policy_handler(tool.name, tool.requires_approval, tool.policy_function)
        for tool in _every_tool(registry, scopes)
    }
    return {name: handler for name, handler in found.items() if handler is not None}


def _policies(
    registry: ToolRegistry, scopes: Mapping[str, ActorScopes], fields: ContextFields, approvers: Sequence[str]
) -> dict[str, CompiledPolicy]:
    """Combine the policy of a shadowing tool with the policies that it shadows."""
    tools = (registry.resolve(name) for name in registry.list())
    placed = {key: each for of_actor in scopes.values() for key, each in of_actor.placed.items()}
    every = (*(tool for tool in tools if tool is not None), *(each.tool for each in placed.values()))
    # Compile all first, then combine: a shadowed tool may be an own tool itself, in any order.
    own = {tool.activity: _policy(tool, fields, approvers) for tool in every}
    return own | {key: policy_over(each, own, approvers) for key, each in placed.items()}


def _policy(tool: Tool, fields: ContextFields, approvers: Sequence[str]) -> CompiledPolicy:
    """Combine a tool's policy with the manifest's policy over it, if any."""
    own = _compiled(tool, tool.requires_approval, fields, approvers)
    if tool.stricter_policy is False:
        return own
    over = _compiled(tool, tool.stricter_policy, fields, approvers)
    why = incomparable(over, [own], approvers, together=True)
    if why:
        message = f"tool `{tool.name}` has a policy in code and one in the manifest, but {why}"
        raise ConfigError(message, tool_name=tool.name, field="requires_approval", value=tool.name)
    return stack_policies(over, [UnderlyingPolicy(own, lambda args: True)], approvers, together=True)


def _compiled(tool: Tool, policy: RequiresApproval, fields: ContextFields, approvers: Sequence[str]) -> CompiledPolicy:
    try:
        return compile_policy(
            policy,
            tool=tool.facts,
            input_schema=tool.schema.schema,
            context_schema=fields.declared,
            default=approvers,
        )
    except ConfigError as error:
        # With `tool_name`, the message would point to `tools`, which does not contain an actor's own tool.
        owner = tool.place.partition(".")[0]
        if not owner:
            raise
        message = f"actor `{owner}`, tool at `{tool.place}`: {error.message}"
        raise ConfigError(message, actor=owner, field="own_tools", value=tool.name) from error


def _approvers(default: Sequence[str]) -> tuple[str, ...]:
    for approver in default:
        if APPROVER.match(approver) is None:
            raise ConfigError(
                f"default approver `{approver}` is neither `role:<role>`, `user:<id>` nor `oncall:<rota>`",
                field="default_approvers",
                value=approver,
            )
    return tuple(default)


def _check_somebody_decides(name: str, policy: CompiledPolicy, default: tuple[str, ...]) -> None:
    named = policy.policy.named_approvers if policy.policy is not None else ()
    if policy.needs_person != "never" and not named and not default:
        raise ConfigError(
            f"tool `{name}` may need approval, but it names no `approvers` and there are no default ones",
            tool_name=name,
            field="requires_approval",
            value="",
        )


def _offer(tool: Tool) -> ModelTool:
    # A copy: a model library that adapts a schema in place would change the schema that checks calls.
    parameters = copy.deepcopy(dict(tool.schema.schema))
    return ModelTool(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
