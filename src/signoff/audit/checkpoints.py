"""Makes and reads checkpoints: signed statements of the length of every stream.

A checkpoint lists the heads of the streams that grew since the previous one, so that its cost depends only on new
records. Each names the previous one by its hash, so that the last one confirms all of them. A checkpoint kept elsewhere
detects the removal of a record, or of a whole end of the log, even with all traces of it.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import Connection, Row, bindparam, insert, select, update

from signoff.audit.log import CHAIN, lock_head, move_head
from signoff.audit.record import bound_text
from signoff.contracts.canonical_json import canonical_json, sha256_hex
from signoff.contracts.frozen_model import FrozenModel
from signoff.keys.signatures import Signature, Signer, Verifier
from signoff.store.store import Store
from signoff.store.tables import AUDIT_CHECKPOINTS, AUDIT_HEADS

PURPOSE: Final = "audit checkpoint"
_PAGE: Final = 200

_GROWN: Final = (
    select(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq, AUDIT_HEADS.c.hash)
    .where(AUDIT_HEADS.c.seq > AUDIT_HEADS.c.covered, AUDIT_HEADS.c.stream != CHAIN)
    .order_by(AUDIT_HEADS.c.stream)
)
_COVER: Final = update(AUDIT_HEADS).where(AUDIT_HEADS.c.stream == bindparam("of")).values(covered=bindparam("to"))
_LAST: Final = (
    select(AUDIT_CHECKPOINTS.c.number, AUDIT_CHECKPOINTS.c.hash).order_by(AUDIT_CHECKPOINTS.c.number.desc()).limit(1)
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StreamHead(FrozenModel):
    """The last record of one stream."""

    stream: str
    seq: int
    hash: str


class Statement(FrozenModel):
    """The signed part of a checkpoint."""

    v: int = 1
    """The version of this format."""
    number: int
    """The checkpoint's number, from 1."""
    at: int
    """The time of signing: milliseconds since 1970 by the store's clock."""
    previous: str
    """The hash of the previous checkpoint, or zeros for the first."""
    heads: tuple[StreamHead, ...] = ()
    """The heads of the streams that grew since the previous checkpoint."""

    @property
    def body(self) -> bytes:
        """The signed bytes."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def hash(self) -> str:
        return sha256_hex(self.model_dump(mode="json"))

    @property
    def made_at(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.at)


class Checkpoint(FrozenModel):
    """A statement with its signature."""

    statement: Statement
    """The signed part."""
    key_id: str
    """The id of the signing key."""
    signature: str
    """The signature, in base64."""

    def holds(self, verifier: Verifier) -> bool:
        """Return whether a gateway's key, not retired at that time, signed exactly this.

        Never raises.
        """
        mark = Signature(self.key_id, self.signature)
        return verifier.check_bytes(PURPOSE, self.statement.body, mark, at=self.statement.made_at)


class Checkpoints:
    """Makes and reads the checkpoints. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self, signer: Signer) -> Checkpoint | None:
        """Return `None`, without a change, if nothing is new.

        If several gateways do this at once, each signs the records since the other's checkpoint.
        """
        return await self._store.run(lambda connection: _take(connection, signer))

    async def last(self) -> Checkpoint | None:
        query = select(AUDIT_CHECKPOINTS).order_by(AUDIT_CHECKPOINTS.c.number.desc()).limit(1)
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None else _checkpoint(row)

    async def all(self) -> AsyncIterator[Checkpoint]:
        """Oldest first. Skips an unreadable one, which the verifier then misses."""
        number = 0
        while rows := await self._store.read(partial(_page, after=number)):
            number = rows[-1].number
            for row in rows:
                if (checkpoint := _checkpoint(row)) is not None:
                    yield checkpoint

    async def heads(self) -> list[StreamHead]:
        """Reads the store's own data, and includes checkpoints."""
        query = select(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq, AUDIT_HEADS.c.hash).order_by(AUDIT_HEADS.c.stream)
        return await self._store.read(
            lambda connection: [StreamHead(**row._mapping) for row in connection.execute(query)]
        )

    async def head(self, stream: str) -> StreamHead | None:
        query = select(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq, AUDIT_HEADS.c.hash)
        query = query.where(AUDIT_HEADS.c.stream == bound_text(stream))
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None else StreamHead(**row._mapping)


def _take(connection: Connection, signer: Signer) -> Checkpoint | None:
    # Lock the chain's head first: only one gateway signs at a time, and the next sees the covered numbers.
    number, previous, now = lock_head(connection, CHAIN)
    if not number and (last := connection.execute(_LAST).first()) is not None:
        # The chain's head was removed. Continue the chain anyway.
        number, previous = last
    grown = tuple(StreamHead(**row._mapping) for row in connection.execute(_GROWN))
    if not grown:
        return None
    statement = Statement(number=number + 1, at=now, previous=previous, heads=grown)
    mark = signer.sign_bytes(PURPOSE, statement.body)
    row = {
        "number": statement.number,
        "body": statement.body.decode(),
        "hash": statement.hash,
        "key_id": mark.key_id,
        "signature": mark.signature,
    }
    connection.execute(insert(AUDIT_CHECKPOINTS), row)
    # Cover only up to the signed number: a stream that grew since still has uncovered records.
    connection.execute(_COVER, [{"of": head.stream, "to": head.seq} for head in grown])
    move_head(connection, CHAIN, statement.number, statement.hash)
    return Checkpoint(statement=statement, key_id=mark.key_id, signature=mark.signature)


def _page(connection: Connection, after: int) -> Sequence[Row[Any]]:
    query = select(AUDIT_CHECKPOINTS).where(AUDIT_CHECKPOINTS.c.number > after)
    return connection.execute(query.order_by(AUDIT_CHECKPOINTS.c.number).limit(_PAGE)).all()


def _checkpoint(row: Row[Any]) -> Checkpoint | None:
    try:
        statement = Statement.model_validate_json(row.body)
    except ValidationError:
        # The verifier reports the gap in the numbers. An error here would hide all later checkpoints.
        return None
    return Checkpoint(statement=statement, key_id=row.key_id, signature=row.signature)
