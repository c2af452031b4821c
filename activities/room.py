"""What every activity of one worker shares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from signoff.activities.permit import believed
from signoff.contracts.call import Pinned
from signoff.contracts.completion import Driver
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog
from signoff.registry.people import Directory
from signoff.store.store import Store

Profile = Literal["development", "production"]


class DecisionVerifier(Protocol):
    """Checks signatures with public keys; never raises."""

    def check_decision(self, decision: Decision) -> bool:
        """Whether the gateway vouched for every field of this decision."""


class NoKeys:
    """The verifier of a room without keys: no signature holds."""

    def check_decision(self, decision: Decision) -> bool:
        """See `DecisionVerifier`."""
        return False


@dataclass(frozen=True)
class Room:
    """One catalog, one store, one directory; `mark_key` makes the short digest that cards show."""

    catalog: Catalog
    store: Store
    people: Directory
    drivers: Mapping[str, Driver]
    mark_key: bytes
    profile: Profile = "development"
    verifier: DecisionVerifier = field(default_factory=NoKeys)

    def driver(self, model: str) -> Driver:
        """The driver of an actor's model string. Raises `ConfigError` when there is none."""
        driver = self.drivers.get(model)
        if driver is None:
            raise ConfigError(f"no driver for the model `{model}`", field="model", value=model)
        return driver

    def believes(self, ctx: Pinned) -> bool:
        """Whether the directory bears out the requester of `ctx`; if not, no rule lets a call pass without a person."""
        person = self.people.find(ctx.user.user, ctx.tenant)
        return believed(ctx.user, person, development=self.profile == "development")
