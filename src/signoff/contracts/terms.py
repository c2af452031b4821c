"""The terms of a question: who must approve, how strongly identified, and by when."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from signoff.contracts.decision import ASSURANCES, Assurance
from signoff.contracts.frozen_model import FrozenModel


class ApproverGroup(FrozenModel):
    """A group of approvers with its own quorum. One person fills one place."""

    of: tuple[str, ...]
    """`role:<role>` and `user:<id>`."""
    quorum: int = 1
    """The number of approvals from this group."""


def _stronger(one: Assurance, other: Assurance) -> Assurance:
    return max(one, other, key=ASSURANCES.index)


def _all_groups(one: tuple[ApproverGroup, ...], other: tuple[ApproverGroup, ...]) -> tuple[ApproverGroup, ...]:
    merged: dict[frozenset[str], ApproverGroup] = {}
    for group in (*one, *other):
        previous = merged.get(frozenset(group.of), group)
        merged[frozenset(group.of)] = max(previous, group, key=lambda each: each.quorum)
    return tuple(merged.values())


def _in_both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in one if each in other)


@dataclass(frozen=True)
class Stricter:
    """Orders the values of a term. `None` restricts nothing."""

    of: Callable[[Any, Any], Any]
    """Returns the least value that is as strict as both."""
    word: str = ""
    """A comparative for settings that only change something if they are stricter."""

    def __call__(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one if other is None else other
        return self.of(one, other)


class TermValues(FrozenModel):
    """The terms that can become stricter. The defaults restrict nothing. Times are in seconds since the question."""

    quorum: Annotated[int, Stricter(max, "larger")] = 1
    """The total number of different approvers."""
    groups: Annotated[tuple[ApproverGroup, ...], Stricter(_all_groups)] = ()
    """The groups that approvers must fill. If empty, any approver fills any place."""
    min_assurance: Annotated[Assurance, Stricter(_stronger, "stronger")] = "none"
    """The minimum identification of approvers."""
    timeout: Annotated[float | None, Stricter(min, "shorter")] = None
    """The time to answer."""
    escalate_after: Annotated[float | None, Stricter(min)] = None
    """The time of the escalation."""
    escalate_to: Annotated[tuple[str, ...] | None, Stricter(_in_both)] = None
    """The only approvers that an escalation may add."""


class AppliedTerm(TermValues):
    """A stricter term that applied to one call, with its reason."""

    reason: str = ""
    """The policy's reason, or its condition."""


class Terms(TermValues):
    """All terms of one question."""

    approvers: tuple[str, ...] = ()
    """All approvers, as `role:<role>` and `user:<id>`, including those in `groups`."""
    min_assurance: Assurance = "channel"
    timeout: float = 86_400.0
    """Seconds from the question to its deadline."""
    remind_after: float | None = None
    """Seconds to each reminder. `None`: never."""
    escalate_after: float | None = None
    """Seconds to the escalation. `None`: never."""
    escalate_to: tuple[str, ...] = ()
    """The approver entries that an escalation adds."""
    on_timeout: Literal["deny", "escalate"] = "deny"
    """Whether the deadline denies, or escalates and is extended once, by `timeout`."""

    def alone(self) -> "Terms":
        """Return the terms of a question or verdict without the rest of it."""
        return Terms(**self.by_name())

    def by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Terms.model_fields}
