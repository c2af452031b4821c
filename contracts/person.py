"""People and those on whose behalf a turn runs."""

from datetime import datetime
from typing import Any

from pydantic import Field

from signoff.contracts.frozen_model import Shape
from signoff.contracts.names import DEFAULT_TENANT


class Delegation(Shape):
    """Somebody who may decide in a person's place until `until` (UTC). One hop: what was delegated to a person is
    not passed on by theirs."""

    to: str
    until: datetime


class Reach(Shape):
    """How a person wants to be reached beside the inbox. `channels` are names of the manifest, in order; none: any.

    From `quiet_from` to `quiet_to` (`HH:MM` by the clocks of `timezone`, over midnight where it ends before it begins)
    and all day on `quiet_days` (`mon` to `sun`) they are told of nothing that can wait.
    """

    channels: tuple[str, ...] = ()
    quiet_from: str = ""
    quiet_to: str = ""
    timezone: str = "UTC"
    quiet_days: tuple[str, ...] = ()


class Person(Shape):
    """One person of a directory; `id` matches `ID_PATTERN`.

    `attributes` are the values of the context fields `user.<name>` that the manifest declares. `identities` are
    who the person is elsewhere, by channel: e-mail addresses, `TEAM:USER` of Slack, WhatsApp ids, `ISSUER#SUBJECT`
    of a login. `person_id` is the id of the first of several entries of one human, empty where there is one: who asks
    or answers counts as that human, whatever entry or login they come by.
    """

    id: str
    person_id: str = ""
    name: str = ""
    tenant: str = DEFAULT_TENANT
    tier: str = "standard"
    roles: tuple[str, ...] = ()
    locale: str = "en"
    active: bool = True
    attributes: dict[str, Any] = Field(default_factory=dict)
    identities: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    delegations: tuple[Delegation, ...] = ()
    may_set: tuple[str, ...] = ()
    """What of a turn this person's requests may set: `route`, `step`, `context`, or `context.<name>` alone."""
    reach: Reach | None = None


class Principal(Shape):
    """Who asked for a turn, filled in by the gateway from its directory, never from a request body.

    `signature` binds it to what was asked for: Ed25519, in base64, by the gateway's key `key_id`, over the bytes of
    keys/signature_form.py. `issued_at` is the gateway's clock; from `expires_at` on no rule runs a call for it.
    """

    user: str
    name: str = ""
    tier: str = "standard"
    roles: tuple[str, ...] = ()
    locale: str = "en"
    actor: str = ""
    """Who was to be spoken to; empty: whoever the session talks to."""
    route: str = ""
    step: str = ""
    given: tuple[str, ...] = ()
    """Names of the context fields that were given; nobody says anything else under them later."""
    given_data: tuple[str, ...] = ()
    """The same of the fields of collected data."""
    nonce: str = ""
    """Random, made with each signature: no two turns of one id have the same calls."""
    store_id: str = ""
    """The store whose tickets say what was done in this turn."""
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    key_id: str = ""
    signature: str = ""
