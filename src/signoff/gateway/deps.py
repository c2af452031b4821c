"""Holds what every part of the gateway is given."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import quote
from weakref import WeakValueDictionary

from signoff.audit.event_stream import EventStream
from signoff.contracts.call import Place
from signoff.contracts.clock import Clock, system_clock
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, session_name, turn_name
from signoff.contracts.person import Person
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import TurnView
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.engine.session_client import SessionClient
from signoff.engine.turn_client import TurnClient
from signoff.engine.worker_watch import WorkerWatch
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import TenantLimits, parse_tenant_limits
from signoff.gateway.act_spans import ActSpans
from signoff.gateway.approvals.decision_writer import DecisionWriter
from signoff.gateway.approvals.open_requests import add_requests_to_turn
from signoff.gateway.approvals.turn_proof import proved_view
from signoff.gateway.audit_writer import AttemptRecords
from signoff.gateway.external_turn import ExternalTurn
from signoff.gateway.load_limits import ListReads, LookInterval, StartLimit
from signoff.gateway.signed_start import SignedStart, signed_start_of
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import Signer, Verifier
from signoff.people.directory import Directory
from signoff.people.eligibility import rights
from signoff.registry.catalog import Catalog
from signoff.settings import Settings
from signoff.store.content_store import is_sealed
from signoff.store.request_reader import RequestReader
from signoff.store.store import Store
from signoff.store.tickets import Ticket

if TYPE_CHECKING:
    from signoff.telemetry.span_sender import SpanSender

KEPT: Final = timedelta(seconds=60)
MOST: Final = 2_000
_V = TypeVar("_V")


class RecentItems(Generic[_V]):
    """Keeps the latest items by name; for what does not change under its name while it is kept."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, tuple[datetime, _V]] = OrderedDict()

    def keep(self, name: str, item: _V, now: datetime) -> None:
        """Keeps an item from now on, in place of an earlier one of its name."""
        self._items[name] = (now, item)
        self._items.move_to_end(name)
        if len(self._items) > MOST:
            self._items.popitem(last=False)

    def find(self, name: str, now: datetime) -> _V | None:
        """Returns the item of a name, None where none was kept lately."""
        kept = self._items.get(name)
        if kept is None or not timedelta() <= now - kept[0] < KEPT:
            return None
        return kept[1]


@dataclass(frozen=True)
class GatewayDeps:
    """The client of Temporal and what stands around it. `clock` gives an aware time in UTC; it stamps `received_at`.

    `signer` holds the gateway's private keys; without one, which only the development profile allows, nothing is
    signed. `public_keys` check signatures where nothing is signed. `secrets` reads those of channels and of the sign-in
    provider. `spans` sends spans of what people do, where they are wanted. `first_command` is the command that an empty
    inbox suggests, "" for none.
    """

    client: TurnClient
    catalog: Catalog
    people: Directory
    store: Store
    settings: Settings
    clock: Clock = system_clock
    signer: Signer | None = field(default=None, repr=False)
    public_keys: Verifier = field(default_factory=Verifier, repr=False)
    secrets: SecretProvider = field(default_factory=SecretProvider, repr=False)
    attempts: AttemptRecords = field(default_factory=AttemptRecords, repr=False)
    spans: "SpanSender | None" = field(default=None, repr=False)
    first_command: str = ""

    @cached_property
    def workers(self) -> WorkerWatch:
        """Returns the watch over the workers of the gateway's task queue."""
        return WorkerWatch(self.client.temporal, self.client.task_queue)

    @cached_property
    def requests(self) -> RequestReader:
        """Returns the reader of requests."""
        return RequestReader(
            self.store, self.verifier, development=self.believes_unsigned, declares=self.catalog.declares
        )

    @cached_property
    def decision_writer(self) -> DecisionWriter:
        """Returns the service that takes answers."""
        return DecisionWriter(
            self.store,
            self.client,
            self.people,
            self.signer,
            self.clock,
            development=self.believes_unsigned,
            raw=RawAnswerTaker(self.store, self.clock, self.catalog.takes_unsigned, development=self.believes_unsigned),
            acts=self.acts,
        )

    @cached_property
    def acts(self) -> ActSpans:
        """Returns what makes spans of starts and answers."""
        return ActSpans(self.store, self.spans)

    @cached_property
    def limits(self) -> TenantLimits:
        """Returns the limits of tenants."""
        return parse_tenant_limits(self.settings.tenant_limits)

    @cached_property
    def starts(self) -> StartLimit:
        """Returns what holds starts to the limit of their tenant."""
        return StartLimit(self.store, self.limits)

    @cached_property
    def lists(self) -> ListReads:
        """Returns what reads lists for people."""
        return ListReads()

    @cached_property
    def recent_calls(self) -> RecentItems[ExternalTurn]:
        """Returns the calls of external agents that were begun or read here lately, by their names in addresses."""
        return RecentItems()

    @cached_property
    def look_interval(self) -> LookInterval:
        """Returns how often the tickets of awaited calls are looked at."""
        return LookInterval()

    @cached_property
    def tries(self) -> WeakValueDictionary[str, asyncio.Lock]:
        """Returns, by turn, the lock of who tries to use its permit here; which gateway is first, the ticket says."""
        return WeakValueDictionary()

    @cached_property
    def events(self) -> EventStream:
        """Returns the events that programs outside are told."""
        return EventStream(self.store, self._is_private)

    def _is_private(self, tool: str) -> bool:
        found = self.catalog.tools_named(tool)
        # Of a tool that the manifest does not have any more nobody knows whose it was.
        return not found or any(each.scope == "specialist" for each in found)

    async def read_start(self, key: TurnKey) -> SignedStart:
        """Says who asked for a turn and what it asks, without its word. Raises as `view`, but asks no worker."""
        given = await self.client.input_of(key)
        requests = await self.requests.list_of_turn(key)
        if given is not None:
            place = Place(actor=given.actor, route=given.route, step=given.step, seal=given.seal)
            if await is_sealed(self.store, SessionKey(key.tenant, key.session), place):
                # The session has moved since by what is proved: what was signed names the beginning.
                given = replace(given, route=given.principal.route, step=given.principal.step)
        return signed_start_of(key, given, requests, self.verifier(), development=self.believes_unsigned)

    async def view(self, key: TurnKey) -> TurnView:
        """Returns a turn as it may be shown. Raises `NotFound`, `ServerUnavailable`, `StoreUnavailable`."""
        return await self.prove(await self.claimed_view(key), await self.read_start(key))

    async def claimed_view(self, key: TurnKey) -> TurnView:
        """Returns a turn by its own word; one that is over without a worker, where none answers in time.

        Raises as `view`.
        """
        try:
            return await self.client.view(key)
        except ServerUnavailable:
            return await self.client.ended_view(key)

    async def prove(self, view: TurnView, begun: SignedStart, tickets: Sequence[Ticket] | None = None) -> TurnView:
        """Returns `view` as far as the store bears it out, with a part for each request that waits.

        `tickets` are the turn's, where they were read already.
        """
        view = await self._prove_place(view, begun)
        proved = await proved_view(view, begun, self.store, self.requests, self.catalog, tickets)
        return add_requests_to_turn(proved, self.settings.public_url)

    async def session(self, key: SessionKey) -> SessionView:
        """Returns a session as it may be shown. Raises `NotFound`, `ServerUnavailable`, `StoreUnavailable`."""
        view = await SessionClient(self.client).session(key)
        place = Place(actor=view.actor, route=view.route, step=view.step, seal=view.seal)
        if await is_sealed(self.store, key, place):
            return replace(view, seal="")
        # Whoever may signal the session can name any place, at which no turn runs a call.
        return replace(view, route="", step="", seal="")

    async def _prove_place(self, view: TurnView, begun: SignedStart) -> TurnView:
        """Returns `view` without its seal, and without a route and step that neither requester nor seal names."""
        asked = begun.requester is not None and (begun.requester.route, begun.requester.step) == (view.route, view.step)
        place = Place(actor=view.actor, route=view.route, step=view.step, seal=view.seal)
        if asked or await is_sealed(self.store, SessionKey(view.tenant, view.session), place):
            return replace(view, seal="")
        return replace(view, route="", step="", seal="")

    async def watch(self, key: TurnKey) -> AsyncIterator[TurnView]:
        """Returns the turn's views as they may be shown, one whenever it changed, until it has its result."""
        async for view in self.client.watch(key):
            yield await self.prove(view, await self.read_start(key))

    @property
    def believes_unsigned(self) -> bool:
        """Whether starts and answers without a signature count for every tool: in development, unless switched off."""
        return self.development and self.settings.raw_answers

    @property
    def development(self) -> bool:
        """Returns whether this is the development profile."""
        return self.settings.profile == "development"

    def verifier(self) -> Verifier:
        """Returns the verifier of the gateway's own signatures."""
        return self.public_keys if self.signer is None else self.signer.verifier()

    def rights(self, person: Person) -> tuple[str, ...]:
        """Returns the approver entries that a person answers to now, by delegation as well."""
        return rights(person, self.people.delegators(person.id, person.tenant, self.clock()))

    def temporal_link(self, key: TurnKey | SessionKey) -> str:
        """Gives the address of a turn or session in Temporal's own UI; "" in production where no setting names one."""
        base = self.settings.temporal_ui.rstrip("/")
        if not base and not self.development:
            # The embedded server's address is this machine's own: to whoever reads it elsewhere it leads to nothing.
            return ""
        namespace = quote(self.client.temporal.namespace, safe="")
        workflow = quote(key.workflow_id, safe="")
        return f"{base or f'http://127.0.0.1:{self.settings.ui_port}'}/namespaces/{namespace}/workflows/{workflow}"

    def page_link(self, key: TurnKey) -> str:
        """Returns the turn's page in the inbox."""
        return f"{self.settings.public_url}/turns/{turn_name(key)}"

    def session_link(self, key: SessionKey) -> str:
        """Returns the session's page in the inbox."""
        return f"{self.settings.public_url}/sessions/{session_name(key)}"
