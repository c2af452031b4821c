"""Takes old turns out of the record: each stream whole, and leaves one signed record in its place.

Such a record has the number after the last one it replaces, and names that one's hash: what checkpoints say of the
stream goes on to hold, and the stream could go on, too. Only the gateway's key makes one, so that whoever can merely
write to the database cannot have a stream forgotten.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from signoff.audit.log import lock_head, move_head
from signoff.audit.record import Record, place_record, record_from_entry
from signoff.contracts.audit import AuditEntry
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.errors import Refused
from signoff.contracts.ids import TurnKey, parse_workflow_id
from signoff.keys.signatures import Signature, Signer, Verifier
from signoff.store.store import Store
from signoff.store.tables import AUDIT_HEADS, AUDIT_RECORDS, millis_from_time

RETIRED: Final = "retired"
PURPOSE: Final = "audit retirement"


class RetiredStream(NamedTuple):
    """One stream that was taken out."""

    turn: TurnKey
    """The turn of the stream."""
    records: int
    """How many records it had."""


async def retire(
    store: Store, signer: Signer, before: datetime, *, at: datetime, is_over: Callable[[TurnKey], Awaitable[bool]]
) -> list[RetiredStream]:
    """Takes out every turn whose last record was written before `before` and that has ended by `is_over`.

    Streams that belong to no turn stay. Raises `StoreUnavailable`; the streams taken out until then stay so.
    """
    done: list[RetiredStream] = []
    for stream in await _old(store, before):
        turn = parse_workflow_id(stream)
        # Asked outside the transaction: the answer comes from another server, and the stream would be locked meanwhile.
        if turn is None or not await is_over(turn):
            continue
        count = await store.run(partial(_retire, stream=stream, signer=signer, before=before, at=at))
        if count:
            done.append(RetiredStream(turn, count))
    return done


def first_number(record: Record) -> int:
    """Returns the number a stream begins with whose first record this is: its own where it replaces others, else 1."""
    return max(record.seq, 1) if record.kind == RETIRED else 1


def replaces_stream(record: Record, verifier: Verifier) -> bool:
    """Returns whether the gateway's key signed that this record replaces all of its stream before it. Never raises."""
    try:
        facts = record.facts
        at = datetime.fromisoformat(facts["at"])
        mark = Signature(str(facts["key_id"]), str(facts["signature"]))
        return verifier.check_bytes(PURPOSE, _body(record.stream, record.seq, record.prev, facts["at"]), mark, at=at)
    except (Refused, KeyError, TypeError, ValueError, NotCanonical):
        # Whatever is not what the gateway signs: who can write rows can put anything there.
        return False


async def _old(store: Store, before: datetime) -> list[str]:
    """Returns the streams of turns to which nothing was added since `before`, unless they are taken out already."""
    last = (AUDIT_RECORDS.c.stream == AUDIT_HEADS.c.stream) & (AUDIT_RECORDS.c.seq == AUDIT_HEADS.c.seq)
    query = (
        select(AUDIT_HEADS.c.stream)
        .join(AUDIT_RECORDS, last)
        .where(AUDIT_RECORDS.c.written_at < millis_from_time(before), AUDIT_RECORDS.c.kind != RETIRED)
        .order_by(AUDIT_HEADS.c.stream)
    )
    return await store.read(lambda connection: list(connection.scalars(query)))


def _retire(connection: Connection, *, stream: str, signer: Signer, before: datetime, at: datetime) -> int:
    """Takes one stream out; returns how many records it had, 0 when the stream was added to meanwhile."""
    seq, last, now = lock_head(connection, stream)
    in_stream = AUDIT_RECORDS.c.stream == stream
    # All of it is asked again under the lock, as a late answer may have been written since the list was made.
    # A head that is not its last record's was tampered with: the gateway's key vouches for nothing there.
    newest = connection.execute(select(AUDIT_RECORDS).where(in_stream, AUDIT_RECORDS.c.seq == seq)).first()
    if newest is None or newest.hash != last or newest.written_at >= millis_from_time(before) or newest.kind == RETIRED:
        return 0
    when = at.isoformat(timespec="seconds")
    mark = signer.sign_bytes(PURPOSE, _body(stream, seq + 1, last, when))
    gone = connection.execute(delete(AUDIT_RECORDS).where(in_stream)).rowcount
    data: dict[str, Any] = {"at": when, "records": gone, "key_id": mark.key_id, "signature": mark.signature}
    entry = AuditEntry(stream=stream, key=f"{RETIRED}/{seq}", kind=RETIRED, at=at, tenant=newest.tenant, data=data)
    there = place_record(record_from_entry(entry), seq + 1, last, now)
    connection.execute(insert(AUDIT_RECORDS), there.model_dump())
    move_head(connection, stream, there.seq, there.hash)
    return gone


def _body(stream: str, seq: int, last: str, at: str) -> bytes:
    return canonical_json({"v": 1, "stream": stream, "seq": seq, "last": last, "at": at})
