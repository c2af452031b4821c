"""Versions of workers, on the real server: who goes on with which, as turns begin, wait and are decided."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest
from documents import ROOT, shell_lines
from session_rig import Talk, react
from temporalio.api.deployment.v1 import WorkerDeploymentInfo, WorkerDeploymentVersion
from temporalio.api.enums.v1 import RoutingConfigUpdateState
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest, DescribeWorkerDeploymentVersionRequest
from temporalio.client import Client
from temporalio.service import RPCError
from turn_fixtures import PATIENCE, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, running_turns, yes

from signoff.contracts.ids import SessionKey, TurnKey
from signoff.engine.turn_client import TurnClient
from signoff.store.store import Store
from signoff.temporal.embedded_server import ServerHandle, find_temporal
from signoff.temporal.encryption import Encryption
from signoff.testing.scripted_model import ScriptedModel
from signoff.worker import deployment_config

IN_PROGRESS = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
OLD, NEW = "1-old", "2-new"


@dataclass
class Deployment:
    """Two versions of one deployment, and the documents' commands for them."""

    server: ServerHandle
    client: Client
    starter: Client
    """Another one, as a gateway has: whoever starts a turn and works as well gets its first task at once."""
    store: Store
    queue: str

    @contextlib.asynccontextmanager
    async def worker(self, build_id: str, *, pinned: bool = False) -> AsyncIterator[RunningTurns]:
        """A worker of that version, whose tool answers with its name, once the server knows it."""
        catalog = catalog_of([pay_tool(Ledger(), handler=Ledger().handler("pay", build_id))])
        config = deployment_config(self.queue, build_id, pinned=pinned)
        model = ScriptedModel(react)
        async with running_turns(self.client, self.store, self.queue, catalog, model, deployment=config) as turns:
            # Workflows and activities are polled, and become known, each by itself; while one lacks, no version with
            # both may give way to this one.
            while len(await self.polled(build_id)) < 2:
                await asyncio.sleep(0.05)
            signoff = TurnClient(self.starter, task_queue=self.queue, patience=PATIENCE)
            yield replace(turns, signoff=signoff)

    async def info(self) -> WorkerDeploymentInfo:
        """What the server knows of the deployment; nothing before its first worker polls."""
        request = DescribeWorkerDeploymentRequest(namespace=self.client.namespace, deployment_name=self.queue)
        try:
            return (await self.client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
        except RPCError:
            return WorkerDeploymentInfo()

    async def polled(self, build_id: str) -> set[int]:
        """The kinds of task queues that the server knows of a version."""
        version = WorkerDeploymentVersion(deployment_name=self.queue, build_id=build_id)
        request = DescribeWorkerDeploymentVersionRequest(namespace=self.client.namespace, deployment_version=version)
        try:
            found = await self.client.workflow_service.describe_worker_deployment_version(request)
        except RPCError:
            return set()
        return {each.type for each in found.version_task_queues}

    async def route(self, part: str, build_id: str) -> None:
        """Run a command that changes which version turns go to, and wait until every task queue knows."""
        await self.run(part, build_id)
        while (await self.info()).routing_config_update_state == IN_PROGRESS:
            await asyncio.sleep(0.05)

    async def run(self, part: str, build_id: str = "", turn: str = "") -> str:
        """What the one command of docs/deploys.md that has `part` in it prints."""
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
    """Which version ran the call of each turn, once it is approved."""
    for key in keys:
        assert (await turns.signoff.decide(yes(key))).status in ("accepted", "pending")
    return [(await turns.signoff.result(key)).calls[0].value.inline for key in keys]


async def test_a_waiting_turn_goes_on_with_the_current_version_and_back(deployment: Deployment) -> None:
    async with deployment.worker(OLD) as old:
        await deployment.route("set-current-version", OLD)
        first, second, third = [await waiting_turn(old) for _ in range(3)]
        async with deployment.worker(NEW) as new:
            assert await paid_by(new, [first]) == [OLD]
            await deployment.route("set-current-version", NEW)
            assert await paid_by(new, [second]) == [NEW]
            await deployment.route("set-current-version", OLD)
            assert await paid_by(new, [third]) == [OLD]


async def test_a_pinned_turn_ends_with_the_version_it_began_with(deployment: Deployment) -> None:
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


async def test_a_pinned_turn_whose_version_is_gone_is_moved_by_hand(deployment: Deployment) -> None:
    async with deployment.worker(OLD, pinned=True) as old:
        await deployment.route("set-current-version", OLD)
        key = await waiting_turn(old)
    async with deployment.worker(NEW, pinned=True) as new:
        await deployment.route("set-current-version", NEW)
        await deployment.run("update-options", NEW, key.workflow_id)
        assert await paid_by(new, [key]) == [NEW]


async def test_a_ramp_gives_a_part_of_the_turns_to_the_new_version_and_is_taken_back(deployment: Deployment) -> None:
    async def begun(turns: RunningTurns) -> list[str]:
        # None of them asks people: to look whether a turn waits is a query, and costs more than the turn.
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
