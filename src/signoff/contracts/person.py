"""People, and the principals on whose behalf turns run."""

from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.limits import ASKED_SECONDS
from signoff.contracts.names import DEFAULT_TENANT, SUBSCRIPTION


class Delegation(FrozenModel):
    """Lets somebody decide in a person's place.

    One hop: what was delegated to a person is not passed on by their own delegations.
    """

    to: str
    """The id of the person who may decide."""
    until: datetime
    """The end, a time of ISO 8601 with its zone."""


class ContactPreferences(FrozenModel):
    """How a person wants to be reached beside the inbox.

    From `quiet_from` to `quiet_to` (`HH:MM` by the clocks of `timezone`, over midnight where it ends before it begins)
    and all day on `quiet_days` they get nothing that can wait.
    """

    channels: tuple[str, ...] = ()
    """Of the channels that a request names, only these, in this order."""
    quiet_from: str = ""
    """The begin of the quiet hours, `HH:MM`. Cards that can wait are sent after their end."""
    quiet_to: str = ""
    """The end of the quiet hours, `HH:MM`, perhaps on the next day."""
    timezone: str = "UTC"
    """The time zone of the quiet hours, such as `Europe/Lisbon`."""
    quiet_days: tuple[str, ...] = ()
    """Days that are quiet altogether, `mon` to `sun`."""


class Person(FrozenModel):
    """One person of a directory."""

    id: str
    """The id of the entry: `[A-Za-z0-9_-]{1,48}`."""
    person_id: str = ""
    """The `id` of the first entry of the same human: all their entries count as one person."""
    name: str = ""
    """For cards and receipts."""
    tenant: str = DEFAULT_TENANT
    """The person's tenant."""
    tier: str = "standard"
    """For rules, as `ctx.user.tier`."""
    roles: tuple[str, ...] = ()
    """For `approvers`."""
    locale: str = ""
    """The person's language, such as `de-AT`."""
    active: bool = True
    """Whether the person may act."""
    attributes: dict[str, Any] = Field(default_factory=dict)
    """Values of the context fields `user.<name>`, such as `{costCentre: "4711"}`. Only the directory sets them."""
    identities: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The person's names elsewhere, by channel, such as `{email: [ana@example.com]}`."""
    delegations: tuple[Delegation, ...] = ()
    """The person's delegates: `{to: bo, until: "2030-08-31T18:00:00Z"}`."""
    may_set: tuple[str, ...] = ()
    """The parts of a turn that their requests may set: `route`, `step`, `transient`, `context`, `context.<name>`.

    The production profile refuses others.
    """
    reach: ContactPreferences | None = None
    """The person's channels besides the inbox; [below](#channels)."""


class Principal(FrozenModel):
    """Who asked for a turn, filled in by the gateway from its directory, never from a request body."""

    user: str
    """The person's id."""
    person_id: str = ""
    """The id of the human behind `user`, where the directory knew that it is one of several of theirs; else ""."""
    name: str = ""
    """The person's name."""
    tier: str = "standard"
    """The person's tier."""
    roles: tuple[str, ...] = ()
    """The person's roles."""
    locale: str = "en"
    """The person's language."""
    actor: str = ""
    """The actor that the person addressed; "" for the session's own."""
    route: str = ""
    """The route that was asked for."""
    step: str = ""
    """The step that was asked for."""
    transient: tuple[str, ...] = ()
    """Names of tools that were asked for, for the one turn and before all others."""
    given: tuple[str, ...] = ()
    """Names of the context fields that were given; nobody sets these later."""
    given_data: tuple[str, ...] = ()
    """Names of the fields of collected data that were given; nobody sets these later."""
    nonce: str = ""
    """Random, made with each signature: no two turns of one id have the same calls."""
    store_id: str = ""
    """The store whose tickets tell what was done in this turn."""
    issued_at: datetime | None = None
    """When the gateway signed it, by its clock."""
    key_id: str = ""
    """The gateway's key that signed it."""
    signature: str = ""
    """Binds it to the turn asked for: Ed25519, in base64, over the bytes of keys/signature_form.py."""

    @property
    def is_person(self) -> bool:
        """Whether a person asked, not a subscription. No person has an id with a colon."""
        return not self.user.startswith(f"{SUBSCRIPTION}:")

    @property
    def human(self) -> str:
        """Returns the id of the human who asked, the same by whichever of their accounts."""
        return self.person_id or self.user

    @property
    def expires_at(self) -> datetime | None:
        """Returns the time from which on no rule runs a call for it; None of one that the gateway did not make."""
        return None if self.issued_at is None else self.issued_at + timedelta(seconds=ASKED_SECONDS)
