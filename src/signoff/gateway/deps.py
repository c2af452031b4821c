"""The dependencies that all parts of the gateway share."""

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
from signoff.engine.session_client import SessionClient
from signoff.engine.turn_client import TurnClient
from signoff.engine.worker_watch import WorkerWatch
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import TenantLimits, parse_tenant_limits
from signoff.gateway.act_spans import ActSpans
from signoff.gateway.approvals.open_requests import add_requests_to_turn
from signoff.gateway.approvals.turn_proof import proved_view
from signoff.gateway.audit_writer import AttemptRecords
from signoff.gateway.external_turn import ExternalTurn, KnownCall
from signoff.gateway.insights.back_test import BackTests
from signoff.gateway.load_limits import ListReads, LookInterval, StartLimit
from signoff.gateway.signed_start import SignedStart, signed_start_of
from signoff.gateway.turn_watch import ASKED_SECONDS, MOVING_SECONDS, TurnWatch
from signoff.gateway.vendors.calendars import Calendars
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import Signer, Verifier
from signoff.people.directory import Directory
from signoff.people.eligibility import rights
from signoff.people.on_call import Rotas, find_on_call
from signoff.registry.catalog import Catalog
from signoff.settings import Settings
from signoff.store.content_store import is_sealed
from signoff.store.request_reader import RequestReader
from signoff.store.store import Store
from signoff.store.tickets import Ticket

if TYPE_CHECKING:
    from signoff.telemetry.span_sender import SpanSender

KEPT: Final = timedelta(seconds=60)
CALLS_KEPT: Final = timedelta(minutes=10)
"""How long a call's start, and its answer while its turn's rows do not change, serve further waits."""
MOST: Final = 4_000
_V = TypeVar("_V")


class RecentItems(Generic[_V]):
    """Caches recent items by name, each for the time `kept`."""

    def __init__(self, kept: timedelta = KEPT) -> None:
        self._kept = kept
        self._items: OrderedDict[str, tuple[datetime, _V]] = OrderedDict()

    def keep(self, name: str, item: _V, now: datetime) -> None:
        self._items[name] = (now, item)
        self._items.move_to_end(name)
        if len(self._items) > MOST:
            self._items.popitem(last=False)

    def find(self, name: str, now: datetime) -> _V | None:
        cached = self._items.get(name)
        if cached is None or not timedelta() <= now - cached[0] < self._kept:
            return None
        return cached[1]


@dataclass(frozen=True)
class GatewayDeps:
    """The gateway's dependencies.

    `clock` gives an aware time in UTC, which stamps `received_at`. Without `signer`, which only the development profile
    allows, nothing is signed. `public_keys` verify signatures where nothing is signed. `secrets` reads the secrets of
    channels and of the sign-in provider. An empty inbox suggests to send `first_words` to `first_actor`, also by
    `first_command`. `name` is the program's name for people. All four can be "".
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
    calendars: Calendars = field(default_factory=Calendars, repr=False)
    rotas: Rotas = field(default_factory=Rotas, repr=False)
    spans: "SpanSender | None" = field(default=None, repr=False)
    first_words: str = ""
    first_actor: str = ""
    first_command: str = ""
    name: str = ""

    @cached_property
    def workers(self) -> WorkerWatch:
        return WorkerWatch(self.client.temporal, self.client.task_queue)

    @cached_property
    def requests(self) -> RequestReader:
        return RequestReader(
            self.store, self.verifier, development=self.believes_unsigned, declares=self.catalog.declares
        )

    @cached_property
    def acts(self) -> ActSpans:
        return ActSpans(self.store, self.spans)

    @cached_property
    def limits(self) -> TenantLimits:
        return parse_tenant_limits(self.settings.tenant_limits)

    @cached_property
    def starts(self) -> StartLimit:
        return StartLimit(self.store, self.limits)

    @cached_property
    def lists(self) -> ListReads:
        return ListReads()

    @cached_property
    def back_tests(self) -> BackTests:
        return BackTests(self.client.temporal, self.store, self.catalog, self.clock)

    @cached_property
    def recent_calls(self) -> RecentItems[ExternalTurn]:
        """Holds calls begun or read here, by their names in addresses."""
        return RecentItems(CALLS_KEPT)

    @cached_property
    def turn_watch(self) -> TurnWatch:
        return TurnWatch(self.store)

    @cached_property
    def asked_calls(self) -> RecentItems[KnownCall]:
        """Holds calls that wait for approvers, by their names in addresses."""
        return RecentItems(CALLS_KEPT)

    @cached_property
    def look_interval(self) -> LookInterval:
        return LookInterval()

    @cached_property
    def tries(self) -> WeakValueDictionary[str, asyncio.Lock]:
        """One lock for each turn, for the use of its permit at this gateway. Tickets decide between gateways."""
        return WeakValueDictionary()

    @cached_property
    def events(self) -> EventStream:
        return EventStream(self.store, self._is_private)

    def _is_private(self, tool: str) -> bool:
        tools = self.catalog.tools_named(tool)
        # If the manifest no longer has the tool, its scope is unknown: treat it as private.
        return not tools or any(each.scope == "specialist" for each in tools)

    async def read_start(self, key: TurnKey) -> SignedStart:
        """Raises like `view`, but queries no worker."""
        turn = await self.client.input_of(key)
        requests = await self.requests.list_of_turn(key)
        if turn is not None:
            place = Place(actor=turn.actor, route=turn.route, step=turn.step, seal=turn.seal)
            if await is_sealed(self.store, SessionKey(key.tenant, key.session), place):
                # The session has moved on since, with proof. The signature names the beginning.
                turn = replace(turn, route=turn.principal.route, step=turn.principal.step)
        return signed_start_of(key, turn, requests, self.verifier(), development=self.believes_unsigned)

    async def view(self, key: TurnKey) -> TurnView:
        """Return proven facts only. Raises `NotFound`, `ServerUnavailable`, `StoreUnavailable`."""
        return await self.prove(await self.claimed_view(key), await self.read_start(key))

    async def claimed_view(self, key: TurnKey) -> TurnView:
        """Trusts the turn's own claims.

        If no worker answers in time, reads an ended turn without one. Raises like `view`.
        """
        try:
            return await self.client.view(key)
        except ServerUnavailable:
            return await self.client.ended_view(key)

    async def prove(self, view: TurnView, begun: SignedStart, tickets: Sequence[Ticket] | None = None) -> TurnView:
        """Keep facts that the store confirms, with a part for each pending request.

        `tickets` are the turn's, if they were already read.
        """
        view = await self._prove_place(view, begun)
        proved = await proved_view(view, begun, self.store, self.requests, self.catalog, tickets)
        return add_requests_to_turn(proved, self.settings.public_url)

    async def session(self, key: SessionKey) -> SessionView:
        """Return proven facts only. Raises `NotFound`, `ServerUnavailable`, `StoreUnavailable`."""
        view = await SessionClient(self.client).session(key)
        place = Place(actor=view.actor, route=view.route, step=view.step, seal=view.seal)
        if await is_sealed(self.store, key, place):
            return replace(view, seal="")
        # Anyone who can signal the session can name any place. Turns run no call at such a place.
        return replace(view, route="", step="", seal="")

    async def _prove_place(self, view: TurnView, begun: SignedStart) -> TurnView:
        """Remove the seal, and a route and step that neither requester nor seal confirms."""
        is_signed = begun.requester is not None and (begun.requester.route, begun.requester.step) == (
            view.route,
            view.step,
        )
        place = Place(actor=view.actor, route=view.route, step=view.step, seal=view.seal)
        if is_signed or await is_sealed(self.store, SessionKey(view.tenant, view.session), place):
            return replace(view, seal="")
        return replace(view, route="", step="", seal="")

    async def watch(self, key: TurnKey) -> AsyncIterator[TurnView]:
        """Yield proven views, one for each change, until the turn has its result.

        While approvers are asked, only the store is read. Raises like `view`.
        """
        claimed: TurnView | None = None
        shown: TurnView | None = None
        with self.turn_watch.follow(await self.turn_watch.read([key])) as follower:
            changed = True
            while True:
                before, claimed = claimed, await self.client.view(key)
                if changed or claimed != before:
                    before, shown = shown, await self.prove(claimed, await self.read_start(key))
                    if shown != before:
                        yield shown
                if claimed.result is not None:
                    return
                # A query leaves no event, but notifications would use up the turn's 2,000 Updates.
                changed = await follower.wait(ASKED_SECONDS if claimed.state == "suspended" else MOVING_SECONDS)

    @property
    def believes_unsigned(self) -> bool:
        """Whether unsigned starts and answers count for every tool: in development, unless switched off."""
        return self.development and self.settings.raw_answers

    @property
    def development(self) -> bool:
        return self.settings.profile == "development"

    def verifier(self) -> Verifier:
        return self.public_keys if self.signer is None else self.signer.verifier()

    def rights(self, person: Person) -> tuple[str, ...]:
        """Includes entries by delegation and by rota."""
        now = self.clock()
        own = rights(person, self.people.delegators(person.id, person.tenant, now))
        return (*own, *find_on_call(self.people, person.id, person.tenant, now))

    def temporal_link(self, key: TurnKey | SessionKey) -> str:
        """ "" in production without the setting."""
        base = self.settings.temporal_ui.rstrip("/")
        if not base and not self.development:
            # The embedded server is only reachable on this machine.
            return ""
        namespace = quote(self.client.temporal.namespace, safe="")
        workflow = quote(key.workflow_id, safe="")
        return f"{base or f'http://127.0.0.1:{self.settings.ui_port}'}/namespaces/{namespace}/workflows/{workflow}"

    def page_link(self, key: TurnKey) -> str:
        return f"{self.settings.public_url}/turns/{turn_name(key)}"

    def session_link(self, key: SessionKey) -> str:
        return f"{self.settings.public_url}/sessions/{session_name(key)}"
