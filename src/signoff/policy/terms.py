"""Defines the terms of a question."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from signoff.approvals.quorum import people_needed
from signoff.contracts.approval import AppliedTerm, ApproverGroup, Question
from signoff.contracts.decision import ASSURANCES, Assurance, at_least
from signoff.policy.approval_policy import ApprovalPolicy


@dataclass(frozen=True)
class Terms:
    """The terms of one question. Times are in seconds since the question."""

    approvers: tuple[str, ...] = ()
    groups: tuple[ApproverGroup, ...] = ()
    """Without groups, any approver fills any place of the `quorum`."""
    quorum: int = 1
    min_assurance: Assurance = "channel"
    timeout: float = 86_400.0
    remind_after: float | None = None
    escalate_after: float | None = None
    escalate_to: tuple[str, ...] = ()
    on_timeout: Literal["deny", "escalate"] = "deny"
    asked_first: tuple[str, ...] = ()
    """The approvers of the policy, or computed for this call, before any term adds others."""
    applied: tuple[AppliedTerm, ...] = ()
    """In the policy's order, followed by the handler's."""

    def are_stricter_than(self, question: Question) -> bool:
        """Compare approvers, groups, assurance and deadline."""
        groups = {(frozenset(group.of), group.quorum) for group in question.groups}
        added = any((frozenset(group.of), group.quorum) not in groups for group in self.groups)
        weaker = not at_least(question.min_assurance, self.min_assurance)
        return self.quorum > question.quorum or added or weaker or self.timeout < question.timeout


NO_TERMS: Final = Terms()
"""The terms of a policy that never asks."""


def terms_of(policy: ApprovalPolicy, approvers: Sequence[str], applied: Iterable[AppliedTerm] = ()) -> Terms:
    """Tighten a policy's terms by `applied`. `approvers` are its own or those computed for this call.

    Of several values the strictest counts: the largest quorum, the highest assurance, the shortest time. All groups are
    required.
    """
    first, stricter = tuple(approvers), tuple(applied)
    groups = _groups(policy, first, stricter)
    timeout = min((policy.timeout, *(each.timeout for each in stricter if each.timeout is not None)))
    after, to, on_timeout = _escalation(policy, stricter, timeout, groups)
    remind = policy.remind_after
    return Terms(
        approvers=tuple(dict.fromkeys((*first, *(entry for group in groups for entry in group.of)))),
        groups=groups,
        quorum=people_needed(max(policy.people_needed, *(each.quorum for each in stricter), 1), groups),
        min_assurance=max((policy.min_assurance, *(each.min_assurance for each in stricter)), key=ASSURANCES.index),
        timeout=timeout,
        # Drop a reminder that would come after the wait.
        remind_after=remind if remind is not None and remind < (after or timeout) else None,
        escalate_after=after,
        escalate_to=to,
        on_timeout=on_timeout,
        asked_first=first,
        applied=stricter,
    )


def tighten_terms(terms: Terms, policy: ApprovalPolicy, more: AppliedTerm) -> Terms:
    return terms_of(policy, terms.asked_first, (*terms.applied, more))


def _groups(
    policy: ApprovalPolicy, first: tuple[str, ...], stricter: Sequence[AppliedTerm]
) -> tuple[ApproverGroup, ...]:
    # Approvers that the policy does not name are in none of its groups.
    own = policy.groups if first == policy.named_approvers else ()
    added = [group for each in stricter for group in each.groups]
    if not added:
        return own
    if not own and first:
        # The approvers of a term are asked in addition to the policy's, never instead of them: otherwise a term could
        # loosen the policy.
        own = (ApproverGroup(of=first, quorum=policy.people_needed),)
    merged: dict[frozenset[str], ApproverGroup] = {}
    for group in (*own, *added):
        previous = merged.get(frozenset(group.of), group)
        merged[frozenset(group.of)] = max(previous, group, key=lambda one: one.quorum)
    return tuple(merged.values())


def _escalation(
    policy: ApprovalPolicy, stricter: Sequence[AppliedTerm], timeout: float, groups: Iterable[ApproverGroup]
) -> tuple[float | None, tuple[str, ...], Literal["deny", "escalate"]]:
    """Return the time and approvers of the escalation, and the effect of the deadline.

    Only approvers that every term allows are included.
    """
    lists = [each.escalate_to for each in stricter if each.escalate_to]
    # Which approvers a route, a handler or the default puts into a group is known only for each call. If they could
    # fill any place, one group could stand in for all.
    placed = {entry for group in groups for entry in group.of}
    to = tuple(each for each in policy.escalate_to if each not in placed and all(each in others for others in lists))
    spans = [policy.escalate_after, *(each.escalate_after for each in stricter)]
    after = min((span for span in spans if span is not None and span < timeout), default=None)
    if not to or (after is None and policy.on_timeout == "deny"):
        return None, (), "deny"
    return after, to, policy.on_timeout
