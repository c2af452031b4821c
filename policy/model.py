"""Policies as data: what a tool's declaration or the manifest may say."""

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
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

from signoff.contracts.decision import Assurance
from signoff.contracts.errors import ConfigError
from signoff.policy.durations import Seconds

APPROVER: Final = re.compile(r"(?:role|user):[A-Za-z0-9_-]{1,48}\Z")
"""How one approver is written: `role:finance` or `user:ana`."""

_LATER: Final[Mapping[str, Any]] = {
    "handler": None,
    "remind_after": None,
    "escalate_after": None,
    "escalate_to": None,
    "on_timeout": "deny",
}
"""Fields of later versions with the one value that this version keeps its word on."""


def _approver(text: str) -> str:
    if APPROVER.match(text) is None:
        raise ValueError(f"`{text}` is not an approver; write `role:<role>` or `user:<id>`")
    return text


Cel = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Approver = Annotated[str, AfterValidator(_approver)]
Name = Annotated[str, StringConstraints(min_length=1)]


def _one_spelling(cls: type[BaseModel], data: Mapping[Any, Any]) -> dict[str, Any]:
    names = {to_camel(name): name for name in cls.model_fields}
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = names.get(key, str(key))
        if name in found and found[name] != value:
            raise ConfigError(
                f"`{name}` is given twice, as `{name}` and as `{to_camel(name)}`, with different values; keep one",
                field=name,
                value=value,
            )
        if name in cls.model_fields and name in _LATER and value != _LATER[name]:
            raise ConfigError(_not_yet(name, value), field=name, value=value)
        found[name] = value
    return found


def _not_yet(name: str, value: Any) -> str:
    if name == "on_timeout" and value == "approve":
        return "`on_timeout: approve` is never allowed; silence is not consent, leave `on_timeout` out"
    shown = f"`{name}: {str(value).lower()}`" if name == "on_timeout" else f"`{name}`"
    return f"{shown} is not supported by this version yet; remove it"


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


class ApprovalPolicy(_PolicyData):
    """When a call needs people, which people, and for how long their answer holds.

    Expressions are CEL over `args`, `ctx` and `tool`. `timeout` and `grant_ttl` are seconds.
    Building one raises `ConfigError` with `field` and `value`.
    """

    auto_approve_if: Cel | None = None
    deny_if: Cel | None = None
    require_approval_if: Cel | None = None
    level: Literal["user", "admin"] = "user"
    approvers: tuple[Approver, ...] = ()
    route_to: Cel | None = None
    quorum: Annotated[StrictInt, Field(ge=1, le=50)] = 1
    veto: StrictBool = True
    allow_self_approval: StrictBool = False
    timeout: Seconds = 86_400.0
    grant_ttl: Seconds = 900.0
    allow_edit: StrictBool = True
    min_assurance: Assurance = "channel"
    accept_unsigned: StrictBool = False
    confirm: Literal["", "type"] = ""
    show: Show = Show()
    handler: None = None
    remind_after: None = None
    escalate_after: None = None
    escalate_to: None = None
    on_timeout: Literal["deny"] = "deny"
    allow_remember: StrictBool = False

    @property
    def named_approvers(self) -> tuple[str, ...]:
        """`approvers`, or what `level: admin` is short for; () leaves it to the tenant's default."""
        if self.approvers or self.level == "user":
            return self.approvers
        return ("role:admin",)


class GlobalRule(_PolicyData):
    """One rule over all tools: CEL over `tool`, `actor` and `ctx`. `reason` is for people to read."""

    name: Name
    rule: Cel
    effect: Literal["hide", "deny", "require_approval"]
    reason: str = ""


RequiresApproval: TypeAlias = bool | ApprovalPolicy
"""False: never asks. True: always asks. A policy: as it says."""
