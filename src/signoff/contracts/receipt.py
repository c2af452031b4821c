"""Receipts: the answer to every action."""

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
    "", "edit", "remember", "passed_on", "unseen", "begun", "enough", "withdraw", "late", "reason", "preview",
    "thread", "several", "no_answer", "asked", "questions", "external", "gone", "undo_late", "undo_other",
    "passkey", "passkey_misfit", "passkey_used", "passkey_cloned",
    "handed_on", "answered", "further", "to_self", "to_asker", "to_done", "to_stranger", "too_few",
]  # fmt: skip
"""Why an answer does not count, in more detail than its code.

- `edit`, `remember`: this request does not permit it. `passed_on`: an escalation or shift does not include remembering.
- `unseen`: the approver did not read the whole card. `begun`: the call has begun. `enough`: one answer too many.
- `withdraw`: another person's request. `late`: given in time, but read too late. `reason`: a denial needs a reason.
- `preview`: an approval needs a preview, and there is none. `thread`: there is a newer message about the request.
- `several`: several people must decide it, so that no one of them answers instead. `no_answer`: its tool takes no
  answer.
- `asked`: the agent has still to answer a question. `questions`: the approvers have asked all their questions.
- `external`: an external agent answers no questions here. `gone`: its turn does not wait for this request.
- `passkey`: lacks the person's passkey. `passkey_misfit`: proves another decision, person or page. `passkey_used`: its
  challenge was used or has expired. `passkey_cloned`: its counter did not grow.
- `undo_late`, `undo_other`: undoes a denial too late, or that of another person or browser session.
- `handed_on`: the person handed the request on. `answered`: the person has answered, so cannot hand it on. `further`:
  it reached the person by a hand-on, an addition or a delegation, so it cannot be handed on.
- `to_self`, `to_asker`, `to_done`, `to_stranger`: the other person is the author, the requester or an editor, has
  answered, handed on or been added, or may not decide in the author's place. `too_few`: the others are too few.
"""


class Receipt(FrozenModel):
    """The result of one attempt to decide."""

    status: ReceiptStatus
    """Whether the attempt counted. `pending`: stored, but a worker must still check the edited arguments, or a gateway
    the unsigned answer.
    """
    code: ReceiptCode = ""
    """Why it did not count, or ""."""
    why: ReceiptReason = ""
    """The detailed reason, or ""."""
    approval_id: str = ""
    state: str = ""
    """The request's state afterwards."""
    verdict: str = ""
    """The valid verdict."""
    decided_by: str = ""
    """The id of the person with the valid decision, the last of several."""
    decided_name: str = ""
    """The names of all people with the valid decision in order, separated by commas."""
    decided_at: datetime | None = None
    """When the valid decision was made, in UTC."""
    channel: str = ""
    """The channel of the valid decision."""
    reason: str = ""
    """The reason of the valid decision."""
    votes: int = 0
    needed: int = 0
    """Number of votes needed."""
    open: tuple[ApproverGroup, ...] = ()
    """While the request waits: its incomplete groups, each with the missing number."""
    message: str = ""
    """A program's or developer's mistake, in English. The gateway's API writes the text of all other messages."""
    remarks: tuple[Words, ...] = ()
    """Why an edit was refused. The gateway's API writes them into `message`, in its reader's language."""
