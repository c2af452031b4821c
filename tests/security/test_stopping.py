import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from gateway_rig import SIGNER, GatewayRig, gateway_rig, turn_of
from temporalio.client import Client

from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.verifier import verify
from signoff.store.store import Store
from signoff.temporal.embedded_server import ServerHandle

PROJECT = Path(__file__).parents[1] / "cli" / "cli_project"


async def recorded(rig: GatewayRig, approval: str, kind: str) -> list[str]:
    return [record.data for record in await rig.records(approval) if record.kind == kind]


@pytest.mark.usefixtures("nothing_waits")
async def test_freeze_ends_waiting_requests_refuses_new_calls_and_is_recorded(
    client: Client, store: Store, task_queue: str
) -> None:
    async with gateway_rig(client, store, task_queue) as rig:
        waiting = [await rig.asked("pay") for _ in range(5)]
        frozen = await rig.http.post("/v1/freezes", json={"reason": "a stolen laptop"})
        assert frozen.status_code == 200, frozen.text
        for approval in waiting:
            (outcome,) = (await rig.turns.signoff.result(turn_of(approval))).calls
            assert outcome.code == "denied"
            (ending,) = await recorded(rig, approval, "ending")
            assert '"cancelled"' in ending
        key = await rig.turns.start("small")
        (outcome,) = (await rig.turns.signoff.result(key)).calls
        assert outcome.code == "denied"
        (verdict,) = [each for each in await AuditLog(store).stream(key.workflow_id) if each.kind == "verdict"]
        assert (verdict.facts["code"], verdict.facts["source"]) == ("denied", "policy")
        assert rig.ledger.rows == []
        assert (await rig.http.request("DELETE", "/v1/freezes/main", json={})).status_code == 200
        await rig.turns.signoff.result(await rig.start("small"))
        assert len(rig.ledger.rows) == 1
        acts = await rig.acts()
        points = Checkpoints(store)
        report = await verify(AuditLog(store).records(), points.all(), SIGNER.verifier(), heads=await points.heads())
    assert [(act.subject, act.facts["act"]) for act in acts] == [("approver", "freeze"), ("approver", "unfreeze")]
    assert acts[0].facts["reason"] == "a stolen laptop"
    assert report.finding is None


async def worker(manifest: Path, server: ServerHandle, folder: Path, queue: str) -> asyncio.subprocess.Process:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    env |= {
        "SIGNOFF_MANIFEST": str(manifest),
        "SIGNOFF_STATE_DIR": str(folder / "state"),
        "SIGNOFF_TASK_QUEUE": queue,
        "TEMPORAL_ADDRESS": server.address,
        "COLUMNS": "200",
    }
    command = (sys.executable, "-u", "-m", "signoff.cli.main", "worker")
    return await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def test_worker_with_a_gated_tool_without_approvers_does_not_start(
    server: ServerHandle, tmp_path: Path, task_queue: str
) -> None:
    shutil.copytree(PROJECT, tmp_path / "desk")
    manifest = tmp_path / "desk" / "signoff.yaml"
    asking = 'allow_remember: true\n      approvers: ["role:treasurers"]'
    manifest.write_text(manifest.read_text().replace("allow_remember: true", asking))
    process = await worker(manifest, server, tmp_path, task_queue)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (1, b"")
    assert "`role:treasurers`" in err.decode()
    assert "add one to `people`" in err.decode()


async def test_worker_prints_each_tools_approval_rule_at_its_start(
    server: ServerHandle, tmp_path: Path, task_queue: str
) -> None:
    process = await worker(PROJECT / "signoff.yaml", server, tmp_path, task_queue)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            lines: list[str] = []
            while not any(line.startswith("pay ") for line in lines):
                line = await process.stdout.readline()
                assert line, await process.communicate()
                lines.append(line.decode())
    finally:
        process.kill()
        await process.wait()
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert "auto" in rows["look"]
    assert "asks" in rows["hurry"]
    assert "maybe asks, may be denied" in rows["pay"]
    assert "role:approvers" in rows["pay"]
