"""Judges every proposed call by the gates in one order.

Pure: the same call, context and catalog give the same decision.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from signoff.approvals.redaction import HIDDEN, hide
from signoff.contracts.activity_messages import GateDecision, Tally
from signoff.contracts.call import PERMISSION_RULE, REQUESTER_RULE, CallCode, CallContext, RuleReference
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Remark, Words
from signoff.contracts.ids import is_tool_name
from signoff.contracts.limits import MAX_CALLS, MAX_CALLS_PER_TOOL, MAX_IDENTICAL_CALLS, RECENT_CALLS
from signoff.contracts.message import CallPart
from signoff.formats.json_schema import SchemaProblem
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.replace import replace
from signoff.policy.compiled_policy import PolicyVerdict, RulesVerdict
from signoff.policy.handler_verdict import handler_rule
from signoff.registry.catalog import Catalog
from signoff.registry.gates.argument_check import (
    ArgumentCheck,
    apply_correction,
    check_arguments,
    check_corrected,
    problem_remarks,
    shape_problem,
)
from signoff.registry.gates.judged_call import GateName, JudgedCall, denied_decision, settled_decision
from signoff.registry.gates.tool_view import ToolView
from signoff.registry.hooks import Permission
from signoff.registry.tool import Tool

UNREMEMBERED_RULES: Final = (REQUESTER_RULE, PERMISSION_RULE)
"""Rules whose requests need a separate decision each: no grant is made from them, and none answers them."""
# No tool can have this name, see `TOOL_NAME_PATTERN`.
_UNNAMEABLE: Final = "?"
_MARK_CHARS: Final = 16
"""The length of a call's hash in the tally, which is in the history once per completion."""
_ACTION_CHARS: Final = 32
"""The length of a call's hash for counting its denials."""
DRY_RUN_CHARS: Final = 500
"""The maximum length of one string argument in the text."""
_ALL_CHARS: Final = 1_500
"""The maximum length of all arguments in the text: one gate decision holds a batch of such calls."""


@dataclass(frozen=True)
class GateFacts:
    """Facts that the gates cannot compute.

    Without a fact, no call that depends on it passes. `unavailable` holds names of tools, `backends` the available
    kinds of capability. `spent` maps ids of calls to the reason why their tools are used up; `None` if unchecked.
    Without `at`, the instant of the judgement, rules that read `ctx.now` fail.
    """

    unavailable: frozenset[str] = frozenset()
    backends: frozenset[str] = frozenset()
    permission: Permission | None = None
    spent: Mapping[str, str] | None = None
    at: datetime | None = None


NOTHING_KNOWN: Final = GateFacts()


@dataclass(frozen=True)
class _Proposal:
    catalog: Catalog
    view: ToolView
    call: CallPart
    args: Any
    tally: Tally
    dry_run: bool
    known: GateFacts = NOTHING_KNOWN
    corrected: bool = False
    notes: tuple[Words, ...] = ()

    def settle(self, gate: GateName, code: CallCode, words: Words, tool: Tool | None = None) -> JudgedCall:
        return settled_decision(self.call, gate, code, words, tool)


_Early: TypeAlias = Callable[[_Proposal], JudgedCall | None]
_Late: TypeAlias = Callable[[_Proposal, Tool], JudgedCall | None]


def judge(
    catalog: Catalog,
    ctx: CallContext,
    call: CallPart,
    args: Any,
    tally: Tally,
    *,
    dry_run: bool = False,
    known: GateFacts = NOTHING_KNOWN,
) -> JudgedCall:
    """The first objection decides. `args` are the loaded arguments."""
    view = catalog.tool_view_at(ctx, known.at).without(known.unavailable)
    proposal = _Proposal(catalog, view, call, args, tally, dry_run, known)
    for early in _EARLY:
        if (found := early(proposal)) is not None:
            return found
    # Only a tool of exactly this name runs, the one nearest to the actor's position. A similar name is
    # suggested, never executed.
    tool = view.tool(call.tool)
    if tool is None:
        return _not_there(proposal, "resolve")
    for exists in _EXISTING:
        if (found := exists(proposal, tool)) is not None:
            return found
    checked = schema(proposal, tool)
    if isinstance(checked, JudgedCall):
        return checked
    return _add_note(checked, _judge_valid(checked, tool))._replace(at=known.at)


def _judge_valid(proposal: _Proposal, tool: Tool) -> JudgedCall:
    for late in _LATE:
        if (found := late(proposal, tool)) is not None:
            return found
    return approval(proposal, tool)


def next_tally(tally: Tally, call: CallPart, args: Any, found: JudgedCall) -> Tally:
    """Counts the call for any outcome. Denials are counted when decisions arrive."""
    key = _tally_key(call)
    mark = action_hash(call, args, found)[:_MARK_CHARS]
    return replace(
        tally,
        calls=tally.calls + 1,
        per_tool={**tally.per_tool, key: tally.per_tool.get(key, 0) + 1},
        recent=(*tally.recent, mark)[-RECENT_CALLS:],
    )


def action_hash(call: CallPart, args: Any, found: JudgedCall) -> str:
    # Arguments that failed at `shape` may be impossible to hash: hash the reason for the rejection.
    if found.gate == "shape":
        return _action(call, call.malformed)
    return _action(call, args if found.tool is None else found.tool.without_remarks(args))


def shape(proposal: _Proposal) -> JudgedCall | None:
    """Check that the arguments are one JSON object within the size limit that RFC 8785 can encode."""
    why = shape_problem(proposal.call, proposal.args)
    return proposal.settle("shape", "input_invalid", why) if why else None


def caps(proposal: _Proposal) -> JudgedCall | None:
    tally, call = proposal.tally, proposal.call
    tool = proposal.view.tool(call.tool)
    args = proposal.args if tool is None else tool.without_remarks(proposal.args)
    # Check before the counts: these arguments were dropped, so the model must not read that it repeats itself.
    if call.surplus:
        return proposal.settle("caps", "too_many_calls", "too many calls in one completion; propose fewer at a time")
    actor = proposal.view.actor
    # An actor's own limit can only be lower: the cap keeps the history within the server's limit.
    calls = MAX_CALLS if actor is None else min(MAX_CALLS, actor.limits.calls)
    if tally.calls >= calls:
        why = f"this turn has made its {calls} calls; answer with the results so far"
    elif tally.per_tool.get(_tally_key(call), 0) >= MAX_CALLS_PER_TOOL:
        why = f"{quote_name(call.tool)} was called {MAX_CALLS_PER_TOOL} times in this turn; do without it"
    elif (equal := tally.recent.count(_action(call, args)[:_MARK_CHARS])) >= MAX_IDENTICAL_CALLS:
        why = f"the same call was made {equal} times among the last {len(tally.recent)} calls; do something else"
    else:
        return None
    # With its tool, so that `action_hash` hashes it as this count did.
    return proposal.settle("caps", "too_many_calls", why, tool if tool is not None and tool.remarks else None)


def surface(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """Nothing brings back a tool that the surface excludes."""
    view = proposal.view
    if not view.excludes(tool):
        return None
    # The message reveals that the tool exists: only actors that have it elsewhere may read it.
    if view.hides(tool) or not view.permits(tool) or not view.sees(tool):
        return _not_there(proposal, "surface")
    return proposal.settle("surface", "not_available", Remark.of("surface", tool=tool.name))


def tag_policy(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """Apply the global rules that hide a tool (as if it did not exist) or deny it."""
    if proposal.view.hides(tool):
        return _not_there(proposal, "tag_policy")
    verdict = proposal.view.rules_verdict(tool)
    if verdict.effect != "deny":
        return None
    if not proposal.view.offers(tool):
        # Only an actor that would have the tool may read the denial; for others the tool does not exist.
        return _not_there(proposal, "tag_policy")
    return denied_decision(proposal.call, "tag_policy", _reason(verdict), tool)


def allowlist(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """The actor's capability boundary."""
    return None if proposal.view.permits(tool) else _not_there(proposal, "allowlist")


def layer(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """Check that the tool is visible at the actor's route and step.

    A `tool_filter` with a reason shows it to the model. Every other cause hides the tool.
    """
    if proposal.view.sees(tool):
        return None
    # After all gates that hide: the author of the reason knows that it reveals the tool.
    reason = proposal.view.resolution(tool.name).reason
    if not reason:
        return _not_there(proposal, "layer")
    return proposal.settle("layer", "not_available", f"Tool {tool.name} is not available here: {reason}")


def available(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """Check that the tool is available now, and was when the model received its tools."""
    # After all gates that hide: the message names the tool, as its fallbacks do.
    if proposal.view.is_available(tool):
        return None
    return proposal.settle("available", "not_available", Remark.of("away", tool=tool.name), tool)


def schema(proposal: _Proposal, tool: Tool) -> JudgedCall | _Proposal:
    """Check the arguments by schema and by the tool's own check, before any policy or person sees them.

    Returns the proposal to continue with: its arguments may be corrected, once.
    """
    checked = check_arguments(tool, proposal.args)
    if checked.corrected is not None:
        args, correction = apply_correction(proposal.args, checked.corrected)
        # They now come from a developer's code, and are digested, stored and shown like a model's arguments. So the
        # first gate checks them too.
        why = shape_problem(proposal.call, args)
        checked = ArgumentCheck((SchemaProblem("", why),)) if why else check_corrected(tool, args)
        proposal = dataclasses.replace(proposal, args=args, corrected=True, notes=(correction,))
    if checked.problems:
        words = Remark.of("invalid.call", tool=quote_name(tool.name), detail=problem_remarks(checked.problems))
        return proposal.settle("schema", "input_invalid", words, tool)
    if not checked.misfits:
        return proposal
    misfit = Remark.of("misfit", detail=problem_remarks(checked.misfits))
    return dataclasses.replace(proposal, notes=(*proposal.notes, misfit))


def permission(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """Approvers may override a denial of the tool's own check."""
    if tool.check_permissions is None:
        return None
    answer = proposal.known.permission
    if answer is None:
        # If the call is settled here, it must not count as a success.
        message = f"nobody has asked whether {quote_name(tool.name)} is permitted"
        return proposal.settle("permission", "refused", message, tool)._replace(awaits_permission=True)
    if answer.allowed or _objection(proposal, tool):
        return None
    return denied_decision(proposal.call, "permission", Remark.of("denied", why=answer.why), tool)


def capabilities(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    # Without known backends the set is empty: a tool never runs with less than it declares.
    missing = [kind for kind in tool.capabilities.kinds if kind not in proposal.known.backends]
    if not missing:
        return None
    words = Remark.of("needs", tool=quote_name(tool.name), names=", ".join(missing))
    return proposal.settle("capabilities", "not_available", words, tool)


def usage(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    """The ticket of the call takes the use."""
    if tool.usage_limit is None:
        return None
    spent = proposal.known.spent
    if spent is None:
        why = f"the uses of {quote_name(tool.name)} were not counted; do without it"
    else:
        why = spent.get(proposal.call.call, "")
    return proposal.settle("usage", "not_available", why, tool) if why else None


def dry_run(proposal: _Proposal, tool: Tool) -> JudgedCall | None:
    if not proposal.dry_run:
        return None
    return proposal.settle("dry_run", "ok", dry_run_text(tool, proposal.args), tool)


def approval(proposal: _Proposal, tool: Tool) -> JudgedCall:
    """Judge by the tool's policy, tightened by global rules that require approval."""
    policy = proposal.catalog.policy(tool.activity)
    verdict = proposal.view.verdict(policy, proposal.args)
    bound = proposal.view.bounds_verdict(tool, policy, proposal.args)
    found = by_verdict(proposal.view, proposal.call, tool, verdict, bound, _objection(proposal, tool))
    handler = handler_rule(policy)
    # A handler cannot lift a denial: do not run it.
    if handler is None or found.kind == "settled":
        return found
    reasons = (*verdict.reasons, Remark.of("handler"))
    asks = dataclasses.replace(verdict, verdict="ask", rule=handler, rule_text="", reasons=reasons)
    return found.decide(kind="ask")._replace(verdict=asks, before_handler=verdict)


def by_verdict(
    view: ToolView, call: CallPart, tool: Tool, verdict: PolicyVerdict, bound: RulesVerdict, objection: str = ""
) -> JudgedCall:
    """Judge a call by its policy's verdict.

    Global rules may ask, and the actor's `bound` may also deny it. An `objection` always needs approval: no rule and no
    grant overrides it.
    """
    # Deny first: an override lifts only the permission check, never a policy's denial.
    if verdict.verdict == "deny":
        return denied_decision(call, "approval", verdict.reasons, tool)._replace(verdict=verdict)
    if bound.effect == "deny":
        denies = dataclasses.replace(
            verdict, verdict="deny", rule=_reference_to(bound), rule_text=_rule_text(bound), reasons=(bound.why,)
        )
        return denied_decision(call, "approval", _reason(bound), tool)._replace(verdict=denies)
    # Rules of the manifest before bounds: both may ask, but a request has one rule.
    asking = next((each for each in (view.rules_verdict(tool), bound) if each.effect == "require_approval"), None)
    # A policy that asks anyway keeps its own rule: grants belong to that rule.
    if asking is not None and verdict.verdict == "auto":
        named, why = _reference_to(asking), _reason(asking)
        verdict = dataclasses.replace(verdict, verdict="ask", rule=named, rule_text=_rule_text(asking), reasons=(why,))
    if objection:
        reasons = (objection, *verdict.reasons) if verdict.verdict == "ask" else (objection,)
        verdict = dataclasses.replace(verdict, verdict="ask", rule=PERMISSION_RULE, rule_text="", reasons=reasons)
    kind: Literal["run", "ask"] = "run" if verdict.verdict == "auto" else "ask"
    return JudgedCall(GateDecision(call=call.call, kind=kind), tool, verdict, objection=objection)


# `shape` before `caps`, which hashes the arguments. Both before the name is resolved, so that a model that guesses
# names reaches its limit.
_EARLY: Final[tuple[_Early, ...]] = (shape, caps)
# Existence before arguments: argument problems would reveal a hidden tool's schema.
_EXISTING: Final[tuple[_Late, ...]] = (surface, tag_policy, allowlist, layer, available)
# Approvers come last: never ask about a call that could not run, or about a dry run.
_LATE: Final[tuple[_Late, ...]] = (permission, capabilities, usage, dry_run)


def _objection(proposal: _Proposal, tool: Tool) -> str:
    """Return the reason of the permission check if approvers may override its denial, or ""."""
    answer = proposal.known.permission
    if tool.check_permissions is None or answer is None or answer.allowed or not answer.can_override:
        return ""
    # Without approvers the denial is final: a request would only wait for its deadline.
    return answer.why if proposal.catalog.approvers(tool.activity) else ""


def _reference_to(verdict: RulesVerdict) -> RuleReference:
    return RuleReference(kind="global", name="" if verdict.rule is None else verdict.rule.name)


def _rule_text(verdict: RulesVerdict) -> str:
    return "" if verdict.rule is None else verdict.rule.rule


def _reason(verdict: RulesVerdict) -> str:
    return verdict.rule.reason if verdict.rule is not None and verdict.rule.reason else verdict.why


def _add_note(proposal: _Proposal, found: JudgedCall) -> JudgedCall:
    if not (proposal.corrected or proposal.notes):
        return found
    corrected = proposal.args if proposal.corrected else None
    return found._replace(corrected=corrected, notes=proposal.notes)


def _not_there(proposal: _Proposal, gate: GateName) -> JudgedCall:
    # A hidden tool must look like a missing one. Suggest only tools that the actor can see.
    name = proposal.call.tool
    near = did_you_mean(name, (tool.name for tool in proposal.view.visible()))
    actor = proposal.view.actor
    outside = actor is not None and actor.external is not None
    # Start with the text that models know, then help. Quotes keep an invalid name from posing as our text.
    shown = name if is_tool_name(name) else quote_name(name)
    # An external agent has its tools from elsewhere: only the gateway's declarations count here.
    given = "use one of the tools you were given" if not outside else "the gateway's manifest declares no such tool"
    message = f"Unknown tool: {shown}{near or f'; {given}'}"
    return proposal.settle(gate, "not_available", message)


def _tally_key(call: CallPart) -> str:
    # The history holds the tally of each decision. All names that no tool can have count as one.
    return call.tool if is_tool_name(call.tool) else _UNNAMEABLE


def _action(call: CallPart, args: Any) -> str:
    return sha256_hex([_tally_key(call), args])[:_ACTION_CHARS]


def dry_run_text(tool: Tool, args: Mapping[str, Any]) -> str:
    """Masks secrets and cuts long values."""
    # Mask before cutting: the first 500 characters of a secret are a secret.
    shown = hide(args, tool.masked_arguments, lambda _: HIDDEN)
    # Without `\u` escapes: limits count characters, and non-English text would be cut six times earlier.
    written = json.dumps(_shorten(shown), ensure_ascii=False)
    written = written if len(written) <= _ALL_CHARS else f"{written[:_ALL_CHARS]}...[truncated, {len(written)} chars]"
    return f"[dry-run] {tool.name} would be called with: {written}"


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shorten(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    if isinstance(value, str) and len(value) > DRY_RUN_CHARS:
        return f"{value[:DRY_RUN_CHARS]}...[truncated, {len(value)} chars]"
    return value
