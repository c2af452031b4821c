"""An entry of the audit record, before it has its place."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel

AuditKind = Literal[
    "turn", "request", "delivery", "attempt", "verdict", "revision", "auto", "grant", "execution", "outcome",
    "in_doubt", "ending", "admin", "policy", "people", "retired",
]  # fmt: skip


class AuditEntry(FrozenModel):
    """Something that happened, as whoever reports it writes it."""

    stream: str = ""
    """A turn's workflow id, or `admin/<tenant>` for acts that belong to no turn; "" where a turn tells of itself."""
    key: str
    """Unique within the stream, so that writing the entry again adds nothing."""
    kind: AuditKind
    """What kind of event it is."""
    at: datetime
    """When it happened, in UTC, by the clock that belongs to `kind`."""
    tenant: str = ""
    """The tenant, or ""."""
    subject: str = ""
    """The person or thing that it is about."""
    data: dict[str, Any] = Field(default_factory=dict)
    """Facts as JSON. Holds no arguments, only their digest, but for specialists'."""
