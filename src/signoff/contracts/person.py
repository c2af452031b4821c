"""People, and the principals of turns."""

import hashlib
import operator
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.limits import ASKED_SECONDS, ENDPOINT_CHARS
from signoff.contracts.names import DEFAULT_TENANT, SUBSCRIPTION


class Delegation(FrozenModel):
    """A person's permission for another to decide for them.

    One hop: a delegate's own delegations do not pass it on.
    """

    to: str
    """The id of the person who may decide."""
    until: datetime
    """The end, a time of ISO 8601 with its zone."""


class Absence(FrozenModel):
    """A person's own statement that they are away. Unlike a delegation, it gives no right."""

    tenant: str
    person: str
    """The id of the person."""
    since: datetime
    """The beginning, in UTC."""
    until: datetime
    """The return, in UTC."""
    tools: tuple[str, ...] = ()
    """The tools of the requests. If empty, all."""
    to: str = ""
    """The id of a person to ask instead, or ""."""
    said_at: datetime
    """When the person said so, in UTC."""
    key_id: str = ""
    """The gateway's signing key."""
    signature: str = ""
    """The gateway's signature over all other fields."""


class ContactPreferences(FrozenModel):
    """A person's preferred channels and quiet hours, besides the inbox.

    From `quiet_from` to `quiet_to` (`HH:MM` by the clocks of `timezone`, past midnight if it ends before it begins) and
    all day on `quiet_days`, only urgent messages are sent.
    """

    channels: tuple[str, ...] = ()
    """Channels in order of preference; no others are used."""
    quiet_from: str = ""
    """Begin of quiet hours, `HH:MM`. Cards that can wait are sent after the end."""
    quiet_to: str = ""
    """End of quiet hours, `HH:MM`, perhaps on the next day."""
    timezone: str = "UTC"
    """Time zone of quiet hours, such as `Europe/Lisbon`."""
    quiet_days: tuple[str, ...] = ()
    """Quiet days, `mon` to `sun`."""


class PushSubscription(FrozenModel):
    """A browser that shows a person's notifications (RFC 8030, RFC 8291)."""

    endpoint: str = Field(max_length=ENDPOINT_CHARS, repr=False)
    """The address of the push service. Secret: it is the right to send to the browser."""
    p256dh: str = Field(max_length=100, repr=False)
    """The browser's public key, an uncompressed point of P-256 in base64url."""
    auth: str = Field(max_length=50, repr=False)
    """The browser's secret of 16 bytes, in base64url."""

    @property
    def id(self) -> str:
        """The SHA-256 of the endpoint."""
        return hashlib.sha256(self.endpoint.encode()).hexdigest()


class Person(FrozenModel):
    """One person of a directory."""

    id: str
    """The id of the entry: `[A-Za-z0-9_-]{1,48}`."""
    person_id: str = ""
    """The `id` of the same human's first entry; all count as one person."""
    name: str = ""
    """For cards and receipts."""
    tenant: str = DEFAULT_TENANT
    """The person's tenant."""
    tier: str = "standard"
    """For rules, as `ctx.user.tier`."""
    roles: tuple[str, ...] = ()
    """For `approvers`."""
    locale: str = ""
    """Language, such as `de-AT`."""
    active: bool = True
    """May act."""
    attributes: dict[str, Any] = Field(default_factory=dict)
    """The context fields `user.<name>`, such as `{costCentre: "4711"}`. Only the directory sets them."""
    identities: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names elsewhere, by channel, such as `{email: [ana@example.com]}`."""
    delegations: tuple[Delegation, ...] = ()
    """Delegates: `{to: bo, until: "2030-08-31T18:00:00Z"}`."""
    may_set: tuple[str, ...] = ()
    """Settings that their requests may carry: `route`, `step`, `transient`, `context`, `context.<name>`.

    The production profile refuses others.
    """
    reach: ContactPreferences | None = None
    """Channels besides the inbox; [below](#channels)."""
    calendar: str = Field(default="", repr=False)
    """The https address of an iCal file for [absences](approvals.md#away), or its [reference](#secrets)."""


class Principal(FrozenModel):
    """The requester of a turn, from the gateway's directory, never from a request body."""

    user: str
    person_id: str = ""
    """The person id of `user` if the directory knew several accounts of that person. Otherwise ""."""
    name: str = ""
    tier: str = "standard"
    roles: tuple[str, ...] = ()
    locale: str = "en"
    actor: str = ""
    """The addressed actor. "" means the session's own."""
    route: str = ""
    """The requested route."""
    step: str = ""
    """The requested step."""
    transient: tuple[str, ...] = ()
    """Names of requested tools, for this turn and with priority over all others."""
    given: tuple[str, ...] = ()
    """Names of the given context fields. Later changes cannot set these."""
    given_data: tuple[str, ...] = ()
    """Names of the given fields of collected data. Later changes cannot set these."""
    words: str = Field(default="", exclude_if=operator.not_)
    """The SHA-256 of `nonce` and the person's own message. "" if a program or another agent wrote it."""
    nonce: str = ""
    """Random, new with each signature: turns with equal ids have different calls."""
    store_id: str = ""
    """The store with this turn's tickets."""
    issued_at: datetime | None = None
    """When the gateway signed it, by its clock."""
    key_id: str = ""
    """The gateway's signing key."""
    signature: str = ""
    """Binds it to its turn: Ed25519, in base64, over the bytes of keys/signature_form.py."""

    @property
    def is_person(self) -> bool:
        """Whether a person asked, not a subscription. No person has an id with a colon."""
        return not self.user.startswith(f"{SUBSCRIPTION}:")

    @property
    def human(self) -> str:
        """The requester's person id, the same for all of their accounts."""
        return self.person_id or self.user

    @property
    def expires_at(self) -> datetime | None:
        """The time after which no rule runs a call for it. `None` if the gateway did not make it."""
        return None if self.issued_at is None else self.issued_at + timedelta(seconds=ASKED_SECONDS)
