"""Defines policies as data, as a tool's declaration or the manifest gives them."""

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
from signoff.contracts.approval import AppliedTerm, ApproverGroup, EditMode
from signoff.contracts.decision import ASSURANCES, Assurance
from signoff.contracts.errors import ConfigError
from signoff.formats.declared_fields import FieldSpec
from signoff.formats.durations import Seconds
from signoff.formats.nearest_name import KEYS_LISTED

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
    """Parses one of `approvers`: a name, or a mapping of how many of whom."""
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
    return "a group" if isinstance(entry, ApproverGroup | Mapping) else "a name"


MAX_QUORUM: Final = 50
Cel = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Approver = Annotated[str, AfterValidator(_approver)]
Group = Annotated[ApproverGroup, BeforeValidator(_group)]
Asked = Annotated[Annotated[Approver, Tag("a name")] | Annotated[Group, Tag("a group")], Discriminator(_entry)]
"""Who is asked: by name, or so many of several."""
Reference = Annotated[str, AfterValidator(_reference)]
Name = Annotated[str, StringConstraints(min_length=1)]


@cache
def _names(cls: type[BaseModel]) -> Mapping[str, str]:
    return {to_camel(name): name for name in cls.model_fields}


def _one_spelling(cls: type[BaseModel], data: Mapping[Any, Any]) -> dict[str, Any]:
    names = _names(cls)
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
    """Returns why a field cannot have this value, where more is to be said than which values it can have."""
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
    """The base of policies: frozen, closed, in snake_case or camelCase; a mistake is one `ConfigError` that names the
    field.
    """

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


class ShownArguments(_PolicyData):
    """Selects the arguments that the card shows."""

    only: tuple[Name, ...] | None = None
    """These arguments and no others.

    None: all.
    """
    secret: tuple[Name, ...] = ()
    """Arguments that are masked.

    The digest still covers them.
    """


class Term(_PolicyData):
    """Stricter terms for some calls: they are added to those of the policy, and never loosen them.

    Building one raises `ConfigError` with `field` and `value`.
    """

    quorum: Annotated[StrictInt, Field(ge=2, le=MAX_QUORUM)] | None = None
    """How many different people must approve in all."""
    approvers: tuple[Asked, ...] = ()
    """Who must approve as well: `role:<role>` and `user:<id>`, or groups of them."""
    min_assurance: Assurance | None = None
    """The least assurance that counts."""
    timeout: Seconds | None = None
    """How long it waits for people."""
    escalate_after: Seconds | None = None
    """When those of the policy's `escalate_to` may decide too."""
    escalate_to: tuple[Approver, ...] = ()
    """To whom alone of the policy's `escalate_to`."""
    reason: str = ""
    """Why, for people: `it is the weekend`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        values = (self.quorum, self.min_assurance, self.timeout, self.escalate_after)
        if not (any(each is not None for each in values) or self.approvers or self.escalate_to):
            raise ConfigError(
                "a term of `terms` changes nothing; give it a `quorum`, `approvers`, `min_assurance`, a `timeout` or "
                "an escalation",
                field="terms",
                value=self.reason,
            )
        return self

    @property
    def groups(self) -> tuple[ApproverGroup, ...]:
        """The groups it asks as well: its own, or one of its approvers."""
        names = tuple(dict.fromkeys(each for each in self.approvers if isinstance(each, str)))
        listed = (ApproverGroup(of=names),) if names else ()
        return (*listed, *(each for each in self.approvers if isinstance(each, ApproverGroup)))

    def as_applied(self, reason: str = "") -> AppliedTerm:
        """Returns the term as it lies in a question; `reason` where it has no words of its own."""
        return AppliedTerm(
            reason=self.reason or reason,
            quorum=self.quorum or 1,
            groups=self.groups,
            min_assurance=self.min_assurance or "none",
            timeout=self.timeout,
            escalate_after=self.escalate_after,
            escalate_to=self.escalate_to,
        )


class TermRule(Term):
    """Stricter terms for the calls of which `when` is true, or cannot be known to be false."""

    when: Cel
    """CEL over `args`, `ctx`, `actor` and `tool`: it applies unless both engines say false."""


def _mode(value: object) -> object:
    # YAML reads a bare `off` as false.
    return "off" if value is False else value


class ApprovalPolicy(_PolicyData):
    """When a call needs people, which people, and for how long their answer holds.

    Expressions are CEL over `args`, `ctx`, `actor` and `tool`. Spans are seconds from when people are asked, unless
    said otherwise. Building one raises `ConfigError` with `field` and `value`.
    """

    auto_approve_if: Annotated[Cel | None, FieldSpec(unset="never")] = None
    """CEL: ask nobody when it is true.

    Both engines must say so.
    """
    deny_if: Annotated[Cel | None, FieldSpec(unset="never")] = None
    """CEL: never run when it is true.

    One engine is enough.
    """
    require_approval_if: Annotated[Cel | None, FieldSpec(unset="never")] = None
    """CEL: ask when it is true, whatever `auto_approve_if` says."""
    level: Literal["user", "admin"] = "user"
    """`admin` is short for `approvers: [role:admin]`."""
    approvers: Annotated[tuple[Asked, ...], FieldSpec(unset="`defaults.approvers`")] = ()
    """`role:<role>` and `user:<id>`, or groups of them with a quorum each.

    Any name fills any place of the quorum. Each of the [groups](approvals.md#quorum-and-groups), such as
    `{of: role:legal, quorum: 1}`, needs people of its own.
    """
    route_to: Cel | None = None
    """CEL that gives a list of approvers for this call.

    They are asked also where a global rule or a permission check asks.
    """
    quorum: Annotated[StrictInt, Field(ge=1, le=MAX_QUORUM)] = 1
    """How many different people must approve."""
    # Strict: pydantic would read the texts `off` and `no` as false, and 1 as true; a slip must not loosen a policy.
    veto: StrictBool = True
    """One denial ends it."""
    require_reason: StrictBool = False
    """A denial counts only with a reason.

    [approvals.md](approvals.md#quorum-and-groups).
    """
    allow_self_approval: StrictBool = False
    """The requester may decide."""
    timeout: Seconds = 86_400.0
    """How long it waits for people; then it is denied."""
    grant_ttl: Seconds = 86_400.0
    """How long an approval is good for before the call begins, from the answer that completed it."""
    edit: Annotated[
        Annotated[EditMode, BeforeValidator(_mode)] | None, FieldSpec(unset="`off`, `approve` for `read_only` tools")
    ] = None
    """Whether approvers may change the arguments: `off`, `propose` (others decide it) or `approve`.

    Changed arguments are checked, judged and asked about again. With `propose`, the author of a change may decide it no
    more than the requester may. With `approve`, the change is their yes.
    """
    min_assurance: Assurance = "channel"
    """The least assurance that counts."""
    accept_unsigned: StrictBool = False
    """Take answers that name nobody."""
    confirm: Annotated[Literal["", "type"], FieldSpec(unset="off")] = ""
    """`type`: the approver types a value of the card again."""
    show: Annotated[ShownArguments, FieldSpec(unset="all")] = ShownArguments()
    """Which arguments the card shows, and which it masks.

    `only: [...]` limits the card's arguments, `secret: [...]` masks some.
    """
    handler: Reference | None = None
    """`module:function` that answers after the rules.

    [Below](#handlers-of-policies).
    """
    remind_after: Annotated[Seconds | None, FieldSpec(unset="never")] = None
    """When those who were asked are reminded."""
    escalate_after: Annotated[Seconds | None, FieldSpec(unset="never")] = None
    """When those of `escalate_to` may decide too.

    After `remind_after`, before `timeout`.
    """
    escalate_to: tuple[Approver, ...] = ()
    """`role:<role>` and `user:<id>`.

    They decide from the escalation on, beside those asked first.
    """
    on_timeout: Literal["deny", "escalate"] = "deny"
    """What the deadline does; never does it approve.

    `escalate`: `escalate_to` is asked at the deadline, which moves once by `timeout`. Then the call is denied.
    """
    while_waiting: Literal["wait", "continue"] = "wait"
    """`continue`: the model goes on while people decide, and is told the outcome when it is there.

    [approvals.md](approvals.md#continue-while-approvers-decide).
    """
    allow_remember: StrictBool = False
    """Approvers may have their answer remembered for the next calls like this."""
    audit: Literal["required", "best_effort"] = "required"
    """Whether a call runs without its record.

    `required`: it does not. `best_effort`: it does, where only the record cannot be written.
    """
    notify: Annotated[tuple[Name, ...] | None, FieldSpec(unset="`routing.default`")] = None
    """Channels by which people are reached beside the inbox, in order.

    `[]`: none.
    """
    terms: tuple[TermRule, ...] = ()
    """Stricter terms for some calls.

    Each is `{when: CEL, quorum, approvers, min_assurance, timeout, escalate_after, escalate_to, reason}`. It applies
    unless both engines say false. [approvals.md](approvals.md#stricter-terms).
    """

    @model_validator(mode="after")
    def _can_come_to_pass(self) -> Self:
        for name, value, why in _impossible(self):
            raise ConfigError(why, field=name, value=value)
        return self

    def edit_mode(self, *, read_only: bool) -> EditMode:
        """Returns `edit`, or the default: nobody rewrites a call that has effects."""
        return self.edit or ("approve" if read_only else "off")

    @property
    def named_approvers(self) -> tuple[str, ...]:
        """Returns everybody of `approvers`, or those of `level: admin`; () leaves it to the tenant's default."""
        if self.approvers or self.level == "user":
            named = (each.of if isinstance(each, ApproverGroup) else (each,) for each in self.approvers)
            return tuple(dict.fromkeys(entry for entries in named for entry in entries))
        return ("role:admin",)

    @property
    def groups(self) -> tuple[ApproverGroup, ...]:
        """Returns the groups of `approvers`; () where any of them fills any place."""
        return tuple(each for each in self.approvers if isinstance(each, ApproverGroup))

    @property
    def later_approvers(self) -> tuple[str, ...]:
        """The approvers it may ask beside those it names: by a term, or by an escalation."""
        added = (entry for term in self.terms for group in term.groups for entry in group.of)
        return tuple(dict.fromkeys((*added, *self.escalate_to)))

    @property
    def people_needed(self) -> int:
        """Returns how many different people have to approve."""
        return people_needed(self.quorum, self.groups)


def _impossible(policy: ApprovalPolicy) -> Iterator[tuple[str, Any, str]]:
    """Yields each setting of a policy that could never take effect: the field, its value, why and the remedy."""
    yield from _impossible_groups(policy)
    for number, term in enumerate(policy.terms):
        for name, value, why in _ineffective_settings(policy, term):
            yield f"terms.{number}.{name}", value, why
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
    if groups and len(groups) < len(policy.approvers):
        yield "approvers", (), "`approvers` has names beside groups; write each as a group, such as `{of: role:legal}`"
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
        why = f"`escalate_to` names `{both}`, who is in a group: they could fill the place of the others; name others"
        yield "escalate_to", both, why
    for asked in (groups, *((*groups, *term.groups) for term in policy.terms)):
        if not _can_be_filled(asked):
            why = "the groups of `approvers` ask more people than they name; lower a `quorum`, or name more"
            yield "approvers", (), why


def _can_be_filled(groups: Iterable[ApproverGroup]) -> bool:
    """Returns whether there can be so many people: of a role any number, while who is named is one, and fills one
    place.
    """
    named = [group for group in groups if all(each.startswith("user:") for each in group.of)]
    people = dict.fromkeys(each for group in named for each in group.of)
    return suffices(0, named, [Voter(each, {each: frozenset((each,))}) for each in people])


def _ineffective_settings(policy: ApprovalPolicy, term: Term) -> Iterator[tuple[str, Any, str]]:
    """Yields each setting of a term that changes nothing, or loosens the policy: field, value, why and the remedy."""
    quorum, sure, timeout, after = term.quorum, term.min_assurance, term.timeout, term.escalate_after
    if quorum is not None and quorum <= policy.people_needed:
        yield "quorum", quorum, f"a term's `quorum` must be larger than the policy's {policy.people_needed}"
    if sure is not None and ASSURANCES.index(sure) <= ASSURANCES.index(policy.min_assurance):
        yield "min_assurance", sure, f"a term's `min_assurance` must be stronger than `{policy.min_assurance}`"
    if timeout is not None and timeout >= policy.timeout:
        yield "timeout", timeout, f"a term's `timeout` must be shorter than the policy's {policy.timeout:g} seconds"
    if after is not None and not policy.escalate_to:
        yield "escalate_after", after, "a term escalates to nobody; name them in the policy's own `escalate_to`"
    if after is not None and after >= min(policy.escalate_after or policy.timeout, timeout or policy.timeout):
        yield (
            "escalate_after",
            after,
            "a term's `escalate_after` must come before the policy's, and before the deadline",
        )
    wider = next((each for each in term.escalate_to if each not in policy.escalate_to), None)
    if wider is not None:
        why = f"a term can only narrow `escalate_to`, and `{wider}` is not in the policy's own; name them there"
        yield "escalate_to", wider, why


class GlobalRule(_PolicyData):
    """One rule over all tools: CEL over `tool`, `actor` and `ctx`. `reason` is for people to read."""

    name: Name
    """Names the rule in verdicts, the record and texts for people.

    Each name is used once. Any text is a name: a verdict says beside it
    [what kind of rule](approvals.md#the-rule-of-a-call) it is.
    """
    rule: Cel
    """CEL over `tool`, `actor` and `ctx`."""
    effect: Literal["hide", "deny", "require_approval"]
    """What becomes of the tool where the rule is true: `hide` (as if it did not exist), `deny` or `require_approval`.

    The strictest that applies counts; a rule that fails applies.
    """
    reason: str = ""
    """For people and the model."""


RequiresApproval: TypeAlias = bool | ApprovalPolicy
"""False: never asks. True: always asks. A policy: as it says."""
