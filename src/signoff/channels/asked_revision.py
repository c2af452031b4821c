"""The revision of a request that a person was asked about, as a card or a note names it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signoff.channels.envelopes import PARTIAL, SHOWN
from signoff.contracts.approval import ApprovalRequest
from signoff.store.delivery_queue import DeliveryRow
from signoff.store.messages.own_messages import MessageSubject

UNKNOWN: Final = "unknown"
"""The hash of an unknown question. No request has it, so it decides nothing."""


@dataclass(frozen=True)
class AskedRevision:
    """One revision of a request, as a person was asked about it."""

    request: ApprovalRequest
    revision: int
    question_hash: str
    """`UNKNOWN` if the question that the person saw is unknown."""
    whole: bool = True
    """False if the person did not see every value: then it must be approved elsewhere."""
    thread: str = ""
    """The hash of the messages that the person saw. An approval names it."""


def note_of(asked: AskedRevision) -> dict[str, Any]:
    """The note is stored before the decision."""
    return {
        "request": asked.request.model_dump(mode="json"),
        "revision": asked.revision,
        "question_hash": asked.question_hash,
        "whole": asked.whole,
        "thread": asked.thread,
    }


def subject_of(asked: AskedRevision) -> MessageSubject:
    request = asked.request
    return MessageSubject(
        approval=request.id,
        code=request.code,
        revision=asked.revision,
        question_hash=asked.question_hash,
        whole=asked.whole,
        thread=asked.thread,
    )


def read_note(note: Mapping[str, Any]) -> AskedRevision:
    return AskedRevision(
        ApprovalRequest.model_validate(note["request"]),
        note["revision"],
        note["question_hash"],
        note["whole"],
        note.get("thread", ""),
    )


def revision_shown(row: DeliveryRow) -> AskedRevision:
    """Return the revision that a card showed.

    If the row's request already has a different revision, only the number is known and the hash is `UNKNOWN`.
    """
    shown = row.request.question_hash if row.request.revision == row.revision else UNKNOWN
    # A list shows no values.
    listed = row.kind == "digest" and SHOWN not in row.handle
    whole = row.request.card.whole and PARTIAL not in row.handle and not listed
    # At its end, a row gets the request's messages, although the card did not show them.
    thread = row.request.thread if row.request.state == "pending" else ""
    return AskedRevision(row.request, row.revision, shown, whole, thread)
