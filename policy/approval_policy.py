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
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    StrictInt,
    StringConstraints,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from signoff.approvals.quorum import Voter, people_needed, suffices
from signoff.contracts.approval import ApproverGroup, EditMode
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


def _group(entry: object) -> object:
    """One of `approvers`: a name, or a mapping that says how many of whom."""
    if not isinstance(entry, Mapping):
        return entry
    strange = next((key for key in entry if key not in ("of", "quorum")), None)
    if strange is not None:
        raise ConfigError(f"unknown key `{strange}`; a group has `of` and `quorum`", field="approvers", value=strange)
    of, quorum = entry.get("of", ()), entry.get("quorum", 1)
    named = [of] if isinstance(of, str) else of
    if not isinstance(named, list | tuple) or not named or not all(isinstance(each, str) for each in named):
        raise ValueError("a group names `role:<role>` or `user:<id>`, or a list of them, in `of`")
    if type(quorum) is not int or not 1 <= quorum <= MAX_QUORUM:
        raise ValueError(f"the `quorum` of a group is a number from 1 to {MAX_QUORUM}")
    return ApproverGroup(of=tuple(dict.fromkeys(map(_approver, named))), quorum=quorum)


def _entry(entry: object) -> str:
    return "group" if isinstance(entry, ApproverGroup | Mapping) else "approver"


MAX_QUORUM: Final = 50
Cel = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Approver = Annotated[str, AfterValidator(_approver)]
Group = Annotated[ApproverGroup, BeforeValidator(_group)]
Asked = Annotated[Annotated[Approver, Tag("approver")] | Annotated[Group, Tag("group")], Discriminator(_entry)]
"""Who is asked: by name, or so many of several."""
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
    parts = [part for part in loc if part not in ("approver", "group")]
    return ".".join(re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), str(part)) for part in parts)


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
    `approvers` are names, any of whom fills any place of the quorum, or groups, so many of each. With `on_timeout`
    `escalate` that is at the deadline, which is then put off once by `timeout`. With `audit`
    `required` a call does not run without its record. `notify` names the channels by which people are reached beside
    the inbox, in order; None leaves that to the manifest's `routing`. `edit` None is `off` for tools with effects.
    `handler` is the `module:function` that answers
    after the rules. Building one raises `ConfigError` with `field` and `value`.
    """

    auto_approve_if: Cel | None = None
    deny_if: Cel | None = None
    require_approval_if: Cel | None = None
    level: Literal["user", "admin"] = "user"
    approvers: tuple[Asked, ...] = ()
    route_to: Cel | None = None
    quorum: Annotated[StrictInt, Field(ge=1, le=MAX_QUORUM)] = 1
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
        """Everybody of `approvers`, or what `level: admin` is short for; () leaves it to the tenant's default."""
        if self.approvers or self.level == "user":
            named = (each.of if isinstance(each, ApproverGroup) else (each,) for each in self.approvers)
            return tuple(dict.fromkeys(entry for entries in named for entry in entries))
        return ("role:admin",)

    @property
    def groups(self) -> tuple[ApproverGroup, ...]:
        """The groups of `approvers`; () where any of them fills any place."""
        return tuple(each for each in self.approvers if isinstance(each, ApproverGroup))

    @property
    def people_needed(self) -> int:
        """How many different people have to approve."""
        return people_needed(self.quorum, self.groups)


def _impossible(policy: ApprovalPolicy) -> Iterator[tuple[str, Any, str]]:
    """What of a policy could never happen: the field, its value, why and what to do."""
    yield from _impossible_groups(policy)
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


def _impossible_groups(policy: ApprovalPolicy) -> Iterator[tuple[str, Any, str]]:
    groups = policy.groups
    if not groups:
        return
    if len(groups) < len(policy.approvers):
        yield (
            "approvers",
            (),
            "`approvers` has names beside groups; write each as a group, such as `{of: role:legal}`",
        )
    if len({frozenset(group.of) for group in groups}) < len(groups):
        yield "approvers", (), "`approvers` has two groups of the same people; write one with a larger `quorum`"
    if policy.quorum > 1 and policy.quorum <= sum(group.quorum for group in groups):
        yield "quorum", policy.quorum, "`quorum` asks no more than the groups of `approvers` together; leave it out"
    if policy.route_to is not None:
        yield "route_to", policy.route_to, "`route_to` would ask others than the groups of `approvers`; use one of both"
    both = next((each for each in policy.escalate_to if each in policy.named_approvers), None)
    if both is not None:
        why = f"`escalate_to` names `{both}`, who is in a group: they could fill the place of the others; name others"
        yield "escalate_to", both, why
    # Of a role there may be any number of people; who is named one by one is one person, and fills one place.
    named = [group for group in groups if all(each.startswith("user:") for each in group.of)]
    people = dict.fromkeys(each for group in named for each in group.of)
    if not suffices(0, named, [Voter(each, {each: frozenset((each,))}) for each in people]):
        yield (
            "approvers",
            (),
            "the groups of `approvers` ask more people than they name; lower a `quorum`, or name more",
        )


class GlobalRule(_PolicyData):
    """One rule over all tools: CEL over `tool`, `actor` and `ctx`. `reason` is for people to read."""

    name: Name
    rule: Cel
    effect: Literal["hide", "deny", "require_approval"]
    reason: str = ""


RequiresApproval: TypeAlias = bool | ApprovalPolicy
"""False: never asks. True: always asks. A policy: as it says."""
