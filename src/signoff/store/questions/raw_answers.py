"""Stores answers that bypassed the gateway, and their receipts. Rows never change."""

from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from sqlalchemy import Connection, Row, bindparam, func, select

from signoff.contracts.decision import Decision
from signoff.contracts.limits import ANSWERS_KEPT
from signoff.contracts.receipt import Receipt
from signoff.store.claim_conditions import insert_new
from signoff.store.questions.approval_rows import lock_approval
from signoff.store.store import Store
from signoff.store.tables import RAW_ANSWERS, RAW_RECEIPTS, time_from_millis

_MALFORMED: Final = Receipt(status="refused", code="malformed", message="this is not a valid answer to its approval")
_OWN: Final = select(RAW_ANSWERS).where(RAW_ANSWERS.c.key == bindparam("named"))
_COUNTED: Final = select(func.count()).select_from(RAW_ANSWERS).where(RAW_ANSWERS.c.approval == bindparam("of"))
_RECEIPT: Final = select(RAW_RECEIPTS).where(RAW_RECEIPTS.c.key == bindparam("named"))
_UNTAKEN: Final = (
    select(RAW_ANSWERS)
    .where(~select(RAW_RECEIPTS.c.key).where(RAW_RECEIPTS.c.key == RAW_ANSWERS.c.key).exists())
    .order_by(RAW_ANSWERS.c.arrived_at, RAW_ANSWERS.c.key)
)


class RawAnswer(NamedTuple):
    """An unsigned answer as its turn received it."""

    key: str
    """The answer's name, the same for every attempt of its activity."""
    decision: Decision
    arrived_at: datetime
    """The time of storing, by the store's clock."""


class RawReceipt(NamedTuple):
    """The receipt of a raw answer."""

    receipt: Receipt
    delivery: str
    """The delivery id of the row in `answers`, or "" if none was added."""


class RawAnswers:
    """Reads and writes raw answers in a store. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, key: str, decision: Decision) -> RawAnswer | None:
        """See `insert_raw`."""

        def write(connection: Connection) -> RawAnswer | None:
            lock_approval(connection, decision.approval_id)
            return insert_raw(connection, key, decision)

        return await self._store.run(write)

    async def list_untaken(self, limit: int) -> list[RawAnswer]:
        """Oldest first.

        A row that is no valid answer to its approval gets the receipt `malformed`: workers write these rows.
        """

        answers: list[RawAnswer] = []
        for row in await self._store.read(lambda connection: connection.execute(_UNTAKEN.limit(limit)).all()):
            try:
                answer = _answer(row)
            except ValidationError:
                answer = None
            if answer is not None and answer.decision.approval_id == row.approval:
                answers.append(answer)
            else:
                await self._store.run(partial(_refuse_row, row.key, row.approval))
        return answers


def insert_raw(connection: Connection, key: str, decision: Decision) -> RawAnswer | None:
    """Insert once, under the lock of the approval.

    Returns `None` if it already has `ANSWERS_KEPT` raw answers. A denial is always stored.
    """
    approval = decision.approval_id
    own = connection.execute(_OWN, {"named": key}).first()
    if own is None:
        is_full = decision.verdict != "denied" and (connection.scalar(_COUNTED, {"of": approval}) or 0) >= ANSWERS_KEPT
        if is_full:
            return None
        insert_new(connection, RAW_ANSWERS, {"key": key, "approval": approval, "body": decision.model_dump_json()})
        own = connection.execute(_OWN, {"named": key}).one()
    return _answer(own)


def find_receipt(connection: Connection, key: str) -> RawReceipt | None:
    row = connection.execute(_RECEIPT, {"named": key}).first()
    return None if row is None else RawReceipt(Receipt.model_validate_json(row.body), row.delivery)


def add_receipt(connection: Connection, answer: RawAnswer, given: RawReceipt) -> None:
    """Call only in `Questions.run_locked`."""
    _add_receipt(connection, answer.key, answer.decision.approval_id, given)


def _add_receipt(connection: Connection, key: str, approval: str, given: RawReceipt) -> None:
    body = given.receipt.model_dump_json()
    row = {"key": key, "approval": approval, "delivery": given.delivery, "body": body}
    insert_new(connection, RAW_RECEIPTS, row)


def _refuse_row(key: str, approval: str, connection: Connection) -> None:
    _add_receipt(connection, key, approval, RawReceipt(_MALFORMED, ""))


def _answer(row: Row[Any]) -> RawAnswer:
    return RawAnswer(row.key, Decision.model_validate_json(row.body), time_from_millis(row.arrived_at))
