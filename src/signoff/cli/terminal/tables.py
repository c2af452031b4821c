"""Renders contracts as terminal lines. Control characters in foreign text are made visible."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from signoff.contracts.approval import ApproverGroup
from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.content import Content, text_of
from signoff.contracts.grant import Freeze, SweepResult
from signoff.contracts.ids import show_code
from signoff.contracts.limits import EFFECT_CHARS
from signoff.contracts.message import TextPart
from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import SessionRow, TurnRow, WaitingCard
from signoff.contracts.turn import CallView, TurnView
from signoff.formats.visible_text import cut_visible, one_line
from signoff.languages.catalogue import ENGLISH
from signoff.texts.formatter import Formatter

TEXT_CHARS: Final = 4_000
STYLES: Final = {
    "waiting": "yellow",
    "suspended": "yellow",
    "pending": "yellow",
    "approved": "green",
    "answered": "green",
    "complete": "green",
    "ok": "green",
    "denied": "red",
    "in_doubt": "bold red",
    "error": "red",
}
_STATES: Final = {"in_doubt": "outcome unknown", "ok": "ran", "timed_out": "timed out"}
_DOUBT_VERDICTS: Final = {
    "approved": "it did not happen and runs again",
    "denied": "given up",
    "happened": "it happened",
}


def clean(text: str, limit: int = TEXT_CHARS) -> str:
    """Make control characters of multi-line text visible, and cut it at about `limit` characters."""
    lines = text[:limit].splitlines() or [""]
    return "\n".join(one_line(line, limit).text for line in lines) + ("…" if len(text) > limit else "")


def content_text(content: Content) -> str:
    text = text_of(content) if content.blob or isinstance(content.inline, str) else str(content.inline)
    return clean(text) + ("…" if content.blob else "")


def state_text(state: str) -> Text:
    return Text(_STATES.get(state, state.replace("_", " ")), style=STYLES.get(state, ""))


def waiting_table(cards: Sequence[WaitingCard], now: datetime) -> RenderableType:
    table = _table("Code", "What", "For", "Who may decide", "Asked", "Answer by")
    for card in cards:
        table.add_row(
            show_code(card.code),
            _write_subject(card, now),
            clean(card.requester),
            ", ".join(card.approvers),
            ago(card.opened_at, now),
            until(card.expires_at, now),
        )
    return table


def turn_table(rows: Sequence[TurnRow], now: datetime) -> RenderableType:
    table = _table("Turn", "State", "Actor", "Asked by", "What", "Waiting", "Started")
    for row in rows:
        table.add_row(
            row.turn,
            state_text(row.state),
            row.actor,
            clean(row.requester),
            clean(row.title),
            ", ".join(map(show_code, row.codes)),
            ago(row.started_at, now),
        )
    return table


def session_table(rows: Iterable[SessionRow], now: datetime) -> RenderableType:
    table = _table("Session", "Of", "What", "Waiting", "Since")
    for row in rows:
        waiting = ", ".join(map(show_code, row.codes))
        table.add_row(row.session, clean(row.requester), clean(row.title), waiting, ago(row.started_at, now))
    return table


def groups_text(groups: Iterable[ApproverGroup]) -> str:
    """Use a manifest's words: `1 of role:finance, 2 of role:legal or user:ana`."""
    return ", ".join(f"{group.quorum} of {' or '.join(group.of)}" for group in groups)


def receipt_line(receipt: Receipt, effect: str = "", *, doubt: bool = False) -> str:
    """`doubt` marks a question about a call with an unknown outcome."""
    if receipt.status == "accepted":
        verdict = receipt.verdict or receipt.state
        what = f": {effect}" if effect else ""
        return f"{_DOUBT_VERDICTS.get(verdict, verdict) if doubt else verdict}{what}"
    return f"{effect}: {receipt.message}" if effect and receipt.status != "refused" else receipt.message


def turn_lines(view: TurnView) -> list[Text]:
    """Return one line per event. Later views add lines and replace those of calls."""
    lines = [
        Text(f"{message.role}: {content_text(part.text)}")
        for message in view.messages
        for part in message.parts
        if isinstance(part, TextPart) and message.role == "user"
    ]
    lines += answer_lines(view)
    if view.result is not None:
        lines.append(Text("the turn is ") + state_text(view.state))
    return lines


def answer_lines(view: TurnView) -> list[Text]:
    """The answer's parts follow when the turn has ended."""
    lines = [*place_lines(view.route, view.step), *(call_line(call) for call in view.calls)]
    if view.model_retry is not None:
        retry = view.model_retry
        lines.append(Text(f"the model failed; next, try {retry.attempt}: {clean(retry.error)}", style="yellow"))
    if view.result is not None:
        lines += [Text(f"{view.actor}: {content_text(part.content)}") for part in view.result.parts]
        if view.result.error is not None:
            lines.append(Text(f"error: {clean(view.result.error.message)}", style="red"))
    return lines


def place_lines(route: str, step: str) -> list[Text]:
    """Such as `at checkout/pay`; empty outside all routes."""
    return [Text(f"  at {clean(route)}{'/' if step else ''}{clean(step)}", style="dim")] if route else []


def call_line(call: CallView) -> Text:
    request = call.approval
    effect = request.card.effect if request is not None else clean(call.tool)
    outcome = call.outcome
    stood = outcome is not None and bool(outcome.fallback)
    line = Text(f"  {effect}: ") + state_text("execution_failed" if stood else call.state)
    if call.state == "waiting" and request is not None:
        return line + Text(f" for {', '.join(request.approvers)} ({show_code(request.code)})")
    if outcome is None:
        return line
    if outcome.fallback:
        # The decision and result are on the fallback tool's line.
        why = " ".join(clean(outcome.primary_error).split())
        return line + Text(f": {why}; fallback: {clean(outcome.fallback)}")
    if outcome.denied is not None:
        by = clean(request.decided_name or request.decided_by) if request is not None else ""
        who = f" by {by}" if by else f" by {outcome.denied.source}"
        why = f": {clean(outcome.denied.reason)}" if outcome.denied.reason else ""
        return line + Text(f"{who}{why}")
    if outcome.code == "ok":
        # Without a policy, no rule allowed the tool.
        rule = call.rule if request is None and call.rule != REQUIRES_APPROVAL else None
        return line + Text("" if rule is None else f" by rule {clean(rule.label)}")
    return line + Text("" if outcome.code == "in_doubt" else f": {content_text(outcome.value)}")


def _write_subject(card: WaitingCard, now: datetime) -> str:
    asks = "did this happen? " if card.kind == "in_doubt" else ""
    course = (
        "changed" if card.edited_by else "",
        "escalated" if card.escalated else "reminded" if card.reminded else "",
        f"taken by {clean(card.taken_by)} until {until(card.taken_until, now)}" if card.taken_by else "",
    )
    words = ", ".join(filter(None, course))
    return f"{asks}{cut_visible(card.effect, EFFECT_CHARS)}{f' ({words})' if words else ''}"


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, no_wrap=name in ("Code", "Turn", "Session", "State"), overflow="fold")
    return table


def ago(moment: datetime | None, now: datetime) -> str:
    return _formatter(now).ago(moment) if moment is not None else ""


def until(moment: datetime | None, now: datetime) -> str:
    """Add the time left. "" without a moment."""
    return f"{clock(moment)} ({_formatter(now).until(moment)})" if moment is not None else ""


def _formatter(now: datetime) -> Formatter:
    return Formatter(ENGLISH, UTC, now)


def clock(moment: datetime | None) -> str:
    """Use the user's time zone."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M %Z").rstrip()


def frozen_line(standing: Freeze) -> str:
    since = f"{standing.at:%Y-%m-%d %H:%M} UTC"
    who = clean(standing.by)
    return f"frozen: {standing.tenant} by {who} since {since}: {clean(standing.reason)}; no calls start"


def swept_lines(swept: SweepResult) -> list[str]:
    lines = [f"withdrawn requests: {swept.withdrawn}"]
    if swept.waiting:
        lines.append("requests still waiting, although their calls cannot run; run the command again to withdraw them:")
        lines += [f"  {each}" for each in swept.waiting]
    return lines
