"""Judges every proposed call by the gates in one order. Pure: the same call, context and catalog, the same
decision.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from signoff.approvals.redaction import HIDDEN, hide
from signoff.contracts.activity_messages import Tally
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
from signoff.registry.gates.local_decision import GateName, LocalGateDecision, denied_decision, settled_decision
from signoff.registry.gates.tool_view import ToolView
from signoff.registry.hooks import Permission
from signoff.registry.tool import Tool

UNREMEMBERED_RULES: Final = (REQUESTER_RULE, PERMISSION_RULE)
"""Rules of calls that people are asked about one by one: no answer to them is remembered, and none answers them."""
# No tool can be called so, see `TOOL_NAME_PATTERN`.
_UNNAMEABLE: Final = "?"
_MARK_CHARS: Final = 16
"""Of a call's hash in the tally, which lies in the history with each completion."""
_ACTION_CHARS: Final = 32
"""Of a call's hash by which its denials are counted."""
DRY_RUN_CHARS: Final = 500
"""Characters of one string argument that are repeated."""
_ALL_CHARS: Final = 1_500
"""Characters of all arguments that are repeated: a batch of such calls has to fit into one gate decision."""


@dataclass(frozen=True)
class GateFacts:
    """What the gates cannot find out by themselves; whoever knows nothing lets nothing through that depends on it.

    `unavailable` are names of tools, `backends` the kinds of capability that are there, `permission` the answer of the
    tool's own check to this very call. `spent` says by the ids of calls why their tools may not be used again yet;
    None: nobody has looked. `at` is the instant at which the call is judged; without it rules that read `ctx.now` err.
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

    def settle(self, gate: GateName, code: CallCode, words: Words, tool: Tool | None = None) -> LocalGateDecision:
        return settled_decision(self.call, gate, code, words, tool)


_Early: TypeAlias = Callable[[_Proposal], LocalGateDecision | None]
_Late: TypeAlias = Callable[[_Proposal, Tool], LocalGateDecision | None]


def judge(
    catalog: Catalog,
    ctx: CallContext,
    call: CallPart,
    args: Any,
    tally: Tally,
    *,
    dry_run: bool = False,
    known: GateFacts = NOTHING_KNOWN,
) -> LocalGateDecision:
    """Judges one call by the gates; the first that objects decides. `args` are the call's loaded arguments."""
    view = catalog.tool_view_at(ctx, known.at).without(known.unavailable)
    proposal = _Proposal(catalog, view, call, args, tally, dry_run, known)
    for early in _EARLY:
        if (found := early(proposal)) is not None:
            return found
    # A tool of exactly this name (P06), of several the nearest to where the actor stands (F07). A near name is offered
    # and never executed (X04).
    tool = view.tool(call.tool)
    if tool is None:
        return _not_there(proposal, "resolve")
    for exists in _EXISTING:
        if (found := exists(proposal, tool)) is not None:
            return found
    checked = schema(proposal, tool)
    if isinstance(checked, LocalGateDecision):
        return checked
    return replace(_add_note(checked, _judge_valid(checked, tool)), at=known.at)


def _judge_valid(proposal: _Proposal, tool: Tool) -> LocalGateDecision:
    """Judges a call with valid arguments by the gates after the schema."""
    for late in _LATE:
        if (found := late(proposal, tool)) is not None:
            return found
    return approval(proposal, tool)


def next_tally(tally: Tally, call: CallPart, args: Any, found: LocalGateDecision) -> Tally:
    """Returns the tally with this call counted, whatever became of it. Denials are counted where decisions arrive."""
    key = _tally_key(call)
    mark = action_hash(call, args, found)[:_MARK_CHARS]
    return replace(
        tally,
        calls=tally.calls + 1,
        per_tool={**tally.per_tool, key: tally.per_tool.get(key, 0) + 1},
        recent=(*tally.recent, mark)[-RECENT_CALLS:],
    )


def action_hash(call: CallPart, args: Any, found: LocalGateDecision) -> str:
    """Hashes a judged call's name and arguments; two calls that do the same have the same hash."""
    # What failed at the shape may be impossible to hash: what the model's own text was refused for stands for it.
    if found.gate == "shape":
        return _action(call, call.malformed)
    return _action(call, args if found.tool is None else found.tool.without_remarks(args))


def shape(proposal: _Proposal) -> LocalGateDecision | None:
    """Checks that the arguments are one JSON object of bearable size that RFC 8785 can write."""
    why = shape_problem(proposal.call, proposal.args)
    return proposal.settle("shape", "input_invalid", why) if why else None


def caps(proposal: _Proposal) -> LocalGateDecision | None:
    """Checks the loop caps of one turn (E48)."""
    tally, call = proposal.tally, proposal.call
    tool = proposal.view.tool(call.tool)
    args = proposal.args if tool is None else tool.without_remarks(proposal.args)
    # Before the counts: its arguments were dropped, and it must not be told that it repeats itself.
    if call.surplus:
        return proposal.settle("caps", "too_many_calls", "too many calls in one completion; propose fewer at a time")
    actor = proposal.view.actor
    # An actor's own limit can only be the lower one: the cap is part of what keeps a history within the server's.
    calls = MAX_CALLS if actor is None else min(MAX_CALLS, actor.limits.calls)
    if tally.calls >= calls:
        why = f"this turn has made its {calls} calls; answer with what you have"
    elif tally.per_tool.get(_tally_key(call), 0) >= MAX_CALLS_PER_TOOL:
        why = f"{quote_name(call.tool)} was called {MAX_CALLS_PER_TOOL} times in this turn; do without it"
    elif (equal := tally.recent.count(_action(call, args)[:_MARK_CHARS])) >= MAX_IDENTICAL_CALLS:
        why = f"the same call was made {equal} times among the last {len(tally.recent)} calls; do something else"
    else:
        return None
    # With its tool, so that `action_hash` marks it as this count did.
    return proposal.settle("caps", "too_many_calls", why, tool if tool is not None and tool.remarks else None)


def surface(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Checks that the tool exists where the turn came from (E12); nothing brings back what a surface excludes."""
    view = proposal.view
    if not view.excludes(tool):
        return None
    # The words below tell that the tool exists: only who would have it elsewhere may read them.
    if view.hides(tool) or not view.permits(tool) or not view.sees(tool):
        return _not_there(proposal, "surface")
    return proposal.settle("surface", "not_available", Remark.of("surface", tool=tool.name))


def tag_policy(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Applies the global rules that hide a tool (as if it did not exist) or deny it."""
    if proposal.view.hides(tool):
        return _not_there(proposal, "tag_policy")
    verdict = proposal.view.rules_verdict(tool)
    if verdict.effect != "deny":
        return None
    if not proposal.view.offers(tool):
        # Why it is denied is for those who would have it: to all others it must not even exist.
        return _not_there(proposal, "tag_policy")
    return denied_decision(proposal.call, "tag_policy", _reason(verdict), tool)


def allowlist(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Checks the actor's own list and filters, its capability boundary (B45)."""
    return None if proposal.view.permits(tool) else _not_there(proposal, "allowlist")


def layer(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Checks that the tool is not kept back where the actor stands, by route and step (F05, F12).

    A `tool_filter` that refuses with a reason says it to the model; whatever else keeps a tool back hides it.
    """
    if proposal.view.sees(tool):
        return None
    # After all gates that hide: the author of the words knows that they tell of the tool.
    reason = proposal.view.resolution(tool.name).reason
    if not reason:
        return _not_there(proposal, "layer")
    return proposal.settle("layer", "not_available", f"Tool {tool.name} is not available here: {reason}")


def available(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Checks that the tool is available now, and was when the model was offered its tools."""
    # After all gates that hide: its words name the tool, as does what may be tried in its place.
    if proposal.view.is_available(tool):
        return None
    return proposal.settle("available", "not_available", Remark.of("away", tool=tool.name), tool)


def schema(proposal: _Proposal, tool: Tool) -> LocalGateDecision | _Proposal:
    """Checks the arguments by the input schema, then by the tool's own check, before any policy or person sees them.

    Gives the proposal to go on with: its arguments may be corrected, once.
    """
    checked = check_arguments(tool, proposal.args)
    if checked.corrected is not None:
        args, correction = apply_correction(proposal.args, checked.corrected)
        # They come from a developer's code now: they are digested, kept and shown like those that a model sent, so the
        # first gate looks at them too.
        why = shape_problem(proposal.call, args)
        checked = ArgumentCheck((SchemaProblem("", why),)) if why else check_corrected(tool, args)
        proposal = dataclasses.replace(proposal, args=args, corrected=True, notes=(correction,))
    if checked.problems:
        words = Remark.of("invalid.call", tool=quote_name(tool.name), what=problem_remarks(checked.problems))
        return proposal.settle("schema", "input_invalid", words, tool)
    if not checked.misfits:
        return proposal
    misfit = Remark.of("misfit", what=problem_remarks(checked.misfits))
    return dataclasses.replace(proposal, notes=(*proposal.notes, misfit))


def permission(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Asks the tool's own check whether it permits this call; people may override its denial (X10)."""
    if tool.check_permissions is None:
        return None
    answer = proposal.known.permission
    if answer is None:
        # Settled as it is, it must not pass for a call that came to a good end.
        message = f"nobody has asked whether {quote_name(tool.name)} is permitted"
        return replace(proposal.settle("permission", "refused", message, tool), awaits_permission=True)
    if answer.allowed or _objection(proposal, tool):
        return None
    return denied_decision(proposal.call, "permission", Remark.of("denied", why=answer.why), tool)


def capabilities(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Checks that there is a backend for every capability that the tool declares (E16)."""
    # Whoever knows of no backends has an empty set: the tool does not run with less than it declares (E16).
    missing = [kind for kind in tool.capabilities.kinds if kind not in proposal.known.backends]
    if not missing:
        return None
    words = Remark.of("needs", tool=quote_name(tool.name), names=", ".join(missing))
    return proposal.settle("capabilities", "not_available", words, tool)


def usage(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Checks that the tool may be used once more (F18). The use itself is taken with the ticket of the call."""
    if tool.usage_limit is None:
        return None
    spent = proposal.known.spent
    if spent is None:
        why = f"nobody has looked how often {quote_name(tool.name)} was used; do without it"
    else:
        why = spent.get(proposal.call.call, "")
    return proposal.settle("usage", "not_available", why, tool) if why else None


def dry_run(proposal: _Proposal, tool: Tool) -> LocalGateDecision | None:
    """Ends a dry run with the call that would have been made (E17); nobody is asked, nothing runs."""
    if not proposal.dry_run:
        return None
    return proposal.settle("dry_run", "ok", dry_run_text(tool, proposal.args), tool)


def approval(proposal: _Proposal, tool: Tool) -> LocalGateDecision:
    """Judges the call by the tool's policy, tightened by global rules that require approval."""
    policy = proposal.catalog.policy(tool.activity)
    verdict = proposal.view.verdict(policy, proposal.args)
    bound = proposal.view.bounds_verdict(tool, policy, proposal.args)
    found = by_verdict(proposal.view, proposal.call, tool, verdict, bound, _objection(proposal, tool))
    handler = handler_rule(policy)
    # A handler lifts no denial, so that there is nothing to ask it.
    if handler is None or found.kind == "settled":
        return found
    reasons = (*verdict.reasons, Remark.of("handler"))
    asks = dataclasses.replace(verdict, verdict="ask", rule=handler, rule_text="", reasons=reasons)
    return replace(found, kind="ask", verdict=asks, before_handler=verdict)


def by_verdict(
    view: ToolView, call: CallPart, tool: Tool, verdict: PolicyVerdict, bound: RulesVerdict, objection: str = ""
) -> LocalGateDecision:
    """Judges a call by the verdict of its tool's policy: global rules may still ask, and the actor's `bound` over its
    arguments may deny it as well.

    People are asked in any case where there is an `objection` to override: no rule and no earlier answer does that.
    """
    # Deny first, then whoever asks: an override is of the permission check alone and lifts no policy's denial.
    if verdict.verdict == "deny":
        return replace(denied_decision(call, "approval", verdict.reasons, tool), verdict=verdict)
    if bound.effect == "deny":
        denies = dataclasses.replace(
            verdict, verdict="deny", rule=_reference_to(bound), rule_text=_rule_text(bound), reasons=(bound.why,)
        )
        return replace(denied_decision(call, "approval", _reason(bound), tool), verdict=denies)
    # Rules of the manifest before bounds: both ask, and a question has one rule.
    asking = next((each for each in (view.rules_verdict(tool), bound) if each.effect == "require_approval"), None)
    # A policy that asks anyway keeps its own rule: remembered answers are to that rule, and to no other question.
    if asking is not None and verdict.verdict == "auto":
        named, why = _reference_to(asking), _reason(asking)
        verdict = dataclasses.replace(verdict, verdict="ask", rule=named, rule_text=_rule_text(asking), reasons=(why,))
    if objection:
        reasons = (objection, *verdict.reasons) if verdict.verdict == "ask" else (objection,)
        verdict = dataclasses.replace(verdict, verdict="ask", rule=PERMISSION_RULE, rule_text="", reasons=reasons)
    kind: Literal["run", "ask"] = "run" if verdict.verdict == "auto" else "ask"
    return LocalGateDecision(call=call.call, kind=kind, tool=tool, verdict=verdict, objection=objection)


# Shape before caps, which hash the arguments. Both before the name is resolved, so that a model that guesses names is
# stopped.
_EARLY: Final[tuple[_Early, ...]] = (shape, caps)
# Whether it exists before what is wrong with the arguments: their problems would tell of a hidden tool's schema.
_EXISTING: Final[tuple[_Late, ...]] = (surface, tag_policy, allowlist, layer, available)
# People come last: nobody is asked about what could not run, nor about a dry run.
_LATE: Final[tuple[_Late, ...]] = (permission, capabilities, usage, dry_run)


def _objection(proposal: _Proposal, tool: Tool) -> str:
    """Returns why the permission check would deny the call, where people may let it pass; "" where they need not or
    cannot.
    """
    answer = proposal.known.permission
    if tool.check_permissions is None or answer is None or answer.allowed or not answer.can_override:
        return ""
    # With nobody to ask, the denial is final: a request to no one would only wait for its deadline.
    return answer.why if proposal.catalog.approvers(tool.activity) else ""


def _reference_to(verdict: RulesVerdict) -> RuleReference:
    return RuleReference(kind="global", name="" if verdict.rule is None else verdict.rule.name)


def _rule_text(verdict: RulesVerdict) -> str:
    return "" if verdict.rule is None else verdict.rule.rule


def _reason(verdict: RulesVerdict) -> str:
    """Returns the words of the global rule that decides, or why it decides where it has none."""
    return verdict.rule.reason if verdict.rule is not None and verdict.rule.reason else verdict.why


def _add_note(proposal: _Proposal, found: LocalGateDecision) -> LocalGateDecision:
    if not (proposal.corrected or proposal.notes):
        return found
    corrected = proposal.args if proposal.corrected else None
    return replace(found, corrected=corrected, notes=proposal.notes)


def _not_there(proposal: _Proposal, gate: GateName) -> LocalGateDecision:
    # A hidden tool must read like one that does not exist, and only what the actor may see is offered instead.
    name = proposal.call.tool
    near = did_you_mean(name, (tool.name for tool in proposal.view.visible()))
    actor = proposal.view.actor
    outside = actor is not None and actor.external is not None
    # The words that models know first, then help. Quotes keep what is no tool's name from speaking for us.
    shown = name if is_tool_name(name) else quote_name(name)
    # An external agent has its tools from somewhere else: what counts is what this gateway was told of them.
    given = "use one of the tools you were given" if not outside else "the gateway's manifest declares no such tool"
    message = f"Unknown tool: {shown}{near or f'; {given}'}"
    return proposal.settle(gate, "not_available", message)


def _tally_key(call: CallPart) -> str:
    # With every gate decision the tally lies in history: names that no tool could have, however long, count as one.
    return call.tool if is_tool_name(call.tool) else _UNNAMEABLE


def _action(call: CallPart, args: Any) -> str:
    return sha256_hex([_tally_key(call), args])[:_ACTION_CHARS]


def dry_run_text(tool: Tool, args: Mapping[str, Any]) -> str:
    """Writes the sentence for the model: the tool and its arguments, secret ones hidden and long ones cut."""
    # Hidden before cut: the first 500 characters of a secret are the secret.
    shown = hide(args, tool.masked_arguments, lambda _: HIDDEN)
    # Not as `\u` escapes: the limits count characters, and text that is not English would be cut six times as soon.
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
