"""Keeps tickets, blobs and keys in SQLite or PostgreSQL. Every failure of the database is `StoreUnavailable`."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
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
"""Under which name the store keeps what its id is made of; made by whoever opens it first."""
_ID_CHARS: Final = 16
_PROBE_LOOK_SECONDS: Final = 0.1
AFTER_COMMIT: Final = "signoff-after-commit"
"""Under which name a connection holds what is done once its transaction is committed: to count it, and to log it."""
Also: TypeAlias = Callable[[Connection], object]
"""Writes more rows in a transaction that begins with others."""

# Built once: building a statement takes longer than executing it.
_RECORD: Final = (
    update(TICKETS)
    # The state is in the condition: of several who report at once one changes the row, the others read what stands.
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "claimed")
    .values(state="done", outcome=bindparam("result"), finished_at=StoreClock())
)
_RECORD_LATE: Final = (
    update(TICKETS)
    # Void and finished was claimed once; void alone was never given to anybody, and nobody can have an outcome for it.
    .where(TICKETS.c.key == bindparam("ticket"), TICKETS.c.state == "void", TICKETS.c.finished_at.is_not(None))
    .values(state="done", outcome=bindparam("result"), finished_at=StoreClock())
)
_RECORD_KNOWN: Final = (
    update(TICKETS)
    # Only over the very outcome that was read: who knew better meanwhile stands.
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
"""How long after it was last heard of whoever runs a ticket is taken to run it: as long as the server waits for it."""
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
    """Rolls a claim back; carries the answer to the claimer."""

    def __init__(self, claim: Claim) -> None:
        super().__init__("the ticket was not given")
        self.claim = claim


class Store:
    """Runs transactions on the database, and keeps tickets, blobs and keys in it; for one event loop.

    All methods raise `StoreUnavailable` when the database fails.
    """

    def __init__(self, base: Database, words: str) -> None:
        self._base = base
        self._words = words
        self._closed = False
        self._reading = asyncio.Lock()
        self._refusals = RefusalCounts(self.run)
        self.counts: Final = ProcessCounts()
        """What this process did with the store, for whoever scrapes it."""
        self.role: StoreRole = "owner"
        """As whom this store is connected; on SQLite always as its owner."""
        self.id = ""
        """16 hex digits, made with the store and kept in it: a store begun anew has another."""

    @classmethod
    async def open(cls, url: str, *, durable: bool = False) -> "Store":
        """Opens the store at `url` (`sqlite:///FILE`, `postgresql://USER@HOST/NAME`); makes or upgrades its tables.

        A database role that does not own the tables changes none, and needs the rights of a worker or a gateway.
        `durable` makes SQLite outlive a power cut without losing its last commits. Raises `ConfigError` for a URL that
        cannot be a store, for a store of a newer version, and to such a role for one of any other version or without
        those rights; `StoreUnavailable` when it does not answer.
        """
        place = read_url(url)
        try:
            make_private(place)
        except OSError as error:
            raise StoreUnavailable(f"{place.words} cannot be opened: {error.strerror}") from None
        store = cls(open_database(place, durable=durable), place.words)
        try:
            # Nothing has connected before this: a wrong address is found at the start, not by the first claim.
            store.role = await store.run(prepare)
            store.id = (await store.secret_key(STORE_ID)).hex()[:_ID_CHARS]
        except BaseException:
            # Also when the opener is cancelled: SQLite's thread and connection would outlive it.
            await store.close()
            raise
        return store

    @property
    def dialect(self) -> str:
        """Names the database: `sqlite` or `postgresql`."""
        return self._base.dialect

    async def close(self) -> None:
        """Closes all connections; the store answers nothing after that."""
        if not self._closed:
            await self._refusals.close()
            self._closed = True
            await self._base.close()

    async def check(self) -> datetime:
        """Returns the time by the store's clock, after checking that its role's tables exist and that it can be
        written.
        """

        def read(connection: Connection) -> datetime:
            # Every table that its role reads, not `SELECT 1`: a database that answers without its tables is not ready.
            for table in readable_tables(self.role):
                connection.execute(select(*table.primary_key).limit(1))
            return time_from_millis(connection.execute(select(StoreClock())).scalar_one())

        def write(connection: Connection) -> None:
            if not insert_new(connection, PROBES, {"name": "ready"}):
                connection.execute(update(PROBES).values(at=StoreClock()))

        # Written first: a store on a full disk answers every question and takes no answer.
        await self._write_probe(write)
        return await self.read(read)

    async def _write_probe(self, write: Callable[[Connection], None]) -> None:
        """Write unless another process blocks the store, which is found out sooner than a write is given up."""
        probe = asyncio.ensure_future(self.run(write))
        try:
            while not (await asyncio.wait({probe}, timeout=_PROBE_LOOK_SECONDS))[0]:
                if problem := self._base.problem():
                    raise StoreUnavailable(problem)
        finally:
            probe.cancel()
        await probe

    def count_refusal(self, kind: RefusalKind) -> None:
        """Counts one refusal, reported by `signoff doctor`, `/readyz` and metrics. Never raises."""
        self.counts.count("signoff_refused_inputs", kind)
        self._refusals.count(kind)

    async def put_blob(self, body: bytes, place: SessionKey | None) -> BlobRef:
        """Keeps `body`, the bytes of a JSON value, under their hash, as `add_blob` does."""
        blob = Blob.of(body)
        await self.run(lambda connection: add_blob(connection, blob, place))
        return blob.ref

    async def get_blob(self, sha256: str) -> bytes | None:
        """Returns the bytes kept under `sha256`, or None."""
        query = select(BLOBS.c.body).where(BLOBS.c.sha256 == sha256)
        found = await self.read(lambda connection: connection.scalar(query))
        return None if found is None else bytes(found)

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
        """Claims the ticket `key`; of all claimers ever, exactly one gets `fresh`.

        `owner` is the id of the try that uses a permit, of a call that its agent runs. The claim returned has the
        owner of the row as it was before.

        `nonce` is that of the turn's principal: under one call of it there is one action that is claimed or done. In
        the same transaction one use of `grant` is spent and the `use` of a limited tool is taken, if given, in place of
        those of the call's earlier tickets, which were given up; and the tenant, which `workflow` names, is checked not
        to be frozen; else nothing is claimed. `holds` checks in the transaction whether the right to run still stands.
        `also` is written with a fresh ticket, or the ticket is not claimed either. `runs`: the claimer begins at once,
        and the ticket is `seen` while it goes on. `begun` is when the turn was: where the store was restored from a
        backup since, the call may have run without a ticket, and its first claimer gets `open`, like any later one.
        """

        def enter(connection: Connection) -> Claim:
            tenant = tenant_of(workflow)
            share_tenant(connection, tenant)
            hold_call(connection, workflow, call)
            # The row first: SQLite's lock is taken by writing, and what is read after that is the latest.
            values = {"key": key, "state": "claimed", "workflow": workflow, "call": call, "tool": tool}
            values |= {"owner": owner, "nonce": nonce}
            forgotten = is_forgotten(connection, key, begun)
            if forgotten:
                # The call may have run under another use: no later try may take this row for its own.
                values["owner"] = ""
            fresh = add_claim(connection, values, runs=runs and not forgotten)
            # Also where the ticket is not fresh: its caller is told both, as a finished call keeps its outcome.
            freeze = freeze_of(connection, tenant)
            frozen = "" if freeze is None else freeze.reason or "no reason given"
            if not fresh:
                return replace(self._find(connection, key, workflow), frozen=frozen)
            if frozen:
                # Raised, not returned: the ticket's row is written already, and only a rollback takes it back.
                raise _NotGiven(Claim(kind="frozen", frozen=frozen))
            if has_other_action(connection, values):
                raise _NotGiven(Claim(kind="other"))
            if holds is not None and not holds(connection):
                raise _NotGiven(Claim(kind="superseded"))
            if grant and not spend_grant(connection, grant, key):
                raise _NotGiven(Claim(kind="ungranted"))
            if use is not None:
                # Before the use is counted: what this call took under tickets it gave up must not stand in its own way.
                _return_earlier(connection, key)
            again = None if use is None else take_use(connection, use, key)
            if again is not None:
                raise _NotGiven(Claim(kind="used_up", again=again))
            if forgotten:
                return Claim(kind="open", frozen=frozen)
            # Last: what writes the record locks its streams until the transaction ends (see `audit.log.entry_writer`).
            if also is not None:
                also(connection)
            return Claim(kind="fresh")

        try:
            return await self.run(enter)
        except _NotGiven as why:
            return why.claim

    async def void_unclaimed(self, key: str, *, workflow: str, call: str, tool: str, nonce: str = "") -> Claim:
        """Voids an unclaimed ticket, so that `workflow` never claims it: returns `void`, else the ticket's present
        kind.

        That is `open`, `done` or `undone`; `other` where the key is another turn's, of which nothing is revealed.
        """
        # The same insert as a claim's: the primary key decides which of the two was first.
        values = {"key": key, "state": "void", "workflow": workflow, "call": call, "tool": tool, "owner": ""}

        def enter(connection: Connection) -> Claim:
            if insert_new(connection, TICKETS, {**values, "nonce": nonce}):
                return Claim(kind="void")
            return self._find(connection, key, workflow)

        return await self.run(enter)

    async def void_claimed(self, key: str, *, also: Also | None = None) -> Claim:
        """Records that what a claimed ticket began came to nothing: returns `undone`, else the ticket's present kind.

        A claimer that reports an outcome after all is still believed. `also` is written in the same transaction. Raises
        `Refused` when there is no such ticket.
        """

        def enter(connection: Connection) -> Claim:
            undone = connection.execute(_UNDO, {"ticket": key}).rowcount == 1
            if undone:
                return_use(connection, key)
            if undone and also is not None:
                also(connection)
            ticket = read_ticket_row(connection, key)
            if ticket is None:
                raise Refused("a ticket that nobody claimed cannot have come to nothing")
            return ticket.claim

        return await self.run(enter)

    async def record(
        self, key: str, outcome: CallOutcome, *, also: Also | None = None, corrects: bool = True
    ) -> CallOutcome:
        """Records the outcome of a claimed ticket, once; returns the outcome that stands, which is the first.

        `also` is written in the same transaction. A ticket that was taken to have come to nothing takes an outcome that
        knows better, and so does one whose outcome was unknown, but not where this `corrects` nothing. A use of a
        limited tool is given back by a failure of its handler, and by no other: where a result fits nowhere, its effect
        has happened. Raises `Refused` when there is no such ticket or it is void.
        """

        def write(connection: Connection) -> CallOutcome:
            values = {"ticket": key, "result": outcome.model_dump_json()}
            done = connection.execute(_RECORD, values).rowcount == 1
            # Not knowing takes the place of nothing: neither of what came to nothing nor of what is known.
            if corrects and not done and outcome.code != "in_doubt":
                done = connection.execute(_RECORD_LATE, values).rowcount == 1 or _correct(connection, values)
            if done:
                _count(connection, key, outcome)
                if also is not None:
                    also(connection)
                return outcome
            ticket = read_ticket_row(connection, key)
            # Of one that does not know its caller hears its own word, and the ticket stays undone.
            if corrects and ticket is not None and ticket.claim.kind == "undone":
                return outcome
            if ticket is None or ticket.outcome is None:
                raise Refused("an outcome was reported for a ticket that nobody claimed")
            return ticket.outcome

        return await self.run(write)

    async def file_late_report(self, key: str, report: LateReport, *, also: Also) -> None:
        """Files an agent's report beside the outcome of a ticket, which stands; only the first one.

        `also` is written in the same transaction.
        """

        def write(connection: Connection) -> None:
            values = {"ticket": key, "report": report.model_dump_json()}
            if connection.execute(_FILE_LATE, values).rowcount == 1:
                also(connection)

        await self.run(write)

    async def record_heartbeat(self, key: str) -> None:
        """Records that the claimer of a ticket still runs it."""
        await self.run(lambda connection: connection.execute(_SEEN, {"ticket": key}).close())

    async def claim_remaining(self, key: str) -> float:
        """Returns for how many seconds more the claimer of a ticket is taken to run it; 0 where nobody does."""
        since = await self.read(lambda connection: connection.scalar(_SINCE, {"ticket": key}))
        return 0.0 if since is None else max(RUNS_SECONDS - since / 1000, 0.0)

    async def tickets_of_turn(self, workflow: str) -> list[Ticket]:
        """Returns every ticket of a turn, the first claimed first."""
        return await self.read(lambda connection: read_tickets(connection, workflow))

    async def read_ticket(self, key: str) -> Ticket | None:
        """Returns the ticket `key`, or None."""
        return await self.read(lambda connection: read_ticket_row(connection, key))

    async def secret_key(self, name: str) -> bytes:
        """Returns the 32 random bytes named `name`, made when first asked for and the same for everyone ever after."""
        query = select(KEYS.c.secret).where(KEYS.c.name == name)

        # Of several who make it at once the first one's stands, and all read that: a second one would break every seal.
        def make(connection: Connection) -> Any:
            insert_new(connection, KEYS, {"name": name, "secret": secrets.token_bytes(KEY_BYTES)})
            return connection.execute(query).scalar_one()

        # Read first: writing takes SQLite's one lock, and the key is made only once.
        found = await self.read(lambda connection: connection.scalar(query))
        return bytes(await self.run(make) if found is None else found)

    def _find(self, connection: Connection, key: str, workflow: str) -> Claim:
        ticket = read_ticket_row(connection, key)
        # The insert waited for whoever held the key, so the row is there unless somebody deletes tickets.
        if ticket is None:
            raise StoreUnavailable(f"{self._words} lost a ticket while it was read")
        return ticket.claim if ticket.workflow == workflow else Claim(kind="other")

    async def run(self, work: Callable[[Connection], Found]) -> Found:
        """Runs `work` in one transaction, rolled back when it raises; for the other modules that keep rows in the
        store.

        On SQLite the transaction holds the file's write lock from its start. If another process keeps that lock,
        `StoreUnavailable` is raised within `BUSY_SECONDS`, and `work` never runs.
        """
        after: list[Callable[[ProcessCounts], None]] = []

        def run_work(connection: Connection) -> Found:
            connection.info[AFTER_COMMIT] = after
            return work(connection)

        found = await self._ask(self._base.run, run_work)
        # What was rolled back has not happened.
        for each in after:
            each(self.counts)
        return found

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        """Run `work`, which writes nothing, in one transaction. It waits for no write of this or another process."""
        return await self._ask(self._base.read, work)

    async def _ask(
        self, run: Callable[[Callable[[Connection], Found]], Awaitable[Found]], work: Callable[[Connection], Found]
    ) -> Found:
        if self._closed:
            raise StoreUnavailable(f"{self._words} is closed")
        try:
            return await run(work)
        except SignoffError:
            raise
        except Exception as error:
            self.counts.count("signoff_store_failures")
            # Drivers fail in many types, and their texts hold SQL and arguments: only the type's name goes on.
            raise StoreUnavailable(f"{self._words} did not answer as a store ({type(error).__name__})") from None

    async def run_in_thread(self, work: Callable[[], Found]) -> Found:
        """Runs `work` in a thread beside the event loop, one at a time, in the order of the calls."""
        async with self._reading:
            return await asyncio.to_thread(work)


@asynccontextmanager
async def open_store(url: str, *, durable: bool = False) -> AsyncIterator[Store]:
    """Opens a store as `Store.open`, and closes it at the end of the block."""
    store = await Store.open(url, durable=durable)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def working_store(settings: Settings) -> AsyncIterator[Store]:
    """Opens the store of the settings, and makes its folder when needed. Raises `ConfigError`, `StoreUnavailable`."""
    make_state_dir(settings)
    async with open_store(settings.store_url, durable=settings.durable) as store:
        yield store


def make_state_dir(settings: Settings) -> None:
    """Makes the folder of state. Raises `ConfigError` naming the setting."""
    folder = settings.state_dir
    try:
        make_private_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"the folder `{folder}` cannot be made ({error.strerror}): name another in SIGNOFF_STATE_DIR",
            field="state_dir",
        ) from None


def _correct(connection: Connection, values: dict[str, str]) -> bool:
    """Replaces an unknown outcome by that of `values`; returns whether it did."""
    before = connection.scalar(_OUTCOME, values)
    if before is None or CallOutcome.model_validate_json(before).code != "in_doubt":
        return False
    return connection.execute(_RECORD_KNOWN, {**values, "before": before}).rowcount == 1


def _count(connection: Connection, key: str, outcome: CallOutcome) -> None:
    """Counts or gives back the use of a ticket, as its outcome demands; an unknown outcome leaves it as it was."""
    if outcome.code == "execution_failed" and outcome.gate == "execute":
        return_use(connection, key)
    elif outcome.code != "in_doubt":
        keep_use(connection, key)


def _return_earlier(connection: Connection, key: str) -> None:
    for earlier in earlier_keys(key):
        # In this order: a claimer that tells its outcome meanwhile waits for this, or is seen here.
        return_use(connection, earlier)
        ticket = read_ticket_row(connection, earlier)
        if ticket is not None and ticket.outcome is not None:
            _count(connection, earlier, ticket.outcome)
