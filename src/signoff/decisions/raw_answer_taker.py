"""Accepts raw decisions: unsigned Signals and Updates that bypassed the gateway, such as from Temporal's own
interfaces.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import Connection

from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Decision
from signoff.decisions.answer_taker import AnswerTaker, Taken
from signoff.formats.replace import replace
from signoff.people.authority import check_authority
from signoff.people.directory import Directory
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.raw_answers import RawAnswer, RawReceipt, add_receipt, find_receipt, insert_raw
from signoff.store.store import Store

_UNKEPT: Final = "`remember`: only an answer given through the gateway is remembered"
_DELIVERY_CHARS: Final = 32


class RawAnswerTaker:
    """Accepts raw decisions into one store, each once.

    `takes_unsigned` gets a tool's name and definition, and returns whether its present policy accepts them. With
    `development` they count for every tool.
    """

    def __init__(
        self, store: Store, clock: Clock, takes_unsigned: Callable[[str, str], bool], *, development: bool
    ) -> None:
        self._rows = Questions(store)
        self._taker = AnswerTaker(clock)
        self._takes_unsigned = takes_unsigned
        self._development = development

    def counts(self, tool: str, definition: str) -> bool:
        return self._development or self._takes_unsigned(tool, definition)

    async def take(self, raw: RawAnswer, people: Directory) -> Taken:
        """Keep the receipt of a decision accepted before. Raises `StoreUnavailable`."""

        def work(connection: Connection, rows: ApprovalRows | None) -> Taken:
            return self._take_locked(connection, rows, raw, people, handed=False)

        return await self._rows.run_locked(raw.decision.approval_id, work)

    async def keep_and_take(self, key: str, decision: Decision, people: Directory) -> Taken | None:
        """Store a decision and accept it in one transaction.

        Its turn reads this call's result.

        Returns `None` if no further decision is stored. Raises `StoreUnavailable`.
        """

        def work(connection: Connection, rows: ApprovalRows | None) -> Taken | None:
            raw = insert_raw(connection, key, decision)
            return None if raw is None else self._take_locked(connection, rows, raw, people, handed=True)

        return await self._rows.run_locked(decision.approval_id, work)

    def _take_locked(
        self, connection: Connection, rows: ApprovalRows | None, raw: RawAnswer, people: Directory, *, handed: bool
    ) -> Taken:
        original = raw.decision
        delivery = original.delivery_id or sha256_hex(raw.key)[:_DELIVERY_CHARS]
        earlier = find_receipt(connection, raw.key)
        # Do not cache refusals: the same decision may count once its author can be looked up.
        if earlier is not None and earlier.delivery:
            return _find_taken(rows, earlier)
        # A decision resent after a refusal arrives now: its first arrival must not put it before a deadline.
        arrived = raw.arrived_at if earlier is None or rows is None else rows.now
        decision = replace(original, received_at=arrived, delivery_id=delivery)
        author = partial(self._author, people)
        taken = self._taker.take_locked(
            connection,
            rows,
            decision,
            question_hash=original.question_hash,
            author=author,
            sign=_leave_unsigned,
            arrived=arrived,
            handed=handed,
        )
        inserted = "" if taken.decision is None else taken.decision.delivery_id
        add_receipt(connection, raw, RawReceipt(taken.receipt, inserted))
        if taken.decision is None and taken.receipt.code == "duplicate":
            # Its turn may have lost the decision, for example after a reset.
            return _find_taken(rows, RawReceipt(taken.receipt, delivery))
        return taken

    def _author(self, people: Directory, asked: ApprovalRequest, decision: Decision, arrived: datetime) -> Authority:
        # Use the present policy: a worker writes the question's row, and could mark it as accepting unsigned decisions.
        accepts = self._takes_unsigned(asked.tool, asked.definition)
        judged = replace(asked, accept_unsigned=accepts)
        authority = check_authority(judged, decision, arrived, people, unsigned=True, development=self._development)
        if decision.remember is not None and authority.allowed:
            return replace(authority, allowed=False, code="malformed", note=_UNKEPT)
        return authority


def _find_taken(rows: ApprovalRows | None, earlier: RawReceipt) -> Taken:
    answers = () if rows is None or not earlier.delivery else rows.answers
    valid = (each for each in answers if not each.void)
    answer = next((each for each in valid if each.vote.decision.delivery_id == earlier.delivery), None)
    return Taken(earlier.receipt) if answer is None else Taken(earlier.receipt, answer.vote, answer.number)


def _leave_unsigned(decision: Decision) -> Decision:
    return decision
