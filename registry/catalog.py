"""The catalog: all declarations of a process, compiled, checked against each other and hashed. It never changes."""

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
from signoff.policy.terms import Terms, terms_of
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

# A worker serves turns without end, and each of them brings contexts of its own: what is kept needs a bound.
_SIGHTS_KEPT: Final = 200


@dataclass(frozen=True)
class Catalog:
    """All declarations that one worker works by. `build_catalog` makes it, nothing changes it."""

    registry: ToolRegistry
    """The tools that are not an actor's own."""
    actors: Mapping[str, Actor]
    """The actors by name."""
    policies: Mapping[str, CompiledPolicy]
    """The compiled policy of each tool, by its `activity`."""
    rules: CompiledRules
    """The global rules."""
    default_approvers: tuple[str, ...]
    """Who decides where a policy names nobody."""
    people: Directory
    """The directory, with the built-in people of the development profile."""
    fields: ContextFields
    """The context fields that the manifest adds."""
    hash: str
    """sha-256 over all that decides what the catalog does; the same in every process."""
    part_types: tuple[str, ...] = PART_TYPES
    """The types that parts of answers may have."""
    requires_peer_consumes: frozenset[str] = frozenset(WITHHELD_PART_TYPES)
    """Those that other agents get only where they say that they take them."""
    handlers: Mapping[str, PolicyHandler] = field(default_factory=dict, repr=False, compare=False)
    """The function of each policy that names a `handler`, by the tool's `activity`."""
    reducers: Mapping[str, Reducer] = field(default_factory=dict, repr=False, compare=False)
    """The reducers by the name of their tool."""
    scopes: Mapping[str, ActorScopes] = field(default_factory=dict, repr=False, compare=False)
    """Where each actor may stand, by its name."""
    distribution: Distribution = field(default=NOWHERE, repr=False, compare=False)
    """Where records of tools go."""
    channels: Channels = field(default=NO_CHANNELS, repr=False, compare=False)
    """How people are reached beside the inbox."""
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict, repr=False, compare=False)
    """Other systems that are sent events, by name; they decide nothing, and no hash covers them."""
    mcp_servers: Mapping[str, ToolServer] = field(default_factory=dict, repr=False, compare=False)
    """MCP servers whose tools Signoff runs, by name; hashes cover their tools, each with its server's address."""
    bounds: CompiledRules | None = field(default=None, repr=False, compare=False)
    """The rules of actors' autonomy that read arguments."""
    zone: ZoneInfo = field(default=ZoneInfo("UTC"), repr=False, compare=False)
    """By which clocks `ctx.now` is told."""
    _rule_verdicts: dict[str, dict[str, RulesVerdict]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _views: dict[str, ToolView] = field(default_factory=dict, init=False, repr=False, compare=False)

    def actor(self, name: str) -> Actor:
        """Returns the actor of this name. Raises `ConfigError` that offers the nearest names."""
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
        """The models of the actors, each once; agents that think elsewhere have none."""
        return tuple(dict.fromkeys(actor.model for actor in self.actors.values() if actor.external is None))

    def resolve(self, name: str) -> Tool | None:
        """Returns the registry's tool of exactly this name, or None; what an actor can see is `tool_view`'s to say."""
        return self.registry.resolve(name)

    get = resolve

    def available(self, ctx: CallContext, withheld: frozenset[str] | None = None) -> tuple[Tool, ...]:
        """Returns the tools that the actor of `ctx` has now, in the order in which its model is shown them (E01).

        `withheld` are names of those that are not there now or not chosen, by their hooks and hours, which a catalog
        asks nobody about. None: nobody was asked, and whatever depends on such an answer is left out.
        """
        view = self.tool_view(ctx)
        return view.without(_find_unanswered(view) if withheld is None else withheld).visible()

    def for_toolset(self, name: str, ctx: CallContext, withheld: frozenset[str] | None = None) -> tuple[Tool, ...]:
        """Returns those of `available` whose toolset is exactly `name` (E01)."""
        return tuple(tool for tool in self.available(ctx, withheld) if tool.toolset == name)

    def definitions(self, ctx: CallContext, withheld: frozenset[str] | None = None) -> tuple[ModelTool, ...]:
        """Returns the definitions that a model is shown (E01): those of `available`, and that of `respond`.

        Raises `ConfigError` as `offered_tools` does, which a turn asks with the answers of all hooks.
        """
        # An actor that this catalog lacks is told of there.
        known = ctx.actor in self.actors
        left_out = _find_unanswered(self.tool_view(ctx)) if withheld is None and known else frozenset[str]()
        return self.offered_tools(ctx.actor, ctx, left_out if withheld is None else withheld)

    def tools(self) -> tuple[Tool, ...]:
        """Returns every tool of the registry, sorted by name."""
        return self._registered

    @cached_property
    def _registered(self) -> tuple[Tool, ...]:
        found = (self.registry.resolve(name) for name in self.registry.list())
        return tuple(tool for tool in found if tool is not None)

    @cached_property
    def every_tool(self) -> tuple[Tool, ...]:
        """Returns every tool of the registry, and those that actors have as their own, sorted by activity."""
        placed = (each.tool for scopes in self.scopes.values() for each in scopes.placed.values())
        return (*self.tools(), *sorted(placed, key=lambda tool: tool.activity))

    @cached_property
    def may_block(self) -> bool:
        """Whether some rule is evaluated in a process of its own, for which its caller waits."""
        rules = [expression for each in (self.rules, self.bounds) if each is not None for _, expression in each.rules]
        rules += [each for policy in self.policies.values() for each in policy.expressions.values()]
        places = (place for scopes in self.scopes.values() for place in scopes.positions.values())
        rules += [each.filter.expression for place in places for each in place.filters]
        return any(each.bounded for each in rules)

    def tool(self, activity: str) -> Tool | None:
        """Returns the tool of this activity, which for all but an actor's own is its name; or None."""
        found = self.registry.resolve(activity)
        # A `place` brings an `@` into an activity, which no name in the registry can have: never do both answer.
        placed = () if found is not None else self.every_tool[self.registry.size :]
        return next((tool for tool in placed if tool.activity == activity), found)

    def tools_named(self, name: str) -> tuple[Tool, ...]:
        """Returns the tools of exactly this name, whoever has them; that of the registry first."""
        registered = self.registry.resolve(name)
        placed = () if not self.scopes else self.every_tool[self.registry.size :]
        return (*(() if registered is None else (registered,)), *(tool for tool in placed if tool.name == name))

    def find_definition(self, name: str, definition: str) -> Tool | None:
        """Returns the tool of this name and definition, else that of the registry by this name; or None."""
        found = self.tools_named(name)
        # Of what nobody declared only the very one that was asked about: by a name alone it may be anybody's.
        views = (each.positions["", ""].resolve(name, NO_RESOLUTION_CONTEXT).tool for each in self.scopes.values())
        undeclared = (tool for tool in views if tool is not None and tool.undeclared)
        exact = (tool for tool in (*found, *undeclared) if tool.definition == definition)
        return next(exact, found[0] if found else None)

    def takes_unsigned(self, name: str, definition: str) -> bool:
        """Returns whether the present policy of a tool takes answers without a signature; False for a tool that is
        gone.
        """
        tool = self.find_definition(name, definition)
        return tool is not None and self.policy(tool.activity).rules.accept_unsigned

    def policy(self, tool: str) -> CompiledPolicy:
        """Returns the compiled policy of a tool, by its `activity`. Raises `ConfigError` for one that no tool has."""
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
        """Returns the approvers of a call: those of the verdict, else those of the policy, else the default."""
        return self.terms(tool, verdict).approvers

    def terms(self, tool: str, verdict: PolicyVerdict | None = None) -> Terms:
        """Returns the terms on which people are asked about a call: those of the verdict, else the policy's own."""
        if verdict is not None and verdict.terms.approvers:
            return verdict.terms
        policy = self.policy(tool).rules
        # Never empty where there are default ones: nobody could answer, and the request would wait out its time.
        return terms_of(policy, policy.named_approvers or self.default_approvers)

    def declares(self, question: Question) -> bool:
        """Returns whether this catalog has the tool of a question, in whatever definition."""
        return self.find_definition(question.tool, question.definition) is not None

    def tool_view(self, ctx: CallContext) -> ToolView:
        """Returns the tools that the actor of `ctx` can see; an actor this catalog lacks sees nothing.

        The views of recent contexts are kept: one turn asks at least four times.
        """
        # As text: a context holds mappings, and `1`, `1.0` and `True` are one key to Python but not one fact to a rule.
        key = repr(ctx.model_dump())
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= _SIGHTS_KEPT:
                self._views.clear()
            cel, actor = context_mapping(ctx, self.fields), self.actors.get(ctx.actor)
            # Rulings outlive this context only where it cannot have changed them. Out of bounds, every rule errs and so
            # applies: kept, that would hide or deny the actor's tools in later turns that are sound.
            lasting = actor is not None and not self.rules.read_context and not bounds_problem(cel)
            verdicts = self._rule_verdicts.setdefault(ctx.actor, {}) if lasting else {}
            # Without what is withheld: that changes from one completion to the next, and is taken out by the caller.
            found = ToolView(
                self.registry, self.rules, actor, ctx.actor, cel, verdicts, self._unlisted, bounds=self.bounds
            )
            # No scopes, no position: an actor that this worker lacks sees nothing, rather than the whole registry.
            scopes = self.scopes.get(ctx.actor)
            if scopes is not None:
                moment = ResolutionContext(scopes.available_fields(ctx.extra), ctx.transient, found.actor_facts, cel)
                position = scopes.position(ctx.route, ctx.step)
                found = dataclasses.replace(found, position=position, moment=moment, over=scopes.policy_tools)
            self._views[key] = found
        return found

    def tool_view_at(self, ctx: CallContext, at: datetime | None) -> ToolView:
        """Returns the same for a call that is judged at this instant; None: nobody knows it, and rules that ask err."""
        return self.tool_view(ctx).at(None if at is None else now_record(at, self.zone))

    @property
    def declared_rules(self) -> tuple[GlobalRule, ...]:
        """The global rules as they were declared, without those that hold actors to their autonomy."""
        bounds = {rule.name for rule in autonomy_rules(self.actors.values(), self.fields)}
        return tuple(rule for rule, _ in self.rules.rules if rule.name not in bounds)

    def needs_nobody(self, tool: str) -> bool:
        """Tells whether no call of a tool, by its `activity`, ever asks a person, at whatever moment it runs."""
        bound = self.bounds is not None and bool(self.bounds.rules)
        return self.policy(tool).needs_person == "never" and not (self.rules.reads_now or bound)

    @cached_property
    def _unlisted(self) -> tuple[Tool, ...]:
        """Returns the tools that an actor may see though it does not list them, sorted by name."""
        return tuple(tool for tool in self.tools() if needs_no_list(tool))

    def offered_tools(
        self, actor: str, ctx: CallContext, withheld: frozenset[str] = frozenset()
    ) -> tuple[ModelTool, ...]:
        """Returns the tools that are offered to the model, `respond` last, without those that are `withheld`.

        Raises `ConfigError` for an unknown actor, and for a route, step or tool of the turn's own that it lacks.
        """
        ctx = replace(ctx, actor=self.actor(actor).name)
        self.scopes[actor].check(ctx.route, ctx.step, ctx.transient)
        view = self.tool_view(ctx).without(withheld)
        return (*(_offer(tool) for tool in view.visible()), self.respond(actor).offer)

    def respond(self, actor: str) -> RespondForm:
        """Returns the form by which this actor ends a turn; it may pass on to every other one."""
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
    subscriptions: Iterable[Subscription] = (),
    mcp_servers: Iterable[ToolServer] = (),
    timezone: str = "UTC",
) -> Catalog:
    """Compiles and checks all that is declared. Raises `ConfigError` that names the thing and the remedy.

    `people` are added to the built-in ones of the development profile; `context` is JSON Schema by dotted name.
    `part_types` are those of answers beside the ones of contracts/message.py; other agents are told those of
    `requires_peer_consumes` only where they take them. `reducers` shorten results; registering
    more of them afterwards changes nothing (E43). `destinations` get the records that tools return; `observer` is
    told of what did not arrive. `channels` are how people are reached beside the inbox, by the rules of `routing`.
    `subscriptions` are other systems that are sent events. `mcp_servers` are those of which `tools` has the imported
    tools. `timezone` is by whose clocks rules are told the time, as
    `ctx.now`.
    """
    # They are gone through several times, and may come from a generator.
    actors = tuple(actors)
    registry = ToolRegistry(_with_own(tools, actors))
    known = check_actors(actors, registry)
    fields = context_fields(context)
    approvers = _approvers(default_approvers)
    # Scopes need the registry and the context's fields; policies need the scopes, as own tools are judged like others.
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
    # A global rule names nobody itself: it may ask about a tool that has no policy, and so no approvers.
    if not approvers and any(rule.effect == "require_approval" for rule, _ in (*rules.rules, *bounds.rules)):
        raise ConfigError(
            "a global rule requires approval, but there are no default approvers", field="default_approvers"
        )
    types = declared_part_types(part_types)
    withheld = withheld_part_types(requires_peer_consumes, types)
    zone = _zone(timezone)
    distribution = build_distribution(destinations, observer, _every_tool(registry, scopes))
    reached = build_channels(channels, routing, compiled)
    catalog = Catalog(
        registry=registry,
        actors=MappingProxyType(known),
        policies=MappingProxyType(compiled),
        rules=rules,
        default_approvers=approvers,
        # Production takes the built-in people out again (`declared_people`): here nobody knows the profile.
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
        subscriptions=build_subscriptions(subscriptions, known, (tool.name for tool in _every_tool(registry, scopes))),
        mcp_servers=build_servers(mcp_servers),
        zone=zone,
        bounds=bounds,
    )
    # Asked for here, so that the first turn does not list the registry (P11).
    catalog.tools()
    return catalog


def _find_unanswered(view: ToolView) -> frozenset[str]:
    """Returns the names of the tools that hooks or the time of day may take away from what is seen."""
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
    """Yields `tools`, and the built-in ones that some actor declares."""
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
        # Only where an actor has it: what no one declares changes no catalog's hash.
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
    """Compiles one policy a tool; that of a tool which shadows others is combined with theirs."""
    tools = (registry.resolve(name) for name in registry.list())
    placed = {key: each for of_actor in scopes.values() for key, each in of_actor.placed.items()}
    every = (*(tool for tool in tools if tool is not None), *(each.tool for each in placed.values()))
    # All first, then those over others: what is shadowed may be an own tool itself, in any order.
    own = {tool.activity: _policy(tool, fields, approvers) for tool in every}
    return own | {key: policy_over(each, own, approvers) for key, each in placed.items()}


def _policy(tool: Tool, fields: ContextFields, approvers: Sequence[str]) -> CompiledPolicy:
    """Compile the policy of a tool, under that of a manifest over its code if there is one."""
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
        # With `tool_name` the manifest would look under `tools`, where an actor's own tool does not stand.
        owner = tool.place.partition(".")[0]
        if not owner:
            raise
        message = f"actor `{owner}`, tool at `{tool.place}`: {error.message}"
        raise ConfigError(message, actor=owner, field="own_tools", value=tool.name) from error


def _approvers(default: Sequence[str]) -> tuple[str, ...]:
    for approver in default:
        if APPROVER.match(approver) is None:
            raise ConfigError(
                f"default approver `{approver}` is neither `role:<role>` nor `user:<id>`",
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
    # A copy: a model library that adapts a schema in place would change the one by which calls are checked.
    parameters = copy.deepcopy(dict(tool.schema.schema))
    return ModelTool(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
