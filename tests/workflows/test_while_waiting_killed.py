import asyncio
import os
from pathlib import Path

import pytest
from killable_worker import killable
from raw_turns import RawTurnClient
from turn_fixtures import RunningTurns, TurnRig, doubted, no, yes

from signoff.contracts.ids import TurnKey
from signoff.temporal.embedded_server import ServerHandle

pytestmark = pytest.mark.timeout(180)


async def _seen(file: Path) -> None:
    while not os.access(file, os.F_OK):
        await asyncio.sleep(0.05)


async def _until_told_to_wait(turns: RunningTurns, key: TurnKey) -> None:
    await turns.until(key, lambda view: sum(message.role == "assistant" for message in view.messages) == 2)


@pytest.mark.parametrize("step", ["at the end", "decided while nobody is there", "model", "tool"])
async def test_killed_worker_loses_no_late_outcome(
    step: str, server: ServerHandle, turn_rig: TurnRig, tmp_path: Path
) -> None:
    address, url, ledger = server.options.address, f"sqlite:///{tmp_path}/signoff.db", tmp_path / "ledger"
    turns = RunningTurns(
        RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue),
        turn_rig.client,
        turn_rig.store,
        turn_rig.task_queue,
        deps=None,
    )  # type: ignore[arg-type]
    held = step if step in ("model", "tool") else "nothing"
    async with killable(address, url, turn_rig.task_queue, ledger, held) as worker:
        key = await turns.start()
        if step == "model":
            await _seen(tmp_path / "model")
            await turns.signoff.decide(no(key))
            await turns.until(key, lambda view: view.calls[0].outcome is not None)
        else:
            await _until_told_to_wait(turns, key)
        if step == "tool":
            await turns.signoff.decide(yes(key))
            await _seen(tmp_path / "tool")
        worker.kill()
        await worker.wait()
    if step == "decided while nobody is there":
        assert (await turns.signoff.decide(yes(key))).status == "pending"
    (tmp_path / "go").touch()
    async with killable(address, url, turn_rig.task_queue, ledger, held):
        if step == "at the end":
            assert (await turns.signoff.decide(yes(key))).status in ("accepted", "pending")
        if step == "tool":
            await turns.until(key, doubted)
            await turns.signoff.decide(yes(key, verdict="happened", result="paid", revision=2))
        result = await turns.signoff.result(key)
        parts = [part for part in await turns.results(key) if part.call == "c1.1"]
        await turns.replays(key)
    code = "denied" if step == "model" else "ok"
    assert [(outcome.call, outcome.code) for outcome in result.calls] == [("c1.1", code)]
    assert [(part.code, part.late) for part in parts] == [("waiting", False), (code, True)]
    assert (result.state, result.text) == ("complete", parts[-1].type)
    rows = ledger.read_text().splitlines() if ledger.exists() else []
    assert len(rows) == (code == "ok")
