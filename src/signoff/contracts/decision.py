"""A person's decision, as it reaches the turn."""

from datetime import datetime
from typing import Any, Literal

from signoff.contracts.frozen_model import FrozenModel

Verdict = Literal["approved", "denied", "happened", "withdrawn", "retracted"]
"""`happened` answers only the question what became of a call that is in doubt; there `approved` says that it did not
happen and may run, `denied` gives it up. `withdrawn` is what an envelope for `cancel` says, and no answer.
`retracted` undoes a denial of the inbox; only the gateway writes it."""
Assurance = Literal["none", "link", "channel", "session", "mfa"]
ASSURANCES: tuple[Assurance, ...] = ("none", "link", "channel", "session", "mfa")
"""How strongly a person was identified, weakest first."""
UNSIGNED = "unsigned"
"""The subject recorded for an answer that names nobody."""


class GrantRequest(FrozenModel):
    """Asks for the same answer to the next calls like this one."""

    scope: Literal["session", "tenant"] = "session"
    """For which sessions: this one, or all of the tenant."""
    where: str = ""
    """A CEL predicate over `args`; "" for exactly these arguments."""
    seconds: float = 3_600.0
    """For how many seconds."""
    uses: int = 10
    """For how many calls."""


class Decision(FrozenModel):
    """One answer to one request. An unsigned one needs `approval_id` and `verdict` only."""

    v: int = 1
    """The version of this form."""
    approval_id: str
    """The request."""
    revision: int | None = None
    """The revision of the question that was answered."""
    question_hash: str = ""
    """Binds the decision to call, terms and preview as shown."""
    verdict: Verdict
    """The answer."""
    edited_args: dict[str, Any] | None = None
    """The arguments that the author wants instead."""
    reason: str = ""
    """The author's reason."""
    subject: str = ""
    """The author's id, as the gateway verified it."""
    channel: str = ""
    """By which channel the author answered, as the gateway verified it."""
    assurance: Assurance = "none"
    """How strongly the gateway identified the author."""
    delivery_id: str = ""
    """The id of this delivery: a second delivery is no second answer."""
    received_at: datetime | None = None
    """When the gateway received it, by the gateway's clock."""
    remember: GrantRequest | None = None
    """The wish that the answer be remembered."""
    result: str = ""
    """The outcome of a call in doubt, as the author states it."""
    key_id: str = ""
    """The gateway's key that signed it; "" where nobody verified the author."""
    signature: str = ""
    """Ed25519, in base64, over the bytes of keys/signature_form.py; "" where nobody verified the author."""


def at_least(have: Assurance, need: Assurance) -> bool:
    """Returns whether assurance `have` is as strong as `need`."""
    return ASSURANCES.index(have) >= ASSURANCES.index(need)
