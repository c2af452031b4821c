"""Collects the declarations of a Python program, each with its file and line.

A declaration has the shape of its manifest section, so both ways share keys, checks and errors.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack, overload

from signoff.contracts.errors import ConfigError
from signoff.formats.nearest_name import cut_text, did_you_mean
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import (
    Autonomy,
    EscalationPath,
    ExternalAgent,
    Shadowing,
    Step,
    Surface,
)
from signoff.registry.hooks import PER_CALL, Select
from signoff.registry.import_reference import load_reference
from signoff.registry.program.call_site import CodeSite, call_site, function_site
from signoff.registry.program.keywords import explain_keywords
from signoff.registry.program.plain_values import plain
from signoff.registry.program.tool_keywords import ToolFields
from signoff.registry.results.domain_data import DomainMerge
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_fields import id_and_title

F = TypeVar("F", bound=Callable[..., Any])
ToolLike: TypeAlias = str | Callable[..., Any] | Tool
"""How an actor or a route lists a tool: its name, its function, or the `Tool`."""
_SHORT_FORMS: Final = ("auto_approve_if", "deny_if", "approvers", "autoApproveIf", "denyIf")
_FACTORY: Final = ("per_call", "perCall")
_SHOWN_CHARS: Final = 60


class ActorOptions(TypedDict, total=False):
    """The keywords of `app.actor` apart from model, instructions and tools."""

    description: str
    external: ExternalAgent | Mapping[str, Any]
    toolset: str
    allowed_plugins: Sequence[str]
    allowed_mcp_servers: Sequence[str]
    allowed_mcp_tools: Mapping[str, Sequence[str]]
    read_rest: bool
    surfaces: Mapping[str, Surface | Mapping[str, Any]]
    mode: Literal["parallel", "sequential"]
    leave_open: bool
    on_failure: Literal["continue", "abort_siblings"]
    result_chars: int
    domain_data: Mapping[str, Any]
    domain_merge: DomainMerge
    limits: Mapping[str, Any]
    model_settings: Mapping[str, Any]
    scope: str
    tags: Sequence[str]
    autonomy: Autonomy | Mapping[str, Any]
    escalation: EscalationPath | Mapping[str, Any]
    select: Select | str
    route_select: Select | str
    trace: bool
    shadowing: Shadowing


@dataclass(frozen=True)
class DeclaredTool:
    """One tool as a program declares it."""

    name: str
    section: Mapping[str, Any]
    """`handler` may be the function or the `Tool` itself."""
    site: CodeSite
    targets: tuple[object, ...] = ()
    """The function or `Tool` that actors may list for it."""

    def is_made_of(self, target: object) -> bool:
        """Return whether the tool was made from this function or `Tool`, or from the function that it wraps."""
        return any(each == target for each in self.targets) or any(
            _unwrapped(each) == _unwrapped(target) for each in self.targets
        )


OwnTools: TypeAlias = dict[str, DeclaredTool]


class ToolMethod:
    """Declares tools: the `tool` of an app, an actor or a part."""

    def __init__(self, owner: "Tools") -> None:
        self._owner = owner

    @overload
    def __call__(self, function: F, /) -> F: ...

    @overload
    def __call__(self, **fields: Unpack[ToolFields]) -> Callable[[F], F]: ...

    def __call__(self, *args: Any, **fields: Any) -> Any:
        """Declare a function as a tool and return the same function.

        Use it bare, `@app.tool`, or with fields, `@app.tool(effect="Refund {amount} EUR")`. The parameters of the
        function are the arguments of the tool; a parameter of the type `ToolContext` receives the context. A plain
        `def` runs in a thread. Raises `ConfigError` for a second tool of the same name.
        """
        if not args:
            return partial(self._owner._declare, fields=fields)
        if len(args) > 1 or fields:
            shown = cut_text(repr(args[0]), _SHOWN_CHARS)
            raise error_at(call_site(), f"`tool` takes fields by name, and `{shown}` is none: `@app.tool(effect=...)`")
        return self._owner._declare(args[0], fields={})


class Tools:
    """Tools of one module, for `App.include`. An `App` and each of its actors are such collections too."""

    def __init__(self) -> None:
        self._declared: dict[str, DeclaredTool] = {}
        self._included: list[tuple[Tools, str]] = []
        self._built: CodeSite | None = None

    @property
    def tool(self) -> ToolMethod:
        """Declare a function as a tool, and return the function.

        Use `@tools.tool` or `@tools.tool(effect=...)`.
        """
        return ToolMethod(self)

    def add(self, *tools: Tool | Mapping[str, Any]) -> None:
        """Add declared tools: a `Tool`, or a mapping with the manifest's keys and a `name`.

        Raises `ConfigError` for a second tool of the same name.
        """
        site = call_site()
        for each in tools:
            self._add(_declared(each, site))

    @explain_keywords("include")
    def include(self, other: "Tools", *, prefix: str = "") -> None:
        """Add the tools of another collection, including later declarations. `prefix` begins their names."""
        self._check_open(call_site())
        self._included.append((other, prefix))

    def _declare(self, function: Any, *, fields: Mapping[str, Any]) -> Any:
        if not callable(function) or isinstance(function, type | Tool):
            shown = cut_text(repr(function), _SHOWN_CHARS)
            raise error_at(call_site(), f"`@tool` is for functions, and `{shown}` is none; pass a `Tool` to `add`")
        fields = id_and_title(fields)
        name = str(fields.get("id") or fields.get("name") or getattr(function, "__name__", ""))
        site = function_site(function)
        strange = next((key for key in fields if key not in ToolFields.__annotations__), None)
        if strange is not None:
            near = did_you_mean(strange, ToolFields.__annotations__) or "; docs/python.md lists the fields"
            raise error_at(site, f"tool `{name}` has no field `{strange}`{near}", tool_name=name, field=strange)
        section = _with_policy(name, fields, site)
        self._add(DeclaredTool(name, {**section, "handler": function}, site, (function,)))
        return function

    def _add(self, tool: DeclaredTool) -> None:
        self._check_open(tool.site)
        check_twin(self._declared.get(tool.name), tool)
        self._declared[tool.name] = tool

    def _check_open(self, site: CodeSite) -> None:
        if self._built is not None:
            why = f"the app was built at {self._built}, and nothing can be declared after that; declare it before"
            raise error_at(site, why)

    def _close(self, site: CodeSite) -> None:
        self._built = site
        for other, _ in self._included:
            other._close(site)

    def _all(self) -> Iterator[DeclaredTool]:
        yield from self._declared.values()
        for other, prefix in self._included:
            for each in other._all():
                yield _prefixed(prefix, each) if prefix else each


class DeclaredActor(Tools):
    """One actor of an app. `@actor.tool(justification=...)` declares a tool of this actor alone."""

    def __init__(self, name: str, section: Mapping[str, Any], tools: Sequence[ToolLike] | None, site: CodeSite) -> None:
        super().__init__()
        self.name = name
        self.section = section
        self.tools = None if tools is None else tuple(tools)
        self.routes: dict[str, DeclaredRoute] = {}
        self.site = site

    def _close(self, site: CodeSite) -> None:
        super()._close(site)
        for route in self.routes.values():
            route._close(site)

    def listed_names(self) -> Iterator[str]:
        """Yield the names in the tool lists of actor and routes, without functions."""
        for listed in (self.tools or (), *(route.tools for route in self.routes.values())):
            yield from (each for each in listed if isinstance(each, str))

    @explain_keywords("route")
    def route(
        self,
        name: str,
        *,
        description: str = "",
        instructions: str = "",
        prompt: str = "",
        tools: Sequence[ToolLike] | None = None,
        steps: Mapping[str, Mapping[str, Any]] | Sequence[Step] = (),
        mode: Literal["inherit", "only"] = "inherit",
        select: Select | str | None = None,
        tool_filter: str = "",
        tool_filter_reason: str = "",
        own_tools: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> "DeclaredRoute":
        """Declare a route, one course of a conversation, and return it.

        `@route.tool(justification=...)` declares a tool of this route alone. Its `own_tools` and each new `Tool` in its
        list exist only there, too. Raises `ConfigError` for a second route of that name.
        """
        site = call_site()
        self._check_open(site)
        if name in self.routes:
            why = f"actor `{self.name}` has the route `{name}` from {self.routes[name].site} already; rename one"
            raise error_at(site, why, actor=self.name)
        texts = {"description": description, "instructions": instructions, "prompt": prompt}
        texts |= {"tool_filter": tool_filter, "tool_filter_reason": tool_filter_reason}
        given: dict[str, Any] = {key: text or None for key, text in texts.items()}
        given |= {"mode": mode, "select": select, "own_tools": own_tools}
        section = {key: plain(value) for key, value in given.items() if value is not None}
        self.routes[name] = DeclaredRoute(name, section, tuple(tools or ()), _steps(steps), site)
        return self.routes[name]


class DeclaredRoute(Tools):
    """One route of an actor. `@route.tool(justification=...)` declares a tool of this route alone."""

    def __init__(
        self,
        name: str,
        section: Mapping[str, Any],
        tools: tuple[ToolLike, ...],
        steps: Mapping[str, Mapping[str, Any]],
        site: CodeSite,
    ) -> None:
        super().__init__()
        self.name = name
        self.section = section
        self.tools = tools
        self.steps = steps
        self.site = site


def _steps(steps: Mapping[str, Mapping[str, Any]] | Sequence[Step]) -> dict[str, Mapping[str, Any]]:
    if isinstance(steps, Mapping):
        return dict(steps)
    return {each.name: {key: value for key, value in plain(each).items() if key != "name"} for each in steps}


def _with_policy(name: str, fields: Mapping[str, Any], site: CodeSite) -> dict[str, Any]:
    short = {key: fields[key] for key in _SHORT_FORMS if key in fields}
    section = {key: plain(value) for key, value in fields.items() if key not in (*_SHORT_FORMS, "name", "id")}
    policy = next((key for key in ("requires_approval", "requiresApproval") if key in section), "")
    if short and policy:
        why = f"tool `{name}` has `{policy}` beside `{next(iter(short))}`; write both into one policy"
        raise error_at(site, why, tool_name=name, field="requires_approval")
    if short:
        section["requires_approval"] = _short_policy(name, plain(short), site)
    return section


def _short_policy(name: str, short: dict[str, Any], site: CodeSite) -> dict[str, Any]:
    """Raises `ConfigError` with the keyword, which the policy's own check cannot name."""
    for key, value in short.items():
        if key != "approvers" and not (isinstance(value, str) and value.strip()):
            why = f"`{key}` of tool `{name}` must be text, a CEL expression such as `args.amount <= 10.0`"
            raise error_at(site, why, tool_name=name, field=key, value=value)
        if key == "approvers" and not isinstance(value, list):
            why = f'`approvers` of tool `{name}` must be a list such as `["role:finance"]`'
            raise error_at(site, why, tool_name=name, field=key, value=value)
    try:
        ApprovalPolicy.model_validate(short)
    except ConfigError as error:
        raise error_at(site, f"tool `{name}`: {error.message}", **{**error.context, "tool_name": name}) from None
    return short


def _declared(tool: object, site: CodeSite) -> DeclaredTool:
    if isinstance(tool, Tool):
        return DeclaredTool(tool.name, {"handler": tool}, site, (tool,))
    if not isinstance(tool, Mapping):
        shown = cut_text(repr(tool), _SHOWN_CHARS)
        raise error_at(
            site, f"`add` takes a `Tool` or a mapping, and `{shown}` is neither; declare it with `@app.tool`"
        )
    tool = id_and_title(tool)
    name = tool.get("id", tool.get("name"))
    if not isinstance(name, str):
        raise error_at(site, "a tool as a mapping needs its `name`", field="name")
    section = _with_policy(name, tool, site)
    targets = (section["handler"],) if callable(section.get("handler")) else ()
    return DeclaredTool(name, section, site, targets)


def check_twin(first: DeclaredTool | None, second: DeclaredTool) -> None:
    """Raises `ConfigError` with both places for a second tool of one name."""
    if first is not None:
        why = f"tool `{second.name}` is declared at {first.site} already; rename one of the two"
        sites = {"site": str(second.site), "first_site": str(first.site)}
        raise error_at(second.site, why, tool_name=second.name, field="name", value=second.name, **sites)


def own_tools(level: Tools, listed: Iterable[object], site: CodeSite, around: Iterable[DeclaredTool]) -> OwnTools:
    """Return the tools of one level by name: its declarations, and each `Tool` that only its list declares.

    `around` are the tools of the outer levels. Raises `ConfigError` for two tools of one name.
    """
    own = {each.name: each for each in level._all()}
    for each in listed:
        if isinstance(each, Tool) and not any(known.is_made_of(each) for known in (*own.values(), *around)):
            made = DeclaredTool(each.name, {"handler": each}, site, (each,))
            check_twin(own.get(made.name), made)
            own[made.name] = made
    return own


def _prefixed(prefix: str, tool: DeclaredTool) -> DeclaredTool:
    """A `Tool` itself and a factory of several tools have to know the longer name."""
    name, section = f"{prefix}{tool.name}", dict(tool.section)
    if isinstance(section.get("handler"), Tool):
        section["handler"] = dataclasses.replace(section["handler"], name=name)
    for key in _FACTORY:
        if key in section:
            section[key] = _renamed(section[key], tool.name, name)
    return DeclaredTool(name, section, tool.site, tool.targets)


def _renamed(factory: Any, old: str, new: str) -> Any:
    try:
        make = load_reference(factory) if isinstance(factory, str) else factory
    except ConfigError:
        # Its section says what is wrong with it, with file and line.
        return factory
    if PER_CALL.objection(make):
        return factory

    @functools.wraps(make)
    def renamed(context: ToolContext) -> Any:
        made = make(context)
        return {new: made[old]} if isinstance(made, Mapping) and old in made else made

    return renamed


def _unwrapped(target: object) -> object:
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    return target


def error_at(site: CodeSite, why: str, /, **context: object) -> ConfigError:
    return ConfigError(f"{site}: {why}", **{**context, "file": site.shown, "line": site.line})
