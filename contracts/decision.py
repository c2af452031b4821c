"""A decision: what a person answered, as it reaches the turn."""

from datetime import datetime
from typing import Any, Literal

from signoff.contracts.base import Shape

Verdict = Literal["approved", "denied"]
Assurance = Literal["none", "link", "channel", "session", "mfa"]
ASSURANCES: tuple[Assurance, ...] = ("none", "link", "channel", "session", "mfa")
"""How strongly a person was identified, weakest first."""


class Decision(Shape):
    """One answer to one request. An unsigned one needs `approval_id` and `verdict` only.

    `subject`, `channel` and `assurance` are what the gateway verified. `received_at` is the gateway's clock.
    `key_id` and `signature` are empty until decisions are signed.
    """

    v: int = 1
    approval_id: str
    revision: int | None = None
    digest: str = ""
    verdict: Verdict
    edited_args: dict[str, Any] | None = None
    reason: str = ""
    subject: str = ""
    channel: str = ""
    assurance: Assurance = "none"
    delivery_id: str = ""
    received_at: datetime | None = None
    key_id: str = ""
    signature: str = ""


def at_least(have: Assurance, need: Assurance) -> bool:
    """Whether assurance `have` is as strong as `need`."""
    return ASSURANCES.index(have) >= ASSURANCES.index(need)
