import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import BigInteger, Connection, func, select, update
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, DescribeWorkflowInput, Interceptor, OutboundInterceptor
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts.canonical_json import canonical_json, sha256_hex
from signoff.contracts.errors import Refused, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.engine.store_cleanup import StoreCleanup, StoreRemoval, read_status
from signoff.store.old_turns import RemovedRows
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.store.tables import BLOB_SESSIONS, BLOBS, QUESTIONS, TICKETS
from signoff.testing.builders import a_question

DAY = 86_400_000
BIG = b'"' + b"x" * 9_000 + b'"'


class _Silent(Interceptor):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _SilentCalls(next, self.names)


class _SilentCalls(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, names: set[str]) -> None:
        super().__init__(next)
        self.names = names

    async def describe_workflow(self, input: DescribeWorkflowInput) -> Any:
        if input.id in self.names:
            raise RPCError("not for you", RPCStatusCode.PERMISSION_DENIED, b"")
        return await super().describe_workflow(input)


@pytest.fixture
async def place(client: Client) -> AsyncIterator[str]:
    name = uuid.uuid4().hex[:12]
    yield name
    running = f'WorkflowId STARTS_WITH "turn/main/{name}" AND ExecutionStatus = "Running"'
    async for each in client.list_workflows(running):
        with contextlib.suppress(RPCError):
            await client.get_workflow_handle(each.id).terminate()


async def _begin(client: Client, name: str) -> None:
    await client.start_workflow("Nothing", id=name, task_queue=f"nobody-{name.replace('/', '-')}")


async def _forget(client: Client, name: str) -> None:
    execution = WorkflowExecution(workflow_id=name)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request, retry=True)
    while await read_status(client, name) is not None:
        await asyncio.sleep(0.05)


async def _turn(store: Store, turn: TurnKey) -> None:
    approval = ".".join((*turn, "c1.1"))
    asked = a_question(tenant=turn.tenant, session=turn.session, turn=turn.turn, definition=sha256_hex({"name": "pay"}))
    await Questions(store).ask(asked, canonical_json({"name": "pay"}))
    await Questions(store).end(approval, 1, "cancelled")
    await store.claim(f"key-{turn.turn}-{turn.session}", workflow=turn.workflow_id, call="c1.1", tool="pay")
    await store.put_blob(BIG + turn.session.encode(), SessionKey(turn.tenant, turn.session))


async def _age(store: Store) -> None:
    def shift(connection: Connection) -> None:
        for table in (QUESTIONS, TICKETS, BLOB_SESSIONS):
            times = [
                each
                for each in table.columns
                if each.computed is None and isinstance(each.type, BigInteger) and each.name.endswith("_at")
            ]
            connection.execute(update(table).values({each.name: each - 3 * DAY for each in times}))

    await store.run(shift)


async def _rows(store: Store) -> list[int]:
    counts = [select(func.count()).select_from(table) for table in (QUESTIONS, TICKETS, BLOBS)]
    return [await store.run(partial(lambda connection, query: connection.scalar(query), query=each)) for each in counts]


def _cleanup(store: Store, client: Client, **given: Any) -> StoreCleanup:
    return StoreCleanup(store, client, datetime.now(UTC) - timedelta(days=2), **given)


async def test_only_turns_forgotten_by_the_server_are_removed(client: Client, store: Store, place: str) -> None:
    names = {
        what: TurnKey("main", f"{place}-{what}", f"{place}-{what}") for what in ("runs", "closed", "gone", "young")
    }
    for what in ("runs", "closed", "gone"):
        await _turn(store, names[what])
        await _begin(client, names[what].workflow_id)
    await client.get_workflow_handle(names["closed"].workflow_id).terminate()
    await _forget(client, names["gone"].workflow_id)
    await _age(store)
    await _turn(store, names["young"])
    # A question, a ticket and a blob of each turn, and the declaration of the tool.
    assert await _rows(store) == [4, 4, 5]
    one = RemovedRows(questions=1, tickets=1, blobs=1)
    counted = await _cleanup(store, client, dry_run=True).run()
    assert (dict(counted.turns), counted.rows._replace(blobs=1), counted.kept) == ({"main": 1}, one, 2)
    assert await _rows(store) == [4, 4, 5]
    removed = await _cleanup(store, client).run()
    assert (dict(removed.turns), removed.rows, removed.kept, removed.unknown) == ({"main": 1}, one, 2, 0)
    assert await _rows(store) == [3, 3, 4]
    assert (await _cleanup(store, client).run()).rows == RemovedRows()


async def test_turn_with_an_unknown_state_on_the_server_stays(client: Client, store: Store, place: str) -> None:
    turns = [TurnKey("main", f"{place}-{number}", f"{place}-{number}") for number in range(7)]
    for turn in turns:
        await _turn(store, turn)
    await _age(store)
    known = TurnKey("main", f"{place}-known", "known")
    await _turn(store, known)
    await _begin(client, known.workflow_id)
    silent = _Silent({turns[0].workflow_id})
    deaf = Client(**{**client.config(), "interceptors": [silent]})
    removal = await _cleanup(store, deaf).run()
    # Its blob stays too: the session's data depends on the same workflow.
    assert (removal.turns["main"], removal.unknown) == (6, 1)
    assert await _rows(store) == [2, 2, 3]
    for turn in turns[1:]:
        await _turn(store, turn)
    await _age(store)
    silent.names.update(turn.workflow_id for turn in turns)
    before = await _rows(store)
    await _turn(store, known._replace(turn="again"))
    await _begin(client, known._replace(turn="again").workflow_id)
    with pytest.raises(ServerUnavailable, match="which turns it has"):
        await _cleanup(store, deaf).run()
    assert await _rows(store) == [before[0] + 1, before[1] + 1, before[2]]


async def test_cleanup_with_another_server_removes_nothing(client: Client, store: Store, place: str) -> None:
    await _turn(store, TurnKey("main", place, place))
    await _age(store)
    with pytest.raises(Refused, match="TEMPORAL_ADDRESS"):
        await _cleanup(store, client).run()
    assert await _rows(store) == [1, 1, 2]


async def test_last_day_is_never_removed(client: Client, store: Store) -> None:
    with pytest.raises(Refused, match="younger than a day"):
        await StoreCleanup(store, client, datetime.now(UTC) - timedelta(hours=23)).run()


async def test_blobs_stay_while_a_turn_or_session_may_name_them(client: Client, store: Store, place: str) -> None:
    session = SessionKey("main", place)
    blob = await store.put_blob(BIG, session)
    await _age(store)
    witness = TurnKey("main", f"{place}-w", "w")
    await _turn(store, witness)
    await _begin(client, witness.workflow_id)
    for name in (TurnKey("main", place, "later").workflow_id, session.workflow_id):
        await _begin(client, name)
        while not [each async for each in client.list_workflows(f'WorkflowId = "{name}"')]:
            await asyncio.sleep(0.05)
        assert (await _cleanup(store, client).run()).rows == RemovedRows()
        assert await store.get_blob(blob.sha256) == BIG
        await _forget(client, name)
        while [each async for each in client.list_workflows(f'WorkflowId = "{name}"')]:
            await asyncio.sleep(0.05)
    assert (await _cleanup(store, client).run()).rows == RemovedRows(blobs=1)
    assert await store.get_blob(blob.sha256) is None


def test_removal_adds_up_the_rows_of_all_tenants() -> None:
    removal = StoreRemoval({}, {"a": RemovedRows(1, 2), "b": RemovedRows(1)}, 0, 0)  # type: ignore[arg-type]
    assert removal.rows == RemovedRows(2, 2)
