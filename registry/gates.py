"""The one order of gates for every proposed call. Pure: the same call, context and catalog, the same judgement."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from signoff.contracts.call import CallCode, Pinned, ToolDenied
from signoff.contracts.canonical import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.ids import is_tool_name
from signoff.contracts.limits import ARGUMENTS_BYTES, KIB, MAX_CALLS, MAX_CALLS_PER_TOOL, MAX_IDENTICAL_CALLS
from signoff.contracts.message import CallPart
from signoff.contracts.steps import Tally
from signoff.policy.bounds import out_of_bounds
from signoff.policy.compiled import PolicyVerdict
from signoff.policy.handler import handler_rule
from signoff.registry.catalog import Catalog
from signoff.registry.nearest import did_you_mean, shown
from signoff.registry.schema import Problem
from signoff.registry.tool import Tool
from signoff.registry.visibility import Sight

GateName: TypeAlias = Literal["shape", "caps", "resolve", "tag_policy", "allowlist", "schema", "dry_run", "approval"]

PROBLEMS_TOLD: Final = 5
DRY_RUN_CHARS: Final = 500
"""Characters of one string argument that a dry run repeats (E17)."""
DOUBTED_RULE: Final = "requester"
"""The rule of a call that people are asked about because nobody is sure who the requester is."""
_UNNAMEABLE: Final = "?"


@dataclass(frozen=True)
class Judgement:
    """What the gates say of one call.

    `run`: nobody need be asked. `ask`: people must be asked, `verdict` says why. `settled`: `code` and `message`
    are its outcome, decided by `gate`. `message` is for the model; `denied_reason` why a policy denied, `denied` who
    did if no policy. `grant` is the id of the remembered answer by which it runs. `unheard` is what the rules say
    where the policy's handler is yet to be asked: whoever does not ask it asks people.
    """

    call: str
    kind: Literal["run", "ask", "settled"]
    gate: GateName
    code: CallCode = "ok"
    message: str = ""
    tool: Tool | None = None
    verdict: PolicyVerdict | None = None
    denied_reason: str = ""
    denied: ToolDenied | None = None
    grant: str = ""
    unheard: PolicyVerdict | None = None


@dataclass(frozen=True)
class _Proposal:
    catalog: Catalog
    sight: Sight
    call: CallPart
    args: Any
    tally: Tally
    dry_run: bool

    def settled(self, gate: GateName, code: CallCode, message: str, tool: Tool | None = None) -> Judgement:
        return Judgement(self.call.call, "settled", gate, code, message, tool)


_Early: TypeAlias = Callable[[_Proposal], Judgement | None]
_Late: TypeAlias = Callable[[_Proposal, Tool], Judgement | None]


def judge(
    catalog: Catalog, ctx: Pinned, call: CallPart, args: Any, tally: Tally, *, dry_run: bool = False
) -> Judgement:
    """Send one call through the gates; the first that objects decides. `args` are the call's loaded arguments."""
    proposal = _Proposal(catalog, catalog.sight(ctx), call, args, tally, dry_run)
    for early in _EARLY:
        if (found := early(proposal)) is not None:
            return found
    tool = catalog.registry.resolve(call.tool)
    if tool is None:
        return _not_there(proposal, "resolve")
    for late in _LATE:
        if (found := late(proposal, tool)) is not None:
            return found
    return approval(proposal, tool)


def next_tally(tally: Tally, call: CallPart, args: Any, judgement: Judgement) -> Tally:
    """The tally with this call counted, whatever became of it. Denials are counted where decisions arrive."""
    key = _tally_key(call)
    action = _action(call, args) if judgement.gate != "shape" else _action(call, call.malformed)
    return tally.model_copy(
        update={
            "calls": tally.calls + 1,
            "per_tool": {**tally.per_tool, key: tally.per_tool.get(key, 0) + 1},
            "last_action": action,
            "identical": tally.identical + 1 if action == tally.last_action else 1,
        }
    )


def shape(proposal: _Proposal) -> Judgement | None:
    """Gate 1: the arguments are one JSON object of bearable size that RFC 8785 can write."""
    why = _misshapen(proposal.call, proposal.args)
    return proposal.settled("shape", "input_invalid", why) if why else None


def caps(proposal: _Proposal) -> Judgement | None:
    """Gate 2: the loop caps of one turn (E48)."""
    tally, call = proposal.tally, proposal.call
    if call.surplus:
        return proposal.settled("caps", "too_many_calls", "too many calls in one completion; propose fewer at a time")
    actor = proposal.sight.actor
    calls = MAX_CALLS if actor is None else min(MAX_CALLS, actor.limits.calls)
    if tally.calls >= calls:
        why = f"this turn has made its {calls} calls; answer with what you have"
    elif tally.per_tool.get(_tally_key(call), 0) >= MAX_CALLS_PER_TOOL:
        why = f"{shown(call.tool)} was called {MAX_CALLS_PER_TOOL} times in this turn; do without it"
    elif tally.identical >= MAX_IDENTICAL_CALLS and tally.last_action == _action(call, proposal.args):
        why = f"this is the same call for the {tally.identical + 1}th time in a row; do something else"
    else:
        return None
    return proposal.settled("caps", "too_many_calls", why)


def resolve(proposal: _Proposal) -> Judgement | None:
    """Gate 3: a tool of exactly this name exists (P06); a near name is offered, never executed (X04)."""
    found = proposal.catalog.registry.resolve(proposal.call.tool)
    return _not_there(proposal, "resolve") if found is None else None


def tag_policy(proposal: _Proposal, tool: Tool) -> Judgement | None:
    """Gate 5: global rules hide (as if it did not exist) or deny."""
    if proposal.sight.hides(tool):
        return _not_there(proposal, "tag_policy")
    ruling = proposal.sight.ruling(tool)
    if ruling.effect != "deny":
        return None
    reason = (ruling.rule.reason if ruling.rule is not None else "") or ruling.why
    return dataclasses.replace(_denied(proposal.call, tool, reason), gate="tag_policy")


def allowlist(proposal: _Proposal, tool: Tool) -> Judgement | None:
    """Gate 6: the actor's own list, its capability boundary (B45)."""
    return None if proposal.sight.allows(tool.name) else _not_there(proposal, "allowlist")


def schema(proposal: _Proposal, tool: Tool) -> Judgement | None:
    """Gate 9: the arguments fit the input schema, then the tool's own check, before any policy or person sees them."""
    problems = tool.schema.check(proposal.args) or _own_check(tool, proposal.args)
    if not problems:
        return None
    told = "; ".join(f"`{path}` {message}" if path else message for path, message in problems[:PROBLEMS_TOLD])
    more = f"; and {len(problems) - PROBLEMS_TOLD} more" if len(problems) > PROBLEMS_TOLD else ""
    message = f"the arguments of {shown(tool.name)} are not valid: {told}{more}. Correct them and call it again"
    return proposal.settled("schema", "input_invalid", message, tool)


def dry_run(proposal: _Proposal, tool: Tool) -> Judgement | None:
    """Gate 13: a dry run ends here, with what would have been called (E17); nobody is asked, nothing runs."""
    if not proposal.dry_run:
        return None
    hidden = dict.fromkeys(tool.masked_arguments, "[hidden]")
    args = {name: hidden.get(name, value) for name, value in proposal.args.items()}
    text = f"[dry-run] {tool.name} would be called with: {json.dumps(_shortened(args), ensure_ascii=False)}"
    return proposal.settled("dry_run", "ok", text, tool)


def approval(proposal: _Proposal, tool: Tool) -> Judgement:
    """Gate 14: the tool's policy, tightened by global rules that require approval."""
    policy = proposal.catalog.policy(tool.name)
    verdict = proposal.sight.verdict(policy, proposal.args)
    found = by_verdict(proposal.sight, proposal.call, tool, verdict)
    handler = handler_rule(policy)
    if not handler or found.kind == "settled":
        return found
    why = f"{verdict.why}; `handler` has not been asked"
    asks = dataclasses.replace(verdict, verdict="ask", rule=handler, rule_text="", why=why)
    return dataclasses.replace(found, kind="ask", verdict=asks, unheard=verdict)


def by_verdict(sight: Sight, call: CallPart, tool: Tool, verdict: PolicyVerdict) -> Judgement:
    """What the verdict of the tool's policy makes of a call: global rules may still ask."""
    if verdict.verdict == "deny":
        return dataclasses.replace(_denied(call, tool, verdict.why), verdict=verdict)
    ruling = sight.ruling(tool)
    if ruling.effect == "require_approval" and verdict.verdict == "auto":
        name, text = (ruling.rule.name, ruling.rule.rule) if ruling.rule is not None else ("policies", "")
        why = (ruling.rule.reason if ruling.rule is not None else "") or ruling.why
        verdict = dataclasses.replace(verdict, verdict="ask", rule=name, rule_text=text, why=why)
    kind: Literal["run", "ask"] = "run" if verdict.verdict == "auto" else "ask"
    return Judgement(call.call, kind, "approval", tool=tool, verdict=verdict)


_EARLY: Final[tuple[_Early, ...]] = (shape, caps, resolve)
_LATE: Final[tuple[_Late, ...]] = (tag_policy, allowlist, schema, dry_run)


def _misshapen(call: CallPart, args: Any) -> str:
    if call.malformed:
        return call.malformed
    if not isinstance(args, dict):
        return "the arguments must be one JSON object"
    why = out_of_bounds(args)
    if why:
        return f"the arguments hold {why}; send it as a string or leave it out"
    try:
        size = len(canonical_json(args))
    except NotCanonical:
        return "the arguments hold a number or text that JSON cannot carry safely; send it as a string"
    if size > ARGUMENTS_BYTES:
        return f"the arguments are larger than {ARGUMENTS_BYTES // KIB} KiB; send less"
    return ""


def _not_there(proposal: _Proposal, gate: GateName) -> Judgement:
    # A hidden tool must read like one that does not exist, and only what the actor may see is offered instead.
    near = did_you_mean(proposal.call.tool, (tool.name for tool in proposal.sight.visible()))
    message = f"there is no tool {shown(proposal.call.tool)} for you{near or '; use one of the tools you were given'}"
    return proposal.settled(gate, "not_available", message)


def _denied(call: CallPart, tool: Tool, reason: str) -> Judgement:
    message = f"denied by policy: {reason}. Do not try it again; tell the user or find another way"
    return Judgement(call.call, "settled", "approval", "denied", message, tool, denied_reason=reason)


def _own_check(tool: Tool, args: dict[str, Any]) -> list[Problem]:
    if tool.validate_input is None:
        return []
    try:
        found = tool.validate_input(args)
        return found if isinstance(found, list) else [Problem("", "have to be corrected")]
    except Exception as error:
        # The developer's check may fail on what a model sends: then the arguments are not known to be valid.
        return [Problem("", f"cannot be checked ({type(error).__name__})")]


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    if isinstance(value, str) and len(value) > DRY_RUN_CHARS:
        return f"{value[:DRY_RUN_CHARS]}...[truncated, {len(value)} chars]"
    return value


def _tally_key(call: CallPart) -> str:
    return call.tool if is_tool_name(call.tool) else _UNNAMEABLE


def _action(call: CallPart, args: Any) -> str:
    return sha256_hex([_tally_key(call), args])
