"""Defines policies as data."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
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
from signoff.approvals.tightening import ORDERS, tighten
from signoff.contracts.approval import AppliedTerm, ApproverGroup, EditMode, Terms, TermValues
from signoff.contracts.decision import Assurance
from signoff.contracts.errors import ConfigError
from signoff.formats.declared_fields import FieldSpec
from signoff.formats.durations import Seconds
from signoff.formats.nearest_name import KEYS_LISTED

# `\Z` instead of `$`, which also accepts a newline at the end.
APPROVER: Final = re.compile(r"(?:role|user|oncall):[A-Za-z0-9_-]{1,48}\Z")
"""The format of one approver: `role:finance`, `user:ana` or `oncall:payments`."""
ROLE_OR_USER: Final = re.compile(r"(?:role|user):[A-Za-z0-9_-]{1,48}\Z")


_REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


def _approver(text: str) -> str:
    if APPROVER.match(text) is None:
        raise ValueError(f"`{text}` is not an approver; write `role:<role>`, `user:<id>` or `oncall:<rota>`")
    return text


def _reference(text: str) -> str:
    if _REFERENCE.match(text) is None:
        raise ValueError(f"`{text}` is not `module:function`; name the function that answers `auto`, `ask` or `deny`")
    return text


def _group(entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    strange = next((key for key in entry if key not in ("of", "quorum")), None)
    if strange is not None:
        raise ConfigError(f"unknown key `{strange}`; a group has `of` and `quorum`", field="approvers", value=strange)
    of, quorum = entry.get("of", ()), entry.get("quorum", 1)
    named = [of] if isinstance(of, str) else of
    if not isinstance(named, list | tuple) or not named or not all(isinstance(each, str) for each in named):
        raise ValueError("a group names `role:<role>`, `user:<id>` or `oncall:<rota>`, or a list of them, in `of`")
    if type(quorum) is not int or not 1 <= quorum <= MAX_QUORUM:
        raise ValueError(f"the `quorum` of a group is a number from 1 to {MAX_QUORUM}")
    return ApproverGroup(of=tuple(dict.fromkeys(map(_approver, named))), quorum=quorum)


def _entry(entry: object) -> str:
    return "a group" if isinstance(entry, ApproverGroup | Mapping) else "a name"


MAX_QUORUM: Final = 50
Cel = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Approver = Annotated[str, AfterValidator(_approver)]
Group = Annotated[ApproverGroup, BeforeValidator(_group)]
Asked = Annotated[Annotated[Approver, Tag("a name")] | Annotated[Group, Tag("a group")], Discriminator(_entry)]
"""An entry of `approvers`: a name, or a group with a quorum."""
Reference = Annotated[str, AfterValidator(_reference)]
Name = Annotated[str, StringConstraints(min_length=1)]


@cache
def _names(cls: type[BaseModel]) -> Mapping[str, str]:
    return {to_camel(name): name for name in cls.model_fields}


def _one_spelling(cls: type[BaseModel], data: Mapping[Any, Any]) -> dict[str, Any]:
    names = _names(cls)
    fields: dict[str, Any] = {}
    for key, value in data.items():
        name = names.get(key, str(key))
        # Pydantic passes on a ConfigError, which is no ValueError, instead of listing it among its own errors.
        if name in fields and fields[name] != value:
            raise ConfigError(
                f"`{name}` is given twice, as `{name}` and as `{to_camel(name)}`, with different values; keep one",
                field=name,
                value=value,
            )
        if name in cls.model_fields and (why := _never(name, value)):
            raise ConfigError(why, field=name, value=value)
        fields[name] = value
    return fields


def _never(name: str, value: Any) -> str:
    """Return "" for a value that is not forbidden."""
    if name == "on_timeout" and value == "approve":
        return "`on_timeout: approve` is never allowed; silence is not consent, leave `on_timeout` out"
    return ""


def _config_error(cls: type[BaseModel], error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False, include_context=False)[0]
    field = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])
        near = difflib.get_close_matches(name, [*cls.model_fields, *map(to_camel, cls.model_fields)], n=1)
        hint = f"did you mean `{near[0]}`?" if near else KEYS_LISTED
        return ConfigError(f"unknown key `{name}`; {hint}", field=field, value=first["input"])
    message = first["msg"].removeprefix("Value error, ")
    return ConfigError(f"`{field}` {message[:1].lower()}{message[1:]}", field=field, value=first["input"])


def _path(loc: tuple[int | str, ...]) -> str:
    parts = [part for part in loc if part not in ("a name", "a group")]
    return ".".join(re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), str(part)) for part in parts)


class _PolicyData(BaseModel):
    """Base of policies: frozen, closed, in snake_case or camelCase.

    A mistake raises one `ConfigError` that names the field.
    """

    # Without aliases, which signatures would show: `_one_spelling` reads camelCase.
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        # Anything but a mapping stays a ValidationError, so that unions such as `bool | ApprovalPolicy` can try the
        # next type.
        if not isinstance(data, Mapping):
            return handler(data)
        one_spelling = _one_spelling(cls, data)
        try:
            return handler(one_spelling)
        except ValidationError as error:
            raise _config_error(cls, error) from None


class ShownArguments(_PolicyData):
    """Selects the arguments that the card shows."""

    only: tuple[Name, ...] | None = None
    """Shows only these arguments.

    None: all.
    """
    secret: tuple[Name, ...] = ()
    """Arguments that are masked.

    The digest still covers them.
    """


class Term(_PolicyData):
    """Stricter terms for some calls, in addition to the policy's.

    They never loosen them. Raises `ConfigError` with `field` and `value` on creation.
    """

    quorum: Annotated[StrictInt, Field(ge=2, le=MAX_QUORUM)] | None = None
    """How many people must approve."""
    approvers: tuple[Asked, ...] = ()
    """Additional approvers: `role:<role>`, `user:<id>`, `oncall:<rota>`, or groups of them."""
    min_assurance: Assurance | None = None
    """An approver's minimum assurance."""
    timeout: Seconds | None = None
    """The time to wait for approvers."""
    escalate_after: Seconds | None = None
    """The time after which approvers in the policy's `escalate_to` may also decide."""
    escalate_to: tuple[Approver, ...] = ()
    """Restricts the policy's `escalate_to` to these approvers."""
    reason: str = ""
    """The reason shown to people, such as `it is the weekend`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self._values():
            raise ConfigError(
                "a term of `terms` changes nothing; give it a `quorum`, `approvers`, `min_assurance`, a `timeout` or "
                "an escalation",
                field="terms",
                value=self.reason,
            )
        return self

    @property
    def groups(self) -> tuple[ApproverGroup, ...]:
        """Its single approvers form one group."""
        names = tuple(dict.fromkeys(each for each in self.approvers if isinstance(each, str)))
        listed = (ApproverGroup(of=names),) if names else ()
        return (*listed, *(each for each in self.approvers if isinstance(each, ApproverGroup)))

    def as_applied(self, reason: str = "") -> AppliedTerm:
        """Use `reason` if the term has none."""
        return AppliedTerm(reason=self.reason or reason, **self._values())

    def _values(self) -> dict[str, Any]:
        return {name: value for name in TermValues.model_fields if (value := getattr(self, name))}


class TermRule(Term):
    """Stricter terms for calls for which `when` is true, or not surely false."""

    when: Cel
    """CEL over `args`, `ctx`, `actor` and `tool`.

    The terms apply unless both engines return false.
    """


def _mode(value: object) -> object:
    # YAML reads a bare `off` as false.
    return "off" if value is False else value


class ApprovalPolicy(_PolicyData):
    """Decides whether a call needs approval, by whom, and how long an approval is valid.

    Expressions are CEL over `args`, `ctx`, `actor` and `tool`. Times are seconds since the question, unless stated
    otherwise. Raises `ConfigError` with `field` and `value` on creation.
    """

    auto_approve_if: Annotated[Cel | None, FieldSpec(unset="never")] = None
    """CEL: run without approval if true.

    Both engines must return true.
    """
    deny_if: Annotated[Cel | None, FieldSpec(unset="never")] = None
    """CEL: never run if true.

    One engine is enough.
    """
    require_approval_if: Annotated[Cel | None, FieldSpec(unset="never")] = None
    """CEL: require approval if true, even if `auto_approve_if` is true."""
    level: Literal["user", "admin"] = "user"
    """`admin`: short for `approvers: [role:admin]`."""
    approvers: Annotated[tuple[Asked, ...], FieldSpec(unset="`defaults.approvers`")] = ()
    """`role:<role>`, `user:<id>`, `oncall:<rota>`, or groups such as `{of: role:legal, quorum: 1}`.

    [Each group](approvals.md#quorum-and-groups) needs its own approvers.
    """
    route_to: Cel | None = None
    """CEL that returns the call's approvers, also for rules and permission checks."""
    quorum: Annotated[StrictInt, Field(ge=1, le=MAX_QUORUM)] = 1
    """How many people must approve."""
    # Strict: pydantic would read the texts `off` and `no` as false, and 1 as true. A typo must not loosen a policy.
    veto: StrictBool = True
    """One denial ends the request."""
    require_reason: StrictBool = False
    """A denial counts only with a reason.

    [approvals.md](approvals.md#quorum-and-groups).
    """
    preview_required: StrictBool = False
    """An approval counts only with a preview.

    [approvals.md](approvals.md#previews).
    """
    preview_for: Literal["approvers", "requester"] = "approvers"
    """The readers of a preview. `requester`: its approvers and the requester.

    [approvals.md](approvals.md#previews).
    """
    allow_self_approval: StrictBool = False
    """The requester may decide."""
    timeout: Seconds = 86_400.0
    """The wait for approvers. Then the call is denied."""
    grant_ttl: Seconds = 86_400.0
    """How long an approved call may wait to begin."""
    edit: Annotated[
        Annotated[EditMode, BeforeValidator(_mode)] | None, FieldSpec(unset="`off`, `approve` for `read_only` tools")
    ] = None
    """Edits of arguments: `off`, `propose` (others decide) or `approve` (a vote).

    [approvals.md](approvals.md#changing-a-call).
    """
    min_assurance: Assurance = "channel"
    """An approver's minimum assurance."""
    accept_unsigned: StrictBool = False
    """Accept unsigned decisions: anyone with access to Temporal can answer in any person's name."""
    confirm: Annotated[Literal["", "type"], FieldSpec(unset="off")] = ""
    """`type`: approvers type a value from the card."""
    show: Annotated[ShownArguments, FieldSpec(unset="all")] = ShownArguments()
    """On the card, `only: [...]` shows these arguments alone, `secret: [...]` masks some."""
    handler: Reference | None = None
    """`module:function`, after the rules.

    [policies.md](policies.md#handlers-of-policies).
    """
    remind_after: Annotated[Seconds | None, FieldSpec(unset="never")] = None
    """When the first approvers are reminded."""
    escalate_after: Annotated[Seconds | None, FieldSpec(unset="never")] = None
    """When `escalate_to` may also decide."""
    escalate_to: tuple[Approver, ...] = ()
    """Approvers after the escalation."""
    on_timeout: Literal["deny", "escalate"] = "deny"
    """`deny`, or `escalate`: ask `escalate_to`, extend the deadline once by `timeout`, then deny."""
    while_waiting: Literal["wait", "continue"] = "wait"
    """`continue`: the model continues without waiting.

    [approvals.md](approvals.md#continue-while-approvers-decide).
    """
    allow_remember: StrictBool = False
    """Approvers may have a decision remembered."""
    audit: Literal["required", "best_effort"] = "required"
    """`required`: no call runs without its audit entry. `best_effort`: a failed entry does not stop it."""
    notify: Annotated[tuple[Name, ...] | None, FieldSpec(unset="`routing.default`")] = None
    """Channels besides the inbox, in order."""
    terms: tuple[TermRule, ...] = ()
    """Stricter terms.

    Each `{when: CEL, quorum, approvers, min_assurance, timeout, escalate_after, escalate_to, reason}` applies unless
    both engines return false. [approvals.md](approvals.md#stricter-terms).
    """

    @model_validator(mode="after")
    def _can_come_to_pass(self) -> Self:
        for name, value, why in _impossible(self):
            raise ConfigError(why, field=name, value=value)
        return self

    def edit_mode(self, *, read_only: bool) -> EditMode:
        """Return `edit`, or its default: `approve` for a `read_only` tool, else `off`.

        With `preview_required`, `approve` becomes `propose`: the editor has not seen the preview of the edited call.
        """
        mode: EditMode = self.edit or ("approve" if read_only else "off")
        return "propose" if mode == "approve" and self.preview_required else mode

    @property
    def named_approvers(self) -> tuple[str, ...]:
        """Return all approvers, also those in groups. () means the tenant's default.

        Without `approvers`, `level: admin` names the role `admin`.
        """
        if self.approvers or self.level == "user":
            named = (each.of if isinstance(each, ApproverGroup) else (each,) for each in self.approvers)
            return tuple(dict.fromkeys(entry for entries in named for entry in entries))
        return ("role:admin",)

    @property
    def groups(self) -> tuple[ApproverGroup, ...]:
        """Return the groups of `approvers`. () if any approver counts for any place."""
        return tuple(each for each in self.approvers if isinstance(each, ApproverGroup))

    @property
    def later_approvers(self) -> tuple[str, ...]:
        """Return the approvers of stricter terms, then those of the escalation."""
        added = (entry for term in self.terms for group in term.groups for entry in group.of)
        return tuple(dict.fromkeys((*added, *self.escalate_to)))

    @property
    def people_needed(self) -> int:
        """Return the larger of `quorum` and the sum of all groups' quorums."""
        return people_needed(self.quorum, self.groups)

    @property
    def own_terms(self) -> Terms:
        """Return the terms as declared, without the default approvers."""
        declared = {name: getattr(self, name) for name in Terms.model_fields}
        return Terms(**declared | {"approvers": self.named_approvers, "quorum": self.people_needed})


def _impossible(policy: ApprovalPolicy) -> Iterator[tuple[str, Any, str]]:
    """Yield the field, its value, the problem and the remedy of each setting that can never take effect."""
    yield from _impossible_groups(policy)
    for number, term in enumerate(policy.terms):
        for name, value, why in _ineffective_settings(policy, term):
            yield f"terms.{number}.{name}", value, why
    remind, escalate, end = policy.remind_after, policy.escalate_after, policy.timeout
    if remind is not None and remind >= end:
        yield (
            "remind_after",
            remind,
            "`remind_after` is not before `timeout`, so no request waits then; make it shorter",
        )
    if escalate is not None and escalate >= end:
        yield "escalate_after", escalate, "`escalate_after` is not before `timeout`; make it shorter"
    if remind is not None and escalate is not None and escalate <= remind:
        yield "escalate_after", escalate, "`escalate_after` is before `remind_after`; remind first, or not at all"
    escalates = escalate is not None or policy.on_timeout == "escalate"
    if escalates and not policy.escalate_to:
        name = "escalate_after" if escalate is not None else "on_timeout"
        yield "escalate_to", (), f"`{name}` has no approvers to escalate to; name them in `escalate_to`"
    if policy.escalate_to and not escalates:
        yield (
            "escalate_to",
            policy.escalate_to,
            "`escalate_to` is never used; add `escalate_after`, or `on_timeout: escalate`",
        )


def _impossible_groups(policy: ApprovalPolicy) -> Iterator[tuple[str, Any, str]]:
    groups = policy.groups
    if groups and len(groups) < len(policy.approvers):
        yield "approvers", (), "`approvers` mixes names and groups; write each as a group, such as `{of: role:legal}`"
    if len({frozenset(group.of) for group in groups}) < len(groups):
        yield "approvers", (), "`approvers` has two groups of the same people; write one with a larger `quorum`"
    if groups and 1 < policy.quorum <= sum(group.quorum for group in groups):
        yield "quorum", policy.quorum, "`quorum` asks no more than the groups of `approvers` together; leave it out"
    if groups and policy.route_to is not None:
        yield "route_to", policy.route_to, "`route_to` would ask others than the groups of `approvers`; use one of both"
    placed = {entry for term in policy.terms for group in term.groups for entry in group.of}
    placed |= set(policy.named_approvers) if groups or placed else set()
    both = next((each for each in policy.escalate_to if each in placed), None)
    if both is not None:
        why = f"`escalate_to` names `{both}` of a group, who could fill another group's place; name others"
        yield "escalate_to", both, why
    for asked in (groups, *((*groups, *term.groups) for term in policy.terms)):
        if not can_be_filled(asked):
            why = "the groups of `approvers` ask more people than they name; lower a `quorum`, or name more"
            yield "approvers", (), why


def can_be_filled(groups: Iterable[ApproverGroup]) -> bool:
    """A role may have any number of people, but a named person fills only one place."""
    named = [group for group in groups if all(each.startswith("user:") for each in group.of)]
    people = dict.fromkeys(each for group in named for each in group.of)
    return suffices(0, named, [Voter(each, {each: frozenset((each,))}) for each in people])


def _ineffective_settings(policy: ApprovalPolicy, term: Term) -> Iterator[tuple[str, Any, str]]:
    """Yield settings of a term that change nothing or loosen the policy."""
    own, after = policy.own_terms, term.escalate_after
    tightened = tighten(own, term.as_applied())
    for name, order in ORDERS.items():
        value, least = getattr(term, name), getattr(own, name)
        if value is not None and order.word and getattr(tightened, name) == least:
            yield name, value, f"a term's `{name}` must be {order.word} than the policy's {_shown(least)}"
    if after is not None and not policy.escalate_to:
        yield (
            "escalate_after",
            after,
            "a term has no approvers to escalate to; name them in the policy's own `escalate_to`",
        )
    if after is not None and after >= min(policy.escalate_after or policy.timeout, term.timeout or policy.timeout):
        yield (
            "escalate_after",
            after,
            "a term's `escalate_after` must come before the policy's, and before the deadline",
        )
    wider = next((each for each in term.escalate_to if each not in policy.escalate_to), None)
    if wider is not None:
        why = f"a term can only narrow `escalate_to`, and `{wider}` is not in the policy's own; name them there"
        yield "escalate_to", wider, why


def _shown(value: object) -> str:
    return f"{value:g} seconds" if isinstance(value, float) else f"`{value}`" if isinstance(value, str) else f"{value}"


class GlobalRule(_PolicyData):
    """A rule over all tools: CEL over `tool`, `actor` and `ctx`. `reason` is shown to people."""

    name: Annotated[Name, FieldSpec(unset="its rule")] = ""
    """Its name in verdicts, audit log and messages."""
    rule: Cel
    """CEL over `tool`, `actor` and `ctx`."""
    effect: Literal["hide", "deny", "require_approval"]
    """`hide`, `deny` or `require_approval`. The strictest effect counts. A rule that fails applies."""
    reason: str = ""
    """The reason shown to people and the model."""

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        # Its text is stable where other rules are added or moved, and says in the record which rule it was.
        object.__setattr__(self, "name", self.name or self.rule)
        return self


RequiresApproval: TypeAlias = bool | ApprovalPolicy
"""False never requires approval, True always does. A policy decides."""
