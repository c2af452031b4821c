"""What Temporal's own tools show of a turn: search attributes, the memo of open cards, current details."""

import json
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import show_code
from signoff.contracts.limits import EFFECT_CHARS, MEMO_BYTES
from signoff.contracts.turn import LiveState

STATE = SearchAttributeKey.for_keyword(names.SA_STATE)
ACTOR = SearchAttributeKey.for_keyword(names.SA_ACTOR)
TENANT = SearchAttributeKey.for_keyword(names.SA_TENANT)
CODES = SearchAttributeKey.for_keyword_list(names.SA_CODES)
APPROVERS = SearchAttributeKey.for_keyword_list(names.SA_APPROVERS)
DUE_AT = SearchAttributeKey.for_datetime(names.SA_DUE_AT)

_ATTRIBUTE_BYTES: Final = 2_000
"""The server takes 2 KiB a search attribute, brackets included."""
_SUMMARY_BYTES: Final = 300
"""Temporal promises room for 400 bytes of a summary, payload included."""

_TIGHT_EFFECTS: Final = (60, 20)
"""Characters of each effect in a memo that has no room for whole ones."""

_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>|!#~&])")

Version = tuple[int, bool, int]
"""What a card's row says beside the request it names: revision, whether it is escalated, reminders."""

Attributes = tuple[LiveState, tuple[str, ...], tuple[str, ...], datetime | None]


def attributes(state: LiveState, requests: Sequence[ApprovalRequest]) -> Attributes:
    """State, codes (`K7Q2FM` open, `K7Q2FM!` decided, never removed), approvers and first deadline of a turn."""
    waiting = [request for request in requests if request.state == "pending"]
    decided = [request for request in requests if request.state != "pending"]
    # Where there is no room for all, the oldest answers go: what waits, and what was answered last, is still found.
    codes = fitting((*(request.code for request in waiting), *(f"{request.code}!" for request in reversed(decided))))
    # Roles first: they sort before users, and stand for more people.
    approvers = fitting(tuple(sorted({approver for request in waiting for approver in request.approvers})))
    due = min((request.expires_at for request in waiting if request.expires_at is not None), default=None)
    return state, codes, approvers, due


def fitting(values: tuple[str, ...]) -> tuple[str, ...]:
    """The first of `values` that one search attribute holds; one value more would fail every workflow task."""
    room = _ATTRIBUTE_BYTES
    for count, value in enumerate(values):
        room -= len(json.dumps(value)) + 2
        if room < 0:
            return values[:count]
    return values


def updates(before: Attributes | None, after: Attributes) -> list[SearchAttributeUpdate[Any]]:
    """The search attribute updates that lead from one set to the other; none when nothing changed."""
    changed: list[SearchAttributeUpdate[Any]] = []
    if before is None or before[0] != after[0]:
        changed.append(STATE.value_set(after[0]))
    if (before[1] if before else ()) != after[1]:
        changed.append(CODES.value_set(after[1]))
    if (before[2] if before else ()) != after[2]:
        changed.append(APPROVERS.value_set(after[2]) if after[2] else APPROVERS.value_unset())
    if (before[3] if before else None) != after[3]:
        changed.append(DUE_AT.value_unset() if after[3] is None else DUE_AT.value_set(after[3]))
    return changed


def summary(text: str) -> str:
    """`text` as a summary that the server takes: cut by its bytes as JSON."""
    while len(json.dumps(text, ensure_ascii=False).encode("utf-8")) > _SUMMARY_BYTES:
        text = text[: len(text) * 9 // 10]
    return text


def memo(requests: Sequence[ApprovalRequest]) -> list[dict[str, Any]]:
    """The cards in short, open ones first, at most 16 KiB of JSON; effects are cut shorter before a row is left out."""
    ordered = sorted(requests, key=lambda request: request.state != "pending")
    waiting = sum(request.state == "pending" for request in ordered)
    rows: list[dict[str, Any]] = []
    for chars in (EFFECT_CHARS, *_TIGHT_EFFECTS):
        rows = _fitting_rows(ordered, chars)
        if len(rows) >= waiting:
            break
    return rows


def version(request: ApprovalRequest) -> Version:
    """What of a waiting request can change while it waits, as far as rows show it."""
    return request.revision, request.escalated, request.reminded


def unlisted(requests: Sequence[ApprovalRequest], listed: Collection[str]) -> bool:
    """Whether a request waits that the last memo, which held the ids `listed`, had no room for, and now has."""
    missing = {request.id for request in requests if request.state == "pending"}.difference(listed)
    return bool(missing) and any(row["id"] in missing for row in memo(requests))


def details(requests: Sequence[ApprovalRequest], outcomes: Sequence[CallOutcome]) -> str:
    """Markdown for Temporal UI: what waits, for whom, since when, and what was settled."""
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


def _fitting_rows(requests: Sequence[ApprovalRequest], chars: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    room = MEMO_BYTES
    for request in requests:
        row = _row(request, chars)
        # In bytes, as the server counts: other scripts take up to four a character.
        room -= len(json.dumps(row, ensure_ascii=False).encode("utf-8")) + 1
        if room < 0:
            break
        rows.append(row)
    return rows


def _row(request: ApprovalRequest, chars: int) -> dict[str, Any]:
    row = {
        "id": request.id,
        "code": request.code,
        "revision": request.revision,
        "tool": request.tool,
        "actor": request.actor,
        "effect": request.card.effect[:chars],
        "requester": request.requester.user,
        "approvers": list(request.approvers),
        "opened_at": request.opened_at.isoformat() if request.opened_at else None,
        "expires_at": request.expires_at.isoformat() if request.expires_at else None,
    }
    # Room is scarce: what most rows would say alike is said only where it differs.
    rare = {
        "kind": "" if request.kind == "approval" else request.kind,
        "reminded": request.reminded,
        "escalated": request.escalated,
        "edited_by": request.edited_name or request.edited_by,
    }
    return row | {name: value for name, value in rare.items() if value}


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
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M UTC")
