"""Shows a turn in Temporal's own tools: search attributes and current details."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from signoff.contracts import names
from signoff.contracts.approval import Card, CardRow, TurnQuestion
from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import show_code
from signoff.contracts.message import CallPart
from signoff.contracts.turn import LiveState
from signoff.formats.visible_text import cut_visible
from signoff.workflows.turn_state import TurnState

STATE = SearchAttributeKey.for_keyword(names.SA_STATE)
ACTOR = SearchAttributeKey.for_keyword(names.SA_ACTOR)
TENANT = SearchAttributeKey.for_keyword(names.SA_TENANT)
TOOL = SearchAttributeKey.for_keyword_list(names.SA_TOOL)

_UNSAID: Final = ("running", "complete")
_SUMMARY_BYTES: Final = 300
"""Temporal guarantees 400 bytes for a summary, including its payload."""

_TICKS: Final = re.compile("`+")

DETAILED_REQUESTS: Final = 10
"""Maximum number of pending requests shown with their arguments."""
DETAILED_ROWS: Final = 20
"""Maximum number of arguments shown per request."""
DETAIL_CHARS: Final = 200
"""Maximum length, in characters, of an argument's name and value. Longer texts end with `…`."""

_HONEST: Final = (
    "The workflow wrote these details for operators. Decide by the card in the inbox: Signoff draws the card from its "
    "store."
)


class TemporalMetadata:
    """Updates search attributes and current details of one turn. Only the former cost a history event."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._published: tuple[str | None, list[str]] = (None, [])
        self._cards: dict[tuple[str, int], Card | None] = {}

    def publish(self) -> None:
        state = self._state
        waiting = state.book.pending()
        if state.result is None:
            state.live = "suspended" if waiting else "running"
        # List each tool once, so that a second request for it costs no event.
        keyword, tools = shown_state(state.live), sorted({each.tool for each in waiting})
        before, tools_before = self._published
        changes: list[SearchAttributeUpdate[Any]] = []
        if keyword != before:
            changes.append(STATE.value_unset() if keyword is None else STATE.value_set(keyword))
        if tools != tools_before:
            changes.append(TOOL.value_set(tools) if tools else TOOL.value_unset())
        if changes:
            workflow.upsert_search_attributes(changes)
            self._published = (keyword, tools)
        settled = [view.outcome for view in state.calls.values() if view.outcome is not None]
        self._cards = {(each.id, each.revision): self._card(each) for each in waiting[:DETAILED_REQUESTS]}
        cards = {approval_id: card for (approval_id, _), card in self._cards.items() if card is not None}
        link = workflow.extern_functions().get(names.DETAIL_LINK, _no_link)
        # Set it even if unchanged: it costs no event. The worker's card and link are used nowhere else in the workflow.
        workflow.set_current_details(details(state.book.all(), settled, cards, link))

    def _card(self, request: TurnQuestion) -> Card | None:
        drawn = (request.id, request.revision)
        if drawn in self._cards:
            return self._cards[drawn]
        draw = workflow.extern_functions().get(names.DETAIL_CARD)
        if draw is None:
            return None
        parts = (part for message in self._state.messages for part in message.parts)
        card: Card | None = draw(request, [part for part in parts if isinstance(part, CallPart)])
        return card


def shown_state(state: LiveState) -> str | None:
    """Return the turn's state attribute, or `None` if the workflow's own status says enough.

    Each change is a history event.
    """
    return None if state in _UNSAID else state


def summary(text: str) -> str:
    """Truncate `text` to a summary that the server accepts, measured in bytes of JSON."""
    while len(json.dumps(text, ensure_ascii=False).encode("utf-8")) > _SUMMARY_BYTES:
        text = text[: len(text) * 9 // 10]
    return text


def details(
    requests: Sequence[TurnQuestion],
    outcomes: Sequence[CallOutcome],
    cards: Mapping[str, Card],
    link: Callable[[str], str],
) -> str:
    """Return Markdown for Temporal's UI.

    `cards` maps approval ids to cards with the available arguments. `link` returns the address of a card, or "".
    """
    waiting = [request for request in requests if request.state == "pending"]
    lines: list[str] = []
    if waiting:
        lines += ["### Waiting for people", "", _HONEST]
    for request in waiting[:DETAILED_REQUESTS]:
        lines += ["", *_describe_waiting(request, cards.get(request.id), link(request.id))]
    if len(waiting) > DETAILED_REQUESTS:
        lines += ["", f"{len(waiting) - DETAILED_REQUESTS} more wait."]
    answered = [request for request in requests if request.state != "pending"]
    if answered:
        lines += ["", "### Answered", "", *(_describe_answered(request) for request in answered)]
    doubtful = [outcome for outcome in outcomes if outcome.code == "in_doubt"]
    if doubtful:
        lines += ["", "### In doubt", ""]
        lines += [f"- {_code(each.tool)} ({_code(each.call)}): outcome unknown" for each in doubtful]
    return "\n".join(lines)


def _describe_waiting(request: TurnQuestion, card: Card | None, address: str) -> Iterator[str]:
    code = show_code(request.code)
    yield f"**{code}**" + (f": [open the card]({address})" if address else "")
    yield ""
    doubt = "did this happen? " if request.kind == "in_doubt" else ""
    yield f"- action: {doubt}{_code(request.effect if card is None else card.effect)}"
    yield f"- who may answer: {', '.join(map(_code, request.approvers))}{_quorum(request)}"
    yield f"- asked {_time(request.opened_at)}, answer by {_time(request.expires_at)}"
    if card is not None and card.note:
        yield f"- note: {_code(card.note)}"
    if card is None or (card.note and not card.rows):
        yield "- arguments: on the card"
    elif card.rows:
        yield "- arguments:"
        yield from (f"  - {_row(row)}" for row in card.rows[:DETAILED_ROWS])
        if len(card.rows) > DETAILED_ROWS:
            yield f"  - {len(card.rows) - DETAILED_ROWS} more on the card"
    yield f"- the `decide` update or the `approval_response` signal takes {_code(_envelope(request))}"


def _quorum(request: TurnQuestion) -> str:
    groups = [f"{each.quorum} of {' or '.join(map(_code, each.of))}" for each in request.groups]
    people = [f"{request.quorum} people have to approve"] if request.quorum > 1 else []
    return "".join(f"; {each}" for each in (*people, *groups))


def _row(row: CardRow) -> str:
    value = cut_visible(row.value, DETAIL_CHARS)
    # A row without a name is a remark of the card itself.
    return f"{_code(cut_visible(row.label, DETAIL_CHARS))}: {_code(value)}" if row.name else _code(value)


def _describe_answered(request: TurnQuestion) -> str:
    by = request.decided_name or request.decided_by
    author = f" by {_code(by)}" if by else ""
    when = f", {_time(request.decided_at)}" if request.decided_at else ""
    return f"- {show_code(request.code)}: {_code(request.effect)}: {request.state}{author}{when}"


def _code(text: str) -> str:
    """Return `text` as inline code on one line: Markdown renders no markup, link or picture in it."""
    line = " ".join(text.splitlines()).strip() or "—"
    fence = "`" * (1 + max(map(len, _TICKS.findall(line)), default=0))
    # Separate backticks in the text from the fence. Markdown removes one space at each end.
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"


def _envelope(request: TurnQuestion) -> str:
    verdict = "happened" if request.kind == "in_doubt" else "approved"
    return json.dumps({"approval_id": request.id, "revision": request.revision, "verdict": verdict})


def _no_link(approval_id: str) -> str:
    return ""


def _time(moment: datetime | None) -> str:
    # Avoid `strftime`: it imports a module at each call, which is slow in the sandbox.
    return "" if moment is None else f"{moment.isoformat(' ', 'minutes')[:16]} UTC"
