"""Stores tickets, blobs and keys in SQLite or PostgreSQL.

Every failure of the database raises `StoreUnavailable`.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, bindparam, select, update

from signoff.contracts.call import CallOutcome, LateReport
from signoff.contracts.content import BlobRef
from signoff.contracts.errors import ConfigError, Refused, SignoffError, StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.contracts.usage import LimitedUse
from signoff.formats.private_folder import make_private_folder
from signoff.formats.replace import replace
from signoff.settings import Settings
from signoff.store.blobs import Blob, add_blob
from signoff.store.change_notices import note_change
from signoff.store.claim_conditions import (
    add_claim,
    freeze_of,
    has_other_action,
    hold_call,
    insert_new,
    is_forgotten,
    keep_use,
    return_use,
    share_tenant,
    spend_grant,
    take_use,
    tenant_of,
)
from signoff.store.database import Database, Found, make_private, open_database, read_url
from signoff.store.refusal_counts import RefusalCounts, RefusalKind
from signoff.store.roles import StoreRole, readable_tables
from signoff.store.tables import BLOBS, KEYS, PROBES, TICKETS, StoreClock, time_from_millis
from signoff.store.tickets import Claim, Ticket, earlier_keys, read_ticket_row, read_tickets
from signoff.store.upgrade import prepare
from signoff.telemetry.counts import ProcessCounts

KEY_BYTES: Final = 32
STORE_ID: Final = "store-id"
"""The name of the secret from which the store's id is made, at the first opening."""
_ID_CHARS: Final = 16
_PROBE_LOOK_SECONDS: Final = 0.1
AFTER_COMMIT: Final = "signoff-after-commit"
"""The key in a connection's info for callbacks after commit, which count and log."""
Also: TypeAlias = Callable[[Connection], object]
"""Writes more rows in another function's transaction."""

# Built once: building a statement takes longer than executing it.
_RECORD: Final = (
    update(TICKETS)
    # The condition includes the state: of several reports at once, one changes the row and the others read the result.
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "claimed")
    .values(state="done", outcome=bindparam("result"), finished_at=StoreClock())
)
_RECORD_LATE: Final = (
    update(TICKETS)
    # A void, finished ticket was claimed once. A ticket that is only void was never given out, so it cannot have an
    # outcome.
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "void", TICKETS.c.finished_at.is_not(None))
    .values(state="done", outcome=bindparam("result"), finished_at=StoreClock())
)
_RECORD_KNOWN: Final = (
    update(TICKETS)
    # Replace only the outcome that was read: a better one recorded in between is kept.
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "done", TICKETS.c.outcome == bindparam("before"))
    .values(outcome=bindparam("result"), finished_at=StoreClock())
)
_FILE_LATE: Final = (
    update(TICKETS)
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.outcome.is_not(None), TICKETS.c.late_report.is_(None))
    .values(late_report=bindparam("report"))
)
_UNDO: Final = (
    update(TICKETS)
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "claimed")
    .values(state="void", finished_at=StoreClock())
)
RUNS_SECONDS: Final = 20.0
"""How long after its last sign of life a claimer counts as running.

The server waits equally long for it.
"""
_SEEN: Final = (
    update(TICKETS)
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "claimed")
    .values(seen_at=StoreClock())
)
_SINCE: Final = select(StoreClock() - TICKETS.c.seen_at).where(
    TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "claimed"
)
_OUTCOME: Final = select(TICKETS.c.outcome).where(TICKETS.c.key == bindparam("ticket"))


class _NotGiven(SignoffError):
    """Rolls back a claim. Carries the reply to the claimer."""

    def __init__(self, claim: Claim) -> None:
        super().__init__("the ticket was not given")
        self.claim = claim


class Store:
    """Runs transactions on the database, and stores tickets, blobs and keys.

    Bound to one event loop. All methods raise `StoreUnavailable`.
    """

    def __init__(self, base: Database, words: str) -> None:
        self._base = base
        self._words = words
        self._closed = False
        self._reading = asyncio.Lock()
        self._refusals = RefusalCounts(self.run)
        self.counts: Final = ProcessCounts()
        """Counts of this process's work with the store, for metrics."""
        self.role: StoreRole = "owner"
        """The database role of this store's connection, on SQLite always the owner."""
        self.id = ""
        """16 hex digits, created with the store. A new store has a different id."""

    @classmethod
    async def open(cls, url: str, *, durable: bool = False, listen_url: str = "") -> "Store":
        """Open the store at `url`, and create or upgrade its tables.

        `url` is `sqlite:///FILE` or `postgresql://USER@HOST/NAME`. A database role that does not own the tables changes
        none, and needs the rights of a worker or a gateway. `durable` makes SQLite survive a power cut without losing
        its last commits. `listen_url` is a direct address of the same PostgreSQL, if `url` is a pooler's.

        Raises `ConfigError` for a URL that cannot be a store and for a store of a newer version. A role other than the
        owner also gets it for any other version, or without those rights. Raises `StoreUnavailable`.
        """
        place = read_url(url)
        try:
            make_private(place)
        except OSError as error:
            raise StoreUnavailable(f"{place.words} cannot be opened: {error.strerror}") from None
        listening = read_url(listen_url) if listen_url else None
        store = cls(open_database(place, listening, durable=durable), place.words)
        try:
            # The first connection: report a wrong address at the start instead of at the first claim.
            store.role = await store.run(prepare)
            store.id = (await store.secret_key(STORE_ID)).hex()[:_ID_CHARS]
        except BaseException:
            # Close also if the opener is cancelled: SQLite's thread and connection would outlive it.
            await store.close()
            raise
        return store

    @property
    def dialect(self) -> str:
        """The database: `sqlite` or `postgresql`."""
        return self._base.dialect

    async def close(self) -> None:
        if not self._closed:
            await self._refusals.close()
            self._closed = True
            await self._base.close()

    async def check(self) -> datetime:
        """Return the store's time if the role's tables exist and are writable."""

        def read(connection: Connection) -> datetime:
            # Check every table that the role reads instead of `SELECT 1`: a database without its tables is not ready.
            for table in readable_tables(self.role):
                connection.execute(select(*table.primary_key).limit(1))
            return time_from_millis(connection.execute(select(StoreClock())).scalar_one())

        def write(connection: Connection) -> None:
            if not insert_new(connection, PROBES, {"name": "ready"}):
                connection.execute(update(PROBES).values(at=StoreClock()))

        # Write first: a store on a full disk can be read but not written.
        await self._write_probe(write)
        return await self.read(read)

    async def _write_probe(self, write: Callable[[Connection], None]) -> None:
        """Detects that another process blocks the store before the write gives up."""
        probe = asyncio.ensure_future(self.run(write))
        try:
            while not (await asyncio.wait({probe}, timeout=_PROBE_LOOK_SECONDS))[0]:
                if problem := self._base.problem():
                    raise StoreUnavailable(problem)
        finally:
            probe.cancel()
        await probe

    def count_refusal(self, kind: RefusalKind) -> None:
        """For `signoff doctor`, `/readyz` and metrics. Never raises."""
        self.counts.count("signoff_refused_inputs", kind)
        self._refusals.count(kind)

    async def put_blob(self, body: bytes, place: SessionKey | None) -> BlobRef:
        """`body` is JSON, and its hash becomes its name; see `add_blob`."""
        blob = Blob.of(body)
        await self.run(lambda connection: add_blob(connection, blob, place))
        return blob.ref

    async def get_blob(self, sha256: str) -> bytes | None:
        query = select(BLOBS.c.body).where(BLOBS.c.sha256 == sha256)
        body = await self.read(lambda connection: connection.scalar(query))
        return None if body is None else bytes(body)

    async def claim(
        self,
        key: str,
        *,
        workflow: str,
        call: str,
        tool: str,
        owner: str = "",
        nonce: str = "",
        grant: str = "",
        use: LimitedUse | None = None,
        holds: Callable[[Connection], bool] | None = None,
        also: Also | None = None,
        runs: bool = False,
        begun: datetime | None = None,
    ) -> Claim:
        """Claim the ticket `key`. Exactly one claimer ever gets `fresh`.

        `owner` is the id of the attempt that uses a permit, for a call that its agent runs. The returned claim has the
        row's previous owner. `nonce` comes from the turn's principal: a call has only one action, claimed or done,
        under it.

        The same transaction spends one use of `grant` and takes the `use` of a limited tool. That use replaces those of
        the call's given-up tickets. It also checks that the tenant named by `workflow` is not frozen, and that `holds`,
        the right to run, is still true. If anything fails, including `also`, nothing is claimed. `runs` means that the
        claimer begins at once, and the ticket counts as seen while it continues.

        `begun` is the start of the turn. If the store was restored from a backup since, the call may have run without a
        ticket. Its first claimer then gets `open`, like any later one.
        """

        def enter(connection: Connection) -> Claim:
            tenant = tenant_of(workflow)
            share_tenant(connection, tenant)
            hold_call(connection, workflow, call)
            # Write the row first: writing takes SQLite's lock, and reads after that see the latest state.
            values = {"key": key, "state": "claimed", "workflow": workflow, "call": call, "tool": tool}
            values |= {"owner": owner, "nonce": nonce}
            forgotten = is_forgotten(connection, key, begun)
            if forgotten:
                # The call may have run under another use, so no later attempt may own this row.
                values["owner"] = ""
            fresh = add_claim(connection, values, runs=runs and not forgotten)
            # Read the freeze even if the ticket is not fresh: the caller gets both, because a finished call keeps its
            # outcome.
            freeze = freeze_of(connection, tenant)
            frozen = "" if freeze is None else freeze.reason or "no reason given"
            if not fresh:
                return replace(self._find(connection, key, workflow), frozen=frozen)
            if frozen:
                # Raise instead of returning: the ticket's row is written, and only a rollback removes it.
                raise _NotGiven(Claim(kind="frozen", frozen=frozen))
            if has_other_action(connection, values):
                raise _NotGiven(Claim(kind="other"))
            if holds is not None and not holds(connection):
                raise _NotGiven(Claim(kind="superseded"))
            if grant and not spend_grant(connection, grant, key):
                raise _NotGiven(Claim(kind="ungranted"))
            if use is not None:
                # Return them before counting the use: uses of this call under earlier, given-up tickets must not block
                # it.
                _return_earlier(connection, key)
            again = None if use is None else take_use(connection, use, key)
            if again is not None:
                raise _NotGiven(Claim(kind="used_up", again=again))
            if forgotten:
                return Claim(kind="open", frozen=frozen)
            # Do this last: writing to the audit log locks its streams until the transaction ends (see
            # `audit.log.entry_writer`).
            if also is not None:
                also(connection)
            return Claim(kind="fresh")

        try:
            return await self.run(enter)
        except _NotGiven as why:
            return why.claim

    async def claim_answered(
        self,
        key: str,
        outcome: CallOutcome,
        *,
        workflow: str,
        call: str,
        tool: str,
        nonce: str,
        holds: Callable[[Connection], bool],
        also: Also | None = None,
        begun: datetime | None = None,
    ) -> Claim:
        """Claim the ticket of a call that a person answered instead, with that `outcome`: nothing ever runs under it.

        Returns `done` or the ticket's present kind, `other` or `superseded` as `claim` does. Writes `also` in the same
        transaction, with a new ticket only.
        """

        def enter(connection: Connection) -> Claim:
            hold_call(connection, workflow, call)
            values = {"key": key, "state": "claimed", "workflow": workflow, "call": call, "tool": tool}
            values |= {"owner": "", "nonce": nonce}
            forgotten = is_forgotten(connection, key, begun)
            if not add_claim(connection, values, runs=False):
                return self._find(connection, key, workflow)
            if has_other_action(connection, values):
                raise _NotGiven(Claim(kind="other"))
            if not holds(connection):
                raise _NotGiven(Claim(kind="superseded"))
            if forgotten:
                return Claim(kind="open")
            connection.execute(_RECORD, {"ticket": key, "result": outcome.model_dump_json()})
            note_change(connection)
            if also is not None:
                also(connection)
            return Claim(kind="done", outcome=outcome)

        try:
            return await self.run(enter)
        except _NotGiven as why:
            return why.claim

    async def void_unclaimed(self, key: str, *, workflow: str, call: str, tool: str, nonce: str = "") -> Claim:
        """After this, `workflow` never claims the ticket.

        Return `void` or the present kind: `open`, `done` or `undone`. It is `other`, and reveals nothing, if the key
        belongs to another turn.
        """
        # Use the same insert as a claim: the primary key decides which of the two is first.
        values = {"key": key, "state": "void", "workflow": workflow, "call": call, "tool": tool, "owner": ""}

        def enter(connection: Connection) -> Claim:
            if insert_new(connection, TICKETS, {**values, "nonce": nonce}):
                return Claim(kind="void")
            return self._find(connection, key, workflow)

        return await self.run(enter)

    async def void_claimed(self, key: str, *, also: Also | None = None) -> Claim:
        """Record that the action had no effect.

        Return `undone` or the ticket's present kind. A later outcome from the claimer is still accepted. Writes `also`
        in the same transaction. Raises `Refused` if there is no such ticket.
        """

        def enter(connection: Connection) -> Claim:
            undone = connection.execute(_UNDO, {"ticket": key}).rowcount == 1
            if undone:
                note_change(connection)
                return_use(connection, key)
            if undone and also is not None:
                also(connection)
            ticket = read_ticket_row(connection, key)
            if ticket is None:
                raise Refused("an unclaimed ticket cannot be undone")
            return ticket.claim

        return await self.run(enter)

    async def record(
        self, key: str, outcome: CallOutcome, *, also: Also | None = None, corrects: bool = True
    ) -> CallOutcome:
        """Record an outcome once. Return the outcome kept, which is the first. Writes `also` in the same transaction.

        Unless `corrects` is false, a known outcome also replaces an unknown one, and the state of a ticket recorded as
        without effect. A use of a limited tool is returned only if the handler failed: if the result was invalid, its
        effect has happened. Raises `Refused` if there is no such ticket or it is void.
        """

        def write(connection: Connection) -> CallOutcome:
            values = {"ticket": key, "result": outcome.model_dump_json()}
            changed = connection.execute(_RECORD, values).rowcount == 1
            # An unknown outcome replaces nothing, neither "no effect" nor a known outcome.
            if corrects and not changed and outcome.code != "in_doubt":
                changed = connection.execute(_RECORD_LATE, values).rowcount == 1 or _correct(connection, values)
            if changed:
                note_change(connection)
                _count(connection, key, outcome)
                if also is not None:
                    also(connection)
                return outcome
            ticket = read_ticket_row(connection, key)
            # An unknown outcome for an undone ticket is returned to its caller, and the ticket stays undone.
            if corrects and ticket is not None and ticket.claim.kind == "undone":
                return outcome
            if ticket is None or ticket.outcome is None:
                raise Refused("an outcome was reported for an unclaimed ticket")
            return ticket.outcome

        return await self.run(write)

    async def file_late_report(self, key: str, report: LateReport, *, also: Also) -> None:
        """Does not change the outcome. Keeps only the first report. Writes `also` in the same transaction."""

        def write(connection: Connection) -> None:
            values = {"ticket": key, "report": report.model_dump_json()}
            if connection.execute(_FILE_LATE, values).rowcount == 1:
                also(connection)

        await self.run(write)

    async def record_heartbeat(self, key: str) -> None:
        await self.run(lambda connection: connection.execute(_SEEN, {"ticket": key}).close())

    async def claim_remaining(self, key: str) -> float:
        """Return the seconds for which the claimer still counts as running, or 0."""
        since = await self.read(lambda connection: connection.scalar(_SINCE, {"ticket": key}))
        return 0.0 if since is None else max(RUNS_SECONDS - since / 1000, 0.0)

    async def tickets_of_turn(self, workflow: str) -> list[Ticket]:
        """In the order of their claims."""
        return await self.read(lambda connection: read_tickets(connection, workflow))

    async def read_ticket(self, key: str) -> Ticket | None:
        return await self.read(lambda connection: read_ticket_row(connection, key))

    async def secret_key(self, name: str) -> bytes:
        """Return 32 random bytes, created at first use and then the same for every process."""
        query = select(KEYS.c.secret).where(KEYS.c.name == name)

        # If several create it at once, the first is kept and all read it: a second key would break every seal.
        def make(connection: Connection) -> Any:
            insert_new(connection, KEYS, {"name": name, "secret": secrets.token_bytes(KEY_BYTES)})
            return connection.execute(query).scalar_one()

        # Read first: writing takes SQLite's only lock, and the key is created only once.
        secret = await self.read(lambda connection: connection.scalar(query))
        return bytes(await self.run(make) if secret is None else secret)

    def _find(self, connection: Connection, key: str, workflow: str) -> Claim:
        ticket = read_ticket_row(connection, key)
        # The insert waited for the key's holder, so the row exists unless tickets were deleted.
        if ticket is None:
            raise StoreUnavailable(f"{self._words} lost a ticket while it was read")
        return ticket.claim if ticket.workflow == workflow else Claim(kind="other")

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        """Run `work` in one transaction, rolled back if it raises.

        On SQLite the transaction holds the file's write lock from its start. If another process keeps that lock, raises
        `StoreUnavailable` within `BUSY_SECONDS`, and `work` never runs.
        """
        after: list[Callable[[ProcessCounts], None]] = []

        def run_work(connection: Connection) -> Found:
            connection.info[AFTER_COMMIT] = after
            return work(connection)

        result = await self._ask(partial(self._base.run, run_work))
        # Rolled-back work must not be counted.
        for each in after:
            each(self.counts)
        return result

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        """`work` writes nothing. Its transaction waits for no write."""
        return await self._ask(partial(self._base.read, work))

    async def change_mark(self) -> Hashable:
        """Return a value that differs once another commit is visible, cheaply; see `Database.change_mark`."""
        return await self._ask(self._base.change_mark)

    async def hears_changes(self) -> bool:
        """Return False behind a pooler that loses PostgreSQL's notices. Then the mark differs each second."""
        return await self._ask(self._base.hears_changes)

    async def _ask(self, ask: Callable[[], Awaitable[Found]]) -> Found:
        if self._closed:
            raise StoreUnavailable(f"{self._words} is closed")
        try:
            return await ask()
        except SignoffError:
            raise
        except Exception as error:
            self.counts.count("signoff_store_failures")
            # Drivers raise many types, and their texts contain SQL and arguments: pass on only the type's name.
            raise StoreUnavailable(f"{self._words} did not answer as a store ({type(error).__name__})") from None

    async def run_in_thread(self, work: Callable[[], Found]) -> Found:
        """Runs one call at a time, in order."""
        async with self._reading:
            return await asyncio.to_thread(work)


@asynccontextmanager
async def open_store(url: str, *, durable: bool = False, listen_url: str = "") -> AsyncIterator[Store]:
    store = await Store.open(url, durable=durable, listen_url=listen_url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def working_store(settings: Settings) -> AsyncIterator[Store]:
    """Creates the directory if needed. Raises `ConfigError` and `StoreUnavailable`."""
    make_state_dir(settings)
    async with open_store(settings.store_url, durable=settings.durable, listen_url=settings.store_listen_url) as store:
        yield store


def make_state_dir(settings: Settings) -> None:
    """Raises `ConfigError` that names the setting."""
    folder = settings.state_dir
    try:
        make_private_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"the folder `{folder}` cannot be created ({error.strerror}): choose another in SIGNOFF_STATE_DIR",
            field="state_dir",
        ) from None


def _correct(connection: Connection, values: dict[str, str]) -> bool:
    before = connection.scalar(_OUTCOME, values)
    if before is None or CallOutcome.model_validate_json(before).code != "in_doubt":
        return False
    return connection.execute(_RECORD_KNOWN, {**values, "before": before}).rowcount == 1


def _count(connection: Connection, key: str, outcome: CallOutcome) -> None:
    """Count or return the use of a ticket. An unknown outcome changes nothing."""
    if outcome.code == "execution_failed" and outcome.gate == "execute":
        return_use(connection, key)
    elif outcome.code != "in_doubt":
        keep_use(connection, key)


def _return_earlier(connection: Connection, key: str) -> None:
    for earlier in earlier_keys(key):
        # In this order, a claimer that reports its outcome at the same time waits for this transaction or is seen here.
        return_use(connection, earlier)
        ticket = read_ticket_row(connection, earlier)
        if ticket is not None and ticket.outcome is not None:
            _count(connection, earlier, ticket.outcome)
