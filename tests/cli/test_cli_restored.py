import asyncio
from pathlib import Path

import pytest
from cli_kit import Cli, waiting_request
from polling import pauses

from signoff.contracts.names import SA_STATE
from signoff.temporal.embedded_server import ServerHandle


async def waiting_turn(cli: Cli, server: ServerHandle, text: str) -> str:
    """Wait until Temporal's lists contain it: they lag behind its history."""
    asked = await waiting_request(cli, text)
    turn = f"turn/{'/'.join(asked['id'].split('.')[:3])}"
    temporal = await server.connect()
    for seconds in pauses():
        if (await temporal.count_workflows(f'WorkflowId = "{turn}" AND {SA_STATE} = "suspended"')).count:
            break
        await asyncio.sleep(seconds)
    return turn


async def test_restored_lists_turns_with_missing_questions(
    served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path, cli_server: ServerHandle
) -> None:
    turn, second = [await waiting_turn(served_cli, cli_server, text) for text in ("pay 70", "pay 71")]
    # All are listed, even if a person's list would stop earlier.
    clean_env.setattr("signoff.engine.turn_list.TURNS_SEEN", 1)
    own = await served_cli("store", "restored", "--json")
    assert (own.code, turn in own.data["lost_questions"]) == (0, False), own
    clean_env.setenv("SIGNOFF_STORE_URL", f"sqlite:///{tmp_path}/older.db")
    older = await served_cli("store", "restored", "--json")
    assert (older.code, turn in older.data["lost_questions"]) == (0, True), older
    assert second in older.data["lost_questions"]
    told = await served_cli("store", "restored")
    assert f"--workflow-id {turn}`" in told.out
    assert "people are asked whether their calls ran" in told.out
    assert "personal tokens that were revoked since count again" in told.out
    assert "frozen are no tenants, as at the backup" in told.out
    record = await served_cli("audit", "export", "--tenant", "main")
    assert record.out.count('"act":"store restored"') == 2
