"""Defines the terms under which people are asked about one call: who, how many, how sure, until when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from signoff.approvals.quorum import people_needed
from signoff.contracts.approval import AppliedTerm, ApproverGroup, Question
from signoff.contracts.decision import ASSURANCES, Assurance, at_least
from signoff.policy.approval_policy import ApprovalPolicy


@dataclass(frozen=True)
class Terms:
    """The terms of one question. Spans are in seconds from when people are asked."""

    approvers: tuple[str, ...] = ()
    """Everybody who is asked: `role:<role>` and `user:<id>`."""
    groups: tuple[ApproverGroup, ...] = ()
    """The places that they fill; without groups any of them fills any of the `quorum` places."""
    quorum: int = 1
    """How many different people have to approve in all."""
    min_assurance: Assurance = "channel"
    """The least assurance that counts."""
    timeout: float = 86_400.0
    """How long it waits for people."""
    remind_after: float | None = None
    """When those who were asked are reminded."""
    escalate_after: float | None = None
    """When those of `escalate_to` may decide too."""
    escalate_to: tuple[str, ...] = ()
    """To whom it is escalated."""
    on_timeout: Literal["deny", "escalate"] = "deny"
    """What the deadline does."""
    asked_first: tuple[str, ...] = ()
    """Whom the policy itself asks, or who was worked out for this call, before any term added others."""
    applied: tuple[AppliedTerm, ...] = ()
    """The stricter terms that apply, in the order of the policy, a handler's last."""

    def are_stricter_than(self, question: Question) -> bool:
        """Returns whether they ask for more than a question did: more people, other groups, surer ones, sooner."""
        groups = {(frozenset(group.of), group.quorum) for group in question.groups}
        added = any((frozenset(group.of), group.quorum) not in groups for group in self.groups)
        weaker = not at_least(question.min_assurance, self.min_assurance)
        return self.quorum > question.quorum or added or weaker or self.timeout < question.timeout


NO_TERMS: Final = Terms()
"""Of who asks nobody."""


def terms_of(policy: ApprovalPolicy, approvers: Sequence[str], applied: Iterable[AppliedTerm] = ()) -> Terms:
    """Computes the terms of a policy for `approvers`, its own or those worked out for this call, as `applied` tightens
    them.

    Of several the strictest holds: largest quorum, strongest assurance, shortest span; all groups are asked.
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
        # Nobody waits any more when it would come.
        remind_after=remind if remind is not None and remind < (after or timeout) else None,
        escalate_after=after,
        escalate_to=to,
        on_timeout=on_timeout,
        asked_first=first,
        applied=stricter,
    )


def tighten_terms(terms: Terms, policy: ApprovalPolicy, more: AppliedTerm) -> Terms:
    """Returns `terms` of `policy` with one more stricter term."""
    return terms_of(policy, terms.asked_first, (*terms.applied, more))


def _groups(
    policy: ApprovalPolicy, first: tuple[str, ...], stricter: Sequence[AppliedTerm]
) -> tuple[ApproverGroup, ...]:
    # Others than the policy names are in none of its groups.
    own = policy.groups if first == policy.named_approvers else ()
    added = [group for each in stricter for group in each.groups]
    if not added:
        return own
    if not own and first:
        # Whom a term asks is asked beside those of the policy, never in their place: else a term could loosen it.
        own = (ApproverGroup(of=first, quorum=policy.people_needed),)
    merged: dict[frozenset[str], ApproverGroup] = {}
    for group in (*own, *added):
        known = merged.get(frozenset(group.of), group)
        merged[frozenset(group.of)] = max(known, group, key=lambda one: one.quorum)
    return tuple(merged.values())


def _escalation(
    policy: ApprovalPolicy, stricter: Sequence[AppliedTerm], timeout: float, groups: Iterable[ApproverGroup]
) -> tuple[float | None, tuple[str, ...], Literal["deny", "escalate"]]:
    """Returns when it is escalated, to whom, and what the deadline does; those alone to whom every term would."""
    lists = [each.escalate_to for each in stricter if each.escalate_to]
    # Whom a route, a handler or the default puts into a group is known for each call only: to let them fill any place
    # would let one group stand for all.
    placed = {entry for group in groups for entry in group.of}
    to = tuple(each for each in policy.escalate_to if each not in placed and all(each in others for others in lists))
    spans = [policy.escalate_after, *(each.escalate_after for each in stricter)]
    after = min((span for span in spans if span is not None and span < timeout), default=None)
    if not to or (after is None and policy.on_timeout == "deny"):
        return None, (), "deny"
    return after, to, policy.on_timeout
