"""Reads cheaply whether the questions, answers or outcomes of turns have changed."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import Connection, TextClause, text

from signoff.contracts.ids import TurnKey
from signoff.store.store import Store

Counts: TypeAlias = tuple[int | None, ...]
# One parameter names all turns, so that a statement for two thousand turns is parsed no slower than for one.
_TURNS: Final = {
    "sqlite": "(SELECT key AS number, json_extract(value, '$[0]') AS tenant, json_extract(value, '$[1]') AS session, "
    "json_extract(value, '$[2]') AS turn, json_extract(value, '$[3]') AS workflow FROM json_each(:turns))",
    "postgresql": "(SELECT number - 1 AS number, value->>0 AS tenant, value->>1 AS session, value->>2 AS turn, "
    "value->>3 AS workflow FROM json_array_elements(CAST(:turns AS json)) WITH ORDINALITY AS each(value, number))",
}
# The turns come first in a CROSS JOIN: then SQLite seeks the rows of each.
_QUESTIONS: Final = """
SELECT t.number, count(*), max(q.revision), count(q.ended_at), count(q.settled_at),
    max(a.number), count(a.handed_at), count(a.voided_at)
FROM {turns} AS t CROSS JOIN questions AS q LEFT JOIN answers AS a ON a.approval = q.approval
WHERE q.tenant = t.tenant AND q.session = t.session AND q.turn = t.turn GROUP BY t.number
"""
_TICKETS: Final = """
SELECT t.number, count(*), count(k.outcome), count(k.late_report), count(CASE WHEN k.state = 'void' THEN 1 END),
    max(k.finished_at)
FROM {turns} AS t CROSS JOIN tickets AS k WHERE k.workflow = t.workflow GROUP BY t.number
"""
_STATEMENTS: Final = {
    dialect: (text(_QUESTIONS.format(turns=turns)), text(_TICKETS.format(turns=turns)))
    for dialect, turns in _TURNS.items()
}


class TurnStamp(NamedTuple):
    """Differs after each change of a turn's questions, answers and outcomes."""

    questions: Counts = ()
    tickets: Counts = ()

    @property
    def has_question(self) -> bool:
        return self.questions != ()


class TurnStamps:
    """Reads the stamps of turns in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, turns: Sequence[TurnKey]) -> dict[TurnKey, TurnStamp]:
        """Includes turns without rows. Raises `StoreUnavailable`."""
        if not turns:
            return {}
        named = json.dumps([(*turn, turn.workflow_id) for turn in turns])
        questions, tickets = await self._store.read(
            lambda connection: [_counts(connection, each, named) for each in _STATEMENTS[connection.dialect.name]]
        )
        return {turn: TurnStamp(questions.get(n, ()), tickets.get(n, ())) for n, turn in enumerate(turns)}


def _counts(connection: Connection, statement: TextClause, named: str) -> dict[int, Counts]:
    rows: Sequence[Any] = connection.execute(statement, {"turns": named}).all()
    return {row[0]: tuple(row[1:]) for row in rows}
