"""Makes and reads checkpoints: signed statements of how far every stream had come, each naming the one before it.

A checkpoint lists the heads of the streams that grew since the last one, so that writing it costs what has happened
since; together they cover every stream, and because each names the one before by its hash, the last one stands for all
of them. A checkpoint that is kept elsewhere finds a record, or a whole end of the record, that was taken away with
everything about it.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import Connection, Row, bindparam, insert, select, update

from signoff.audit.log import CHAIN, lock_head, move_head
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
    """The stream's name."""
    seq: int
    """The record's number."""
    hash: str
    """The record's hash."""


class Statement(FrozenModel):
    """The signed part of a checkpoint."""

    v: int = 1
    """The version of this form."""
    number: int
    """The checkpoint's number, from 1."""
    at: int
    """When it was made: milliseconds since 1970 by the store's clock."""
    previous: str
    """The hash of the checkpoint before; zeros for the first."""
    heads: tuple[StreamHead, ...] = ()
    """The heads of the streams that grew since the checkpoint before."""

    @property
    def body(self) -> bytes:
        """Returns the bytes that are signed."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def hash(self) -> str:
        """Returns the hash by which the next checkpoint names this one."""
        return sha256_hex(self.model_dump(mode="json"))

    @property
    def made_at(self) -> datetime:
        """Returns `at` as a time in UTC."""
        return _EPOCH + timedelta(milliseconds=self.at)


class Checkpoint(FrozenModel):
    """A statement with its signature."""

    statement: Statement
    """What is signed."""
    key_id: str
    """The id of the key that signed it."""
    signature: str
    """The signature, in base64."""

    def holds(self, verifier: Verifier) -> bool:
        """Returns whether a key of the gateway's, not retired when this was made, signed exactly this. Never raises."""
        mark = Signature(self.key_id, self.signature)
        return verifier.check_bytes(PURPOSE, self.statement.body, mark, at=self.statement.made_at)


class Checkpoints:
    """Makes and reads the checkpoints in `store`. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self, signer: Signer) -> Checkpoint | None:
        """Signs a checkpoint of how far every stream has come; returns None, with nothing written, when nothing is new.

        Of several gateways that do this at once each states what is new since the other.
        """
        return await self._store.run(lambda connection: _take(connection, signer))

    async def last(self) -> Checkpoint | None:
        """Returns the newest checkpoint, or None."""
        query = select(AUDIT_CHECKPOINTS).order_by(AUDIT_CHECKPOINTS.c.number.desc()).limit(1)
        row = await self._store.read(lambda connection: connection.execute(query).first())
        return None if row is None else _checkpoint(row)

    async def all(self) -> AsyncIterator[Checkpoint]:
        """Yields all checkpoints, oldest first. An unreadable one is left out; the verifier then misses it."""
        number = 0
        while rows := await self._store.read(partial(_page, after=number)):
            number = rows[-1].number
            for row in rows:
                if (found := _checkpoint(row)) is not None:
                    yield found

    async def heads(self) -> list[StreamHead]:
        """Returns how far the streams have come by the store's own account; the chain of checkpoints is one of them."""
        query = select(AUDIT_HEADS.c.stream, AUDIT_HEADS.c.seq, AUDIT_HEADS.c.hash).order_by(AUDIT_HEADS.c.stream)
        return await self._store.read(
            lambda connection: [StreamHead(**row._mapping) for row in connection.execute(query)]
        )


def _take(connection: Connection, signer: Signer) -> Checkpoint | None:
    # The chain's head first: of several gateways one states at a time, and the next one sees what this one covered.
    number, previous, now = lock_head(connection, CHAIN)
    if not number and (last := connection.execute(_LAST).first()) is not None:
        # Somebody took the head of the chain away; it goes on all the same.
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
    # Up to the number that was signed: a stream that grew since is uncovered by what came after it.
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
        # The gap in the numbers is what the verifier reports; an error here would hide all that follows.
        return None
    return Checkpoint(statement=statement, key_id=row.key_id, signature=row.signature)
