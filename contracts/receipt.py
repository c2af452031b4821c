"""A receipt: everyone who acts is answered."""

from datetime import datetime
from typing import Literal

from signoff.contracts.frozen_model import Shape

ReceiptStatus = Literal["accepted", "counted", "refused", "pending"]
ReceiptCode = Literal[
    "", "unknown", "already_decided", "duplicate", "not_allowed", "self_approval", "stale", "expired",
    "cancelled", "assurance", "malformed", "unavailable",
]  # fmt: skip


class Receipt(Shape):
    """What became of one attempt to decide.

    `pending` means the answer is on its way (sent as a Signal) and its effect is not known yet.
    `message` is one sentence for the person. `decided_*` describe the decision that stands.
    """

    status: ReceiptStatus
    code: ReceiptCode = ""
    approval_id: str = ""
    state: str = ""
    verdict: str = ""
    decided_by: str = ""
    decided_name: str = ""
    decided_at: datetime | None = None
    channel: str = ""
    reason: str = ""
    votes: int = 0
    needed: int = 0
    message: str = ""
