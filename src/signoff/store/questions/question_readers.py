"""Stores the approver entries that a question may ever concern, and finds the waiting questions of entries.

Entries only preselect: callers must check that a person may read a request before showing it.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, String, bindparam, func, select, tuple_, union_all
from sqlalchemy.dialects import postgresql, sqlite

from signoff.contracts.approval import Question
from signoff.store.tables import QUESTION_READERS, QUESTIONS, StoreClock

_ENTRIES: Final = 100
"""Entries in one query."""
_READER: Final = QUESTION_READERS.c


class ListPlace(NamedTuple):
    """A question's place in lists, soonest deadline first."""

    last_at: int
    """The latest time of its deadline, in ms."""
    approval: str
    revision: int


_PLACE: Final = tuple(_READER[name] for name in ListPlace._fields)


def entries_of(question: Question, answerers: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a new question. `answerers` are the ids of people who answered an earlier revision."""
    people = (question.requester.user, *answerers)
    named = (*(f"user:{person}" for person in people), *question.approvers, *question.escalate_to)
    return tuple(dict.fromkeys(named))


def add_readers(connection: Connection, question: Question, last_at: int, entries: Sequence[str]) -> None:
    """Existing rows do not change."""
    row = {"approval": question.id, "revision": question.revision, "tenant": question.tenant, "last_at": last_at}
    connection.execute(_build_adding(connection.dialect.name), [{**row, "reader": entry} for entry in entries])


def add_answerer(connection: Connection, approval: str, revision: int, person: str) -> None:
    of = {"of": approval, "number": revision, "entry": f"user:{person}"}
    connection.execute(_build_adding_answerer(connection.dialect.name), of)


def find_places(
    connection: Connection, tenant: str, entries: Sequence[str], after: ListPlace | None, limit: int
) -> list[ListPlace]:
    """Return the first places after `after` of questions that concern one of `entries`.

    Some of these questions may wait no longer.
    """
    found: set[ListPlace] = set()
    for first in range(0, len(entries), _ENTRIES):
        heads = (_build_head(tenant, entry, after, limit) for entry in entries[first : first + _ENTRIES])
        found |= {ListPlace(*row) for row in connection.execute(union_all(*heads))}
    return sorted(found)[:limit]


def concerns(entries: Sequence[str]) -> ColumnElement[bool]:
    """Return the SQL condition for questions that concern one of `entries`, waiting or not."""
    rows = select(_READER.reader).where(
        _READER.approval == QUESTIONS.c.approval,
        _READER.revision == QUESTIONS.c.revision,
        _READER.reader.in_(entries),
    )
    return rows.exists()


def _build_head(tenant: str, entry: str, after: ListPlace | None, limit: int) -> Select[Any]:
    # Each entry reads its own part of the index in order. One search for all entries would sort their rows.
    head = select(*_PLACE).where(
        _READER.tenant == tenant,
        _READER.reader == entry,
        _READER.over_at.is_(None),
        # Read the clock once in a subquery: PostgreSQL uses no index for a clock that advances during the query.
        _READER.last_at >= select(StoreClock()).scalar_subquery(),
    )
    if after is not None:
        head = head.where(tuple_(*_PLACE) > after)
    # SQLite takes ORDER BY and LIMIT of one part only in a subquery.
    return select(head.order_by(*_PLACE).limit(limit).subquery())


@cache
def _build_adding(dialect: str) -> Any:
    # Without the name of a key: PostgreSQL would require the right to read it.
    return (sqlite.insert if dialect == "sqlite" else postgresql.insert)(QUESTION_READERS).on_conflict_do_nothing()


@cache
def _build_adding_answerer(dialect: str) -> Any:
    columns = {
        "approval": QUESTIONS.c.approval,
        "revision": QUESTIONS.c.revision,
        "reader": bindparam("entry", type_=String),
        "tenant": QUESTIONS.c.tenant,
        "last_at": QUESTIONS.c.last_at,
        "over_at": func.coalesce(QUESTIONS.c.ended_at, QUESTIONS.c.settled_at),
    }
    ours = (QUESTIONS.c.approval == bindparam("of"), QUESTIONS.c.revision == bindparam("number"))
    adding = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(QUESTION_READERS)
    return adding.from_select(list(columns), select(*columns.values()).where(*ours)).on_conflict_do_nothing()
