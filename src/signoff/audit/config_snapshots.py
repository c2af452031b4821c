"""Records changes of the people and policies that running processes use.

Detects a file changed while nothing runs at the next start, otherwise at the next check. The record contains the hashes
before and after, and the names of added, removed and changed parts. A file does not show who changed it.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

from sqlalchemy import Connection, select

from signoff.approvals.audit_events import admin_entry, admin_stream, fingerprint
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.clock import Clock, system_clock
from signoff.contracts.errors import Refused, SignoffError
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.people.directory import Directory
from signoff.registry.catalog import Catalog
from signoff.registry.registry import definition_hash
from signoff.store.store import Store
from signoff.store.tables import AUDIT_RECORDS

LOOK_SECONDS: Final = 1.0
"""How often people are compared with the last record.

A directory of a file is also read this often.
"""
NAMES_SHOWN: Final = 100
"""The number of names of each kind in one record. Counts and hashes cover all."""
_PAGE: Final = 50
_log = logging.getLogger(__name__)

SnapshotKind = Literal["people", "policy"]


async def note_catalog(store: Store, catalog: Catalog, where: str, *, clock: Clock = system_clock) -> bool:
    """Return whether policies, rules or tools differ from the last record of `where`. Raises `StoreUnavailable`."""
    return await _note(store, "policy", where, DEFAULT_TENANT, _parts_of(catalog), clock(), catalog=catalog.hash)


async def note_people(store: Store, people: Directory, where: str, *, clock: Clock = system_clock) -> bool:
    """As `note_catalog`, tenant by tenant. Raises `StoreUnavailable` and the directory's errors."""
    everybody = people.all()
    begins = admin_stream("")
    recorded = [name.removeprefix(begins) for name in await AuditLog(store).streams() if name.startswith(begins)]
    differs = False
    for tenant in sorted({*recorded, *(person.tenant for person in everybody)}):
        here = (person for person in everybody if person.tenant == tenant)
        parts = {person.id: fingerprint(person.model_dump(mode="json")) for person in here}
        differs = await _note(store, "people", where, tenant, parts, clock()) or differs
    return differs


@asynccontextmanager
async def follow_people(
    store: Store, people: Directory, where: str, *, every: float = LOOK_SECONDS, clock: Clock = system_clock
) -> AsyncIterator[None]:
    """Record the people and each change, until the block ends.

    After an outage of the store, the next check catches up. Never ends the block.
    """
    note = partial(note_people, store, people, where, clock=clock)
    seen = await _record_people(people, where, None, note)
    following = asyncio.create_task(_follow(people, where, seen, every, note))
    try:
        yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def _follow(
    people: Directory, where: str, seen: tuple[Person, ...] | None, every: float, note: Callable[[], Awaitable[bool]]
) -> None:
    while True:
        await asyncio.sleep(every)
        seen = await _record_people(people, where, seen, note)


async def _record_people(
    people: Directory, where: str, seen: tuple[Person, ...] | None, note: Callable[[], Awaitable[bool]]
) -> tuple[Person, ...] | None:
    try:
        everybody = people.all()
        if everybody != seen:
            await note()
    except SignoffError as error:
        _log.warning("the people of %s are not written down: %s", where, error.message)
        return seen
    except Exception as error:
        # A directory can be third-party code.
        _log.warning("the people of %s are not written down: %s", where, type(error).__name__)
        return seen
    return everybody


async def _note(
    store: Store, kind: SnapshotKind, where: str, tenant: str, parts: Mapping[str, str], at: datetime, **facts: Any
) -> bool:
    last = await _last(store, kind, where, tenant)
    before = "" if last is None else str(last.facts.get("after", ""))
    # A tenant without records and without people needs no first record.
    if last is None and not parts:
        return False
    # Store the state before the record that names it, so that it can always be shown.
    blob = await store.put_blob(canonical_json(dict(parts)), None)
    if blob.sha256 == before:
        return False
    # The key contains the previous record's number: processes that see the same change write it once.
    key = f"{kind}/{where}/{0 if last is None else last.seq}/{blob.sha256[:16]}"
    entry = admin_entry(
        tenant,
        f"{kind} in force",
        "",
        at,
        kind=kind,
        key=key,
        where=where,
        before=before,
        after=blob.sha256,
        count=len(parts),
        **facts,
        **_difference(await _parts_before(store, before), parts),
    )
    return await AuditLog(store).append([entry]) == 1


async def _last(store: Store, kind: SnapshotKind, where: str, tenant: str) -> Record | None:
    """Skips manipulated records."""
    columns = [AUDIT_RECORDS.c[name] for name in Record.model_fields]
    wanted = (
        select(*columns)
        .where(AUDIT_RECORDS.c.stream == admin_stream(tenant), AUDIT_RECORDS.c.kind == kind)
        .order_by(AUDIT_RECORDS.c.seq.desc())
        .limit(_PAGE)
    )
    page = wanted
    while rows := await store.read(partial(_rows, query=page)):
        for record in rows:
            # The verifier reports a manipulated record. Here it only means comparing with an older one.
            with contextlib.suppress(Refused):
                if record.facts.get("where") == where:
                    return record
        page = wanted.where(AUDIT_RECORDS.c.seq < rows[-1].seq)
    return None


def _rows(connection: Connection, query: Any) -> list[Record]:
    return [Record.model_construct(**row._mapping) for row in connection.execute(query)]


async def _parts_before(store: Store, sha256: str) -> dict[str, str] | None:
    body = await store.get_blob(sha256) if sha256 else None
    parts: dict[str, str] | None = None if body is None else json.loads(body)
    return parts


def _difference(before: Mapping[str, str] | None, now: Mapping[str, str]) -> dict[str, list[str]]:
    """Empty if the earlier state is unknown."""
    if before is None:
        return {}
    changed = [name for name in sorted(now) if name in before and before[name] != now[name]]
    names = {"added": sorted(now.keys() - before.keys()), "removed": sorted(before.keys() - now.keys())}
    return {kind: each[:NAMES_SHOWN] for kind, each in {**names, "changed": changed}.items()}


def _parts_of(catalog: Catalog) -> dict[str, str]:
    return {
        **{f"tool {tool.activity}": definition_hash(tool) for tool in catalog.every_tool},
        **{f"policy {name}": policy.hash for name, policy in catalog.policies.items()},
        "rules": catalog.rules.hash,
        "approvers": fingerprint(list(catalog.default_approvers)),
        # The catalog's hash also covers actors and context fields.
        "catalog": catalog.hash,
    }
