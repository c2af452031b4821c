"""Makes the line of one call: its description and its outcome."""

import json
from dataclasses import dataclass
from typing import Any, Final

from signoff.approvals.card import effect_sentence
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import REQUIRES_APPROVAL, CallOutcome, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.turn import CallView
from signoff.gateway.auth.person_lookup import display_name
from signoff.languages.catalogue import text
from signoff.people.directory import Directory
from signoff.registry.catalog import Catalog

RESULT_CHARS: Final = 4_000
_DENIALS: Final = {
    "policy": "call.denied_policy",
    "timeout": "call.denied_timeout",
    "cancelled": "call.denied_cancelled",
    "repeat": "call.denied_repeat",
}
_TONES: Final = {
    "ok": "good",
    "denied": "bad",
    "execution_failed": "bad",
    "input_invalid": "bad",
    "not_available": "bad",
    "refused": "bad",
    "too_many_calls": "bad",
    "in_doubt": "doubt",
    "waiting": "wait",
    "answered": "good",
    "running": "live",
    "permitted": "live",
    "used": "live",
    "proposed": "live",
}
_AUTO_APPROVE: Final = RuleReference(name="auto_approve_if")
_RUN: Final = ("permitted", "used", "ok", "execution_failed", "in_doubt")
"""States in which the line names the agent that runs the call."""
_ENDED: Final = {"denied": "human", "timed_out": "timeout", "cancelled": "cancelled"}


@dataclass(frozen=True)
class CallLine:
    """One call as a line."""

    call: str
    what: str
    """The effect, planned or done."""
    state: str
    """Its state for programs."""
    tone: str
    """Its colour."""
    words: str
    """Its state for people."""
    detail: str = ""
    """A reason, an error, or a rule."""
    result: str = ""
    trace: str = ""
    """The tool that the call's name resolves to, if that was traced and the reader may read the audit log."""
    meta: str = ""
    """The tool's metadata about the call."""
    approval: str = ""
    """The request's id."""
    doubt: bool = False
    """Whether the outcome is unknown."""


def call_line(
    view: CallView,
    part: CallPart | None,
    catalog: Catalog,
    people: Directory,
    language: str,
    *,
    stood: str = "",
    actor: str = "",
) -> CallLine:
    """`part` is the call's proposal in the conversation, the source of the sentence.

    `stood` is the last fallback of the call, which has its own line.
    """
    state, words, detail = _became(view, catalog, people, language, stood)
    runner = text("call.run_by", language, actor=actor) if state in _RUN and _runs_elsewhere(view, catalog) else ""
    outcome = view.outcome
    tone = "quiet" if outcome is not None and outcome.gate == "dry_run" else _TONES.get(state, "quiet")
    return CallLine(
        call=view.call,
        what=_what(view, part, catalog),
        state=state,
        tone=tone,
        words=words,
        detail=" ".join(filter(None, (runner, detail, _in_its_place(outcome, language)))),
        result=_words(outcome.value) if outcome is not None and state == "ok" else "",
        meta=_words(outcome.meta) if outcome is not None and outcome.meta is not None else "",
        approval=_request_id(view),
        doubt=state == "in_doubt",
    )


def _runs_elsewhere(view: CallView, catalog: Catalog) -> bool:
    request = view.approval
    # An undeclared tool is known only from its request.
    asked = None if request is None else catalog.find_definition(request.tool, request.definition)
    found = catalog.tools_named(view.tool) if asked is None else (asked,)
    return bool(found) and all(each.is_external for each in found)


def _request_id(view: CallView) -> str:
    if view.approval is not None:
        return view.approval.id
    return view.outcome.approval_id if view.outcome is not None and view.outcome.code == "waiting" else ""


def _became(view: CallView, catalog: Catalog, people: Directory, language: str, stood: str) -> tuple[str, str, str]:
    if view.outcome is None and stood:
        return "execution_failed", text("call.execution_failed", language), text("call.stands_in", language, tool=stood)
    if view.outcome is not None and view.outcome.fallback:
        # The fallback's line shows the decision and the result.
        return "execution_failed", text("call.execution_failed", language), ""
    if view.outcome is not None:
        return _describe_settled(view.outcome, view, catalog, people, language)
    request = view.approval
    if request is not None and request.state == "pending":
        doubt = request.kind == "in_doubt"
        who = _whom(request.approvers, people, request.tenant)
        words = text("call.doubt_waiting" if doubt else "call.waiting", language, who=who)
        return "waiting", words, _undeclared(request, catalog, language)
    if request is not None and request.kind == "approval" and request.state in _ENDED:
        who = request.decided_name or request.decided_by
        words, detail = _denied_words(_ENDED[request.state], who, request.reason, language)
        return "denied", words, detail
    if view.state in ("permitted", "used"):
        who = "" if request is None or request.state != "approved" else request.decided_name or request.decided_by
        by = "_by" if who else ""
        return view.state, text(f"call.{view.state}{by}", language, who=who), ""
    if request is not None and request.state == "approved":
        who = request.decided_name or request.decided_by
        return "running", text("call.running_by", language, who=who), _undeclared(request, catalog, language)
    known = view.state if view.state in ("running", "proposed") else "proposed"
    return known, text(f"call.{known}", language), ""


def _undeclared(request: ApprovalRequest, catalog: Catalog, language: str) -> str:
    return "" if catalog.declares(request) else text("card.undeclared", language, tool=request.tool)


def _describe_settled(
    outcome: CallOutcome, view: CallView, catalog: Catalog, people: Directory, language: str
) -> tuple[str, str, str]:
    if outcome.code == "ok":
        words, detail = _ran(outcome, view, catalog, people, language)
        return "ok", words, detail
    if outcome.denied is not None:
        denied = outcome.denied
        who = (view.approval.decided_name if view.approval is not None else "") or denied.decided_by
        words, detail = _denied_words(denied.source, who, denied.reason, language)
        return "denied", words, detail
    if outcome.code == "in_doubt" and outcome.decided_by and view.approval is not None:
        who = view.approval.decided_name or outcome.decided_by
        return outcome.code, text("call.doubt_gave_up", language, who=who), view.approval.reason
    if outcome.code == "answered":
        who = (view.approval.decided_name if view.approval is not None else "") or outcome.decided_by
        return outcome.code, text("call.answered", language, who=who or "?"), ""
    if outcome.code == "waiting":
        # It repeats a waiting call. The line links to that call's request.
        return outcome.code, text("call.asked_already", language), ""
    note = text("call.in_doubt_note", language) if outcome.code == "in_doubt" else _words(outcome.value)
    return outcome.code, text(f"call.{outcome.code}", language), note


def _ran(outcome: CallOutcome, view: CallView, catalog: Catalog, people: Directory, language: str) -> tuple[str, str]:
    if outcome.gate == "dry_run":
        return text("call.dry_run", language), ""
    request = view.approval
    if request is not None:
        # Other end states do not let the call run.
        own = request.state in ("approved", "happened")
        who = (request.decided_name or request.decided_by) if own else ""
        who = who or (display_name(people, outcome.decided_by, request.tenant) if outcome.decided_by else "")
        if not who:
            return text("call.ok", language), ""
        if request.state == "happened":
            return text("call.ok_happened", language, who=who), request.reason
        if outcome.edited_by:
            editor = request.edited_name or outcome.edited_by
            return text("call.ok_edited", language, who=who, editor=editor), ""
        return text("call.ok_by", language, who=who), ""
    rule = outcome.rule or view.rule
    if rule is None or rule == REQUIRES_APPROVAL:
        return text("call.ok_never", language), ""
    if rule.kind == "grant":
        return text("call.ok_granted", language), ""
    return text("call.ok_rule", language), _expression(view.tool, rule, catalog) or rule.label


def _in_its_place(outcome: CallOutcome | None, language: str) -> str:
    if outcome is None or not outcome.fallback:
        return ""
    return text("call.stood_in", language, tool=outcome.fallback, why=outcome.primary_error)


def _denied_words(source: str, who: str, reason: str, language: str) -> tuple[str, str]:
    if source == "human":
        quoted = text("call.quoted", language, reason=reason) if reason else ""
        return text("call.denied_by", language, who=who or "?"), quoted
    return text(_DENIALS.get(source, "call.refused"), language), "" if source == "timeout" else reason


def _expression(tool: str, rule: RuleReference, catalog: Catalog) -> str:
    found = catalog.tools_named(tool)
    # With several tools of this name, the policy is unknown here.
    policy = catalog.policy(found[0].activity).policy if len(found) == 1 else None
    if policy is None or rule != _AUTO_APPROVE:
        return ""
    return policy.auto_approve_if or ""


def _whom(approvers: tuple[str, ...], people: Directory, tenant: str) -> str:
    names = [
        name if kind != "user" else display_name(people, name, tenant)
        for kind, _, name in (approver.partition(":") for approver in approvers)
    ]
    return ", ".join(names) or "?"


def _what(view: CallView, part: CallPart | None, catalog: Catalog) -> str:
    if view.approval is not None:
        return view.approval.card.effect
    found = catalog.tools_named(view.tool)
    tool = found[0] if len(found) == 1 else None
    args: Any = part.args.inline if part is not None else None
    if tool is None or not isinstance(args, dict):
        return (tool.title if tool is not None else "") or view.tool[:80]
    return effect_sentence(
        tool.effect,
        title=tool.title,
        tool=tool.name,
        args=args,
        schema=tool.input_schema,
        secrets=frozenset(tool.masked_arguments),
    )


def _words(content: Content) -> str:
    if content.blob is not None:
        return content.blob.preview + "…"
    value = content.inline
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return written if len(written) <= RESULT_CHARS else written[:RESULT_CHARS] + "…"
