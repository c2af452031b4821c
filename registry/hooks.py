"""Hooks: the functions that a developer gives a tool beside its handler.

Each is declared once, as a `Hook`: what it takes, how long it has, what it may answer. A new one of a tool is a field
of `Tool` and a `Hook` here, and the activity that asks it; gates are handed its answer. Others belong to actors,
policies and destinations of results (`select`, `FILTER`, `SINK`, ...).
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_plain_validator_function

from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Principal
from signoff.formats.declared_fields import FunctionForm
from signoff.formats.json_schema import SchemaProblem
from signoff.people.no_person import asker
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.facts import ToolFacts
from signoff.policy.handler_verdict import HandlerVerdict, PolicyHandler, read_answer
from signoff.registry.cel_context import NO_FIELDS, ContextFields, handler_context, handler_data
from signoff.registry.import_reference import load_reference
from signoff.registry.tool_context import ToolContext

_DENIED: Final = "this call is not permitted"

A = TypeVar("A")


@dataclass(frozen=True, kw_only=True)
class HookContext:
    """The context of a call for its hooks: who asks, where and by which actor, as proposed."""

    tenant: str
    """The tenant of the turn."""
    user: Principal
    """Who asked for the turn. For a subscription, `tier`, `roles` and `person_id` raise `LookupError`."""
    actor: str
    """The actor's name."""
    session: str
    """The session's id."""
    turn: str
    """The turn's id."""
    channel: str = ""
    """The channel by which the request came; empty where there is none."""
    route: str = ""
    """The actor's route; empty where it has none."""
    step: str = ""
    """The route's step; empty where it has none."""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The context fields that the manifest declares, the attributes of `user` under `user`; read-only."""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the session has collected; read-only."""
    tools: Mapping[str, ToolFacts] = field(default_factory=dict, hash=False)
    """For `select`: the tools to choose from, by name, with their tags and metadata."""

    @property
    def person_id(self) -> str:
        """The human who asked, the same by whichever of their accounts (B76)."""
        return self.user.human


def hook_context(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> HookContext:
    """Returns the part of a call's context that its hooks get; `fields` are the context fields of the catalog."""
    return HookContext(
        tenant=ctx.tenant,
        user=asker(ctx.user),
        actor=ctx.actor,
        session=ctx.session,
        turn=ctx.turn,
        channel=ctx.channel,
        route=ctx.route,
        step=ctx.step,
        context=handler_context(ctx, fields),
        data=handler_data(ctx, fields),
    )


def _parse_any(returned: Any) -> Any:
    return returned


@dataclass(frozen=True, kw_only=True)
class Hook(FunctionForm, Generic[A]):
    """Declares one kind of hook: how its functions are checked at build, and how their answers are read."""

    field: str
    """The field that declares it."""
    takes: tuple[str, ...]
    """The names of its positional arguments."""
    parse: Callable[[object], A | None] = _parse_any
    """Reads what a function returned; None when that is no answer."""
    style: Literal["async", "plain", "any"] = "async"
    """Whether it is `async def`, a plain function, or either; a plain one of `any` is run in a thread."""
    remedy: str = ""
    """What else can be done about a function of another form."""
    seconds: float = 2.0
    """How long it has to answer; hooks of style `plain` are pure and have no limit."""

    @property
    def form(self) -> str:
        """The head of such a function, such as `async def (args, context)`."""
        arguments = f"({', '.join(self.takes)})"
        return arguments if self.style == "any" else f"{'async ' if self.style == 'async' else ''}def {arguments}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Lets a hook stand in an annotation: a field of a model that takes functions of its form alone."""
        optional = type(None) in get_args(source)

        def check(function: object) -> object:
            objection = "" if optional and function is None else self.objection(function)
            if objection:
                raise PydanticCustomError("hook", "{why}", {"why": objection})
            return function

        return no_info_plain_validator_function(check)

    def problem(self, function: object) -> str:
        """Returns why `function` is no such hook, as words that follow its name; empty if it is one."""
        if not callable(function):
            return "is no function"
        if self.style != "any" and is_async(function) is not (self.style == "async"):
            return "is not `async def`" if self.style == "async" else "is `async def`"
        try:
            inspect.signature(function).bind(*(None for _ in self.takes))
        # `ValueError`: some functions written in C have no signature that Python could read.
        except (TypeError, ValueError):
            return f"does not take `({', '.join(self.takes)})`"
        return ""

    def objection(self, function: object, field: str = "") -> str:
        """Returns `needs FIELD to be FORM, but it ...` for a function that is no such hook; empty if it is one."""
        flaw = self.problem(function)
        return f"needs `{field or self.field}` to be `{self.form}`, but it {flaw}{self.remedy}" if flaw else ""


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether calling `function` gives a coroutine: an `async def`, a partial of one, or an object that has
    one.
    """
    # An object with `async def __call__` is no coroutine function itself.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


@dataclass(frozen=True)
class Permission:
    """A permission check's answer. Make it with `allow` or `deny`."""

    allowed: bool
    """Whether the call may go on to the next gates."""
    reason: str = ""
    """For people and for the model."""
    can_override: bool = False
    """Whether a person is asked, this once, if a denied call may run all the same."""

    @property
    def why(self) -> str:
        """Returns the reason, or a general one where none was given."""
        return self.reason or _DENIED

    @classmethod
    def allow(cls) -> "Permission":
        """Lets the call go on to the next gates; it is not approved by this."""
        return cls(True)

    @classmethod
    def deny(cls, reason: str = "", *, can_override: bool = False) -> "Permission":
        """Denies the call; with `can_override` a person is asked, this once, whether it may run all the same."""
        return cls(False, reason, can_override)


@dataclass(frozen=True)
class Correction:
    """Arguments to use in place of those that a model gave; `validate_input` may return one (V13).

    They are checked again, once, then judged, shown, bound and run as if they had been proposed. Return it only for
    what is surely meant: the same arguments must always be corrected to the same ones.
    """

    args: Mapping[str, Any]
    """The arguments to use."""
    why: str = ""
    """A sentence for people and the model."""


@dataclass(frozen=True)
class Happened:
    """A probe's answer: the call happened."""

    result: Any = "It happened."
    """What the handler would have returned, also a `ToolResult`."""


@dataclass(frozen=True)
class DidNotHappen:
    """A probe's answer: the call did not happen, and nothing begun under its key can still make it happen.

    It is run again. Return it only if that is so: whether a worker is merely slow only the other side can tell.
    """


@dataclass(frozen=True)
class CannotTell:
    """A probe's answer: it cannot be told now. People are asked."""


ProbeAnswer: TypeAlias = Happened | DidNotHappen | CannotTell

Handler: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[Any]]
"""`async (args, context)`: does what the tool is for."""
HandlerFactory: TypeAlias = Callable[[ToolContext], Handler | Mapping[str, Handler]]
"""`(context)`: makes the handler of one call, or the handlers of several tools by name."""
Available: TypeAlias = Callable[[HookContext], Awaitable[bool]]
"""`async (context)`: only `True` itself makes the tool available (E04). It is asked often, and must be quick."""
PermissionCheck: TypeAlias = Callable[[dict[str, Any], HookContext], Awaitable[Permission]]
"""`async (args, context)`; `args` are a copy of the valid arguments. What is no `Permission` denies."""
Probe: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[ProbeAnswer]]
"""`async (args, context)`; `context.idempotency_key` is the key under which the call was begun."""
InputCheck: TypeAlias = Callable[[Mapping[str, Any]], list[SchemaProblem] | Correction]
"""`(args)`: what is wrong with arguments that fit the schema, or better ones. Pure, and so a plain function."""
Select: TypeAlias = Callable[[HookContext, dict[str, Any]], Awaitable[Iterable[str]]]
"""`async (context, data)`: the names of those tools, of all that would be seen, that are (F10), or of those routes that
are there. It cannot add any."""


def parse_permission(returned: object) -> Permission | None:
    """Reads what a permission check returned; None when that is no answer."""
    if not isinstance(returned, Permission) or not isinstance(returned.reason, str):
        return None
    # Only the two booleans themselves: a truthy object must neither allow a call nor let people override its denial.
    right = isinstance(returned.allowed, bool) and isinstance(returned.can_override, bool)
    return returned if right else None


def override_hash(objection: str) -> str:
    """Returns the hash that says that people were shown this very objection; "" for none."""
    return sha256_hex(objection) if objection else ""


def _parse_available(returned: object) -> bool | None:
    # Not by its truth: a forgotten `await`, or the text "no", would be true.
    return returned if isinstance(returned, bool) else None


def _parse_probe(returned: object) -> ProbeAnswer | None:
    return returned if isinstance(returned, Happened | DidNotHappen | CannotTell) else None


def _parse_names(returned: object) -> frozenset[str] | None:
    right = isinstance(returned, list | tuple | set | frozenset) and all(isinstance(name, str) for name in returned)
    return frozenset(cast(Iterable[str], returned)) if right else None


HANDLER: Final = Hook[object](
    field="handler", takes=("args", "context"), remedy="; or declare an `async def` of typed arguments with `@tool`"
)
AVAILABLE: Final = Hook[bool](field="available", takes=("context",), parse=_parse_available)
CHECK_PERMISSIONS: Final = Hook[Permission](
    field="check_permissions", takes=("args", "context"), parse=parse_permission
)
# Less than what a tool's activity has left when the tool has used up its own time.
PROBE: Final = Hook[ProbeAnswer](field="probe", takes=("args", "context"), parse=_parse_probe, seconds=10.0)
PER_CALL: Final = Hook[object](
    field="per_call", takes=("context",), style="plain", remedy="; what takes time belongs into the handler it makes"
)
VALIDATE_INPUT: Final = Hook[object](field="validate_input", takes=("args",), style="plain")
SELECT: Final = Hook[frozenset[str]](field="select", takes=("context", "data"), parse=_parse_names)
POLICY_HANDLER: Final = Hook[HandlerVerdict](
    field="requires_approval.handler", takes=("call", "context"), parse=read_answer, style="any", seconds=5.0
)


def load_policy_handler(
    tool: str, policy: ApprovalPolicy | bool, function: PolicyHandler | None = None
) -> PolicyHandler | None:
    """Return `function`, which a program hands over, else import the `handler` of the policy; None where there is none.

    Raises `ConfigError` for a function that cannot be found or does not take `(call, context)`.
    """
    if function is not None or isinstance(policy, bool) or policy.handler is None:
        return function
    try:
        found = load_reference(policy.handler)
    except ConfigError as error:
        raise _wrong_handler(tool, policy.handler, error.message) from error
    flaw = POLICY_HANDLER.problem(found)
    if flaw:
        raise _wrong_handler(tool, policy.handler, f"`{policy.handler}` {flaw}")
    return cast(PolicyHandler, found)


def _wrong_handler(tool: str, reference: str, why: str) -> ConfigError:
    message = f"`handler` of the policy of tool `{tool}`: {why}"
    return ConfigError(message, tool_name=tool, field=POLICY_HANDLER.field, value=reference)
