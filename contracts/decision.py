"""A decision: what a person answered, as it reaches the turn."""

from datetime import datetime
from typing import Any, Literal

from signoff.contracts.frozen_model import Shape

Verdict = Literal["approved", "denied", "happened", "withdrawn"]
"""`happened` answers only the question what became of a call that is in doubt; there `approved` says that it did not
happen and may run, `denied` gives it up. `withdrawn` is what an envelope for `cancel` says, and no answer."""
Assurance = Literal["none", "link", "channel", "session", "mfa"]
ASSURANCES: tuple[Assurance, ...] = ("none", "link", "channel", "session", "mfa")
"""How strongly a person was identified, weakest first."""
UNSIGNED = "unsigned"
"""The subject recorded for an answer that names nobody."""


class Remember(Shape):
    """What a person adds to an answer: give the same one to the next calls like this.

    `where` is a CEL predicate over `args`, or empty for exactly these arguments. `seconds` and `uses` bound it.
    """

    scope: Literal["session", "tenant"] = "session"
    where: str = ""
    seconds: float = 3_600.0
    uses: int = 10


class Decision(Shape):
    """One answer to one request. An unsigned one needs `approval_id` and `verdict` only.

    `question_hash` binds it to call, terms and preview as shown. `subject`, `channel` and `assurance` are what the
    gateway verified. `received_at` is the gateway's clock.
    `edited_args` are the arguments the author wants instead. `result` says what a call in doubt came to.
    `signature` is Ed25519, in base64, by the gateway's key `key_id`, over the bytes of keys/signature_form.py; both are
    empty where nobody verified the author.
    """

    v: int = 1
    approval_id: str
    revision: int | None = None
    question_hash: str = ""
    verdict: Verdict
    edited_args: dict[str, Any] | None = None
    reason: str = ""
    subject: str = ""
    channel: str = ""
    assurance: Assurance = "none"
    delivery_id: str = ""
    received_at: datetime | None = None
    remember: Remember | None = None
    result: str = ""
    key_id: str = ""
    signature: str = ""


def at_least(have: Assurance, need: Assurance) -> bool:
    """Whether assurance `have` is as strong as `need`."""
    return ASSURANCES.index(have) >= ASSURANCES.index(need)
