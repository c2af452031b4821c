"""Two ways from a terminal to what waits: this installation's own server, or a gateway's API with a personal token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from signoff import listing
from signoff.cli.edits import Editable
from signoff.cli.lookups import find_approval, find_either, find_turn
from signoff.cli.parts import working_store
from signoff.cli.remote import at_gateway, gateway_url
from signoff.cli.words import utc_now
from signoff.cli.workplace import Workplace, find_workplace
from signoff.client import Signoff
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.listing import SessionRow, TurnRow, WaitingCard
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.session import SessionReceipt, SessionView
from signoff.contracts.turn import TurnView
from signoff.gateway.bodies import SayBody
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.identity import DEFAULT_ASKER, DEFAULT_DECIDER
from signoff.gateway.masking import masked_request, masked_view
from signoff.gateway.starting import read_session, say
from signoff.registry.seats import rights
from signoff.store.content import load

CHANNEL = "cli"


class Desk(Protocol):
    """What the commands need of either way. Errors are Signoff's own."""

    async def waiting(self) -> list[WaitingCard]:
        """What waits for the person, soonest deadline first."""

    def whom(self) -> str:
        """How the person is called."""

    async def asked(self, name: str) -> tuple[str, ApprovalRequest | None]:
        """The approval id behind an id or a code, and its request; None when no worker can show it.

        Raises `NotFound`, `Refused`.
        """

    async def arguments(self, request: ApprovalRequest) -> Editable:
        """The arguments to change."""

    async def answer(self, answer: Decision, approval_id: str, request: ApprovalRequest | None) -> Receipt:
        """Decide as the person, bound to the request as it was shown."""

    async def found(self, name: str) -> ApprovalRequest | TurnView:
        """The request or the turn of this name, secrets masked. Raises `NotFound`, `Refused`."""

    async def turn(self, name: str) -> str:
        """The turn of this name, to be followed. Raises `NotFound`, `Refused`."""

    def follow(self, turn: str) -> AsyncIterator[TurnView]:
        """A turn each time it changed, secrets masked, until it is over."""

    async def turns(self, *, state: str, actor: str, limit: int) -> list[TurnRow]:
        """Turns in this state and of this actor, where named, newest first. Raises `NotFound`."""

    async def sessions(self, *, limit: int) -> list[SessionRow]:
        """Sessions that go on, newest first."""

    async def session(self, name: str) -> SessionView:
        """One session. Raises `NotFound`."""

    async def say(self, name: str, body: SayBody) -> SessionReceipt:
        """Say something as the person, in a session that begins with it if it is new; the receipt is never `refused`.

        Raises `NotFound`, `Refused`.
        """


@dataclass(frozen=True)
class Here:
    """This installation: its Temporal server, its store, and somebody taken at their word."""

    place: Workplace
    signoff: Signoff
    person: Person | None = None

    async def waiting(self) -> list[WaitingCard]:
        """See `Desk`."""
        place, person = self.place, self.person
        entries = None
        if person is not None:
            entries = rights(person, place.people.delegators(person.id, place.tenant, utc_now()))
        return await listing.waiting(self.signoff.temporal, tenant=place.tenant, approvers=entries)

    def whom(self) -> str:
        """See `Desk`."""
        return "" if self.person is None else self.person.name or self.person.id

    async def asked(self, name: str) -> tuple[str, ApprovalRequest | None]:
        """See `Desk`."""
        key = await find_approval(self.signoff, name, tenant=self.place.tenant, approvers=None)
        return key.id, await self._request(key)

    async def arguments(self, request: ApprovalRequest) -> Editable:
        """See `Desk`."""
        async with working_store(self.place.settings) as store:
            args = await load(store, request.args)
        return Editable(args, self.place.catalog.registry.resolve(request.tool), request.secrets)

    async def answer(self, answer: Decision, approval_id: str, request: ApprovalRequest | None) -> Receipt:
        """See `Desk`. The answer is stored also while no worker shows what it is about."""
        decision = signed_off(answer, approval_id, request, self.person, utc_now())
        if request is None:
            cards = await listing.waiting(self.signoff.temporal, tenant=self.place.tenant)
            revision = next((card.revision for card in cards if card.id == approval_id), None)
            decision = decision.model_copy(update={"revision": revision})
        return await self.signoff.decide(decision)

    async def found(self, name: str) -> ApprovalRequest | TurnView:
        """See `Desk`."""
        key = await find_either(self.signoff, name, tenant=self.place.tenant)
        if isinstance(key, TurnKey):
            return masked_view(await self.signoff.view(key), self.place.catalog)
        return masked_request(await self.signoff.request(key.id))

    async def turn(self, name: str) -> str:
        """See `Desk`."""
        return ".".join(await find_turn(self.signoff, name, tenant=self.place.tenant))

    async def follow(self, turn: str) -> AsyncIterator[TurnView]:
        """See `Desk`."""
        async for view in self.signoff.watch(TurnKey(*turn.split("."))):
            yield masked_view(view, self.place.catalog)

    async def turns(self, *, state: str, actor: str, limit: int) -> list[TurnRow]:
        """See `Desk`."""
        return await listing.turns(
            self.signoff.temporal, tenant=self.place.tenant, state=state, actor=actor, limit=limit
        )

    async def sessions(self, *, limit: int) -> list[SessionRow]:
        """See `Desk`."""
        return await listing.sessions(self.signoff.temporal, tenant=self.place.tenant, limit=limit)

    async def session(self, name: str) -> SessionView:
        """See `Desk`."""
        return await self.signoff.session(read_session(name))

    async def say(self, name: str, body: SayBody) -> SessionReceipt:
        """See `Desk`."""
        place, person = self.place, self.person
        who = {} if person is None else {"user": person.id}
        async with working_store(place.settings) as store:
            deps = GatewayDeps(self.signoff, place.catalog, place.people, store, place.settings)
            return await say(deps, body.model_copy(update=who), read_session(name), CHANNEL)

    async def _request(self, key: ApprovalKey) -> ApprovalRequest | None:
        try:
            return await self.signoff.request(key.id)
        except ServerUnavailable:
            return None


@asynccontextmanager
async def desk_of(
    url: str | None,
    manifest: Path | None,
    address: str | None,
    *,
    looks: str | None = None,
    speaks: str | None = None,
    asks: str | None = None,
) -> AsyncIterator[Desk]:
    """The gateway at `url`, or of the token in the environment; without either this installation.

    The person, if one is needed, is `looks`, or `speaks` or `asks`, whom only the development profile takes at their
    word; "" is whose token it is, or the built-in approver, or for `asks` the built-in guest.
    """
    there = gateway_url(url, manifest, address)
    if there is not None:
        async with at_gateway(there, looks or speaks or asks or "") as gateway:
            yield gateway
        return
    place = find_workplace(manifest)
    person = None
    if asks is not None:
        person = place.speaker(asks or DEFAULT_ASKER)
    elif speaks is not None:
        person = place.speaker(speaks or DEFAULT_DECIDER)
    elif looks is not None:
        person = place.person(looks or DEFAULT_DECIDER)
    yield Here(place, await place.reach(address), person)


def signed_off(
    answer: Decision, approval_id: str, request: ApprovalRequest | None, person: Person | None, now: datetime
) -> Decision:
    """`answer` as this person's, bound to the request as it was shown. `request` is None when nobody could show it."""
    return answer.model_copy(
        update={
            "approval_id": approval_id,
            "revision": request.revision if request is not None else None,
            "digest": request.digest if request is not None else "",
            "subject": person.id if person is not None else "",
            "channel": CHANNEL,
            "assurance": "session",
            "received_at": now,
        }
    )
