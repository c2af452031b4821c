"""Receipts: the answer to everyone who acts."""

from datetime import datetime
from typing import Literal

from signoff.contracts.approval import ApproverGroup
from signoff.contracts.content import Words
from signoff.contracts.frozen_model import FrozenModel

ReceiptStatus = Literal["accepted", "counted", "refused", "pending"]
ReceiptCode = Literal[
    "", "unknown", "already_decided", "duplicate", "not_allowed", "self_approval", "stale", "expired",
    "cancelled", "assurance", "malformed", "unavailable",
]  # fmt: skip


ReceiptReason = Literal[
    "", "edit", "remember", "passed_on", "unseen", "begun", "enough", "withdraw", "late", "reason", "undo_late",
    "undo_other",
]  # fmt: skip
"""Why an answer does not count, where its code alone does not say it: it changes what nobody may change; it is to be
remembered, which this is not, or not by whom others passed it on to; it approves what was not read; the call has begun;
it is one too many; it takes back what is another's; it was given in time and read too late; it denies without a
required reason; it undoes a denial too late, or that of another person or browser session."""


class Receipt(FrozenModel):
    """The result of one attempt to decide."""

    status: ReceiptStatus
    """Whether the attempt counted; `pending`: it was sent as a Signal, and its effect is not known yet."""
    code: ReceiptCode = ""
    """Why it did not count, or ""."""
    why: ReceiptReason = ""
    """Why, more closely, or ""."""
    approval_id: str = ""
    """The request."""
    state: str = ""
    """The request's state afterwards."""
    verdict: str = ""
    """The verdict that stands."""
    decided_by: str = ""
    """The id of the person whose decision stands, the last of several."""
    decided_name: str = ""
    """The names of all whose decision stands, in their order, by commas."""
    decided_at: datetime | None = None
    """When the standing decision was made, in UTC."""
    channel: str = ""
    """By which channel the standing decision was made."""
    reason: str = ""
    """The reason of the standing decision."""
    votes: int = 0
    """How many votes there are."""
    needed: int = 0
    """How many votes are needed."""
    open: tuple[ApproverGroup, ...] = ()
    """While the request waits: its groups that lack somebody, each with how many."""
    message: str = ""
    """What a program or a developer did wrong, in English; the gateway's API writes the words of every other."""
    remarks: tuple[Words, ...] = ()
    """Why changed arguments were refused; the gateway's API writes them in `message`, in its reader's language."""
