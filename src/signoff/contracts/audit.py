"""An entry of the audit log, before it has its place."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel

AuditKind = Literal[
    "turn", "proposal", "trace", "request", "delivery", "attempt", "verdict", "revision", "auto", "grant", "execution",
    "outcome", "in_doubt", "ending", "message", "admin", "policy", "people", "retired",
]  # fmt: skip


BY: Final = "by"
"""The fact that names the only reporter of an entry."""
BY_TURN: Final = "turn"
"""The value of `BY` in an entry that only its turn reports."""
CLAIMED_SUBJECT: Final = "claimed_subject"
"""The fact with a subject that the gateway did not confirm. The entry itself then has no subject."""


class AuditEntry(FrozenModel):
    """An event as its reporter writes it."""

    stream: str = ""
    """A turn's workflow id, or `admin/<tenant>` for acts outside turns. "" for a turn's own entry."""
    key: str
    """Unique within the stream, so that a repeated write adds nothing."""
    kind: AuditKind
    at: datetime
    """When it happened, in UTC, by the clock for `kind`."""
    tenant: str = ""
    """The tenant, or ""."""
    subject: str = ""
    """The person or thing concerned."""
    data: dict[str, Any] = Field(default_factory=dict)
    """Facts as JSON. Holds no arguments, only their digest, except for specialists."""


class EventEntry(AuditEntry):
    """An entry with additional facts for its event: events are kept for days, the audit log forever."""

    event_facts: dict[str, Any] = Field(default_factory=dict)
    """Facts of the event alone."""


DISPATCH: Final = "tool_call:"
"""The type prefix of dispatched calls. The tool's name follows."""
EVENT_NAMES: Final = (
    "turn.started", "turn.stop_requested", "turn.ended", "tool_call.proposed", "tool_call.settled", "tool_call.allowed",
    "tool_call.executed", "tool_call.answered", "tool_call.failed", "tool_call.refused", "tool_call.in_doubt",
    "tool_call.probed",
    "approval.requested", "approval.edited", "approval.answered", "approval.decided", "approval.reminded",
    "approval.escalated", "approval.postponed", "approval.expired", "approval.withdrawn", "approval.lapsed",
    "grant.created", "grant.revoked", "freeze.started", "freeze.lifted", "catalog.deployed",
)  # fmt: skip
"""The types of all other events."""


def _is_empty(value: str) -> bool:
    return not value


class CloudEvent(FrozenModel):
    """An event for external programs, with the attribute names of CloudEvents 1.0."""

    specversion: Literal["1.0"] = "1.0"
    """The version of CloudEvents."""
    id: str
    """The permanent id of the event: stream and number of its audit entry."""
    source: str
    """The source: `actor:<name>` for a dispatched call, else `turn:<name>` or `tenant:<name>`."""
    type: str
    """The type, such as `approval.requested`, or `tool_call:<tool>` for a dispatched call."""
    subject: str = ""
    """The affected call, request, turn, grant or tenant."""
    time: str
    """When it happened: ISO 8601 in UTC."""
    datacontenttype: Literal["application/json"] = "application/json"
    """The form of `data`."""
    dataschema: str = Field("", exclude_if=_is_empty)
    """The address of the JSON Schema of `data`. Omitted outside a gateway."""
    data: dict[str, Any] = Field(default_factory=dict)
    """The facts of its type."""
    tenant: str = ""
    number: int = 0
    """Its number in the tenant's stream, from 1. Numbers appear in ascending order."""
    actor: str = ""
    """The actor of the call concerned, "" if there is none or it is unknown."""
    private: bool = False
    """True for a specialist's event: only its actor's subscriptions, operators and auditors see it."""
    claimed: bool = False
    """True if only its turn claims it, without proof."""


class EventList(FrozenModel):
    """A part of a tenant's events."""

    events: tuple[CloudEvent, ...] = ()
    """The events in order of their numbers. Numbers may be missing if this reader may not see them."""
    next: int
    """The number to continue after."""
    oldest: int
    """The number of the oldest stored event. One above `newest` if there is none."""
    newest: int
    """The number of the newest event."""


class FailedEvent(FrozenModel):
    """An event that a subscription never received, despite all attempts."""

    subscription: str
    """The subscription's name."""
    code: str
    """The result of the last attempt: an HTTP status, `timeout`, `connection` and similar."""
    event: CloudEvent


class FailedEventList(FrozenModel):
    """The failed deliveries of a tenant."""

    failed: tuple[FailedEvent, ...] = ()
    """At most 500, oldest first."""


class RetryResult(FrozenModel):
    """The deliveries to repeat."""

    retried: int
    """Number of deliveries."""
