"""Combines a policy with the policies that it shadows.

Their requirements count as well, so that the combination can only be stricter.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from signoff.approvals.tightening import ORDERS, tighten
from signoff.contracts.approval import EDIT_MODES, ApproverGroup, EditMode, TermValues
from signoff.contracts.canonical_json import sha256_hex
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, ShownArguments, can_be_filled
from signoff.policy.compiled_policy import CompiledPolicy, PolicyVerdict
from signoff.policy.terms import terms_of

_NEEDS: Final = ("never", "maybe", "always")
_COMBINED_APART: Final = ("groups", "escalate_after", "escalate_to")
_MISFIT: Final = "the tool that this one shadows would not accept these arguments, so the call needs approval"


class UnderlyingPolicy(NamedTuple):
    """A shadowed policy, and a test of arguments against the schema of its own tool."""

    policy: CompiledPolicy
    fits: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class StackedPolicy(CompiledPolicy):
    """A policy over others.

    `policy` has the strictest of all fields, `own` is the nearest as declared.
    """

    own: CompiledPolicy
    below: tuple[UnderlyingPolicy, ...]

    @property
    def reads_now(self) -> bool:
        return self.own.reads_now or any(each.policy.reads_now for each in self.below)

    def judge(
        self, args: Mapping[str, Any], ctx: Mapping[str, Any], actor: Mapping[str, Any] | None = None
    ) -> PolicyVerdict:
        """Return the strictest verdict, or of several that ask, the nearest policy's. Never raises."""
        verdicts = [self.own.judge(args, ctx, actor), *(_of(below, args, ctx, actor) for below in self.below)]
        strictest = next((one for word in ("deny", "ask") for one in verdicts if one.verdict == word), verdicts[0])
        engines = tuple(answer for one in verdicts for answer in one.engines)
        terms = strictest.terms
        if self.policy is not None:
            # Use the approvers of the combination, and the strictest terms. This also applies to `auto`, because
            # another gate may ask.
            applied = [term for one in verdicts for term in one.terms.applied]
            terms = terms_of(self.policy, self.policy.named_approvers or self.default, applied)
        return dataclasses.replace(strictest, policy_hash=self.hash, engines=engines, terms=terms)


def stack_policies(
    own: CompiledPolicy, below: Sequence[UnderlyingPolicy], default: Sequence[str], *, together: bool = False
) -> CompiledPolicy:
    """Combine `own` with the policies `below`.

    `default` are the approvers of policies that name none. With `together`, approvers of each policy must approve if
    `own` names approvers that another policy does not.

    Stack only policies for which `incomparable` returns "". A policy that never asks adds nothing.
    """
    asking = tuple(each for each in below if each.policy.needs_person != "never")
    if not asking:
        return own
    policies = [each.policy for each in asking]
    hashes = [own.hash, *(policy.hash for policy in policies)]
    return StackedPolicy(
        **{each.name: vars(own)[each.name] for each in dataclasses.fields(CompiledPolicy)}
        | {
            "policy": _strictest(own, policies, default, _groups(own, policies, default) if together else ()),
            "needs_person": max((own.needs_person, *(each.needs_person for each in policies)), key=_NEEDS.index),
            # The hash covers all of them: a change of any ends the grants for this tool.
            "hash": sha256_hex({"stacked": hashes}),
        },
        own=own,
        below=asking,
    )


def incomparable(
    own: CompiledPolicy, below: Sequence[CompiledPolicy], default: Sequence[str], *, together: bool = False
) -> str:
    """Return why the strictest of these policies is undefined, with the remedy, or ""."""
    asking = [policy for policy in below if policy.needs_person != "never"]
    if not asking:
        return ""
    for policy in (own, *asking):
        # Approvers must be known at build time: a list computed for each call cannot be intersected with others.
        dynamic = _dynamic(policy.policy, together=together)
        if dynamic:
            return f"a policy with {dynamic} cannot be compared with another; name `approvers` and write rules"
    if together:
        few = not can_be_filled(_groups(own, asking, default))
        return "both together ask more people than they name; lower a `quorum`, or name more" if few else ""
    named, allowed = own.policy.named_approvers if own.policy is not None else (), _common(asking, default)
    strange = next((each for each in named if each not in allowed), None)
    if strange is None and allowed:
        return ""
    known = ", ".join(f"`{each}`" for each in allowed) or "no approver may decide for all of them"
    return f"`{strange}` may not decide there; those who may: {known}" if strange else f"approvers differ: {known}"


def _of(
    below: UnderlyingPolicy, args: Mapping[str, Any], ctx: Mapping[str, Any], actor: Mapping[str, Any] | None
) -> PolicyVerdict:
    verdict = below.policy.judge(args, ctx, actor)
    # That policy was checked against its own tool's schema. For other arguments its `auto` means nothing.
    if verdict.verdict != "auto" or below.fits(args):
        return verdict
    return dataclasses.replace(verdict, verdict="ask", reasons=(_MISFIT,))


def _dynamic(policy: ApprovalPolicy | None, *, together: bool) -> str:
    if policy is None:
        return ""
    fields = (
        ("`handler`", policy.handler),
        ("`route_to`", policy.route_to),
        ("groups in `approvers`", policy.groups and not together),
        ("`terms`", policy.terms and not together),
    )
    return next((name for name, given in fields if given), "")


def _groups(own: CompiledPolicy, below: Sequence[CompiledPolicy], default: Sequence[str]) -> tuple[ApproverGroup, ...]:
    """Return () if one list is enough because each of its names may decide for all."""
    policies = [*((own,) if own.rules.named_approvers and own.needs_person != "never" else ()), *below]
    allowed, declared = _common(below, default), any(each.rules.groups for each in policies)
    if not declared and allowed and all(each in allowed for each in own.rules.named_approvers):
        return ()
    asked: list[TermValues] = []
    for rules in (each.rules for each in policies):
        named = rules.named_approvers or tuple(default)
        asked.append(
            TermValues(groups=rules.groups or ((ApproverGroup(of=named, quorum=rules.quorum),) if named else ()))
        )
    return tighten(TermValues(), *asked).groups


def _common(policies: Sequence[CompiledPolicy], default: Sequence[str]) -> tuple[str, ...]:
    """Keep the order of the first policy."""
    lists = [(each.policy.named_approvers if each.policy is not None else ()) or tuple(default) for each in policies]
    return tuple(each for each in lists[0] if all(each in others for others in lists))


def _strictest(
    own: CompiledPolicy, below: Sequence[CompiledPolicy], default: Sequence[str], groups: tuple[ApproverGroup, ...]
) -> ApprovalPolicy:
    """The rules come from the nearest policy that asks. Each of `groups` must approve."""
    asking = [*(() if own.needs_person == "never" else (own,)), *below]
    policies = [each.rules for each in asking]
    nearest, common = policies[0], _common(below, default)
    # If the nearest policy names no approvers, use the approvers of the policies below.
    approvers = tuple(each for each in nearest.named_approvers if each in common) or common
    terms, remind = tighten(*(each.own_terms for each in policies)), nearest.remind_after
    strict = {name: getattr(terms, name) for name in ORDERS.keys() - _COMBINED_APART} | {
        "level": "admin" if any(each.level == "admin" for each in policies) else "user",
        "approvers": groups or approvers,
        # A quorum within the sum of the groups has no effect.
        "quorum": 1 if terms.quorum <= sum(group.quorum for group in groups) else terms.quorum,
        "terms": tuple(term for each in policies for term in each.terms),
        "veto": any(each.veto for each in policies),
        "require_reason": any(each.require_reason for each in policies),
        "preview_required": any(each.preview_required for each in policies),
        "preview_for": "requester" if all(each.preview_for == "requester" for each in policies) else "approvers",
        "allow_self_approval": all(each.allow_self_approval for each in policies),
        "grant_ttl": min(each.grant_ttl for each in policies),
        # The default is `off` if a tool has effects, which is not known here.
        "edit": None
        if all(each.edit is None for each in policies)
        else min(map(_edit, policies), key=EDIT_MODES.index),
        "accept_unsigned": all(each.accept_unsigned for each in policies),
        "confirm": "type" if any(each.confirm for each in policies) else "",
        "remind_after": remind if remind is not None and remind < terms.timeout else None,
        "while_waiting": "continue" if all(each.while_waiting == "continue" for each in policies) else "wait",
        "allow_remember": all(each.allow_remember for each in policies),
        "show": _combine_shown([each.show for each in policies]),
        "audit": "required" if any(each.audit == "required" for each in policies) else "best_effort",
    }
    # `escalate_to` may decide as well. Unless all policies agree on it, leave it empty.
    if len({(each.escalate_after, each.escalate_to, each.on_timeout, each.timeout) for each in policies}) > 1:
        strict |= {"escalate_after": None, "escalate_to": (), "on_timeout": "deny"}
    stricter: ApprovalPolicy = replace(nearest, **strict)
    return stricter


def _combine_shown(given: Sequence[ShownArguments]) -> ShownArguments:
    """Show the arguments that any policy shows, but mask the arguments that any policy masks."""
    lists = [each.only for each in given if each.only is not None]
    only = tuple(dict.fromkeys(name for names in lists for name in names)) if len(lists) == len(given) else None
    return ShownArguments(only=only, secret=tuple(dict.fromkeys(name for each in given for name in each.secret)))


def _edit(policy: ApprovalPolicy) -> EditMode:
    return policy.edit or "off"
