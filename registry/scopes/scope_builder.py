"""Builds the layers of an actor from its tools, routes and steps, and finds every error in them."""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.ids import ID_PATTERN, is_id
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.names import COLLECT, READ_REST, RESPOND
from signoff.formats.json_schema import CompiledSchema, compile_schema
from signoff.formats.nearest_name import did_you_mean
from signoff.policy.filter_expression import compile_filter
from signoff.registry.actor import Actor, Level, ListedTool, Route, Step, ToolUse, tool_uses
from signoff.registry.built_in_tools import collect_tool
from signoff.registry.cel_context import ContextFields
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.hooks import SELECT, Select
from signoff.registry.registry import ToolRegistry
from signoff.registry.scopes.actor_scopes import ActorScopes, ScopedTool
from signoff.registry.scopes.position import (
    TURN,
    Layer,
    LayerName,
    Position,
    RegistryTools,
    ToolFilter,
    UndeclaredTools,
)
from signoff.registry.tool import Tool
from signoff.registry.tool_checks import check_declaration, is_placeholder
from signoff.registry.tool_fields import dropped_gate

logger = logging.getLogger("signoff.registry")

_MODES: Final = ("inherit", "only")
_SHADOWING: Final = ("allow", "warn", "forbid")
_RESERVED: Final = (RESPOND, READ_REST, COLLECT)
_SELECT: Final = "select"
UNDECLARED_NAME: Final = "undeclared"
"""The name for all undeclared tools in lists."""


def build_scopes(actor: Actor, registry: ToolRegistry, fields: ContextFields) -> ActorScopes:
    """Raises `ConfigError` with the actor, the place and the remedy."""
    return _Build(actor, registry, fields).scopes()


class _Build:
    """Collects one actor's scopes during the build."""

    def __init__(self, actor: Actor, registry: ToolRegistry, fields: ContextFields) -> None:
        self._actor, self._registry, self._fields = actor, registry, fields
        self._placed: dict[str, ScopedTool] = {}
        self._schemas: dict[str, CompiledSchema] = {}
        self._collected: set[str] = set()

    def scopes(self) -> ActorScopes:
        actor = self._actor
        if actor.shadowing not in _SHADOWING:
            allowed = ", ".join(f"`{each}`" for each in _SHADOWING)
            raise self._wrong("shadowing", actor.shadowing, f"has `shadowing` `{actor.shadowing}`; allowed: {allowed}")
        own = self._own()
        outer = (
            Layer("agent", f"actor `{actor.name}`", {**own, **self._list(own)}),
            Layer("registry", "the registry", RegistryTools(self._registry)),
            *self._build_undeclared(own),
        )
        self._check_select("select", actor.select)
        positions = {("", ""): self._position("", "", outer, (), own, (actor.select,))}
        routes = self._check_names("routes", actor.routes)
        self._check_route_select(routes)
        # Collect from all routes first: a step may require data of another route's step.
        for route in routes:
            self._collects(route)
        for route in routes:
            positions |= self._route(route, own, outer)
        known = frozenset(self._fields.schemas)
        schemas = self._schemas | {name: self._fields.schemas[name] for name in known}
        steps = {route.name: tuple(route.steps) for route in routes}
        return ActorScopes(actor.name, positions, self._placed, schemas, known, frozenset(self._collected), steps)

    def _build_undeclared(self, own: Mapping[str, Tool]) -> tuple[Layer, ...]:
        """The layer is behind all others."""
        agent = self._actor.external
        if agent is None or agent.undeclared != "ask":
            return ()
        template = Tool(
            name=UNDECLARED_NAME,
            description="Any undeclared tool that the agent calls. Each call needs approval.",
            input_schema={"type": "object"},
            scope="generalist",
            # Fixed: an undeclared tool has no policy that could change it.
            requires_approval=True,
            runs="external",
            handler=run_elsewhere,
            # Toolsets are about declared tools; the actor's own declaration allows this one.
            always_include=True,
            undeclared=True,
            place=self._actor.name,
        )
        self._keep("external.undeclared", ScopedTool(template))
        taken = (*_RESERVED, *self._registry.list(), *own)
        return (Layer("undeclared", "what nobody declared", UndeclaredTools(template, taken)),)

    def _own(self) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        for use in self._once("own_tools", self._actor.own_tools):
            if isinstance(use.tool, str):
                why = f"names `{use.tool}` in `own_tools`, which are declared there; write names in `tools`"
                raise self._wrong("own_tools", use.tool, why)
            self._no_min_step("own_tools", use)
            found[use.name] = self._place("own_tools", use, use.tool, "", [self._registry.resolve(use.name)])
        return found

    def _list(self, own: Mapping[str, Tool]) -> dict[str, Tool]:
        found = ((name, self._registry.resolve(name)) for name in self._actor.tools or () if name not in own)
        return {name: tool for name, tool in found if tool is not None}

    def _route(self, route: Route, own: Mapping[str, Tool], outer: Sequence[Layer]) -> dict[tuple[str, str], Position]:
        where, place = f"routes.{route.name}", f"route `{route.name}`"
        self._check_select(f"{where}.select", route.select)
        steps = self._check_names(f"{where}.steps", route.steps)
        order = {step.name: index for index, step in enumerate(steps)}
        listed = self._once(f"{where}.tools", route.tools)
        inline, tools, missing = {}, {}, []
        for use in listed:
            if use.min_step and use.min_step not in order:
                near = did_you_mean(use.min_step, order)
                why = f"has the tool `{use.name}` in {place} from the unknown step `{use.min_step}` on{near}"
                raise self._wrong(f"{where}.tools", use.min_step, why)
            tool = self._resolve(f"{where}.tools", use, route.name, [own])
            if tool is None:
                missing.append(use.name)
                continue
            tools[use.name] = tool
            if not isinstance(use.tool, str):
                inline[use.name] = tool
        closed = f"{place} has its own tools only" if self._mode(where, route.mode) == "only" else ""
        behind = tuple(dataclasses.replace(each, closed=closed) for each in outer)
        filters = self._filters(where, place, route)
        found: dict[tuple[str, str], Position] = {}
        for step in (None, *steps):
            # On the route but before its first step, no tool with a `min_step` is visible.
            at = -1 if step is None else order[step.name]
            later = {use.name: use.min_step for use in listed if use.min_step and order[use.min_step] > at}
            here = Layer("route", place, tools, later=later, missing=tuple(missing))
            if step is None:
                selects = (route.select, self._actor.select)
                found[route.name, ""] = self._position(
                    route.name, "", (here, *behind), filters, {**own, **inline}, selects
                )
            else:
                found[route.name, step.name] = self._step(route, step, (here, *behind), filters, own, inline)
        return found

    def _step(
        self,
        route: Route,
        step: Step,
        outer: tuple[Layer, ...],
        filters: tuple[ToolFilter, ...],
        own: Mapping[str, Tool],
        of_route: Mapping[str, Tool],
    ) -> Position:
        where, place = f"routes.{route.name}.steps.{step.name}", f"step `{step.name}`"
        self._check_required(where, step)
        kinds: dict[LayerName, dict[str, Tool]] = {"step_inline": {}, "step_reference": {}}
        missing = []
        listed = self._once(f"{where}.tools", step.tools, per_kind=True)
        beats = {use.name for use in listed if not isinstance(use.tool, str)}
        for use in listed:
            self._no_min_step(f"{where}.tools", use)
            beaten = use.name in beats
            tool = self._resolve(f"{where}.tools", use, f"{route.name}.{step.name}", [of_route, own], beaten)
            if tool is None:
                missing.append(use.name)
            else:
                kinds["step_reference" if isinstance(use.tool, str) else "step_inline"][use.name] = tool
        if step.collect:
            kinds["step_inline"][COLLECT] = self._collector(where, route, step)
        closed = f"{place} has its own tools only" if self._mode(where, step.mode) == "only" else ""
        layers = (
            Layer("step_inline", place, kinds["step_inline"], waits=step.requires),
            Layer("step_reference", place, kinds["step_reference"], waits=step.requires, missing=tuple(missing)),
            # A route's `only` also applies in its steps.
            *(dataclasses.replace(each, closed=closed or each.closed) for each in outer),
        )
        narrowed = (*self._filters(where, place, step), *filters)
        inline = {**own, **of_route, **kinds["step_inline"]}
        self._check_select(f"{where}.select", step.select)
        selects = (step.select, route.select, self._actor.select)
        return self._position(route.name, step.name, layers, narrowed, inline, selects)

    def _collector(self, where: str, route: Route, step: Step) -> Tool:
        given = {name: self._schemas.get(name) or self._fields.schemas.get(name) for name in step.collect}
        schemas = {name: {} if each is None else each.schema for name, each in given.items()}
        tool = collect_tool(f"{self._actor.name}.{route.name}.{step.name}", schemas)
        self._keep(where, ScopedTool(tool))
        return tool

    def _resolve(
        self, where: str, use: ToolUse, place: str, enclosing: Sequence[Mapping[str, Tool]], beaten: bool = False
    ) -> Tool | None:
        """Return the tool of one entry at `place`: inline, or the target of a reference.

        `enclosing` are the own tools of the outer levels, nearest first. A reference `beaten` by an inline tool of the
        same place never runs there, so it is not placed.
        """
        around = [tools.get(use.name) for tools in enclosing]
        registered = self._registry.resolve(use.name)
        if not isinstance(use.tool, str):
            return self._place(where, use, use.tool, place, [*around, registered])
        self._check_listed(where, use)
        inner = next((tool for tool in around if tool is not None), None)
        # The registry comes first: an actor's own tool does not take over a reference to its name.
        if registered is None:
            if inner is None and not use.optional:
                near = did_you_mean(
                    use.name, [*self._registry.list(), *(name for tools in enclosing for name in tools)]
                )
                why = f"lists the unknown tool `{use.name}` in `{where}`; mark it `optional` if it may be missing{near}"
                raise self._wrong(where, use.name, why)
            self._check_loosens(where, use, [])
            return inner
        if inner is None:
            self._check_loosens(where, use, [])
            return registered
        if beaten:
            self._check_loosens(where, use, [inner])
            return registered
        # It covers one of the actor's own tools, so it shadows that one and obeys it.
        return self._place(where, use, registered, place, around)

    def _place(self, where: str, use: ToolUse, tool: Tool, place: str, behind: Sequence[Tool | None]) -> Tool:
        """`tool` becomes the actor's own at `place`, and shadows the tools `behind` it."""
        if not isinstance(use.tool, str):
            try:
                check_declaration(tool)
            except RegistrationError as error:
                raise self._wrong(where, use.name, f"has in `{where}` an invalid tool: {error.message}") from error
            self._check_fallbacks(where, tool)
            if use.optional:
                raise self._wrong(where, use.name, f"marks its own tool `{use.name}` as `optional`; only names are")
        self._check_listed(where, use)
        over = [each for each in behind if each is not None]
        self._check_loosens(where, use, over)
        self._check_shadow(where, use, tool, over)
        # Mask before placing and hashing: masks are part of the definition that binds approvals.
        masking = tool if use.loosens.strip() else _mask(tool, over)
        placed = dataclasses.replace(masking, place=f"{self._actor.name}.{place}" if place else self._actor.name)
        self._keep(where, ScopedTool(placed, tuple(over), use.loosens.strip()))
        return placed

    def _keep(self, where: str, placed: ScopedTool) -> None:
        # Policy, handler and shadowed tools are looked up by activity: a second tool would be confused with the first.
        tool = placed.tool
        if tool.activity in self._placed:
            why = f"has two tools `{tool.name}` at `{tool.place}`, one of them in `{where}`; rename or leave out one"
            raise self._wrong(where, tool.name, why)
        self._placed[tool.activity] = placed

    def _check_fallbacks(self, where: str, tool: Tool) -> None:
        for name in tool.fallbacks:
            if self._registry.resolve(name) is None and name not in self._actor.own_names:
                near = did_you_mean(name, [*self._registry.list(), *self._actor.own_names])
                why = f"has in `{where}` the tool `{tool.name}` with the unknown fallback `{name}`{near}"
                raise self._wrong(where, name, why)

    def _check_shadow(self, where: str, use: ToolUse, tool: Tool, over: Sequence[Tool]) -> None:
        if not over:
            return
        if self._actor.shadowing == "forbid":
            why = f"has a tool `{use.name}` in `{where}` that shadows another; rename it, or set `shadowing: allow`"
            raise self._wrong(where, use.name, why)
        if tool.scope == "specialist" and any(each.scope == "generalist" for each in over) and not use.loosens:
            why = f"has a specialist `{use.name}` in `{where}` that shadows a generalist; say why in `loosens`"
            raise self._wrong(where, use.name, why)
        gate = dropped_gate(tool, over) if not use.loosens else ""
        if gate:
            why = (
                f"has a tool `{use.name}` in `{where}` that shadows another, but not with its `{gate}`; "
                "give it the same, or say why not in `loosens`"
            )
            raise self._wrong(where, gate, why)
        if self._actor.shadowing == "warn":
            logger.warning("actor `%s` has a tool `%s` in `%s` that shadows another", self._actor.name, use.name, where)

    def _check_loosens(self, where: str, use: ToolUse, over: Sequence[Tool]) -> None:
        if not use.loosens:
            return
        if is_placeholder(use.loosens):
            raise self._wrong(where, use.loosens, f"gives no real reason why `{use.name}` in `{where}` `loosens`")
        if not over:
            raise self._wrong(where, use.name, f"says that `{use.name}` in `{where}` loosens, but it shadows nothing")

    def _check_listed(self, where: str, use: ToolUse) -> None:
        if use.name in _RESERVED:
            raise self._wrong(where, use.name, f"lists `{use.name}` in `{where}`, which is a reserved name")
        if self._actor.tools is not None and use.name not in self._actor.tools:
            why = f"lists `{use.name}` in `{where}`, but not in its `tools`, which limit its tools; add it"
            raise self._wrong(where, use.name, why)

    def _position(
        self,
        route: str,
        step: str,
        layers: tuple[Layer, ...],
        filters: tuple[ToolFilter, ...],
        inline: Mapping[str, Tool],
        selects: Iterable[Select | None],
    ) -> Position:
        place = ".".join(part for part in (self._actor.name, route, step, TURN) if part)
        chosen = tuple(each for each in selects if each is not None)
        turn = {name: self._of_turn(name, layers, tool, place) for name, tool in inline.items()}
        # Outside all routes, no route can be missing.
        there = self._actor.route_select if route else None
        return Position(self._actor.name, route, step, self._registry, layers, filters, chosen, there, turn)

    def _of_turn(self, name: str, layers: Sequence[Layer], nearest: Tool, place: str) -> Tool | None:
        """Return the tool that a turn's own layer may put over the actor's own of this name, if any."""
        registered = self._registry.resolve(name)
        if registered is None:
            return nearest
        found = (layer.tools[name] for layer in layers if name in layer.tools)
        over = tuple(tool for tool in found if tool is not registered)
        private = registered.scope == "specialist" and any(tool.scope == "generalist" for tool in over)
        # A turn has no `loosens` with a reason for reviewers: a tool that needs one is not brought forward.
        if self._actor.shadowing == "forbid" or private or dropped_gate(registered, over):
            return None
        placed = dataclasses.replace(_mask(registered, over), place=place)
        self._keep("transient", ScopedTool(placed, over))
        return placed

    def _filters(self, where: str, place: str, level: Level) -> tuple[ToolFilter, ...]:
        source, reason = level.tool_filter, level.tool_filter_reason.strip()
        if not source.strip():
            if reason:
                why = f"has a `tool_filter_reason` in {place}, but no `tool_filter` that could refuse for it"
                raise self._wrong(f"{where}.tool_filter_reason", reason, why)
            return ()
        if len(reason) > REASON_CHARS:
            why = f"has a `tool_filter_reason` in {place} of more than {REASON_CHARS} characters; shorten it"
            raise self._wrong(f"{where}.tool_filter_reason", len(reason), why)
        owner = f"actor `{self._actor.name}`: {place}"
        try:
            found = compile_filter(source, owner=owner, field="tool_filter", context_schema=self._fields.declared)
        except ConfigError as error:
            context = {**error.context, "actor": self._actor.name, "field": f"{where}.tool_filter"}
            raise ConfigError(
                error.message, **{name: each for name, each in context.items() if name != "tool_name"}
            ) from None
        return (ToolFilter(place, found, reason),)

    def _collects(self, route: Route) -> None:
        for step in route.steps:
            where = f"routes.{route.name}.steps.{step.name}.collect"
            for name, schema in step.collect.items():
                self._collected.add(name)
                if schema is None:
                    continue
                found = compile_schema(schema, field=f"{where}.{name}", of_object=False)
                before = self._schemas.setdefault(name, found)
                if before.schema != found.schema:
                    raise self._wrong(where, name, f"collects `{name}` with two schemas; give it one")

    def _check_required(self, where: str, step: Step) -> None:
        known = {*self._collected, *self._fields.schemas}
        for name in step.requires:
            if name not in known:
                near = did_you_mean(name, known)
                why = f"requires `{name}` in `{where}`, which no step collects and no `context` declares{near}"
                raise self._wrong(f"{where}.requires", name, why)

    def _mode(self, where: str, mode: str) -> str:
        if mode not in _MODES:
            raise self._wrong(f"{where}.mode", mode, f"has `mode` `{mode}` in `{where}`; allowed: `inherit`, `only`")
        return mode

    def _check_select(self, where: str, select: Any) -> None:
        objection = "" if select is None else SELECT.objection(select, where)
        if objection:
            raise self._wrong(where, select, objection)

    def _check_route_select(self, routes: Sequence[Route]) -> None:
        self._check_select("routes.select", self._actor.route_select)
        if self._actor.route_select is not None and not routes:
            raise self._wrong("routes.select", "", "has a function that chooses its `routes`, but declares none")
        for route in routes:
            if route.name == _SELECT:
                why = "has a route `select`, which is the key of the function that chooses routes; rename the route"
                raise self._wrong("routes", _SELECT, why)

    def _no_min_step(self, where: str, use: ToolUse) -> None:
        if use.min_step:
            raise self._wrong(where, use.min_step, f"has a `min_step` in `{where}`; only a route's tools have one")

    def _once(self, where: str, listed: Iterable[ListedTool], *, per_kind: bool = False) -> tuple[ToolUse, ...]:
        """Drop duplicates. A step may list a name and a tool of that name."""
        keys: set[tuple[str, bool]] = set()
        found = tool_uses(tuple(listed))
        for use in found:
            key = (use.name, per_kind and isinstance(use.tool, str))
            if key in keys:
                raise self._wrong(where, use.name, f"lists `{use.name}` twice in `{where}`; keep one")
            keys.add(key)
        return found

    def _check_names(self, where: str, given: Sequence[Any]) -> Sequence[Any]:
        names: set[str] = set()
        for each in given:
            if not is_id(each.name):
                raise self._wrong(where, each.name, f"needs names that match `{ID_PATTERN[:-2]}$` in `{where}`")
            if each.name in names:
                raise self._wrong(where, each.name, f"has `{each.name}` twice in `{where}`; rename one")
            names.add(each.name)
        return given

    def _wrong(self, field: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"actor `{self._actor.name}` {why}", actor=self._actor.name, field=field, value=value)


def _mask(tool: Tool, over: Sequence[Tool]) -> Tool:
    """Add the masks of the tools that `tool` obeys, even for names that its schema lacks."""
    known = tool.schema.schema.get("properties", {})
    other = {name for each in over for name in each.masked_arguments}.difference(tool.masked_arguments)
    # A nested masked argument may have another position in an argument of the same name here: mask it whole.
    tops = {name if name in known else name.partition(".")[0] for name in other}
    more = tops.difference(tool.masked_arguments)
    return dataclasses.replace(tool, secrets=(*tool.secrets, *sorted(more))) if more else tool
