"""Turns and sessions for those alone who may read them; for everybody else they are not there."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from signoff.approvals.entries import stop
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, parse_approval_id, read_code
from signoff.contracts.listing import SessionRow, TurnRow, WaitingCard
from signoff.contracts.person import Person
from signoff.contracts.session import SessionView
from signoff.contracts.turn import TurnView
from signoff.gateway.caller import Allowed
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.reading import Concerned, may_read, may_stop, of_request, of_row, of_session, of_turn
from signoff.gateway.recording import record
from signoff.gateway.session_names import is_own, own_session
from signoff.gateway.session_view import OPEN, turns_in_full
from signoff.killswitch import OPERATOR
from signoff.listing import turn_row
from signoff.registry.nearest import shown
from signoff.store.questions import OWED_SECONDS, Questions
from signoff.store.requests import LoadedRequest


class Conversations:
    """What a person may read. None is nobody in particular, whom only the development profile lets in.

    All that reads one turn or session raises `NotFound`, the same for what is not there and for what one may not
    read, and `ServerUnavailable`.
    """

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

    async def turn(self, key: TurnKey, person: Person | None) -> TurnView:
        """A turn as it stands. Whoever may read the session that it belongs to may read it."""
        if not await self._reads_turn(key, person):
            raise _unknown(key)
        said = await self._deps.said(key)
        await self._owe_again(said)
        return await self._deps.proved(said)

    async def _reads_turn(self, key: TurnKey, person: Person | None) -> bool:
        """Whether a person may read a turn: by its questions and by whom the gateway signed for, not by its word.

        First, and for strangers without a worker: what one may not read must not be told from what is not there.
        """
        if self._deps.development:
            return self._may_read(person, Concerned(key.tenant, frozenset()))
        asked = (await Questions(self._deps.store).of_turns([key])).get(key, ())
        about = [of_request(each) for each in asked]
        people = frozenset().union(*(each.asked for each in about))
        askers = {each.requester.user for each in asked if self._deps.verifier().check_asker(each)}
        if self._may_read(person, Concerned(key.tenant, frozenset(askers), people)):
            return True
        # Of a turn that asked nobody its first event has what the gateway signed.
        if self._may_read(person, Concerned(key.tenant, frozenset((await self._deps.asker(key),)) - {""})):
            return True
        try:
            await self.session(SessionKey(key.tenant, key.session), person)
        except (NotFound, ServerUnavailable):
            return False
        return True

    async def session(self, key: SessionKey, person: Person | None) -> SessionView:
        """A session as it stands."""
        try:
            view = await self._deps.desk.session(key)
        except ServerUnavailable:
            if self._deps.development or person is None or is_own(key, person.id) or self._reads_all(person, key):
                raise
            # Whom it asks is known only once it answers: till then it is not there for anybody else.
            raise _unknown(key) from None
        if self._may_read(person, self.of_session(view)):
            return view
        turns = await turns_in_full(self._deps, view)
        if not self._may_read(person, self.of_session(view, turns.values())):
            raise _unknown(key)
        return view

    def _reads_all(self, person: Person, key: SessionKey) -> bool:
        return self._may_read(person, Concerned(key.tenant, frozenset()))

    async def named_session(self, named: SessionKey, person: Person | None) -> SessionView:
        """The session of this id, else the one that the person calls so."""
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

    def of_session(self, view: SessionView, turns: Iterable[TurnView] = ()) -> Concerned:
        """Whom a session concerns, with `turns` of it that are known in full."""
        about = of_session(view, turns)
        if self._deps.development:
            return about
        # Whose it is stands in its id. What the workflow says of it is anybody's word who may start one in its place.
        key = SessionKey(view.tenant, view.session)
        return replace(about, askers=frozenset(each for each in about.askers if is_own(key, each)))

    async def approval_id(self, name: str, person: Person | None, tenant: str) -> str:
        """The approval id behind an id, which is not looked up, or a short code among those the person may read."""
        if parse_approval_id(name) is not None:
            return name
        code = read_code(name)
        if code is None:
            told = "it is neither an approval id nor a code such as `K7Q-2FM`"
            raise NotFound(f"there is no request {shown(name)}: {told}")
        found = await self._deps.requests.by_code(tenant, code)
        try:
            # That a code leads anywhere is told to those alone who may read what it leads to.
            return (await self.request(found or "", person)).id
        except NotFound:
            raise NotFound(f"there is no request with the code {shown(name)}") from None

    async def request(self, approval: str, person: Person | None) -> ApprovalRequest:
        """One request, waiting or settled."""
        return (await self.loaded(approval, person)).request

    async def loaded(self, approval: str, person: Person | None) -> LoadedRequest:
        """One request with its arguments, from the store alone: no worker has to be there."""
        key = parse_approval_id(approval)
        unknown = NotFound(f"there is no request `{approval}`")
        if key is None:
            raise unknown
        found = await self._deps.requests.load(approval)
        if not self._may_read(person, of_request(found.request)):
            try:
                # Whoever may read the conversation may read what it asks.
                readable = await self._reads_turn(key.turn, person)
            except (NotFound, ServerUnavailable):
                readable = False
            if not readable:
                raise unknown
        return found

    async def _owe_again(self, view: TurnView) -> None:
        """Have answers handed over once more that a turn does not have, as one does that was reset to before them."""
        requests = (call.approval for call in view.calls if call.approval is not None)
        waiting = [(each.id, each.revision) for each in requests if each.state == "pending"]
        if waiting:
            await Questions(self._deps.store).owe_again(waiting, OWED_SECONDS)

    def readable(self, person: Person | None) -> Callable[[TurnRow | SessionRow | WaitingCard], bool]:
        """Which rows of a list a person may read."""
        rights = () if person is None else self._deps.rights(person)
        return lambda row: self._allowed(person, rights, of_row(row))

    def following(self, key: TurnKey | SessionKey) -> Allowed:
        """Whether somebody who follows a turn or a session may go on."""

        async def still(person: Person) -> bool:
            await (self.turn(key, person) if isinstance(key, TurnKey) else self.session(key, person))
            return True

        return still

    async def stop_turn(self, key: TurnKey, person: Person | None) -> str:
        """Ask a turn to stop, which needs no worker; `cancelling`, or the state in which it is over already.

        Raises `Refused` (`not_allowed`) for who may only read it.
        """
        row = await turn_row(self._deps.desk.temporal, Questions(self._deps.store), key)
        if row is None:
            raise _unknown(key)
        about = of_row(row)
        if not self._may_read(person, about):
            # The row has no room for everybody who was asked.
            about = of_turn(await self.turn(key, person))
        if row.closed_at is not None and self.may_stop(person, about):
            return row.state
        await self._stop(person, about, key)
        return "cancelling"

    async def stop_session(self, key: SessionKey, person: Person | None) -> None:
        """Ask every turn of a session that goes on to stop. Raises as `stop_turn`."""
        view = await self.session(key, person)
        going_on = (TurnKey(*key, turn.turn) for turn in view.turns if turn.state in OPEN)
        await self._stop(person, self.of_session(view), *going_on)

    async def _stop(self, person: Person | None, about: Concerned, *keys: TurnKey) -> None:
        may, who, now = self.may_stop(person, about), "" if person is None else person.id, self._deps.clock()
        for key in keys:
            if may:
                await self._deps.desk.cancel_turn(key)
            # A turn that is stopped tells that, and not by whom.
            await record(self._deps.store, stop(key, who, now, refused=not may))
        if not may:
            raise Refused(f"only who asked for this, or the role `{OPERATOR}`, can stop it", code="not_allowed")

    def may_stop(self, person: Person | None, about: Concerned) -> bool:
        """Whether who may read this may stop it."""
        development = self._deps.settings.profile == "development"
        return development if person is None else may_stop(person, about, development=development)

    def _may_read(self, person: Person | None, about: Concerned) -> bool:
        return self._allowed(person, () if person is None else self._deps.rights(person), about)

    def _allowed(self, person: Person | None, rights: tuple[str, ...], about: Concerned) -> bool:
        development = self._deps.settings.profile == "development"
        return development if person is None else may_read(person, rights, about, development=development)


def _unknown(key: TurnKey | SessionKey) -> NotFound:
    """What the client says of a turn or a session that is not there."""
    return NotFound(f"there is no {key.workflow_id.partition('/')[0]} `{key.workflow_id}`")
