"""`store restored`: what is written down after a backup was put back, and which turns wait for what it lacks."""

from pathlib import Path

import pytest
from cli_kit import Cli, waiting_request


async def test_restored_lists_turns_whose_question_the_store_lacks(
    served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None for the store that asked; for one of before, each with what has it asked anew."""
    asked = await waiting_request(served_cli, "pay 70")
    turn = f"turn/{'/'.join(asked['id'].split('.')[:3])}"
    second = await waiting_request(served_cli, "pay 71")
    # Every one is listed, however few a list for people would look through.
    clean_env.setattr("signoff.engine.turn_list.TURNS_SEEN", 1)
    own = await served_cli("store", "restored", "--json")
    assert (own.code, turn in own.data["lost_questions"]) == (0, False), own
    clean_env.setenv("SIGNOFF_STORE_URL", f"sqlite:///{tmp_path}/older.db")
    older = await served_cli("store", "restored", "--json")
    assert (older.code, turn in older.data["lost_questions"]) == (0, True), older
    assert f"turn/{'/'.join(second['id'].split('.')[:3])}" in older.data["lost_questions"]
    told = await served_cli("store", "restored")
    assert f"--workflow-id {turn}`" in told.out
    assert "people are asked whether their calls ran" in told.out
    assert "personal tokens that were revoked since count again" in told.out
    assert "frozen are no tenants, as at the backup" in told.out
    record = await served_cli("audit", "export", "--tenant", "main")
    assert record.out.count('"act":"store restored"') == 2
