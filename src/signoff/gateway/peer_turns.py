"""The turns of another agent that sent a request, for the routes of plugins."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from signoff.calls.peer_turns import Exposed, ExposedActor, ExposedTool, Pause, TurnStart
from signoff.contracts.errors import Refused
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.names import DEFAULT_ASKER, PEER
from signoff.contracts.person import Person
from signoff.contracts.requests import SayBody
from signoff.contracts.responses import TurnRow
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import ResponsePart, TurnView
from signoff.engine import turn_list
from signoff.gateway.approvals.secret_masks import masked_view
from signoff.gateway.auth.caller import acting_person, caller_of, own_tenant, scopes_of
from signoff.gateway.auth.dependencies import access_of_request
from signoff.gateway.auth.streams import HeldSeconds, Streams, stream_events, streams_of, waiting
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.live import Live
from signoff.gateway.session_names import is_of_peer, is_own, own_session, peer_session
from signoff.gateway.turn_starter import say
from signoff.registry.catalog import Catalog
from signoff.registry.gates.actor_filters import is_excluded, is_permitted
from signoff.registry.gates.inventory import inventory
from signoff.registry.peer_view import peer_view
from signoff.store.content_store import load_in
from signoff.store.questions.request_lists import RequestLists

V = TypeVar("V")


class OwnTurns:
    """The turns of one agent; see `PeerTurns`."""

    def __init__(
        self, deps: GatewayDeps, live: Live, request: Request, person: Person, scopes: Collection[str] = ()
    ) -> None:
        self._deps = deps
        self._live = live
        self._request = request
        self._person = person
        self._scopes = scopes

    @classmethod
    def of(cls, request: Request) -> "OwnTurns":
        """Raises `Refused` if the route is not for agents."""
        if access_of_request(request).scope != "peer":
            raise Refused("this route lets in no other agent", code="not_allowed")
        deps: GatewayDeps = request.app.state.deps
        caller = caller_of(request)
        person = acting_person(deps, caller, None, default=DEFAULT_ASKER, tenant=own_tenant(caller, None))
        return cls(deps, request.app.state.live, request, person, scopes_of(caller))

    @property
    def tenant(self) -> str:
        return self._person.tenant

    @property
    def user(self) -> str:
        return self._person.id

    def new_session(self, seed: str) -> SessionKey:
        return own_session(peer_session(self.tenant, seed), self._person, development=self._deps.development)

    def is_session(self, key: SessionKey) -> bool:
        mine = self._deps.development or is_own(key, self._person.id)
        return key.tenant == self.tenant and is_of_peer(key) and mine

    async def say(self, key: TurnKey, actor: str, text: str) -> None:
        body = SayBody(text=text, id=key.turn, actor=actor, user=self._person.id)
        await say(self._deps, body, SessionKey(key.tenant, key.session), channel=PEER)

    async def start(self, key: TurnKey) -> TurnStart | None:
        given = await self._deps.client.input_of(key)
        if given is None:
            return None
        begun = await self._deps.read_start(key)
        return TurnStart("" if begun.requester is None else begun.requester.user, given.channel, given.actor)

    async def view(self, key: TurnKey) -> TurnView:
        return masked_view(await self._deps.view(key), self._deps.catalog)

    async def row(self, key: TurnKey) -> TurnRow | None:
        return await turn_list.turn_row(self._deps.client.temporal, RequestLists(self._deps.store), key)

    async def session(self, key: SessionKey) -> SessionView:
        return await self._deps.session(key)

    async def value(self, part: ResponsePart, place: SessionKey) -> Any:
        return await load_in(self._deps.store, part.content, place)

    async def stop(self, key: TurnKey) -> None:
        await Conversations(self._deps).stop_turn(key, self._person)

    async def rows(self, actor: str, wanted: Callable[[TurnRow], bool], limit: int) -> list[TurnRow]:
        def is_mine(row: TurnRow) -> bool:
            # In development, sessions belong to all.
            mine = not self._deps.development or row.requester == self._person.id
            return mine and self.is_session(SessionKey(row.tenant, row.session)) and wanted(row)

        return await turn_list.turns(
            self._deps.client.temporal,
            RequestLists(self._deps.store),
            tenant=self.tenant,
            actor=actor,
            readers=Conversations(self._deps).readers(self._person),
            wanted=is_mine,
            limit=limit,
        )

    async def share(self, what: tuple[Hashable, ...], read: Callable[[], Awaitable[V]]) -> V:
        return await self._deps.lists.share(self._person, self._scopes, what, read)

    @asynccontextmanager
    async def following(self, turns: Sequence[TurnKey]) -> AsyncIterator[Pause]:
        watch = self._deps.turn_watch
        with watch.follow(await watch.read(turns)) as follower, self._live.waking(follower.wake):

            async def pause(seconds: float) -> bool:
                await follower.wait(seconds)
                return not self._live.is_closing

            yield pause

    def waiting(self, seconds: float, about: str) -> AbstractAsyncContextManager[HeldSeconds]:
        return waiting(self._request, seconds, about)

    def hold(self) -> AbstractAsyncContextManager[None]:
        return self._streams.hold(self._request)

    def refuse_more(self) -> None:
        self._streams.refuse_more(self._request)

    def stream(self, events: AsyncGenerator[str, None]) -> Response:
        return stream_events(self._request, events)

    @property
    def _streams(self) -> Streams:
        return streams_of(self._request)


def exposed_of(catalog: Catalog) -> Exposed:
    """Does not change while a gateway runs."""
    hidden = {row.tool for row in inventory(catalog) if row.needs.startswith("hidden")}
    actors = []
    for name, actor in catalog.actors.items():
        # External agents take messages elsewhere: this gateway would refuse every message to one.
        if actor.external is not None:
            continue
        tools = []
        for shown in peer_view(catalog):
            tool = catalog.registry.resolve(shown.name)
            # Cards are public: leave out tools that exist for some tenants alone.
            if tool is None or tool.name in hidden or tool.tenants is not None:
                continue
            if is_permitted(actor, tool) and not is_excluded(actor, tool, PEER):
                tools.append(
                    ExposedTool(
                        *(shown.name, shown.title, shown.description, tuple(tool.tags)),
                        input_schema=shown.input_schema,
                        output_schema=shown.output_schema,
                        approval=shown.approval,
                    )
                )
        if tools:
            actors.append(ExposedActor(name, actor.description, tuple(tools)))
    names = frozenset(each.name for each in catalog.tools() if each.for_peers)
    withheld = frozenset(catalog.requires_peer_consumes)
    return Exposed(tuple(actors), names, catalog.hash, tuple(catalog.part_types), withheld)
