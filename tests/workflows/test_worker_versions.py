import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest
from documents import ROOT, shell_lines
from raw_turns import RawTurnClient
from session_rig import Talk, react
from temporalio.api.deployment.v1 import WorkerDeploymentInfo, WorkerDeploymentVersion
from temporalio.api.enums.v1 import RoutingConfigUpdateState
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest, DescribeWorkerDeploymentVersionRequest
from temporalio.client import Client
from temporalio.service import RPCError
from turn_fixtures import PATIENCE, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, running_turns, yes

from signoff.contracts.ids import SessionKey, TurnKey
from signoff.store.store import Store
from signoff.temporal.embedded_server import ServerHandle, find_temporal
from signoff.temporal.encryption import Encryption
from signoff.testing.scripted_model import ScriptedModel
from signoff.worker import deployment_config

IN_PROGRESS = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
OLD, NEW = "1-old", "2-new"


@dataclass
class Deployment:
    server: ServerHandle
    client: Client
    starter: Client
    """A separate client, like a gateway's: a client that also works would receive its turn's first task at once."""
    store: Store
    queue: str

    @contextlib.asynccontextmanager
    async def worker(self, build_id: str, *, pinned: bool = False) -> AsyncIterator[RunningTurns]:
        catalog = catalog_of([pay_tool(Ledger(), handler=Ledger().handler("pay", build_id))])
        config = deployment_config(self.queue, build_id, pinned=pinned)
        model = ScriptedModel(react)
        async with running_turns(self.client, self.store, self.queue, catalog, model, deployment=config) as turns:
            # Workflows and activities become known separately. Until both are, the server may not replace a version
            # that has both.
            while len(await self.polled(build_id)) < 2:
                await asyncio.sleep(0.05)
            signoff = RawTurnClient(self.starter, task_queue=self.queue, patience=PATIENCE)
            yield replace(turns, signoff=signoff)

    async def info(self) -> WorkerDeploymentInfo:
        request = DescribeWorkerDeploymentRequest(namespace=self.client.namespace, deployment_name=self.queue)
        try:
            return (await self.client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
        except RPCError:
            return WorkerDeploymentInfo()

    async def polled(self, build_id: str) -> set[int]:
        version = WorkerDeploymentVersion(deployment_name=self.queue, build_id=build_id)
        request = DescribeWorkerDeploymentVersionRequest(namespace=self.client.namespace, deployment_version=version)
        try:
            found = await self.client.workflow_service.describe_worker_deployment_version(request)
        except RPCError:
            return set()
        return {each.type for each in found.version_task_queues}

    async def route(self, part: str, build_id: str) -> None:
        await self.run(part, build_id)
        while (await self.info()).routing_config_update_state == IN_PROGRESS:
            await asyncio.sleep(0.05)

    async def run(self, part: str, build_id: str = "", turn: str = "") -> str:
        [line] = [line for line in shell_lines(ROOT / "docs" / "deploys.md") if part in line]
        program = find_temporal()
        assert program is not None
        variables = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "TEMPORAL_ADDRESS": self.server.address,
            "DEPLOYMENT": self.queue,
            "BUILD": build_id,
            "TURN": turn,
        }
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-euc",
            line,
            env=os.environ | variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()
        return printed.decode()


@pytest.fixture
async def deployment(server: ServerHandle, encryption: Encryption, turn_rig: TurnRig) -> Deployment:
    return Deployment(server, turn_rig.client, await server.connect(encryption), turn_rig.store, turn_rig.task_queue)


async def waiting_turn(turns: RunningTurns) -> TurnKey:
    return await turns.start_waiting("pay")


async def paid_by(turns: RunningTurns, keys: Sequence[TurnKey]) -> list[object]:
    for key in keys:
        assert (await turns.signoff.decide(yes(key))).status in ("accepted", "pending")
    return [(await turns.signoff.result(key)).calls[0].value.inline for key in keys]


async def test_waiting_turn_follows_the_current_version_and_back(deployment: Deployment) -> None:
    async with deployment.worker(OLD) as old:
        await deployment.route("set-current-version", OLD)
        first, second, third = [await waiting_turn(old) for _ in range(3)]
        async with deployment.worker(NEW) as new:
            assert await paid_by(new, [first]) == [OLD]
            await deployment.route("set-current-version", NEW)
            assert await paid_by(new, [second]) == [NEW]
            await deployment.route("set-current-version", OLD)
            assert await paid_by(new, [third]) == [OLD]


async def test_pinned_turn_ends_with_its_first_version(deployment: Deployment) -> None:
    async with deployment.worker(OLD, pinned=True) as old:
        await deployment.route("set-current-version", OLD)
        first = await waiting_turn(old)
        talk = Talk(old, SessionKey("main", deployment.queue))
        await talk.say("pay", "a")
        await talk.turn("a", "waiting")
        async with deployment.worker(NEW, pinned=True) as new:
            await deployment.route("set-current-version", NEW)
            second = await waiting_turn(new)
            await talk.say("pay", "b")
            await talk.turn("b", "waiting")
            keys = [first, second, talk.turn_key("a"), talk.turn_key("b")]
            assert await paid_by(new, keys) == [OLD, NEW, OLD, NEW]


async def test_pinned_turn_of_a_removed_version_is_moved_by_hand(deployment: Deployment) -> None:
    async with deployment.worker(OLD, pinned=True) as old:
        await deployment.route("set-current-version", OLD)
        key = await waiting_turn(old)
    async with deployment.worker(NEW, pinned=True) as new:
        await deployment.route("set-current-version", NEW)
        await deployment.run("update-options", NEW, key.workflow_id)
        assert await paid_by(new, [key]) == [NEW]


async def test_ramp_sends_a_share_of_turns_to_the_new_version(deployment: Deployment) -> None:
    async def begun(turns: RunningTurns) -> list[str]:
        # Their calls need no approval: a query for a waiting turn would cost more than the turn.
        keys = [await turns.start("hello") for _ in range(40)]
        await asyncio.gather(*map(turns.signoff.result, keys))
        found = [await turns.client.get_workflow_handle(key.workflow_id).describe() for key in keys]
        return [
            each.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id for each in found
        ]

    async with deployment.worker(OLD, pinned=True) as old, deployment.worker(NEW, pinned=True):
        await deployment.route("set-current-version", OLD)
        await deployment.route("--percentage", NEW)
        assert "20" in await deployment.run("deployment describe")
        ramped = await begun(old)
        assert set(ramped) == {OLD, NEW}
        assert ramped.count(OLD) > ramped.count(NEW)
        await deployment.route("--delete", NEW)
        assert set(await begun(old)) == {OLD}
