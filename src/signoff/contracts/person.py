"""People, and the principals on whose behalf turns run."""

from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.limits import ASKED_SECONDS
from signoff.contracts.names import DEFAULT_TENANT


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
    """Names of channels, in order: of the channels that a request names, these. Left out: all of them."""
    quiet_from: str = ""
    """When the quiet hours begin, `HH:MM`. Until they end, only cards that cannot wait are sent."""
    quiet_to: str = ""
    """When the quiet hours end, `HH:MM`. If that is the earlier time, they end on the next day."""
    timezone: str = "UTC"
    """The time zone of the quiet hours, such as `Europe/Lisbon`."""
    quiet_days: tuple[str, ...] = ()
    """Days that are quiet altogether, `mon` to `sun`."""


class Person(FrozenModel):
    """One person of a directory."""

    id: str
    """The id of the entry: `[A-Za-z0-9_-]{1,48}`."""
    person_id: str = ""
    """The `id` of the first entry of the same human; left out: this one.

    All entries of one human count as one person. Rules read it as `ctx.user.person_id`, handlers and hooks as
    `context.person_id`. A human with one entry has its `id` there.
    """
    name: str = ""
    """For cards and receipts."""
    tenant: str = DEFAULT_TENANT
    """The person's tenant."""
    tier: str = "standard"
    """For rules, as `ctx.user.tier`."""
    roles: tuple[str, ...] = ()
    """For `approvers`."""
    locale: str = ""
    """The person's language, such as `de-AT`.

    Without it, pages follow the browser and cards on other channels are in English; rules see `en`.
    """
    active: bool = True
    """Whether the person may act."""
    attributes: dict[str, Any] = Field(default_factory=dict)
    """Values of the context fields `user.<name>`.

    `context` declares these fields; `{costCentre: "4711"}` gives one. Only the directory says these, never a request.
    """
    identities: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The person's names elsewhere, by channel, such as `{email: [ana@example.com]}`.

    E-mail addresses, `TEAM:USER` of Slack, WhatsApp ids, `ISSUER#SUBJECT` of a login.
    """
    delegations: tuple[Delegation, ...] = ()
    """The person's delegates.

    A list of `{to: bo, until: "2030-08-31T18:00:00Z"}`.
    """
    may_set: tuple[str, ...] = ()
    """The parts of a turn that their requests may set: `route`, `step`, `transient`, `context`, `context.<name>`.

    The last is a single field. Rules read these, so the production profile refuses others. The development profile
    accepts all.
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
    def human(self) -> str:
        """Returns the id of the human who asked, the same by whichever of their accounts."""
        return self.person_id or self.user

    @property
    def expires_at(self) -> datetime | None:
        """Returns the time from which on no rule runs a call for it; None of one that the gateway did not make."""
        return None if self.issued_at is None else self.issued_at + timedelta(seconds=ASKED_SECONDS)
