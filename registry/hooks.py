"""Hooks: functions that a developer gives a tool apart from its handler.

A new hook of a tool is a field of `Tool`, a `Hook` here, and the activity that runs it. Gates receive its answer.
Actors, policies and destinations have hooks too (`select`, `FILTER`, `SINK`, ...).
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_plain_validator_function

from signoff.approvals.previews.parts import parse_preview
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Principal
from signoff.contracts.preview import AnyPart, PreviewPart
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
    """The context of a call for its hooks: requester, place and actor, as proposed."""

    tenant: str
    user: Principal
    """The requester. For a subscription, `tier`, `roles` and `person_id` raise `LookupError`."""
    actor: str
    session: str
    turn: str
    channel: str = ""
    """The channel of the request. Empty if there is none."""
    route: str = ""
    """The actor's route. Empty if it has none."""
    step: str = ""
    """The route's step. Empty if there is none."""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The declared context fields, the requester's attributes under `user`. Read-only."""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The session's collected data. Read-only."""
    tools: Mapping[str, ToolFacts] = field(default_factory=dict, hash=False)
    """For `select`: the candidate tools by name, with their tags and metadata."""

    @property
    def person_id(self) -> str:
        """The requester's id as a human, the same for all their accounts."""
        return self.user.human


def hook_context(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> HookContext:
    """`fields` are the catalog's context fields."""
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
    """Declares one kind of hook: the form of its functions, checked at build, and the parser of their answers."""

    field: str
    takes: tuple[str, ...]
    parse: Callable[[object], A | None] = _parse_any
    """Parses the function's answer. `None` if it is invalid."""
    style: Literal["async", "plain", "any"] = "async"
    """Whether the function is `async def`, plain or either. A plain one of `any` runs in a thread."""
    remedy: str = ""
    """An alternative for a function of another form."""
    seconds: float = 2.0
    """The time limit. Plain hooks are pure and have none."""

    @property
    def form(self) -> str:
        """Such as `async def (args, context)`."""
        arguments = f"({', '.join(self.takes)})"
        return arguments if self.style == "any" else f"{'async ' if self.style == 'async' else ''}def {arguments}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Allow a hook in an annotation: a field that accepts only functions of its form."""
        optional = type(None) in get_args(source)

        def check(function: object) -> object:
            objection = "" if optional and function is None else self.objection(function)
            if objection:
                raise PydanticCustomError("hook", "{why}", {"why": objection})
            return function

        return no_info_plain_validator_function(check)

    def problem(self, function: object) -> str:
        """Return why `function` does not fit, as text after its name, or ""."""
        if not callable(function):
            return "is no function"
        if self.style != "any" and is_async(function) is not (self.style == "async"):
            return "is not `async def`" if self.style == "async" else "is `async def`"
        try:
            inspect.signature(function).bind(*(None for _ in self.takes))
        # `ValueError`: some functions in C have no signature that Python can read.
        except (TypeError, ValueError):
            return f"does not take `({', '.join(self.takes)})`"
        return ""

    def objection(self, function: object, field: str = "") -> str:
        """Return `needs FIELD to be FORM, but it ...`, or "" if the function fits."""
        flaw = self.problem(function)
        return f"needs `{field or self.field}` to be `{self.form}`, but it {flaw}{self.remedy}" if flaw else ""


def is_async(function: Callable[..., Any]) -> bool:
    """True for an `async def`, a partial of one, and an object with an async `__call__`."""
    # An object with `async def __call__` is not a coroutine function itself.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


@dataclass(frozen=True)
class Permission:
    """A permission check's answer. Create it with `allow` or `deny`."""

    allowed: bool
    """Whether the call may continue to the next gates."""
    reason: str = ""
    """For approvers and the model."""
    can_override: bool = False
    """Whether an approver may override the denial for this one call."""

    @property
    def why(self) -> str:
        """Return the reason, or a default text without one."""
        return self.reason or _DENIED

    @classmethod
    def allow(cls) -> "Permission":
        """Pass the call to the next gates. This does not approve it."""
        return cls(True)

    @classmethod
    def deny(cls, reason: str = "", *, can_override: bool = False) -> "Permission":
        """Deny the call. With `can_override`, an approver may still allow this one call."""
        return cls(False, reason, can_override)


@dataclass(frozen=True)
class Correction:
    """Replacement arguments from `validate_input`.

    They are checked again, once, then judged, shown, bound and run as if proposed. Return it only if the meaning is
    certain. Always correct the same arguments to the same result.
    """

    args: Mapping[str, Any]
    why: str = ""
    """A sentence for approvers and the model."""


@dataclass(frozen=True)
class Happened:
    """A probe's answer: the call took effect."""

    result: Any = "It happened."
    """The handler's result, also a `ToolResult`."""


@dataclass(frozen=True)
class DidNotHappen:
    """A probe's answer: the call took no effect, and no earlier attempt can still cause one.

    The call runs again. Return it only if the other side is certain: it alone knows whether a worker is merely slow.
    """


@dataclass(frozen=True)
class CannotTell:
    """A probe's answer: the outcome is unknown. Approvers are asked."""


ProbeAnswer: TypeAlias = Happened | DidNotHappen | CannotTell

Handler: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[Any]]
"""`async (args, context)`: does the tool's work."""
HandlerFactory: TypeAlias = Callable[[ToolContext], Handler | Mapping[str, Handler]]
"""`(context)`: makes the handler of one call, or the handlers of several tools by name."""
Available: TypeAlias = Callable[[HookContext], Awaitable[bool]]
"""`async (context)`: only `True` itself makes the tool available. It runs often and must be quick."""
PermissionCheck: TypeAlias = Callable[[dict[str, Any], HookContext], Awaitable[Permission]]
"""`async (args, context)`. `args` are a copy of the valid arguments. Any answer except a `Permission` denies."""
Previewer: TypeAlias = Callable[[dict[str, Any], HookContext], Awaitable[PreviewPart | Sequence[PreviewPart]]]
"""`async (args, context)`: the effect of the call, for approvers. Reads only. `args` are a copy."""
Probe: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[ProbeAnswer]]
"""`async (args, context)`. `context.idempotency_key` is the key of the unfinished call."""
InputCheck: TypeAlias = Callable[[Mapping[str, Any]], list[SchemaProblem] | Correction]
"""`(args)`: the problems of arguments that fit the schema, or corrected ones. Pure, and so a plain function."""
Select: TypeAlias = Callable[[HookContext, dict[str, Any]], Awaitable[Iterable[str]]]
"""`async (context, data)`: the names of the visible tools to keep, or of the available routes.

It cannot add any.
"""


def parse_permission(returned: object) -> Permission | None:
    """`None` if the answer is invalid."""
    if not isinstance(returned, Permission) or not isinstance(returned.reason, str):
        return None
    # Only real booleans: a truthy object must neither allow a call nor make its denial overridable.
    right = isinstance(returned.allowed, bool) and isinstance(returned.can_override, bool)
    return returned if right else None


def override_hash(objection: str) -> str:
    """Return the hash that shows that approvers saw this objection; "" for none."""
    return sha256_hex(objection) if objection else ""


def _parse_available(returned: object) -> bool | None:
    # Not by truth value: a forgotten `await` or the text "no" would be true.
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
PREVIEW: Final = Hook[tuple[AnyPart, ...]](field="preview", takes=("args", "context"), parse=parse_preview, seconds=5.0)
# Shorter than the time that remains for a tool's activity after the tool has used all of its own.
PROBE: Final = Hook[ProbeAnswer](field="probe", takes=("args", "context"), parse=_parse_probe, seconds=10.0)
PER_CALL: Final = Hook[object](
    field="per_call", takes=("context",), style="plain", remedy="; slow work belongs in its handler"
)
VALIDATE_INPUT: Final = Hook[object](field="validate_input", takes=("args",), style="plain")
SELECT: Final = Hook[frozenset[str]](field="select", takes=("context", "data"), parse=_parse_names)
POLICY_HANDLER: Final = Hook[HandlerVerdict](
    field="requires_approval.handler", takes=("call", "context"), parse=read_answer, style="any", seconds=5.0
)


def load_policy_handler(
    tool: str, policy: ApprovalPolicy | bool, function: PolicyHandler | None = None
) -> PolicyHandler | None:
    """Return `function`, passed by a program, else import the policy's `handler`.

    `None` without one. Raises `ConfigError` if it is missing or does not take `(call, context)`.
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
