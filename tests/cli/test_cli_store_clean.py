import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cli_kit import Cli, assert_one_sentence, waiting_request
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from signoff.contracts.ids import TurnKey
from signoff.engine.store_cleanup import read_status
from signoff.temporal.embedded_server import ServerHandle

STORE = Path(".signoff/signoff.db")
TIMES = {
    "questions": ("opened_at", "ended_at"),
    "answers": ("answered_at", "handed_at"),
    "tickets": ("claimed_at", "finished_at", "seen_at"),
    "deliveries": ("changed_at",),
}


def days_ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


def age(days: int) -> None:
    with sqlite3.connect(STORE) as connection:
        for table, names in TIMES.items():
            shifts = ", ".join(f"{name} = {name} - {days * 86_400_000}" for name in names)
            connection.execute(f"UPDATE {table} SET {shifts}")
    connection.close()


def rows() -> dict[str, int]:
    with sqlite3.connect(STORE) as connection:
        found = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TIMES}
    connection.close()
    return found


async def forget(server: ServerHandle, turn: str) -> None:
    client, name = await server.connect(), TurnKey("main", turn, turn).workflow_id
    execution = WorkflowExecution(workflow_id=name)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request, retry=True)
    while await read_status(client, name) is not None:
        pass


async def test_turns_unknown_to_the_server_are_removed(served_cli: Cli, cli_server: ServerHandle) -> None:
    asked = await waiting_request(served_cli, "pay 60")
    assert (await served_cli("approve", asked["code"])).code == 0
    assert (await served_cli("watch", asked["turn"])).code == 0
    waits = await waiting_request(served_cli, "pay 70")
    age(3)
    there = rows()
    assert (there["questions"], there["answers"], there["tickets"]) == (2, 1, 1)
    known = await served_cli("store", "clean", "--before", days_ago(2), "--json")
    assert (known.code, known.data["turns"], known.data["known"]) == (0, 0, 1), known.err
    await forget(cli_server, asked["turn"])
    counted = await served_cli("store", "clean", "--before", days_ago(2), "--dry-run", "--json")
    assert (counted.data["turns"], counted.data["questions"], counted.data["tickets"]) == (1, 1, 1)
    assert rows() == there
    ran = await served_cli("store", "clean", "--before", days_ago(2))
    assert ran.code == 0, ran.err
    assert ran.out.startswith("1 turn removed: 1 question, 1 answer")
    left = rows()
    assert (left["questions"], left["answers"], left["tickets"]) == (1, 0, 0)
    acts = (await served_cli("audit", "show", "admin/main", "--json")).data["records"]
    (act,) = (facts for each in acts if (facts := json.loads(each["data"]))["act"] == "clean")
    assert (act["turns"], act["questions"], act["tickets"], bool(act["account"])) == (1, 1, 1, True)
    assert (await served_cli("audit", "verify")).code == 0
    assert (await served_cli("approve", waits["code"])).code == 0
    assert (await served_cli("watch", waits["turn"])).code == 0


async def test_clean_needs_a_past_day_and_the_server(served_cli: Cli) -> None:
    assert (await served_cli("store", "clean", "--before", "soon")).code == 2
    text = assert_one_sentence(await served_cli("store", "clean", "--before", days_ago(0.5)))
    assert "younger than a day" in text
    gone = await served_cli("store", "clean", "--before", days_ago(2), "--address", "127.0.0.1:1")
    assert "127.0.0.1:1" in assert_one_sentence(gone)
