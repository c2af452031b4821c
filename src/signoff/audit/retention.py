"""Removes old turns from the audit log, each stream as a whole.

One signed record replaces a stream. It has the next number after the replaced ones, and contains the last one's hash.
So the checkpoints about the stream remain valid, and the stream can continue. Only the gateway's key makes such a
record, so that write access to the database is not enough to erase a stream.
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
from signoff.store.history.past_requests import remove_past_of
from signoff.store.store import Store
from signoff.store.tables import AUDIT_HEADS, AUDIT_RECORDS, millis_from_time

RETIRED: Final = "retired"
PURPOSE: Final = "audit retirement"


class RetiredStream(NamedTuple):
    """One removed stream."""

    turn: TurnKey
    records: int


async def retire(
    store: Store, signer: Signer, before: datetime, *, at: datetime, is_over: Callable[[TurnKey], Awaitable[bool]]
) -> list[RetiredStream]:
    """Remove turns that ended, by `is_over`, and have no record since `before`.

    Streams without a turn are kept. Raises `StoreUnavailable`. Streams removed before that stay removed.
    """
    removed: list[RetiredStream] = []
    for stream in await _old(store, before):
        turn = parse_workflow_id(stream)
        # Ask outside of the transaction: another server answers, and the stream would be locked in that time.
        if turn is None or not await is_over(turn):
            continue
        count = await store.run(partial(_retire, stream=stream, turn=turn, signer=signer, before=before, at=at))
        if count:
            removed.append(RetiredStream(turn, count))
    return removed


def first_number(record: Record) -> int:
    """The record's own number if it replaces others, or 1."""
    return max(record.seq, 1) if record.kind == RETIRED else 1


def replaces_stream(record: Record, verifier: Verifier) -> bool:
    """Return whether the gateway's key signed that this record replaces its stream.

    Never raises.
    """
    try:
        facts = record.facts
        at = datetime.fromisoformat(facts["at"])
        mark = Signature(str(facts["key_id"]), str(facts["signature"]))
        return verifier.check_bytes(PURPOSE, _body(record.stream, record.seq, record.prev, facts["at"]), mark, at=at)
    except (Refused, KeyError, TypeError, ValueError, NotCanonical):
        # Not signed by the gateway: an attacker who can write rows can store anything there.
        return False


async def _old(store: Store, before: datetime) -> list[str]:
    """Leaves out streams already removed."""
    last = (AUDIT_RECORDS.c.stream == AUDIT_HEADS.c.stream) & (AUDIT_RECORDS.c.seq == AUDIT_HEADS.c.seq)
    query = (
        select(AUDIT_HEADS.c.stream)
        .join(AUDIT_RECORDS, last)
        .where(AUDIT_RECORDS.c.written_at < millis_from_time(before), AUDIT_RECORDS.c.kind != RETIRED)
        .order_by(AUDIT_HEADS.c.stream)
    )
    return await store.read(lambda connection: list(connection.scalars(query)))


def _retire(
    connection: Connection, *, stream: str, turn: TurnKey, signer: Signer, before: datetime, at: datetime
) -> int:
    """Return the number of removed records, or 0 if the stream was extended since."""
    seq, last, now = lock_head(connection, stream)
    in_stream = AUDIT_RECORDS.c.stream == stream
    # Check everything again under the lock, because a late decision may have been written since the list was made. If
    # the head does not match the last record, it was manipulated: the gateway's key must not sign it.
    newest = connection.execute(select(AUDIT_RECORDS).where(in_stream, AUDIT_RECORDS.c.seq == seq)).first()
    if newest is None or newest.hash != last or newest.written_at >= millis_from_time(before) or newest.kind == RETIRED:
        return 0
    when = at.isoformat(timespec="seconds")
    mark = signer.sign_bytes(PURPOSE, _body(stream, seq + 1, last, when))
    removed = connection.execute(delete(AUDIT_RECORDS).where(in_stream)).rowcount
    data: dict[str, Any] = {"at": when, "records": removed, "key_id": mark.key_id, "signature": mark.signature}
    entry = AuditEntry(stream=stream, key=f"{RETIRED}/{seq}", kind=RETIRED, at=at, tenant=newest.tenant, data=data)
    placed = place_record(record_from_entry(entry), seq + 1, last, now)
    connection.execute(insert(AUDIT_RECORDS), placed.model_dump())
    move_head(connection, stream, placed.seq, placed.hash)
    remove_past_of(connection, turn)
    return removed


def _body(stream: str, seq: int, last: str, at: str) -> bytes:
    return canonical_json({"v": 1, "stream": stream, "seq": seq, "last": last, "at": at})
