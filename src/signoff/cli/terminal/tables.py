"""Shapes as lines for a terminal. Texts from outside are made visible: no control character reaches the terminal."""

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
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.message import TextPart
from signoff.contracts.receipt import Receipt
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
    """Makes text of several lines visible; the whole is cut at about `limit` characters."""
    lines = text[:limit].splitlines() or [""]
    return "\n".join(one_line(line, limit).text for line in lines) + ("…" if len(text) > limit else "")


def content_text(content: Content) -> str:
    """Writes a content for reading."""
    text = text_of(content) if content.blob or isinstance(content.inline, str) else str(content.inline)
    return clean(text) + ("…" if content.blob else "")


def state_text(state: str) -> Text:
    """Writes a state in words, with its colour."""
    return Text(_STATES.get(state, state.replace("_", " ")), style=STYLES.get(state, ""))


def waiting_table(cards: Sequence[WaitingCard], now: datetime) -> RenderableType:
    """Draws waiting requests, one line each, in the order given."""
    table = _table("Code", "What", "For", "Who may decide", "Asked", "Answer by")
    for card in cards:
        table.add_row(
            show_code(card.code),
            _write_subject(card),
            clean(card.requester),
            ", ".join(card.approvers),
            ago(card.opened_at, now),
            until(card.expires_at, now),
        )
    return table


def turn_table(rows: Sequence[TurnRow], now: datetime) -> RenderableType:
    """Turns, one line each, in the order given."""
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
    """Sessions, one line each, in the order given."""
    table = _table("Session", "Of", "What", "Waiting", "Since")
    for row in rows:
        waiting = ", ".join(map(show_code, row.codes))
        table.add_row(row.session, clean(row.requester), clean(row.title), waiting, ago(row.started_at, now))
    return table


def groups_text(groups: Iterable[ApproverGroup]) -> str:
    """Writes how many of whom are asked, as a manifest names them: `1 of role:finance, 2 of role:legal or user:ana`."""
    return ", ".join(f"{group.quorum} of {' or '.join(group.of)}" for group in groups)


def receipt_line(receipt: Receipt, effect: str = "", *, doubt: bool = False) -> str:
    """Writes a receipt in one sentence; `doubt` where the question was whether a call happened."""
    if receipt.status == "accepted":
        verdict = receipt.verdict or receipt.state
        what = f": {effect}" if effect else ""
        return f"{_DOUBT_VERDICTS.get(verdict, verdict) if doubt else verdict}{what}"
    return f"{effect}: {receipt.message}" if effect and receipt.status != "refused" else receipt.message


def turn_lines(view: TurnView) -> list[Text]:
    """Writes the story of a turn so far, one entry an event; entries are only ever added or, for a call, replaced."""
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
    """Writes the place, the actions and the answers of a turn so far: its calls, and once it is over its parts."""
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
    """Writes where a conversation is, as `at checkout/pay`; nothing outside of all routes."""
    return [Text(f"  at {clean(route)}{'/' if step else ''}{clean(step)}", style="dim")] if route else []


def call_line(call: CallView) -> Text:
    """Writes one call with its state: ran by rule, waiting for whom, denied by whom and why, in doubt."""
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
        # What people decided, and what came of it, is told of the tool that stood in, on a line of its own.
        why = " ".join(clean(outcome.primary_error).split())
        return line + Text(f": {why}; fallback: {clean(outcome.fallback)}")
    if outcome.denied is not None:
        by = clean(request.decided_name or request.decided_by) if request is not None else ""
        who = f" by {by}" if by else f" by {outcome.denied.source}"
        why = f": {clean(outcome.denied.reason)}" if outcome.denied.reason else ""
        return line + Text(f"{who}{why}")
    if outcome.code == "ok":
        # Where the tool has no policy, no rule of anybody's let it run.
        rule = call.rule if request is None and call.rule != REQUIRES_APPROVAL else None
        return line + Text("" if rule is None else f" by rule {clean(rule.label)}")
    return line + Text("" if outcome.code == "in_doubt" else f": {content_text(outcome.value)}")


def _write_subject(card: WaitingCard) -> str:
    """Writes the subject of a request of a list, and its changes while it waited."""
    asks = "did this happen? " if card.kind == "in_doubt" else ""
    course = (
        "changed" if card.edited_by else "",
        "escalated" if card.escalated else "reminded" if card.reminded else "",
    )
    words = ", ".join(filter(None, course))
    return f"{asks}{cut_visible(card.effect, EFFECT_CHARS)}{f' ({words})' if words else ''}"


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, no_wrap=name in ("Code", "Turn", "Session", "State"), overflow="fold")
    return table


def ago(moment: datetime | None, now: datetime) -> str:
    """Writes how long ago a moment was; "" for no moment."""
    return _formatter(now).ago(moment) if moment is not None else ""


def until(moment: datetime | None, now: datetime) -> str:
    """Writes a moment to come and how long that is; "" for none."""
    return f"{clock(moment)} ({_formatter(now).until(moment)})" if moment is not None else ""


def _formatter(now: datetime) -> Formatter:
    return Formatter(ENGLISH, UTC, now)


def clock(moment: datetime | None) -> str:
    """Writes a time in the person's own zone."""
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M %Z").rstrip()


def frozen_line(standing: Freeze) -> str:
    """Writes a freeze that stands: who, since when and why."""
    since = f"{standing.at:%Y-%m-%d %H:%M} UTC"
    who = clean(standing.by)
    return f"frozen: {standing.tenant} by {who} since {since}: {clean(standing.reason)}; no calls start"


def swept_lines(swept: SweepResult) -> list[str]:
    """Lists the requests that a freeze withdrew, and those that wait all the same."""
    lines = [f"withdrawn requests: {swept.withdrawn}"]
    if swept.waiting:
        lines.append("requests still waiting, although their calls cannot run; run the command again to withdraw them:")
        lines += [f"  {each}" for each in swept.waiting]
    return lines
