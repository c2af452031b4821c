"""An entry of the audit record, before it has its place."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel

AuditKind = Literal[
    "turn", "proposal", "trace", "request", "delivery", "attempt", "verdict", "revision", "auto", "grant", "execution",
    "outcome", "in_doubt", "ending", "admin", "policy", "people", "retired",
]  # fmt: skip


BY: Final = "by"
"""The fact that names the only reporter of an entry."""
BY_TURN: Final = "turn"
"""The value of `BY` in an entry that only its turn reports."""
CLAIMED_SUBJECT: Final = "claimed_subject"
"""The fact that holds a subject whom the gateway did not vouch for. The entry itself then has no subject."""


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


class EventEntry(AuditEntry):
    """An entry whose event tells more than the record holds, as events are kept for days and the record for good."""

    event_facts: dict[str, Any] = Field(default_factory=dict)
    """Facts of the event alone."""


DISPATCH: Final = "tool_call:"
"""How the types of dispatched calls begin; the name of the tool follows."""
EVENT_NAMES: Final = (
    "turn.started", "turn.stop_requested", "turn.ended", "tool_call.proposed", "tool_call.settled", "tool_call.allowed",
    "tool_call.executed", "tool_call.failed", "tool_call.refused", "tool_call.in_doubt", "tool_call.probed",
    "approval.requested", "approval.edited", "approval.answered", "approval.decided", "approval.reminded",
    "approval.escalated", "approval.postponed", "approval.expired", "approval.withdrawn", "approval.lapsed",
    "grant.created", "grant.revoked", "freeze.started", "freeze.lifted", "catalog.deployed",
)  # fmt: skip
"""The types of all other events."""


def _is_empty(value: str) -> bool:
    return not value


class CloudEvent(FrozenModel):
    """Something that happened, as programs outside are told of it: by the attribute names of CloudEvents 1.0."""

    specversion: Literal["1.0"] = "1.0"
    """The version of CloudEvents."""
    id: str
    """Names the event for good: the stream and the number of the record that it is made of."""
    source: str
    """Who it comes from: `actor:<name>` for a dispatched call, else `turn:<name>` or `tenant:<name>`."""
    type: str
    """What happened, such as `approval.requested`, or `tool_call:<tool>` for a dispatched call."""
    subject: str = ""
    """What it happened to: a call or its request, a turn, a grant or a tenant."""
    time: str
    """When it happened: ISO 8601 in UTC."""
    datacontenttype: Literal["application/json"] = "application/json"
    """The form of `data`."""
    dataschema: str = Field("", exclude_if=_is_empty)
    """The address of the JSON Schema of `data`; left out where no gateway is asked."""
    data: dict[str, Any] = Field(default_factory=dict)
    """The facts of its type."""
    tenant: str = ""
    """The tenant."""
    number: int = 0
    """Its number in the stream of its tenant, from 1; one that is higher is never there before it."""
    actor: str = ""
    """The actor whose call it is about, "" where it is about none or that is not known."""
    private: bool = False
    """Whether it is of a specialist: for the subscriptions of its actor, for operators and for auditors alone."""
    claimed: bool = False
    """Whether it is the word of its turn alone, which nobody proves."""


class EventList(FrozenModel):
    """A part of a tenant's events."""

    events: tuple[CloudEvent, ...] = ()
    """The events, in the order of their numbers; some of those between may be left out as not for this reader."""
    next: int
    """The number to go on after."""
    oldest: int
    """The number of the oldest event that is kept; one above `newest` where none is."""
    newest: int
    """The number of the newest event."""


class FailedEvent(FrozenModel):
    """An event that did not arrive at a subscription, however often it was tried."""

    subscription: str
    """The subscription's name."""
    code: str
    """What the last try came to: a status of HTTP, `timeout`, `connection` and the like."""
    event: CloudEvent
    """The event."""


class FailedEventList(FrozenModel):
    """What was given up in a tenant."""

    failed: tuple[FailedEvent, ...] = ()
    """At most 500, the oldest first."""


class RetryResult(FrozenModel):
    """What is tried again."""

    retried: int
    """How many deliveries."""
