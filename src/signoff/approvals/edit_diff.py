"""Reports the approvers' edits and remarks to the model, never hidden values.

An edit's changes are the differences between the cards before and after it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.formats.fence import fence_mark
from signoff.formats.visible_text import one_line

NOTE_CHANGES: Final = 10
_ABSENT: Final = "nothing"
_NAME_CHARS: Final = 80


class RowChange(NamedTuple):
    """One argument before and after an edit."""

    name: str
    label: str
    before: str
    """The old value, or ""."""
    after: str
    """The new value, or ""."""


def row_changes(before: Sequence[CardRow], after: Sequence[CardRow]) -> tuple[RowChange, ...]:
    """Keeps the order of the new card, with removed rows last.

    Does not detect changes inside a hidden value, or beyond the truncation of a long one.
    """
    old, new = _rows_by_name(before), _rows_by_name(after)
    names = [*new, *(name for name in old if name not in new)]
    return tuple(
        RowChange(name, (new.get(name) or old[name]).label, _value(old.get(name)), _value(new.get(name)))
        for name in names
        if _value(old.get(name)) != _value(new.get(name))
    )


def edit_note(before: Sequence[CardRow], after: Sequence[CardRow]) -> str:
    edits = row_changes(before, after)
    if not edits:
        return "A person changed arguments of this call before it ran; they are hidden."
    changes = [
        f"{each.name} is {each.after or _ABSENT} (was {each.before or _ABSENT})" for each in edits[:NOTE_CHANGES]
    ]
    more = len(edits) - NOTE_CHANGES
    rest = f"; and {more} more" if more > 0 else ""
    return f"A person changed arguments of this call before it ran: {'; '.join(changes)}{rest}."


def remark_note(request: ApprovalRequest | None) -> str:
    if request is None or request.state != "approved":
        return ""
    approvals = [vote for vote in request.votes if vote.verdict == "approved"]
    remarks = [(vote.name or vote.person_id or vote.subject, vote.reason) for vote in approvals]
    remarks = remarks or [(request.decided_name or request.decided_by, request.reason)]
    return "\n".join(
        _fence(one_line(name, _NAME_CHARS).text, words.strip()) for name, words in remarks if words.strip()
    )


def _fence(name: str, words: str) -> str:
    mark = fence_mark(words)
    return f"[{mark} {name or 'a person'} approved this call and wrote:]\n{words}\n[{mark} end of the person's words]"


def _rows_by_name(rows: Sequence[CardRow]) -> dict[str, CardRow]:
    # The card's own remarks have no name and are not arguments.
    return {row.name: row for row in rows if row.name}


def _value(row: CardRow | None) -> str:
    return "" if row is None else row.value
