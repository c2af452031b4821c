"""Fills a store with synthetic waiting questions, more than turns could ask in time."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Insert, String, Table, case, cast, func, insert, literal, select, text
from sqlalchemy.types import BigInteger

from signoff.approvals.digest import call_digest
from signoff.contracts.approval import Question
from signoff.contracts.canonical_json import canonical_json, sha256_hex
from signoff.contracts.content import Content
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tables import QUESTION_READERS, QUESTIONS
from signoff.testing.builders import a_question

EVERYONE: Final = "role:everyone"
FEW: Final = "role:few"
ONE: Final = "role:one"
SHARE: Final = 50
"""`FEW` have one question in so many."""
PIECE: Final = 50_000
"""Rows in one statement."""
_DECLARED: Final = {"name": "pay", "title": "Payment", "effect": "Pay", "secrets": [], "input_schema": {}}
_ARGS: Final = {"amount": 20, "to": "Ana"}
_TIMEOUT: Final = 86_400.0
_SPREAD: Final = 43_200_000
"""Milliseconds over which the deadlines are spread."""
_STEP: Final = 7_919
"""A prime, so that deadlines are in another order than names."""
_CODES: Final = 1_000_000
_THE_ONE: Final = 25


def numbered(table: Table, first: int, last: int, values: Callable[[ColumnElement[int]], Mapping[str, Any]]) -> Insert:
    number = select(cast(literal(first), BigInteger).label("number")).cte("numbers", recursive=True)
    number = number.union_all(select(number.c.number + 1).where(number.c.number < last))
    columns = values(number.c.number)
    return insert(table).from_select(list(columns), select(*columns.values()).select_from(number))


async def fill_questions(store: Store, number: int) -> None:
    """Add `number` questions to an empty store. Each waits for `EVERYONE`, `FEW` or `ONE` for at least half a day."""
    await Questions(store).ask(_question(), canonical_json(_DECLARED))
    template = await store.read(lambda connection: connection.execute(select(QUESTIONS)).one()._mapping)

    def write(first: int, connection: Connection) -> None:
        for statement in _statements(template, first, min(first + PIECE - 1, number)):
            connection.execute(statement)

    for first in range(1, number + 1, PIECE):
        await store.run(partial(write, first))
    await analyze(store)


async def analyze(store: Store) -> None:
    await store.run(lambda connection: connection.execute(text("ANALYZE")).close())


def name_of(number: int) -> str:
    return f"main.s.t.x{number}"


def _question() -> Question:
    definition = sha256_hex(_DECLARED)
    asked = a_question(definition=definition, args=Content(inline=_ARGS), approvers=(EVERYONE,), timeout=_TIMEOUT)
    digest = call_digest(
        tenant=asked.tenant,
        session=asked.session,
        turn=asked.turn,
        call=asked.call,
        requester=asked.requester.user,
        nonce=asked.requester.nonce,
        tool=asked.tool,
        definition=definition,
        args=_ARGS,
    )
    return a_question(**dict(asked) | {"digest": digest})


def _statements(template: Mapping[Any, Any], first: int, last: int) -> list[Insert]:
    def place(number: ColumnElement[int]) -> dict[str, Any]:
        # All of them belong to one call, whose digest is in each body. Only the ids differ.
        until = literal(template["last_at"] - _SPREAD, BigInteger) + number * _STEP % _SPREAD
        return {"approval": _name(number), "revision": literal(1), "tenant": literal("main"), "last_at": until}

    def question(number: ColumnElement[int]) -> dict[str, Any]:
        body = func.replace(literal(template["body"]), template["approval"], _name(number))
        return {
            **place(number),
            "session": literal("s") + cast(number, String),
            "turn": literal("t") + cast(number, String),
            "code": cast(number % _CODES, String),
            "body": func.replace(body, EVERYONE, _entry(number)),
            "opened_at": literal(template["opened_at"], BigInteger) - number % _SPREAD,
        }

    return [
        numbered(QUESTIONS, first, last, question),
        numbered(QUESTION_READERS, first, last, lambda number: {**place(number), "reader": literal("user:guest")}),
        numbered(QUESTION_READERS, first, last, lambda number: {**place(number), "reader": _entry(number)}),
    ]


def _name(number: ColumnElement[int]) -> ColumnElement[str]:
    return literal(name_of(0)[:-1]) + cast(number, String)


def _entry(number: ColumnElement[int]) -> ColumnElement[str]:
    return case((number == _THE_ONE, ONE), (number % SHARE == 1, FEW), else_=EVERYONE)
