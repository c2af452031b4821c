"""Reads turns and sessions for their readers. For all others, they do not exist."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from signoff.approvals.audit_events import stop_entry
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import BadRequest, NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey, parse_approval_id, read_code, show_code, turn_name
from signoff.contracts.person import Person
from signoff.contracts.responses import SessionRow, TurnRow, WaitingCard
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import TurnView
from signoff.engine import turn_list
from signoff.engine.kill_switch import OPERATOR
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.replace import replace
from signoff.gateway.audit_writer import record
from signoff.gateway.auth.streams import Allowed
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.pages.session_view import OPEN
from signoff.gateway.read_access import Audience, may_read, may_stop, of_request, of_row, of_turn, reads_all
from signoff.gateway.session_names import is_own, own_session
from signoff.gateway.signed_start import SignedStart
from signoff.gateway.turn_starter import read_turn
from signoff.store.questions.answers import OWED_SECONDS, Answers
from signoff.store.questions.request_lists import RequestLists
from signoff.store.request_reader import LoadedRequest

_RECENT: Final = 200
"""The beginning of an id finds a turn among this many of the newest."""
_AMBIGUOUS: Final = 10


@dataclass(frozen=True)
class TurnFilter:
    """The tenant's turns to list. An empty field matches every turn."""

    tenant: str
    state: str = ""
    actor: str = ""
    since: datetime | None = None
    requester: str = ""


class Conversations:
    """Reads conversations for a person. `None` is an anonymous caller, as in the development profile alone.

    Methods for one turn or session raise the same `NotFound` for an unknown and for a forbidden id. They also raise
    `ServerUnavailable`.
    """

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

    async def turn(self, key: TurnKey, person: Person | None) -> TurnView:
        """Readers of the turn's session may read it too."""
        begun, _ = await self._admit(key, person)
        view = await self._deps.claimed_view(key)
        await self._owe_again(key, view)
        return await self._deps.prove(view, begun)

    async def require_turn(self, key: TurnKey, person: Person | None) -> None:
        """Raise `NotFound` if the person may not read the turn. Queries no worker."""
        await self._admit(key, person)

    async def session(self, key: SessionKey, person: Person | None) -> SessionView:
        """For the session's owner. An approver of one of its turns reads that turn."""
        # Check before the query: a session that is down must not reveal its existence.
        if not self._may_read(person, self.of_session(key, person)):
            raise _unknown(key)
        return await self._deps.session(key)

    async def named_session(self, named: SessionKey, person: Person | None) -> SessionView:
        """Prefer the session with this id to the person's own session with this name."""
        try:
            return await self.session(named, person)
        except NotFound:
            own = own_session(named, person, development=self._deps.development)
            if own == named:
                raise
        try:
            return await self.session(own, person)
        except NotFound:
            raise _unknown(named) from None

    async def sessions(self, tenant: str, person: Person | None, limit: int) -> list[SessionRow]:
        """Newest first. Raises `ServerUnavailable`, `StoreUnavailable`."""
        temporal, requests = self._deps.client.temporal, RequestLists(self._deps.store)
        wanted = self.readable(person)
        rows = await turn_list.sessions(temporal, requests, tenant=tenant, wanted=wanted, limit=limit)
        return [self._without_false_requester(row) for row in rows]

    async def turns(self, person: Person | None, chosen: TurnFilter, *, limit: int) -> list[TurnRow]:
        """Newest first. Raises like `turn_list.turns`."""
        readable = self.readable(person)
        return await turn_list.turns(
            self._deps.client.temporal,
            RequestLists(self._deps.store),
            tenant=chosen.tenant,
            state=chosen.state,
            actor=chosen.actor,
            since=chosen.since,
            readers=self.readers(person),
            wanted=lambda row: chosen.requester in ("", row.requester) and readable(row),
            limit=limit,
        )

    def _without_false_requester(self, row: SessionRow) -> SessionRow:
        """Keep the requester only if the session's id confirms it: a memo may be forged."""
        own = self._deps.development or is_own(SessionKey(row.tenant, row.session), row.requester)
        return row if own else replace(row, requester="")

    def of_session(self, key: SessionKey, person: Person | None) -> Audience:
        # The session's id proves its owner. The workflow's own claim may be forged.
        own = person is not None and is_own(key, person.id)
        return Audience(key.tenant, frozenset((person.id,)) if person is not None and own else frozenset())

    def may_read_session(self, key: SessionKey, person: Person | None) -> bool:
        return self._may_read(person, self.of_session(key, person))

    async def _admit(self, key: TurnKey, person: Person | None) -> tuple[SignedStart, Audience]:
        """Uses the store and the turn's first event alone.

        The turn's own claim may be forged, and a stranger must not learn of the turn from a worker that is down. Raises
        `NotFound`, `ServerUnavailable`.
        """
        begun = await self._deps.read_start(key)
        about = of_turn(key.tenant, begun.requester, begun.requests)
        session = SessionKey(key.tenant, key.session)
        if not (self._may_read(person, about) or self.may_read_session(session, person)):
            raise _unknown(key)
        return begun, about

    async def approval_id(self, name: str, person: Person | None, tenant: str) -> str:
        """Does not look up an id. For a short code, the person must have read access to its request."""
        if parse_approval_id(name) is not None:
            return name
        code = read_code(name)
        if code is None:
            near = await self._near(name, person, tenant)
            hint = near or ": it is neither an approval id nor a code such as `K7Q-2FM`"
            raise NotFound(f"there is no request {quote_name(name)}{hint}")
        approval = await self._deps.requests.find_by_code(tenant, code)
        try:
            # Only readers of the request learn that its code exists.
            return (await self.request(approval or "", person)).id
        except NotFound:
            near = await self._near(name, person, tenant)
            raise NotFound(f"there is no request {quote_name(name)}{near}") from None

    async def _near(self, name: str, person: Person | None, tenant: str) -> str:
        """Names only requests that the person may read."""
        readers, readable = self.readers(person), self.readable(person)
        cards = await self._deps.lists.limited(
            person, lambda: self._deps.requests.list_waiting(tenant, readers=readers, wanted=readable)
        )
        return did_you_mean(name, [each for card in cards for each in (show_code(card.code), card.id)])

    async def turn_key(self, name: str, person: Person | None, tenant: str) -> TurnKey:
        """`name` is `<tenant>.<session>.<turn>`, the turn's own id, or the beginning of that id.

        Raises `NotFound` that suggests the nearest ids, and `BadRequest` for a beginning that fits several turns.
        """
        key = read_turn(self._deps, name, person, tenant)
        # A turn without a named session is its own session. New turns appear late in lists.
        if "." in name or await self._is_there(key):
            return key
        recent = TurnFilter(tenant)
        rows = await self._deps.lists.limited(person, lambda: self.turns(person, recent, limit=_RECENT))
        # Two sessions may each have a turn with this id: the id alone is then ambiguous.
        known = [TurnKey(row.tenant, row.session, row.turn) for row in rows]
        named = [key for key in known if key.turn == name] or [key for key in known if key.turn.startswith(name)]
        if len(named) > 1:
            ids = ", ".join(sorted(map(turn_name, named))[:_AMBIGUOUS])
            raise BadRequest(f"{quote_name(name)} fits several turns, name one of them whole: {ids}", code="ambiguous")
        if not named:
            near = did_you_mean(name, [key.turn for key in known])
            raise NotFound(f"there is no turn {quote_name(name)}{near}")
        return named[0]

    async def _is_there(self, key: TurnKey) -> bool:
        try:
            await self._deps.client.input_of(key)
        except NotFound:
            return False
        return True

    async def request(self, approval: str, person: Person | None) -> ApprovalRequest:
        return (await self.load(approval, person)).request

    async def load(self, approval: str, person: Person | None) -> LoadedRequest:
        """Uses the store alone, without a worker."""
        unknown = NotFound(f"there is no request `{approval}`")
        if parse_approval_id(approval) is None:
            raise unknown
        loaded = await self._deps.requests.load(approval)
        if not await self.may_read(loaded.request, person):
            raise unknown
        return loaded

    async def may_read(self, request: ApprovalRequest, person: Person | None) -> bool:
        if self._may_read(person, of_request(request)):
            return True
        try:
            # Readers of the conversation may read its requests.
            begun, _ = await self._admit(TurnKey(request.tenant, request.session, request.turn), person)
        except (NotFound, ServerUnavailable):
            return False
        # A turn's id may be reused: the readers of the current turn must not read an earlier one's request.
        return begun.requester is not None and begun.requester.nonce == request.requester.nonce

    async def _owe_again(self, key: TurnKey, view: TurnView) -> None:
        """Send answers again that the turn lacks, for example after a reset to an earlier point."""
        requests = ((ApprovalKey(key, call.call).id, call.approval) for call in view.calls)
        waiting = [(name, each.revision) for name, each in requests if each is not None and each.state == "pending"]
        if waiting:
            await Answers(self._deps.store).owe_again(waiting, OWED_SECONDS)

    def readable(self, person: Person | None) -> Callable[[TurnRow | SessionRow | WaitingCard], bool]:
        rights = () if person is None else self._deps.rights(person)

        def may(row: TurnRow | SessionRow | WaitingCard) -> bool:
            session = isinstance(row, SessionRow)
            about = self.of_session(SessionKey(row.tenant, row.session), person) if session else of_row(row)
            return self._is_allowed(person, rights, about)

        return may

    def readers(self, person: Person | None) -> tuple[str, ...] | None:
        """`None` means that the person reads everything."""
        development = self._deps.settings.profile == "development"
        everything = person is None or reads_all(person, development=development)
        return None if person is None or everything else self._deps.rights(person)

    def following(self, key: TurnKey | SessionKey) -> Allowed:
        async def still(person: Person) -> bool:
            await (self.turn(key, person) if isinstance(key, TurnKey) else self.session(key, person))
            return True

        return still

    async def stop_turn(self, key: TurnKey, person: Person | None) -> str:
        """Needs no worker.

        Return `cancelling`, or the turn's end state. Raises `Refused` (`not_allowed`) for a mere reader.
        """
        _, about = await self._admit(key, person)
        row = await turn_list.turn_row(self._deps.client.temporal, RequestLists(self._deps.store), key)
        if row is None:
            raise _unknown(key)
        if row.closed_at is not None and self.may_stop(person, about):
            return row.state
        await self._stop(person, about, key)
        return "cancelling"

    async def stop_session(self, key: SessionKey, person: Person | None) -> None:
        """Ask every running turn of a session to stop. Raises like `stop_turn`."""
        view = await self.session(key, person)
        going_on = (TurnKey(*key, turn.turn) for turn in view.turns if turn.state in OPEN)
        await self._stop(person, self.of_session(key, person), *going_on)

    async def _stop(self, person: Person | None, about: Audience, *keys: TurnKey) -> None:
        may, who, now = self.may_stop(person, about), "" if person is None else person.id, self._deps.clock()
        for key in keys:
            if may:
                await self._deps.client.cancel_turn(key)
            # The turn's own entry of the stop does not name the person.
            await record(self._deps.store, stop_entry(key, who, now, refused=not may))
        if not may:
            raise Refused(f"only who asked for this, or the role `{OPERATOR}`, can stop it", code="not_allowed")

    def may_stop(self, person: Person | None, about: Audience) -> bool:
        development = self._deps.settings.profile == "development"
        return development if person is None else may_stop(person, about, development=development)

    def _may_read(self, person: Person | None, about: Audience) -> bool:
        return self._is_allowed(person, () if person is None else self._deps.rights(person), about)

    def _is_allowed(self, person: Person | None, rights: tuple[str, ...], about: Audience) -> bool:
        development = self._deps.settings.profile == "development"
        return development if person is None else may_read(person, rights, about, development=development)


def _unknown(key: TurnKey | SessionKey) -> NotFound:
    return NotFound(f"there is no {key.workflow_id.partition('/')[0]} `{key.workflow_id}`")
