"""LangGraph with its checkpoints in PostgreSQL, behind the interface of the sides."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from tools.bench.peers.report import LANGGRAPH
from tools.bench.sides import HUMAN, TurnFailed

_AUTOMATIC_BELOW: Final = 50
_CONNECTIONS: Final = 20


class _State(TypedDict, total=False):
    kind: str
    amount: float
    to: str
    verdict: str
    told: str
    answer: str


async def _propose(state: _State) -> _State:
    return {"amount": 420 if state["kind"] == HUMAN else 20, "to": "Ana"}


def _must_ask(state: _State) -> Literal["ask", "pay"]:
    return "ask" if state["amount"] >= _AUTOMATIC_BELOW else "pay"


async def _ask(state: _State) -> _State:
    return {"verdict": interrupt({"amount": state["amount"], "to": state["to"]})}


async def _pay(state: _State) -> _State:
    return {"told": "paid"}


async def _conclude(state: _State) -> _State:
    return {"answer": "done"}


class LangGraph:
    """Its turns run in the process that calls them: there is no worker."""

    name = LANGGRAPH

    def __init__(self, checkpointer: AsyncPostgresSaver) -> None:
        graph = StateGraph(_State)
        graph.add_node("propose", _propose)
        graph.add_node("ask", _ask)
        graph.add_node("pay", _pay)
        graph.add_node("conclude", _conclude)
        graph.add_edge(START, "propose")
        graph.add_conditional_edges("propose", _must_ask)
        graph.add_edge("ask", "pay")
        graph.add_edge("pay", "conclude")
        graph.add_edge("conclude", END)
        self._graph = graph.compile(checkpointer=checkpointer)
        self._answers: dict[str, asyncio.Future[Any]] = {}

    async def start(self, kind: str) -> str:
        """Return once the turn waits or has ended."""
        turn = uuid.uuid4().hex
        self._answers[turn] = asyncio.get_running_loop().create_future()
        await self._go_on(turn, {"kind": kind})
        return turn

    async def suspended(self, turn: str) -> None:
        """Its start returned the question."""

    async def decide(self, turn: str) -> None:
        await self._go_on(turn, Command(resume="approved"))

    async def finished(self, turn: str) -> None:
        answer = await self._answers[turn]
        del self._answers[turn]
        if answer != "done":
            raise TurnFailed(f"the turn of LangGraph answered `{answer}`")

    async def _go_on(self, turn: str, given: Any) -> None:
        """Store each step before the next one runs, as Temporal does."""
        found = await self._graph.ainvoke(given, {"configurable": {"thread_id": turn}}, durability="sync")
        if "__interrupt__" not in found:
            self._answers[turn].set_result(found["answer"])


@asynccontextmanager
async def open_langgraph(url: str) -> AsyncIterator[LangGraph]:
    """`url` is an empty PostgreSQL database."""
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    connections: AsyncConnectionPool[AsyncConnection[DictRow]] = AsyncConnectionPool(
        url, min_size=_CONNECTIONS, max_size=_CONNECTIONS, kwargs=options, open=False
    )
    async with connections as pool:
        checkpointer = AsyncPostgresSaver(pool)
        await checkpointer.setup()
        yield LangGraph(checkpointer)
