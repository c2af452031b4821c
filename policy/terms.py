"""The terms under which people are asked about one call: who, how many, how sure, until when."""

from dataclasses import dataclass
from typing import Literal

from signoff.approvals.quorum import people_needed
from signoff.contracts.approval import ApproverGroup
from signoff.contracts.decision import Assurance
from signoff.policy.approval_policy import ApprovalPolicy


@dataclass(frozen=True)
class Terms:
    """The terms of one question. Spans are in seconds from when people are asked.

    `approvers` are everybody who is asked, `groups` the places they have to fill; without groups any of them fills
    any of the `quorum` places.
    """

    approvers: tuple[str, ...] = ()
    groups: tuple[ApproverGroup, ...] = ()
    quorum: int = 1
    min_assurance: Assurance = "channel"
    timeout: float = 86_400.0
    remind_after: float | None = None
    escalate_after: float | None = None
    escalate_to: tuple[str, ...] = ()
    on_timeout: Literal["deny", "escalate"] = "deny"


def terms_of(policy: ApprovalPolicy, approvers: tuple[str, ...]) -> Terms:
    """What a policy asks for of `approvers`: those whom it names, or others that were worked out for this call."""
    routed = approvers != policy.named_approvers
    return Terms(
        approvers=approvers,
        # Others than the policy names are in none of its groups, and as many of them are needed.
        groups=() if routed else policy.groups,
        quorum=people_needed(policy.quorum, policy.groups),
        min_assurance=policy.min_assurance,
        timeout=policy.timeout,
        remind_after=policy.remind_after,
        escalate_after=policy.escalate_after,
        escalate_to=policy.escalate_to,
        on_timeout=policy.on_timeout,
    )
