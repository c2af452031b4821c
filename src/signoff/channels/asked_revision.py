"""The revision of a request that a person was asked about, as a card or a note names it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signoff.channels.envelopes import PARTIAL
from signoff.contracts.approval import ApprovalRequest
from signoff.store.delivery_queue import DeliveryRow
from signoff.store.messages.own_messages import MessageSubject

UNKNOWN: Final = "unknown"
"""The hash of what is not known: no request has it, so that nothing is decided by it."""


@dataclass(frozen=True)
class AskedRevision:
    """One revision of a request, as somebody was asked."""

    request: ApprovalRequest
    """The request."""
    revision: int
    """The revision."""
    question_hash: str
    """The hash of the question; `UNKNOWN` where nobody knows what they saw."""
    whole: bool = True
    """False where what they saw does not give every value: then it is approved elsewhere."""


def note_of(asked: AskedRevision) -> dict[str, Any]:
    """Returns the note of `asked`, as JSON, that is stored before it is decided."""
    return {
        "request": asked.request.model_dump(mode="json"),
        "revision": asked.revision,
        "question_hash": asked.question_hash,
        "whole": asked.whole,
    }


def subject_of(asked: AskedRevision) -> MessageSubject:
    """Returns the entry for a message about `asked`."""
    request = asked.request
    return MessageSubject(
        approval=request.id,
        code=request.code,
        revision=asked.revision,
        question_hash=asked.question_hash,
        whole=asked.whole,
    )


def read_note(note: Mapping[str, Any]) -> AskedRevision:
    """Reads a note that `note_of` made."""
    return AskedRevision(
        ApprovalRequest.model_validate(note["request"]), note["revision"], note["question_hash"], note["whole"]
    )


def revision_shown(row: DeliveryRow) -> AskedRevision:
    """Returns the revision that a card showed. A request that was over when it was asked again keeps its number, and
    nothing else of it.
    """
    shown = row.request.question_hash if row.request.revision == row.revision else UNKNOWN
    return AskedRevision(row.request, row.revision, shown, row.request.card.whole and PARTIAL not in row.handle)
