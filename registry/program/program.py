"""A whole program: its declarations as one manifest, and the catalog of program and manifest."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Unpack, overload

from signoff.contracts.person import Person
from signoff.formats.nearest_name import did_you_mean
from signoff.formats.yaml_file import Place, YamlFile
from signoff.people.directory import Directory
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import DeclaredChannel, RoutingRules
from signoff.registry.manifest.loader import load_document, read_document
from signoff.registry.manifest.room_sections import TeamRoom
from signoff.registry.manifest.subscription_sections import TO_ACTOR, EventHandler
from signoff.registry.program.call_site import CodeSite, call_site
from signoff.registry.program.composition import compose
from signoff.registry.program.declarations import (
    ActorOptions,
    DeclaredActor,
    DeclaredRoute,
    DeclaredTool,
    OwnTools,
    ToolLike,
    Tools,
    check_twin,
    error_at,
    own_tools,
)
from signoff.registry.program.keywords import explain_keywords
from signoff.registry.program.plain_values import plain
from signoff.registry.registry import ToolRegistry, ToolResolver
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer
from signoff.registry.tool import UNDECLARED, Tool
from signoff.settings import Settings

RuleEffect: TypeAlias = Literal["hide", "deny", "require_approval"]
Parts = dict[Place, tuple[YamlFile, Place]]
_NAME_CHARS: Final = 40
_OWN_KEYS: Final = ("own_tools", "ownTools")


class Program(Tools):
    """All declarations of one Python program. `build` makes the catalog and ends declarations."""

    @explain_keywords("App")
    def __init__(
        self,
        *,
        name: str = "",
        version: str = "",
        people: str | os.PathLike[str] | Iterable[Person | Mapping[str, Any]] | Directory = (),
        policies: Iterable[GlobalRule | Mapping[str, Any]] = (),
        approvers: Sequence[str] = (),
        model: str = "",
        channels: Mapping[str, Mapping[str, Any]] | Iterable[DeclaredChannel] = (),
        routing: RoutingRules | Mapping[str, Any] | None = None,
        rooms: Mapping[str, Sequence[TeamRoom | Mapping[str, Any]]] | None = None,
        oncall: Mapping[str, Mapping[str, Any]] | None = None,
        registry: ToolResolver | Iterable[Tool] = (),
        manifest: str | os.PathLike[str] | None = None,
        context: Mapping[str, Mapping[str, Any]] | None = None,
        timezone: str = "",
        backends: Mapping[str, Backend] | None = None,
        reducers: Iterable[ToolReducer] = (),
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.version = version
        self.settings = settings
        self._site = call_site()
        if not name.isprintable() or len(name) > _NAME_CHARS:
            why = f"`name` is read in the head of pages: one line of at most {_NAME_CHARS} characters"
            raise error_at(self._site, why, field="name", value=name)
        self._actors: dict[str, DeclaredActor] = {}
        self._lists: dict[str, list[tuple[Any, CodeSite]]] = {"policies": []}
        self._named: dict[str, dict[str, tuple[Any, CodeSite]]] = {"channels": {}, "subscriptions": {}}
        self._registry = registry
        self._manifest = manifest
        self._people = people
        defaults = {"approvers": list(approvers), "model": model}
        top = {"defaults": {key: value for key, value in defaults.items() if value}}
        self._top = {**top, "context": plain(context), "timezone": timezone, "routing": plain(routing)}
        self._top["rooms"] = plain(rooms)
        self._top["oncall"] = plain(oncall)
        self.backends: Mapping[str, Backend] = dict(backends or {})
        self._reducers = ReducerRegistry(reducers).snapshot()
        self._catalog: Catalog | None = None
        for rule in policies:
            self._lists["policies"].append((plain(rule), self._site))
        for name, section in _channels(channels):
            self._declare_named("channels", name, section, self._site)

    @explain_keywords("app.actor")
    def actor(
        self,
        name: str,
        *,
        model: str = "",
        instructions: str = "",
        tools: Sequence[ToolLike] | None = None,
        **options: Unpack[ActorOptions],
    ) -> DeclaredActor:
        """Declare an actor, and return it for its routes and own tools.

        `tools` are names, functions or `Tool`s. By default, all tools of the app. Raises `ConfigError` for a second
        actor of that name.
        """
        site = call_site()
        self._check_open(site)
        if name in self._actors:
            why = f"actor `{name}` is declared at {self._actors[name].site} already; rename one of the two"
            raise error_at(site, why, actor=name, field="name")
        given = {"model": model or None, "instructions": instructions or None, **options}
        section = {key: plain(value) for key, value in given.items() if value is not None}
        self._actors[name] = DeclaredActor(name, section, tools, site)
        return self._actors[name]

    @overload
    def policy(self, name: str, rule: str, *, effect: RuleEffect, reason: str = "") -> None: ...

    @overload
    def policy(self, *, rule: str, effect: RuleEffect, reason: str = "") -> None: ...

    @explain_keywords("app.policy")
    def policy(self, name: str = "", rule: str = "", *, effect: RuleEffect, reason: str = "") -> None:
        """Declare a rule over all tools. The strictest effect of all rules counts.

        `rule` is CEL over `tool`, `actor` and `ctx`. The default name is its text. Raises `ConfigError` for a second
        rule of that name.
        """
        site = call_site()
        self._check_open(site)
        if not rule:
            raise error_at(site, "`app.policy` needs `rule`; a rule without a name is `app.policy(rule=...)`")
        section = {"rule": rule, "effect": effect, "reason": reason} | ({"name": name} if name else {})
        name = name or rule
        known = ((_rule_name(each), where) for each, where in self._lists["policies"])
        twin = next((where for each, where in known if each == name), None)
        if twin is not None:
            raise error_at(
                site, f"the rule `{name}` is declared at {twin} already; rename one of the two", field="name"
            )
        self._lists["policies"].append((section, site))

    @explain_keywords("app.channel")
    def channel(self, name: str, *, kind: str, **section: Any) -> None:
        """Declare a channel that reaches people apart from the inbox: `kind`, and the options of that kind."""
        self._declare_named("channels", name, {"kind": kind, **plain(section)}, call_site())

    @explain_keywords("app.subscribe")
    def subscribe(self, pattern: str, *, to: str | EventHandler, name: str = "", **section: Any) -> None:
        """Declare a receiver of events; `to` is an address, a function, or `actor:NAME`.

        `pattern` is the type of the events, or its beginning with `*`.

        A function is an `async def (event)`. An address needs a `secret`, such as `env:HOOK_SECRET`. With `actor:NAME`
        each event starts a turn of that actor.
        """
        receiver: dict[str, Any] = {"to": "handler", "handler": to}
        if isinstance(to, str):
            receiver = {"to": to} if to.startswith(TO_ACTOR) else {"url": to}
        name = name or f"subscription-{len(self._named['subscriptions']) + 1}"
        self._declare_named("subscriptions", name, {**plain(section), "events": [pattern], **receiver}, call_site())

    @property
    def manifest(self) -> Path | None:
        """The manifest over this program, a file or a directory, if it has one."""
        return None if self._manifest is None else Path(self._site.file).resolve().parent / self._manifest

    def build(self) -> Catalog:
        """Return the catalog of all declarations, built at the first call.

        Raises `ConfigError` with file and line of the error. Any later declaration raises it too.
        """
        if self._catalog is None:
            file, folder = self._document()
            people = self._people if isinstance(self._people, Directory) else None
            self._catalog = load_document(file, folder, people=people)
            for each in (self, *self._actors.values()):
                each._close(call_site())
        return self._catalog

    def _declare_named(self, section: str, name: str, data: Any, site: CodeSite) -> None:
        self._check_open(site)
        first = self._named[section].get(name)
        if first is not None:
            kind = section.removesuffix("s")
            raise error_at(
                site, f"{kind} `{name}` is declared at {first[1]} already; rename one of the two", field=section
            )
        self._named[section][name] = data, site

    def _document(self) -> tuple[YamlFile, Path]:
        own = self._own_document()
        if self._manifest is None or self.manifest is None:
            return own, Path(self._site.file).resolve().parent
        file, folder = read_document(self.manifest, os.fspath(self._manifest))
        return compose(own, file), folder

    def _own_document(self) -> YamlFile:
        tools = self._collect()
        parts: Parts = {}
        data: dict[str, Any] = {"version": 1}
        data |= {key: value for key, value in self._top.items() if value}
        data["tools"] = {name: _section(each, "generalist") for name, each in tools.items()}
        self._add_reducers(data["tools"])
        parts |= {("tools", name): (each.site.part, ()) for name, each in tools.items()}
        data["actors"] = {}
        for name, actor in self._actors.items():
            data["actors"][name] = self._actor_section(actor, tools, parts)
            parts["actors", name] = (actor.site.part, ())
        for key, entries in self._lists.items():
            data[key] = [section for section, _ in entries]
            parts |= {(key, index): (site.part, ()) for index, (_, site) in enumerate(entries)}
        for key, named in self._named.items():
            data[key] = {name: section for name, (section, _) in named.items()}
            parts |= {(key, name): (site.part, ()) for name, (_, site) in named.items()}
        people = self._people
        if isinstance(people, str | os.PathLike):
            data["people"] = os.fspath(people)
        elif not isinstance(people, Directory) and (persons := list(people)):
            data["people"] = [plain(each) for each in persons]
        return YamlFile(
            self._site.shown,
            {key: each for key, each in data.items() if each or key == "version"},
            {(): self._site.line},
            parts,
        )

    def _add_reducers(self, tools: Mapping[str, dict[str, Any]]) -> None:
        for name, reducer in self._reducers.items():
            if name not in tools:
                why = f"there is a reducer for the unknown tool `{name}`{did_you_mean(name, tools)}"
                raise error_at(self._site, why, tool_name=name, field="reducers", value=name)
            if tools[name].get("reducer") is not None:
                why = f"Reducer already registered for tool '{name}'; keep the one of the tool or that of `reducers`"
                raise error_at(self._site, why, tool_name=name, field="reducers", value=name)
            tools[name]["reducer"] = reducer

    def _collect(self) -> dict[str, DeclaredTool]:
        found: dict[str, DeclaredTool] = {}
        for each in (*self._all(), *self._of_registry()):
            check_twin(found.get(each.name), each)
            found[each.name] = each
        return found

    def _of_registry(self) -> Iterator[DeclaredTool]:
        given = self._registry
        if isinstance(given, ToolRegistry):
            tools: Iterable[Tool | None] = (given.resolve(name) for name in given.list())
        elif isinstance(given, ToolResolver):
            names = [name for actor in self._actors.values() for name in actor.listed_names()]
            known = {each.name for each in self._all()}
            tools = (given.resolve(name) for name in dict.fromkeys(names) if name not in known)
        else:
            tools = given
        for tool in tools:
            if tool is not None:
                yield DeclaredTool(tool.name, {"handler": tool}, self._site, (tool,))

    def _actor_section(self, actor: DeclaredActor, tools: Mapping[str, DeclaredTool], parts: Parts) -> dict[str, Any]:
        place: Place = ("actors", actor.name)
        own = own_tools(actor, actor.tools or (), actor.site, tools.values())
        section = dict(actor.section)
        known = [*own.values(), *tools.values()]
        routes = {}
        for name, route in actor.routes.items():
            parts[*place, "routes", name] = (route.site.part, ())
            routes[name] = _route_section(route, actor, known, (*place, "routes", name), parts)
        if "route_select" in section:
            routes["select"] = section.pop("route_select")
        if actor.tools is not None:
            names = [_name_of(each, actor, known, actor.site) for each in actor.tools]
            # A tool of the app with the same name would be allowed everywhere, so the author must list it.
            placed = [name for name in _declared_below(place, parts) if name not in tools]
            section["tools"] = list(dict.fromkeys((*names, *own, *placed)))
        _add_own(section, own, place, parts)
        return section | ({"routes": routes} if routes else {})


def _rule_name(rule: object) -> object:
    return rule.get("name") or rule.get("rule") if isinstance(rule, Mapping) else None


def _section(tool: DeclaredTool, scope: str) -> dict[str, Any]:
    section = dict(tool.section)
    # A function, a mapping and a bare `@tool` take the scope of the declaring place.
    handler = section.get("handler")
    if not isinstance(handler, Tool) or handler.scope == UNDECLARED:
        section.setdefault("scope", scope)
    section.pop("name", None)
    return section


def _declared_below(place: Place, parts: Parts) -> list[str]:
    return [str(each[-1]) for each in parts if each[:2] == place and each[-2] in _OWN_KEYS]


def _add_own(section: dict[str, Any], own: OwnTools, place: Place, parts: Parts) -> None:
    key = next((each for each in _OWN_KEYS if each in section), _OWN_KEYS[0])
    given = section.get(key, {})
    # The section reader reports the error.
    if not own or not isinstance(given, Mapping):
        return
    section[key] = dict(given)
    for name, tool in own.items():
        if name in given:
            why = f"tool `{name}` is in `own_tools` of the same place; keep one"
            raise error_at(tool.site, why, tool_name=name, field="own_tools")
        section[key][name] = _section(tool, "specialist")
        parts[*place, key, name] = (tool.site.part, ())


def _route_section(
    route: DeclaredRoute, actor: DeclaredActor, around: Sequence[DeclaredTool], place: Place, parts: Parts
) -> dict[str, Any]:
    section = dict(route.section)
    own = own_tools(route, route.tools, route.site, around)
    known = [*own.values(), *around]
    _add_own(section, own, place, parts)
    if route.tools:
        names = [_name_of(each, actor, known, route.site) for each in route.tools]
        section["tools"] = [name for name in names if name not in own]
    if route.steps:
        steps = route.steps.items()
        section["steps"] = {
            name: _step_section(step, actor, known, route.site, (*place, "steps", name), parts) for name, step in steps
        }
    return section


def _step_section(
    step: Mapping[str, Any],
    actor: DeclaredActor,
    around: Sequence[DeclaredTool],
    site: CodeSite,
    place: Place,
    parts: Parts,
) -> dict[str, Any]:
    section = {key: plain(value) for key, value in step.items()}
    listed = section.get("tools")
    if not isinstance(listed, list):
        return section
    own = own_tools(Tools(), listed, site, around)
    known = [*own.values(), *around]
    named = [each if isinstance(each, Mapping) else _name_of(each, actor, known, site) for each in listed]
    section["tools"] = [each for each in named if isinstance(each, Mapping) or each not in own]
    _add_own(section, own, place, parts)
    return section


def _name_of(listed: ToolLike, actor: DeclaredActor, known: Sequence[DeclaredTool], site: CodeSite) -> str:
    if isinstance(listed, str):
        return listed
    found = next((each.name for each in known if each.is_made_of(listed)), None)
    if found is None:
        name = getattr(listed, "__name__", repr(listed))
        near = did_you_mean(name, [each.name for each in known])
        why = f"actor `{actor.name}` lists `{name}`, which is no tool; declare it with `@app.tool`{near}"
        raise error_at(site, why, actor=actor.name, field="tools", value=name)
    return found


def _channels(
    given: Mapping[str, Mapping[str, Any]] | Iterable[DeclaredChannel],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(given, Mapping):
        for name, section in given.items():
            yield name, plain(section)
    else:
        for each in given:
            yield each.name, {"kind": each.kind, **plain(each.options)}
