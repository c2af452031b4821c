"""Removes old turns' data from the store, once the Temporal server has deleted the turns.

A turn with a history in the server can be reset, replayed or retried at any time: its data stay. Only the server's own
"not found" counts. With any other answer, or none, all data stays.
"""

import functools
import logging
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Table, select
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts.errors import Refused, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.limits import ASKED_SECONDS
from signoff.contracts.names import DEFAULT_TENANT
from signoff.store import old_turns
from signoff.store.old_turns import RemovedRows
from signoff.store.store import Store
from signoff.store.tables import QUESTIONS, TICKETS, StoreClock, millis_from_time

_KNOWN_TRIED: Final = 20
"""Number of newest turns for which the server is asked."""
_SILENCES: Final = 5
"""Number of successive missing answers from the server that stop the cleanup."""
_log = logging.getLogger(__name__)


class StoreRemoval(NamedTuple):
    """The data of a store that were removed, or that a dry run would remove."""

    turns: Counter[str]
    """By tenant."""
    rows_by_tenant: dict[str, RemovedRows]
    """Rows that belong to no turn count for the tenant `main`."""
    kept: int
    """Old turns that stay, because the server still has them."""
    unknown: int
    """Turns that stay, because the server's answer is unknown."""

    @property
    def rows(self) -> RemovedRows:
        return functools.reduce(RemovedRows.plus, self.rows_by_tenant.values(), RemovedRows())


async def read_status(client: Client, workflow_id: str) -> WorkflowExecutionStatus | None:
    """Return `None` if the server has no such id. Raises `ServerUnavailable`."""
    try:
        return (await client.get_workflow_handle(workflow_id).describe()).status
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise ServerUnavailable(f"the server does not say whether `{workflow_id}` has ended") from None


class StoreCleanup:
    """Removes data of turns that the server has deleted, without any addition since `before`.

    Safe during the work of workers and gateways. After a crash, removed data stays removed, and the next run continues.
    """

    def __init__(self, store: Store, client: Client, before: datetime, *, dry_run: bool = False) -> None:
        self._store = store
        self._client = client
        self._before = millis_from_time(before)
        self._dry_run = dry_run
        self._silences = 0
        self._turns: Counter[str] = Counter()
        self._rows: dict[str, RemovedRows] = {}
        self._kept: set[TurnKey] = set()
        self._unknown: set[str] = set()
        self._counted: set[TurnKey] = set()

    @property
    def removal(self) -> StoreRemoval:
        return StoreRemoval(self._turns, self._rows, len(self._kept), len(self._unknown))

    async def run(self) -> StoreRemoval:
        """Raise `Refused` for a time at which a turn may still have run by rule, and if the server lacks this store's
        turns.

        Raises `ServerUnavailable`, `StoreUnavailable`.
        """
        await self._check_time()
        await self._check_server()
        # Start with questions: for most turns they are the oldest rows, and all others are removed with them.
        for table in (QUESTIONS, TICKETS):
            await self._remove_turns(table)
        await self._remove_rest()
        await self._remove_blobs()
        return self.removal

    async def _check_time(self) -> None:
        # Within this time, a rule would repeat a call without its ticket, if its turn were started again by anyone who
        # can start workflows. Later, approvers are asked.
        now = await self._store.read(lambda connection: connection.execute(select(StoreClock())).scalar_one())
        if self._before > now - round(ASKED_SECONDS * 1000):
            raise Refused("data younger than a day is not removed: name an earlier day")

    async def _check_server(self) -> None:
        """Raise `Refused` if the server knows none of the newest turns: another server would know no turn at all."""
        newest = await self._store.read(partial(old_turns.newest_turns, limit=_KNOWN_TRIED))
        for turn in newest:
            if await read_status(self._client, turn.workflow_id) is not None:
                return
        if newest:
            raise Refused(
                "the Temporal server knows none of this store's newest turns, so it may be another one's, and nothing "
                "was removed; look at TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE, or let a turn ask or run a tool first"
            )

    async def _remove_turns(self, table: Table) -> None:
        place: tuple[int, str] | None = None
        while True:
            page = await self._store.read(partial(old_turns.old_turns, table=table, before=self._before, after=place))
            for turn in page.turns:
                if turn not in self._kept | self._counted and turn.workflow_id not in self._unknown:
                    await self._remove_turn(turn)
            place = page.end
            if place is None:
                return

    async def _remove_turn(self, turn: TurnKey) -> None:
        # Check before asking the server: most remaining turns wait for approvers, and the store alone knows that.
        if not await self._store.read(partial(old_turns.is_old, turn=turn, before=self._before)):
            return
        known = await self._is_known(turn.workflow_id)
        if known is None:
            return
        if known:
            self._kept.add(turn)
            return
        if self._dry_run:
            removed = await self._store.read(partial(old_turns.count_turn, turn=turn))
        else:
            removed = await self._store.run(partial(old_turns.remove_turn, turn=turn, before=self._before))
        if any(removed):
            self._turns[turn.tenant] += 1
            self._count(turn.tenant, removed)
            if self._dry_run:
                # The rows still exist in a dry run: the other table must not count the turn again.
                self._counted.add(turn)

    async def _remove_rest(self) -> None:
        for remove in (old_turns.remove_uses, old_turns.remove_grants):
            while any(removed := await self._store.run(partial(remove, before=self._before, dry_run=self._dry_run))):
                self._count(DEFAULT_TENANT, removed)
                if self._dry_run:
                    break

    async def _remove_blobs(self) -> None:
        place: tuple[int, str] | None = None
        asked: set[SessionKey] = set()
        while True:
            page = await self._store.read(partial(old_turns.old_sessions, before=self._before, after=place))
            for session in page.sessions:
                if session not in asked:
                    asked.add(session)
                    await self._remove_blobs_of(session)
            place = page.end
            if place is None:
                return

    async def _remove_blobs_of(self, session: SessionKey) -> None:
        """Require that neither the server nor the store has any data that names a session's blobs."""
        if await self._store.read(partial(old_turns.has_questions, session=session)):
            return
        own = TurnKey(session.tenant, session.session, session.session)
        # A turn's history may name a blob of another turn in its session. The session's own workflow starts them all. A
        # turn named like its session needs no such workflow.
        for name in (session.workflow_id, own.workflow_id):
            if await self._is_known(name) is not False:
                return
        if await self._has_turns(session) is not False:
            return
        last = ""
        while hashes := await self._store.read(
            partial(old_turns.old_blobs, session=session, before=self._before, after=last)
        ):
            last = hashes[-1]
            work = old_turns.count_blobs if self._dry_run else old_turns.remove_blobs
            removed = await self._store.run(partial(work, session=session, hashes=hashes, before=self._before))
            self._count(session.tenant, removed)

    def _count(self, tenant: str, removed: RemovedRows) -> None:
        self._rows[tenant] = self._rows.get(tenant, RemovedRows()).plus(removed)

    async def _is_known(self, workflow_id: str) -> bool | None:
        try:
            found = await read_status(self._client, workflow_id) is not None
        except ServerUnavailable as error:
            self._note_silence(workflow_id, error)
            return None
        self._silences = 0
        return found

    async def _has_turns(self, session: SessionKey) -> bool | None:
        # Ids have no quotes.
        query = f'WorkflowId STARTS_WITH "turn/{session.tenant}/{session.session}/"'
        try:
            async for _ in self._client.list_workflows(query, limit=1):
                return True
        except RPCError as error:
            self._note_silence(session.workflow_id, error)
            return None
        return False

    def _note_silence(self, name: str, error: Exception) -> None:
        _log.warning("the data of `%s` stays: %s", name, error)
        self._unknown.add(name)
        self._silences += 1
        if self._silences >= _SILENCES:
            raise ServerUnavailable("the server does not say which turns it has; data removed until now stays removed")
