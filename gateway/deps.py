"""What every part of the gateway is given."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Final
from urllib.parse import quote

from signoff.client import Signoff
from signoff.contracts.call import Pinned
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.person import Person
from signoff.contracts.turn import TurnView
from signoff.gateway.attempts import AttemptRecords
from signoff.gateway.decisions import DecisionService
from signoff.gateway.proof import ended_view, proved_view
from signoff.registry.catalog import Catalog
from signoff.registry.people import Directory
from signoff.registry.seats import rights
from signoff.settings import Settings
from signoff.signing import Signer, Verifier
from signoff.store.requests import RequestReader
from signoff.store.store import Store


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


ASKERS_KEPT: Final = 10_000
"""Turns of which a gateway remembers who asked for them."""


@dataclass(frozen=True)
class GatewayDeps:
    """The desk and what stands around it. `clock` gives an aware time in UTC; it stamps `received_at`.

    `signer` holds the gateway's private keys; without one, which only the development profile allows, nothing is
    signed.
    """

    desk: Signoff
    catalog: Catalog
    people: Directory
    store: Store
    settings: Settings
    clock: Callable[[], datetime] = system_clock
    signer: Signer | None = field(default=None, repr=False)
    attempts: AttemptRecords = field(default_factory=AttemptRecords, repr=False)
    _askers: dict[TurnKey, str] = field(default_factory=dict, repr=False)

    @cached_property
    def requests(self) -> RequestReader:
        """Requests as people are shown them."""
        return RequestReader(self.store, self.verifier, development=self.development)

    @cached_property
    def decisions(self) -> DecisionService:
        """Where answers are taken."""
        return DecisionService(
            self.store, self.desk, self.people, self.signer, self.clock, development=self.development
        )

    async def asker(self, key: TurnKey) -> str:
        """The id of the person in whose name a turn was asked for, by the gateway's signature; "" where none holds.

        Needs no worker. Raises `NotFound`, `ServerUnavailable`.
        """
        known = self._askers.get(key)
        if known is not None:
            return known
        turn = await self.desk.asked(key)
        ctx = Pinned(
            tenant=key.tenant,
            session=key.session,
            turn=key.turn,
            actor=turn.actor,
            channel=turn.channel,
            route=turn.route,
            step=turn.step,
            user=turn.principal,
            extra=dict(turn.context),
        )
        if not self.verifier().check_principal(ctx):
            return ""
        if len(self._askers) >= ASKERS_KEPT:
            self._askers.pop(next(iter(self._askers)))
        self._askers[key] = turn.principal.user
        return turn.principal.user

    async def view(self, key: TurnKey) -> TurnView:
        """A turn as it may be shown. Raises `NotFound`, `ServerUnavailable`, `StoreUnavailable`."""
        return await self.proved(await self.said(key))

    async def said(self, key: TurnKey) -> TurnView:
        """A turn by its own word; one that is over without a worker, where none answers in time.

        Raises as `view`.
        """
        try:
            return await self.desk.view(key)
        except ServerUnavailable:
            return await ended_view(await self.desk.ended_view(key), self.requests)

    async def proved(self, view: TurnView) -> TurnView:
        """`view` as far as the store bears it out."""
        return await proved_view(view, self.store, self.requests, self.catalog)

    async def watch(self, key: TurnKey) -> AsyncIterator[TurnView]:
        """The turn's views as they may be shown, one whenever it changed, until it has its result."""
        async for view in self.desk.watch(key):
            yield await self.proved(view)

    @property
    def development(self) -> bool:
        """Whether this is the development profile."""
        return self.settings.profile == "development"

    def verifier(self) -> Verifier:
        """What checks the gateway's own signatures."""
        return Verifier() if self.signer is None else self.signer.verifier()

    def rights(self, person: Person) -> tuple[str, ...]:
        """The approver entries that a person answers to now, by delegation as well."""
        return rights(person, self.people.delegators(person.id, person.tenant, self.clock()))

    def temporal_link(self, key: TurnKey | SessionKey) -> str:
        """The same turn or session in Temporal's own UI."""
        namespace = quote(self.desk.temporal.namespace, safe="")
        workflow = quote(key.workflow_id, safe="")
        return f"http://127.0.0.1:{self.settings.ui_port}/namespaces/{namespace}/workflows/{workflow}"

    def page_link(self, key: TurnKey) -> str:
        """The turn's page in the inbox."""
        return f"{self.settings.public_url}/turns/{turn_name(key)}"

    def session_link(self, key: SessionKey) -> str:
        """The session's page in the inbox."""
        return f"{self.settings.public_url}/sessions/{session_name(key)}"


def session_name(key: SessionKey) -> str:
    """How addresses name a session: `<tenant>.<session>`."""
    return ".".join(key)


def turn_name(key: TurnKey) -> str:
    """How addresses name a turn: `<tenant>.<session>.<turn>`."""
    return ".".join(key)
