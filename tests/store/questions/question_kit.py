from typing import Any

from sqlalchemy import Connection

from signoff.approvals.machine import count_vote
from signoff.contracts.approval import Question, Vote
from signoff.contracts.canonical_json import canonical_json, sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.store.questions.answers import add_answer
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_question

DECLARED = {"name": "pay"}


def question(approval: str = "main.s.t.c1.1", **fields: Any) -> Question:
    given: dict[str, Any] = {
        "id": approval, "definition": sha256_hex(DECLARED),
        "args": Content(inline={"amount": 5}), "digest": "d" * 64, "timeout": 3600.0,
    }  # fmt: skip
    return a_question(**given | fields)


async def put(store: Store, asked: Question | None = None) -> Question:
    return await Questions(store).ask(asked or question(), canonical_json(DECLARED))


async def take(store: Store, who: str, verdict: Any = "approved", approval: str = "main.s.t.c1.1") -> bool:
    """Take an answer only if earlier answers leave room, and return whether it was taken."""

    def work(connection: Connection, rows: ApprovalRows | None) -> bool:
        assert rows is not None
        asked = rows.request(rows.latest)
        decision = Decision(
            approval_id=approval, revision=asked.revision, verdict=verdict, subject=who, delivery_id=who
        )
        vote = Vote(subject=who, verdict=verdict, at=rows.now, decision=decision)
        after = count_vote(asked, vote)
        if asked.state != "pending" or after is asked:
            return False
        add_answer(connection, rows, vote, settles=after.state != "pending")
        return True

    return await Questions(store).run_locked(approval, work)
