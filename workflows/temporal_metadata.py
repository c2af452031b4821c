"""Shows a turn in Temporal's own tools: search attributes and current details."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import show_code
from signoff.contracts.turn import LiveState
from signoff.workflows.turn_state import TurnState

STATE = SearchAttributeKey.for_keyword(names.SA_STATE)
ACTOR = SearchAttributeKey.for_keyword(names.SA_ACTOR)
TENANT = SearchAttributeKey.for_keyword(names.SA_TENANT)

_UNSAID: Final = ("running", "complete")
_SUMMARY_BYTES: Final = 300
"""Temporal promises room for 400 bytes of a summary, payload included."""

_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>|!#~&])")


class TemporalMetadata:
    """Keeps the state attribute and the current details of one turn up to date; costs an event only for the former."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._published: str | None = None

    def publish(self) -> None:
        """Shows the present state."""
        state = self._state
        if state.result is None:
            state.live = "suspended" if state.book.pending() else "running"
        shown = shown_state(state.live)
        if shown != self._published:
            workflow.upsert_search_attributes([STATE.value_unset() if shown is None else STATE.value_set(shown)])
            self._published = shown
        settled = [view.outcome for view in state.calls.values() if view.outcome is not None]
        # Costs no event, so it is set whether or not it changed.
        workflow.set_current_details(details(state.book.all(), settled))


def shown_state(state: LiveState) -> str | None:
    """Returns the state attribute of a turn; None where the workflow's own status tells enough.

    A turn that asks nobody and comes to its ordinary end changes no attribute, and each change is an event.
    """
    return None if state in _UNSAID else state


def summary(text: str) -> str:
    """Cuts `text` to a summary that the server takes, by its bytes as JSON."""
    while len(json.dumps(text, ensure_ascii=False).encode("utf-8")) > _SUMMARY_BYTES:
        text = text[: len(text) * 9 // 10]
    return text


def details(requests: Sequence[ApprovalRequest], outcomes: Sequence[CallOutcome]) -> str:
    """Writes Markdown for Temporal UI: what waits, for whom, since when, and what was settled."""
    waiting = [request for request in requests if request.state == "pending"]
    lines: list[str] = []
    if waiting:
        lines += [
            "### Waiting for people",
            "",
            "| code | action | who may decide | asked | answer by |",
            "|---|---|---|---|---|",
        ]
        lines += [_line(request) for request in waiting]
        lines += ["", "Decide with the `decide` update or the `approval_response` signal:", ""]
        lines += [f"    {_envelope(request)}" for request in waiting[:3]]
    answered = [request for request in requests if request.state != "pending"]
    if answered:
        lines += ["", "### Answered", "", "| code | action | state | by | when |", "|---|---|---|---|---|"]
        lines += [_answered(request) for request in answered]
    doubtful = [outcome for outcome in outcomes if outcome.code == "in_doubt"]
    lines += [
        f"\n**In doubt**: `{outcome.tool}` ({outcome.call}): nobody knows whether it happened" for outcome in doubtful
    ]
    return "\n".join(lines)


def _line(request: ApprovalRequest) -> str:
    question = "Did this happen? " if request.kind == "in_doubt" else ""
    cells = (
        show_code(request.code),
        f"{question}{request.card.effect}",
        ", ".join(request.approvers),
        _time(request.opened_at),
        _time(request.expires_at),
    )
    return _cells(cells)


def _answered(request: ApprovalRequest) -> str:
    by = request.decided_name or request.decided_by
    return _cells((show_code(request.code), request.card.effect, request.state, by, _time(request.decided_at)))


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    # A model chooses these words: as Markdown they could close the table, hide text, or fetch a picture.
    return _MARKDOWN.sub(r"\\\1", " ".join(text.splitlines()))


def _envelope(request: ApprovalRequest) -> str:
    verdict = "happened" if request.kind == "in_doubt" else "approved"
    return json.dumps({"approval_id": request.id, "revision": request.revision, "verdict": verdict})


def _time(moment: datetime | None) -> str:
    # Not by `strftime`, which imports a module at each call: that is slow in the sandbox.
    return "" if moment is None else f"{moment.isoformat(' ', 'minutes')[:16]} UTC"
