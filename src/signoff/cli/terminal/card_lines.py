"""Renders the card of a request as lines for a terminal."""

import json
from datetime import datetime, timedelta
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from signoff.approvals.quorum import progress
from signoff.approvals.unseen_values import SEEN_CHARS, SEEN_NEEDED, FullValue, every_value
from signoff.cli.terminal.edit_options import change_lines
from signoff.cli.terminal.tables import ago, clean, clock, groups_text, state_text, until
from signoff.contracts.approval import ApprovalRequest, RequestMessage, Vote
from signoff.contracts.errors import Refused
from signoff.contracts.ids import show_code
from signoff.contracts.limits import REASON_CHARS
from signoff.languages.catalogue import ENGLISH
from signoff.texts.endings import assignment_words, undeclared_words
from signoff.texts.reasons import rule_expression, rule_words

_DOUBT_STATES: Final = {
    "pending": "in doubt",
    "approved": "did not happen, runs again",
    "denied": "given up",
    "happened": "it happened",
    "timed_out": "nobody answered, given up",
}

Facts = list[tuple[str, RenderableType]]


def card_lines(request: ApprovalRequest, now: datetime) -> RenderableType:
    card = request.card
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for row in card.rows:
        facts.add_row(row.label or row.name, row.value + (f" ({row.length} characters)" if row.cut else ""))
    if not card.whole:
        facts.add_row("", Text("The lines above do not show every value. Every value of this call:", style="bold"))
        for each in _values(request):
            size = f" ({each.size} bytes, sha-256 {each.sha256})" if each.sha256 else ""
            facts.add_row(Text(each.name), Text(each.text + size))
    facts.add_row("", "")
    for name, value in (*_about(request, now), *_course(request, now), *_ending_facts(request)):
        facts.add_row(name, value)
    effect = f"Did this happen? {card.effect}" if request.kind == "in_doubt" else card.effect
    todo = [Text(""), *(Text(line, style="dim") for line in _todo(request))] if request.state == "pending" else []
    return Group(Text(effect, style="bold"), Text(""), facts, *todo)


def check_seen(request: ApprovalRequest, written: str) -> str:
    """Return the proof that every value was on a screen if the card has no room for all; "" for a whole card.

    `written` is the text that `card_lines` prints below the values. Raises `Refused` if it does not match.
    """
    if request.card.whole:
        return ""
    if len(written) < SEEN_CHARS or not request.seen.startswith(written):
        hint = f"`signoff show {show_code(request.code)}` shows all of them and the option to add"
        raise Refused(f"{SEEN_NEEDED}; {hint}", code="malformed")
    return request.seen


def check_thread(request: ApprovalRequest, written: str) -> str:
    """Return the hash of the questions and answers if they were on a screen; "" without any.

    `written` is the text that `card_lines` prints below them. Raises `Refused` if it does not match.
    """
    if request.thread and (len(written) < SEEN_CHARS or not request.thread.startswith(written)):
        hint = f"`signoff show {show_code(request.code)}` shows them and the option to add"
        raise Refused(f"read the questions to the agent and its answers first; {hint}", code="stale")
    return request.thread


def _values(request: ApprovalRequest) -> list[FullValue]:
    args = request.args.inline
    return every_value(args, {}, request.secrets) if isinstance(args, dict) else []


def _about(request: ApprovalRequest, now: datetime) -> Facts:
    card = request.card
    who = clean(request.requester.name or request.requester.user)
    state = state_text(request.state)
    if request.kind == "in_doubt":
        state = Text(_DOUBT_STATES.get(request.state, request.state), style=state.style)
    rows: Facts = [("state", state)]
    if card.note:
        rows.append(("note", card.note))
    if request.undeclared:
        rows.append(("warning", Text(clean(undeclared_words(request, ENGLISH)), style="bold")))
    if request.late_report is not None:
        late = request.late_report
        rows.append(("late report", f"{late.code} at {clock(late.at)}: {late.text}"))
    if request.edited_by:
        by = clean(request.edited_name or request.edited_by)
        rows.append((f"edited by {by}", Text("\n".join(change_lines(request)))))
    rows.append(("asked by", f"{request.actor} for {who}, {ago(request.opened_at, now)}"))
    if request.kind != "in_doubt":
        # For a call with an unknown outcome, the note has the reason.
        expression = clean(rule_expression(request.rule, request.rule_text))
        tool = card.tool_title or request.tool
        rows.append(("because", clean(rule_words(request.rule, request.rule_text, ENGLISH, tool))))
        label = "" if request.rule is None else clean(request.rule.label)
        rows += [("rule", f"{label}: {expression}")] if expression else []
    for each in request.applied:
        people = f"{each.quorum} people, " if each.quorum > 1 else ""
        rows.append(("stricter", f"{people}as {clean(each.reason)}"))
    if card.agent_says:
        rows.append(("the agent says", Text(card.agent_says, style="italic")))
    return rows


def _course(request: ApprovalRequest, now: datetime) -> Facts:
    rows: Facts = []
    if request.state == "pending":
        rows.append(("answer by", f"{until(request.expires_at, now)}, {_silence(request)}"))
        for at, moment in enumerate(request.remind_at):
            rows.append(("reminded" if at < request.reminded else "reminder", clock(moment)))
        if request.escalate_at is not None and not request.escalated:
            rows.append(("escalation", f"{clock(request.escalate_at)}, then {', '.join(request.escalate_to)} too"))
    if request.escalated:
        rows.append(("escalated", f"{', '.join(request.escalate_to)} may answer too"))
    rows.append(("approvers", ", ".join(request.approvers)))
    rows += [("changed", clean(each)) for each in assignment_words(request, ENGLISH)]
    found = progress(request)
    if found.needed > 1:
        rows.append(("approvals", f"{found.yes} of {found.needed}"))
        if found.open and request.state == "pending":
            rows.append(("still needed", groups_text(found.open)))
    rows += [("answered", _vote(vote)) for vote in request.votes]
    rows += [_message(message) for message in request.messages]
    if request.state == "pending" and request.allow_remember:
        rows.append(("remember", "the next matching calls may get the same answer: --remember"))
    return rows


def _ending_facts(request: ApprovalRequest) -> Facts:
    rows: Facts = []
    if request.decided_by or request.decided_at:
        by = clean(request.decided_name or request.decided_by) or "nobody"
        rows.append(("decided", f"by {by} at {clock(request.decided_at)} {clean(request.decided_channel)}".rstrip()))
    if request.reason:
        rows.append(("reason", clean(request.reason)))
    if request.state == "answered" and request.votes:
        rows.append(("answer", clean(json.dumps(request.votes[-1].decision.answer, ensure_ascii=False))))
    if request.state == "happened" and request.votes and request.votes[-1].decision.result:
        rows.append(("what came of it", clean(request.votes[-1].decision.result)))
    rows.append(("code", f"{show_code(request.code)}, revision {request.revision}, mark {request.card.mark}"))
    rows.append(("id", request.id))
    return rows


def _silence(request: ApprovalRequest) -> str:
    if request.kind == "in_doubt":
        return "otherwise given up"
    if request.on_timeout == "escalate" and not request.extended and request.expires_at is not None:
        last = request.expires_at + timedelta(seconds=request.timeout)
        return f"then {', '.join(request.escalate_to)} too until {clock(last)}, otherwise denied"
    return "otherwise denied"


def _vote(vote: Vote) -> str:
    who = clean(vote.name or vote.subject) + (f" for {clean(vote.on_behalf)}" if vote.on_behalf else "")
    return f"{vote.verdict} by {who} at {clock(vote.at)}" + (f": {clean(vote.reason)}" if vote.reason else "")


def _message(message: RequestMessage) -> tuple[str, RenderableType]:
    agent = message.by == "agent"
    who = "the agent answered" if agent else f"{clean(message.name or message.subject)} asked"
    return who, Text(clean(message.text, REASON_CHARS) or "(no answer)", style="italic" if agent else "")


def _todo(request: ApprovalRequest) -> list[str]:
    code = show_code(request.code)
    # Printed only below the complete list of values, so it proves that the list was on a screen.
    seen = f" --seen {request.seen[:SEEN_CHARS]}" if request.seen and not request.card.whole else ""
    seen += f" --thread {request.thread[:SEEN_CHARS]}" if request.thread else ""
    if request.kind == "in_doubt":
        return [
            f"signoff happened {code} --result ...    it happened",
            f"signoff approve {code}{seen}    it did not happen: run it",
            f"signoff deny {code} --reason ...    give up",
        ]
    edit = f"    signoff approve {code} --set NAME=VALUE" if request.edit != "off" else ""
    lines = [f"signoff approve {code}{seen}    signoff deny {code} --reason ...{edit}"]
    return (
        lines
        if request.answer_schema is None
        else [*lines, f"signoff answer {code} JSON{seen}    answer in place of the call"]
    )
