"""One record of the audit log, as whoever reports it writes it."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from signoff.contracts.frozen_model import Shape

AuditKind = Literal[
    "turn", "request", "delivery", "attempt", "verdict", "revision", "auto", "grant", "execution", "outcome",
    "in_doubt", "ending", "admin", "policy", "people", "retired",
]  # fmt: skip


class AuditEntry(Shape):
    """Something that happened. `key` is unique within its stream, so that writing it again adds nothing.

    `stream` is a turn's workflow id, or `admin/<tenant>` for acts that belong to no turn. `at` is UTC, of the clock
    that `kind` has by contracts.md. `data` is JSON and holds no arguments, only their digest, but for specialists'.
    """

    stream: str
    key: str
    kind: AuditKind
    at: datetime
    tenant: str
    subject: str = ""
    data: dict[str, Any] = Field(default_factory=dict)
