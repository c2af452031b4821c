"""Derives the terms of a question from a policy and the stricter terms of a call."""

from collections.abc import Iterable, Sequence
from typing import Final

from signoff.approvals.quorum import people_needed
from signoff.approvals.tightening import tighten
from signoff.contracts.approval import AppliedTerm, ApproverGroup, Terms
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy


class VerdictTerms(Terms):
    """The terms of a verdict, with their origin."""

    asked_first: tuple[str, ...] = ()
    """The approvers of the policy, or computed for this call, before any term adds others."""
    applied: tuple[AppliedTerm, ...] = ()
    """In the policy's order, followed by the handler's."""


NO_TERMS: Final = VerdictTerms()
"""The terms of a policy that never asks."""


def terms_of(policy: ApprovalPolicy, approvers: Sequence[str], applied: Iterable[AppliedTerm] = ()) -> VerdictTerms:
    """Tighten a policy's terms by `applied`. `approvers` are its own or those computed for this call.

    All groups are required.
    """
    first, stricter = tuple(approvers), tuple(applied)
    own = policy.own_terms.by_name() | {"groups": _own_groups(policy, first, stricter)}
    return _settle(tighten(VerdictTerms(**own, asked_first=first, applied=stricter), *stricter))


def add_term(terms: VerdictTerms, policy: ApprovalPolicy, more: AppliedTerm) -> VerdictTerms:
    return terms_of(policy, terms.asked_first, (*terms.applied, more))


def _own_groups(
    policy: ApprovalPolicy, first: tuple[str, ...], stricter: Sequence[AppliedTerm]
) -> tuple[ApproverGroup, ...]:
    # Approvers that the policy does not name are in none of its groups.
    own = policy.groups if first == policy.named_approvers else ()
    if own or not first or not any(each.groups for each in stricter):
        return own
    # The approvers of a term are asked in addition to the policy's, never instead of them: otherwise a term could
    # loosen the policy.
    return (ApproverGroup(of=first, quorum=policy.people_needed),)


def _settle(terms: VerdictTerms) -> VerdictTerms:
    """Adapt approvers, quorum, reminder and escalation to the groups and the deadline."""
    placed = tuple(entry for group in terms.groups for entry in group.of)
    # Which approvers a route, a handler or the default puts into a group is known only for each call. If they could
    # fill any place, one group could stand in for all.
    to = tuple(each for each in terms.escalate_to if each not in placed)
    after = terms.escalate_after
    after = after if to and after is not None and after < terms.timeout else None
    escalates = bool(to) and (after is not None or terms.on_timeout == "escalate")
    remind = terms.remind_after
    return replace(
        terms,
        approvers=tuple(dict.fromkeys((*terms.asked_first, *placed))),
        quorum=people_needed(terms.quorum, terms.groups),
        # Drop a reminder that would come after the wait.
        remind_after=remind if remind is not None and remind < (after or terms.timeout) else None,
        escalate_after=after,
        escalate_to=to if escalates else (),
        on_timeout=terms.on_timeout if escalates else "deny",
    )
