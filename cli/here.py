"""This installation from a terminal: its Temporal server and its store, without a gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from signoff.cli.local.installation import Workplace, find_workplace
from signoff.cli.local.stores import working_store
from signoff.cli.lookups import find_approval, find_either, find_turn
from signoff.cli.terminal.changes import Editable
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError, NotFound, Refused
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.message import Message, TextPart, user_message
from signoff.contracts.names import DEFAULT_ASKER, ENGINE
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft, SayBody
from signoff.contracts.session_messages import SessionReceipt, SessionView
from signoff.contracts.turn import TurnInput, TurnView
from signoff.contracts.uuid7 import uuid7
from signoff.engine import turn_list
from signoff.engine.turn_client import Signoff
from signoff.formats.nearest_name import did_you_mean, shown
from signoff.gateway.conversations import Conversations
from signoff.gateway.decision_service import decide, withdraw
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.secret_masks import masked_view
from signoff.gateway.turn_starter import check_position, read_session, say
from signoff.gateway.value_check import proof_of, whole_request
from signoff.keys.key_files import read_private
from signoff.keys.signatures import Signer
from signoff.people.directory import principal_of, turn_context
from signoff.people.eligibility import rights
from signoff.store.content_store import json_bytes, load, to_content
from signoff.store.freezes import Freezes
from signoff.store.questions import Questions
from signoff.store.store import open_store

CHANNEL = "cli"


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
            entries = rights(person, place.people.delegators(person.id, place.tenant, system_clock()))
        async with self._deps() as deps:
            return await deps.requests.waiting(place.tenant, approvers=entries)

    def whom(self) -> str:
        """See `Desk`."""
        return "" if self.person is None else self.person.name or self.person.id

    async def asked(self, name: str) -> tuple[str, ApprovalRequest | None]:
        """See `Desk`."""
        async with self._deps() as deps:
            key = await find_approval(deps, name, tenant=self.place.tenant)
            return key.id, await self._request(deps, key)

    async def arguments(self, request: ApprovalRequest) -> Editable:
        """See `Desk`."""
        async with working_store(self.place.settings) as store:
            args = await load(store, request.args)
        catalog = self.place.catalog
        return Editable(args, catalog.defined(request.tool, request.definition), request.secrets, catalog)

    async def answer(
        self, answer: Decision, approval_id: str, request: ApprovalRequest | None, confirm: str = "", seen: str = ""
    ) -> Receipt:
        """See `Desk`. The answer is stored also while no worker shows what it is about."""
        if self.person is None:
            raise Refused("it has to be said who answers")
        draft = DecisionDraft.model_validate(
            {
                "approval_id": approval_id,
                "verdict": answer.verdict,
                "reason": answer.reason,
                "revision": None if request is None else request.revision,
                "question_hash": "" if request is None else request.question_hash,
                "delivery_id": answer.delivery_id,
                "edited_args": answer.edited_args,
                "remember": answer.remember,
                "result": answer.result,
                "confirm": confirm,
                "seen": seen,
            }
        )
        async with self._deps() as deps:
            return await decide(deps, draft, DecisionAuthor(self.person, CHANNEL, "session"))

    async def withdraw(self, name: str, reason: str) -> tuple[Receipt, str]:
        """See `Desk`. By the gateway's own rules, in its profile for development."""
        place = self.place
        if self.person is None:
            raise Refused("it has to be said who withdraws")
        async with self._deps() as deps:
            key = await find_approval(deps, name, tenant=place.tenant)
            receipt = await withdraw(deps, key.id, self.person, reason)
            request = await self._request(deps, key)
        return receipt, "" if request is None else request.card.effect

    async def found(self, name: str) -> ApprovalRequest | TurnView:
        """See `Desk`."""
        async with self._deps() as deps:
            key = await find_either(deps, name, tenant=self.place.tenant)
            if isinstance(key, TurnKey):
                return masked_view(await self.signoff.view(key), self.place.catalog)
            return whole_request(await deps.requests.load(key.id))

    async def turn(self, name: str) -> str:
        """See `Desk`."""
        return ".".join(await find_turn(self.signoff, name, tenant=self.place.tenant))

    async def cancel(self, turn: str) -> str:
        """See `Desk`."""
        place = self.place
        async with working_store(place.settings) as store:
            deps = GatewayDeps(self.signoff, place.catalog, place.people, store, place.settings)
            return await Conversations(deps).stop_turn(TurnKey(*turn.split(".")), self.person)

    async def follow(self, turn: str) -> AsyncIterator[TurnView]:
        """See `Desk`."""
        async for view in self.signoff.watch(TurnKey(*turn.split("."))):
            yield masked_view(view, self.place.catalog)

    async def turns(self, *, state: str, actor: str, limit: int) -> list[TurnRow]:
        """See `Desk`."""
        client, tenant = self.signoff.temporal, self.place.tenant
        async with self._deps() as deps:
            asked = Questions(deps.store)
            return await turn_list.turns(client, asked, tenant=tenant, state=state, actor=actor, limit=limit)

    async def sessions(self, *, limit: int) -> list[SessionRow]:
        """See `Desk`."""
        client, tenant = self.signoff.temporal, self.place.tenant
        async with self._deps() as deps:
            return await turn_list.sessions(client, Questions(deps.store), tenant=tenant, limit=limit)

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

    @asynccontextmanager
    async def _deps(self) -> AsyncIterator[GatewayDeps]:
        """What the gateway's own rules need, over the store of this installation."""
        place = self.place
        keys = place.settings.signing_keys
        signer = Signer(read_private(keys)) if keys.exists() else None
        async with working_store(place.settings) as store:
            yield GatewayDeps(self.signoff, place.catalog, place.people, store, place.settings, signer=signer)

    async def _request(self, deps: GatewayDeps, key: ApprovalKey) -> ApprovalRequest | None:
        try:
            loaded = await deps.requests.load(key.id)
        except NotFound:
            return None
        return loaded.request.model_copy(update={"seen": proof_of(loaded)})


async def begun_here(
    manifest: Path | None,
    address: str | None,
    person: str,
    *,
    text: str,
    actor: str,
    session: str,
    dry_run: bool,
    where: tuple[str, str],
) -> tuple[Here, TurnKey, TurnInput]:
    """Start a turn as the person of this id, or the built-in guest, on a route at a step. When this returns it is safe.

    Raises `NotFound`, `Refused` for a frozen tenant, `ConfigError`, `ServerUnavailable`.
    """
    place = find_workplace(manifest)
    asker = place.speaker(person or DEFAULT_ASKER)
    chosen, (route, step) = _actor(place, actor), where
    check_position(place.catalog, chosen, route, step)
    async with working_store(place.settings) as store:
        await Freezes(store).refuse_new(place.tenant)
    principal = principal_of(asker)
    turn_id = uuid7(system_clock())
    turn = TurnInput(
        engine=ENGINE,
        tenant_id=place.tenant,
        # As the gateway does; `find_turn` relies on it to find a turn by its id alone before the server's index has it.
        session_id=session or turn_id,
        turn_id=turn_id,
        actor=chosen,
        messages=(await _message(place, text, SessionKey(place.tenant, session or turn_id)),),
        principal=principal,
        person_id=principal.user,
        channel=CHANNEL,
        route=route,
        step=step,
        context=turn_context(asker, {}),
        dry_run=dry_run,
    )
    signoff = await place.reach(address)
    key = await signoff.start_turn(turn)
    return Here(place, signoff), key, turn


def _actor(place: Workplace, name: str) -> str:
    """Raises `NotFound` that offers the nearest actors, `ConfigError` when there is none at all."""
    actors = list(place.catalog.actors)
    if not actors:
        raise ConfigError(f"`{place.settings.manifest}` declares no actor: add one under `actors`")
    if name and name not in actors:
        near = did_you_mean(name, actors) or f"; known: {', '.join(f'`{each}`' for each in actors)}"
        raise NotFound(f"there is no actor {shown(name)}{near}")
    return name or actors[0]


async def _message(place: Workplace, text: str, session: SessionKey) -> Message:
    # Histories hold what is short; a long text goes to the store before the turn begins.
    if len(json_bytes(text)) <= INLINE_BYTES:
        return user_message(text)
    async with open_store(place.settings.store_url, durable=place.settings.durable) as store:
        content: Content = await to_content(store, text, session)
    return Message(role="user", parts=(TextPart(text=content),))
