"""Policies as data: what a tool's declaration or the manifest may say."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    StrictInt,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from signoff.contracts.approval import EditMode
from signoff.contracts.decision import Assurance
from signoff.contracts.errors import ConfigError
from signoff.formats.durations import Seconds

# `\Z`, not `$`: that would take a newline at the end as well.
APPROVER: Final = re.compile(r"(?:role|user):[A-Za-z0-9_-]{1,48}\Z")
"""How one approver is written: `role:finance` or `user:ana`."""


_REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


def _approver(text: str) -> str:
    if APPROVER.match(text) is None:
        raise ValueError(f"`{text}` is not an approver; write `role:<role>` or `user:<id>`")
    return text


def _reference(text: str) -> str:
    if _REFERENCE.match(text) is None:
        raise ValueError(f"`{text}` is not `module:function`; name the function that answers `auto`, `ask` or `deny`")
    return text


Cel = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Approver = Annotated[str, AfterValidator(_approver)]
Reference = Annotated[str, AfterValidator(_reference)]
Name = Annotated[str, StringConstraints(min_length=1)]


def _one_spelling(cls: type[BaseModel], data: Mapping[Any, Any]) -> dict[str, Any]:
    names = {to_camel(name): name for name in cls.model_fields}
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = names.get(key, str(key))
        # A ConfigError is no ValueError, so pydantic passes it on as it is instead of listing it among its own errors.
        if name in found and found[name] != value:
            raise ConfigError(
                f"`{name}` is given twice, as `{name}` and as `{to_camel(name)}`, with different values; keep one",
                field=name,
                value=value,
            )
        if name in cls.model_fields and (why := _never(name, value)):
            raise ConfigError(why, field=name, value=value)
        found[name] = value
    return found


def _never(name: str, value: Any) -> str:
    """Why a field cannot have this value, where more is to be said than which values it can have."""
    if name == "on_timeout" and value == "approve":
        return "`on_timeout: approve` is never allowed; silence is not consent, leave `on_timeout` out"
    return ""


def _config_error(cls: type[BaseModel], error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False, include_context=False)[0]
    field = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])
        near = difflib.get_close_matches(name, [*cls.model_fields, *map(to_camel, cls.model_fields)], n=1)
        hint = f"did you mean `{near[0]}`?" if near else "allowed are " + ", ".join(f"`{n}`" for n in cls.model_fields)
        return ConfigError(f"unknown key `{name}`; {hint}", field=field, value=first["input"])
    message = first["msg"].removeprefix("Value error, ")
    return ConfigError(f"`{field}` {message[:1].lower()}{message[1:]}", field=field, value=first["input"])


def _path(loc: tuple[int | str, ...]) -> str:
    return ".".join(re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), str(part)) for part in loc)


class _PolicyData(BaseModel):
    """Frozen, closed, in snake_case or camelCase; a mistake is one `ConfigError` that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # Anything but a mapping stays a ValidationError, so that unions such as `bool | ApprovalPolicy` can go on.
        if not isinstance(data, Mapping):
            return handler(data)
        one_spelling = _one_spelling(cls, data)
        try:
            return handler(one_spelling)
        except ValidationError as error:
            raise _config_error(cls, error) from None


class Show(_PolicyData):
    """What the card shows: `only` these arguments (None: all); `secret` ones are masked, still digested."""

    only: tuple[Name, ...] | None = None
    secret: tuple[Name, ...] = ()


def _mode(value: object) -> object:
    # YAML reads a bare `off` as false.
    return "off" if value is False else value


class ApprovalPolicy(_PolicyData):
    """When a call needs people, which people, and for how long their answer holds.

    Expressions are CEL over `args`, `ctx` and `tool`. Times are seconds; `remind_after`, `escalate_after` and `timeout`
    run from when people are asked. `escalate_to` may decide from the escalation on, beside those asked first.
    With `on_timeout` `escalate` that is at the deadline, which is then put off once by `timeout`. With `audit`
    `required` a call does not run without its record. `notify` names the channels by which people are reached beside
    the inbox, in order; None leaves that to the manifest's `routing`. `edit` None is `off` for tools with effects.
    `handler` is the `module:function` that answers
    after the rules. Building one raises `ConfigError` with `field` and `value`.
    """

    auto_approve_if: Cel | None = None
    deny_if: Cel | None = None
    require_approval_if: Cel | None = None
    level: Literal["user", "admin"] = "user"
    approvers: tuple[Approver, ...] = ()
    route_to: Cel | None = None
    quorum: Annotated[StrictInt, Field(ge=1, le=50)] = 1
    # Strict: pydantic would read the texts `off` and `no` as false, and 1 as true; a slip must not loosen a policy.
    veto: StrictBool = True
    allow_self_approval: StrictBool = False
    timeout: Seconds = 86_400.0
    grant_ttl: Seconds = 86_400.0
    edit: Annotated[EditMode, BeforeValidator(_mode)] | None = None
    min_assurance: Assurance = "channel"
    accept_unsigned: StrictBool = False
    confirm: Literal["", "type"] = ""
    show: Show = Show()
    handler: Reference | None = None
    remind_after: Seconds | None = None
    escalate_after: Seconds | None = None
    escalate_to: tuple[Approver, ...] = ()
    on_timeout: Literal["deny", "escalate"] = "deny"
    allow_remember: StrictBool = False
    audit: Literal["required", "best_effort"] = "required"
    notify: tuple[Name, ...] | None = None

    @model_validator(mode="after")
    def _can_come_to_pass(self) -> Self:
        for name, value, why in _impossible(self):
            raise ConfigError(why, field=name, value=value)
        return self

    def edit_mode(self, *, read_only: bool) -> EditMode:
        """`edit`, or what holds where it is not given: nobody rewrites a call that has effects."""
        return self.edit or ("approve" if read_only else "off")

    @property
    def named_approvers(self) -> tuple[str, ...]:
        """`approvers`, or what `level: admin` is short for; () leaves it to the tenant's default."""
        if self.approvers or self.level == "user":
            return self.approvers
        return ("role:admin",)


def _impossible(policy: ApprovalPolicy) -> Iterator[tuple[str, Any, str]]:
    """What of a policy could never happen: the field, its value, why and what to do."""
    remind, escalate, end = policy.remind_after, policy.escalate_after, policy.timeout
    if remind is not None and remind >= end:
        yield "remind_after", remind, "`remind_after` comes at or after `timeout`; nobody waits then, make it shorter"
    if escalate is not None and escalate >= end:
        yield "escalate_after", escalate, "`escalate_after` comes at or after `timeout`; make it shorter"
    if remind is not None and escalate is not None and escalate <= remind:
        yield "escalate_after", escalate, "`escalate_after` comes before `remind_after`; remind first, or not at all"
    escalates = escalate is not None or policy.on_timeout == "escalate"
    if escalates and not policy.escalate_to:
        name = "escalate_after" if escalate is not None else "on_timeout"
        yield "escalate_to", (), f"`{name}` escalates to nobody; name them in `escalate_to`"
    if policy.escalate_to and not escalates:
        yield (
            "escalate_to",
            policy.escalate_to,
            "`escalate_to` is never used; add `escalate_after`, or `on_timeout: escalate`",
        )


class GlobalRule(_PolicyData):
    """One rule over all tools: CEL over `tool`, `actor` and `ctx`. `reason` is for people to read."""

    name: Name
    rule: Cel
    effect: Literal["hide", "deny", "require_approval"]
    reason: str = ""


RequiresApproval: TypeAlias = bool | ApprovalPolicy
"""False: never asks. True: always asks. A policy: as it says."""
