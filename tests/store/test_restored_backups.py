"""Backups use the operator's tools. No worker runs during a backup: its unfinished activities would first have to time
out after a restoration.
"""

import contextlib
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gateway_rig import GatewayRig, gateway_rig, rig_catalog
from turn_fixtures import Ledger

from signoff.contracts.ids import TurnKey, parse_approval_id
from signoff.contracts.turn import TurnView
from signoff.engine.turn_list import lost_questions
from signoff.store.claim_conditions import add_restoration
from signoff.store.questions.answers import Answers
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server

pytestmark = pytest.mark.timeout(300)


@dataclass
class Installation:
    folder: Path
    store_url: str
    server: ServerHandle
    task_queue: str
    ledger: Ledger

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[GatewayRig]:
        async with open_store(self.store_url) as store:
            client = await self.server.connect()
            catalog = rig_catalog(self.ledger)
            async with gateway_rig(client, store, self.task_queue, catalog_of_ledger=lambda _: catalog) as rig:
                yield rig

    @contextlib.asynccontextmanager
    async def running_restored(self, name: str) -> AsyncIterator[GatewayRig]:
        options = ServerOptions(self.folder / name, port=free_port(), ui_port=None)
        async with run_server(options) as server, replace(self, server=server).running() as rig:
            yield rig

    def back_up(self, name: str, to: str) -> None:
        if name == "store" and self.store_url.startswith("postgresql"):
            dump = [postgres_program("pg_dump"), "-Fc", "-f", self.folder / to, self.store_url]
            subprocess.run(dump, check=True, timeout=60)
            return
        file = self._store_file if name == "store" else self.server.options.db_file
        with contextlib.closing(sqlite3.connect(file)) as source, contextlib.closing(_file(self.folder / to)) as copy:
            source.backup(copy)

    def restore_store(self, of: str) -> None:
        if self.store_url.startswith("postgresql"):
            load = [postgres_program("pg_restore"), "--clean", "--if-exists", "-d", self.store_url, self.folder / of]
            subprocess.run(load, check=True, timeout=60)
            return
        for file in self._store_file.parent.glob(f"{self._store_file.name}*"):
            file.unlink()
        shutil.copy(self.folder / of, self._store_file)

    @property
    def _store_file(self) -> Path:
        return Path(self.store_url.removeprefix("sqlite:///"))

    async def say_restored(self) -> None:
        async with open_store(self.store_url) as store:
            await store.run(lambda connection: add_restoration(connection, by="an operator"))


@pytest.fixture(scope="module")
async def first_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHandle]:
    """Its database holds no turns of other files and is copied whole."""
    file = tmp_path_factory.mktemp("temporal") / "temporal.db"
    async with run_server(ServerOptions(file, port=free_port(), ui_port=None)) as handle:
        yield handle


@pytest.fixture
def place(tmp_path: Path, store_url: str, first_server: ServerHandle, task_queue: str) -> Installation:
    return Installation(tmp_path, store_url, first_server, task_queue, Ledger())


def _file(path: Path) -> sqlite3.Connection:
    assert not path.exists()
    return sqlite3.connect(path)


def postgres_program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"PostgreSQL's `{name}` is missing: install the package `postgresql`"
    return found


def turn_of(approval: str) -> TurnKey:
    found = parse_approval_id(approval)
    assert found is not None
    return found.turn


async def ran(rig: GatewayRig, approval: str) -> None:
    answer = await rig.decide(approval, verdict="approved", revision=(await rig.request(approval)).revision)
    assert answer.status_code == 200, answer.text
    await rig.turns.signoff.result(turn_of(approval))


async def in_doubt(rig: GatewayRig, approval: str) -> int:
    def asks(view: TurnView) -> bool:
        found = [call.approval for call in view.calls if call.approval is not None]
        return any((each.kind, each.state) == ("in_doubt", "pending") for each in found)

    view = await rig.turns.until(turn_of(approval), asks)
    return next(call.approval.revision for call in view.calls if call.approval is not None)


@pytest.mark.parametrize("which", [("store", "temporal"), ("store",)])
async def test_call_that_ran_after_the_backup_is_asked_before_it_runs_again(
    place: Installation, which: tuple[str, ...]
) -> None:
    async with place.running() as rig:
        approval = await rig.asked("pay")
    for name in which:
        place.back_up(name, f"{name}-before.db")
    async with place.running() as rig:
        await ran(rig, approval)
    assert len(place.ledger.rows) == 1
    place.restore_store("store-before.db")
    await place.say_restored()
    restored = place.running_restored("temporal-before.db") if "temporal" in which else place.running()
    async with restored as rig:
        if "temporal" not in which:
            await rig.turns.reset(turn_of(approval))
        await rig.turns.waiting(turn_of(approval))
        await rig.decide(approval, verdict="approved", revision=1)
        revision = await in_doubt(rig, approval)
        assert len(place.ledger.rows) == 1
        answer = await rig.decide(approval, verdict="happened", revision=revision, result="paid, no 7")
        assert answer.json()["state"] == "happened", answer.text
        await rig.turns.signoff.result(turn_of(approval))
        assert len(place.ledger.rows) == 1
        await ran(rig, await rig.asked("pay"))
    assert len(place.ledger.rows) == 2


async def listed_as_lost(rig: GatewayRig, approval: str) -> bool:
    lists = RequestLists(rig.deps.store)
    lost = [each.workflow_id async for each in lost_questions(rig.turns.client, lists)]
    return turn_of(approval).workflow_id in lost


async def test_turn_with_a_lost_question_is_listed_and_asked_again(
    place: Installation,
) -> None:
    async with place.running() as rig:
        place.back_up("store", "empty.db")
        approval = await rig.asked("pay")
        await rig.turns.suspended(turn_of(approval))
        assert not await listed_as_lost(rig, approval)
    place.restore_store("empty.db")
    await place.say_restored()
    async with place.running() as rig:
        assert await listed_as_lost(rig, approval)
        assert (await rig.decide(approval, verdict="approved", revision=1)).status_code == 404
        await rig.turns.reset(turn_of(approval))
        await rig.turns.waiting(turn_of(approval))
        assert not await listed_as_lost(rig, approval)
        await rig.decide(approval, verdict="approved", revision=1)
        again = await rig.decide(approval, verdict="approved", revision=await in_doubt(rig, approval))
        assert again.status_code == 200, again.text
        await rig.turns.signoff.result(turn_of(approval))
    assert len(place.ledger.rows) == 1


async def test_restored_turn_with_an_answered_question_is_not_listed_as_lost(place: Installation) -> None:
    async with place.running() as rig:
        approval = await rig.asked("pay")
        await rig.turns.suspended(turn_of(approval))
    place.back_up("temporal", "before.db")
    async with place.running() as rig:
        await ran(rig, approval)
    async with place.running_restored("before.db") as rig:
        await rig.turns.suspended(turn_of(approval))
        assert not await listed_as_lost(rig, approval)


async def test_history_older_than_the_store_takes_the_outcome_from_it(place: Installation) -> None:
    async with place.running() as rig:
        approval = await rig.asked("pay")
    place.back_up("temporal", "before.db")
    async with place.running() as rig:
        await ran(rig, approval)
    await place.say_restored()
    async with place.running_restored("before.db") as rig:
        await rig.turns.until(turn_of(approval), lambda view: view.state == "suspended")
        # Like `RequestSweep` for turns that wait without an open question in the store.
        await Answers(rig.deps.store).owe_turn(turn_of(approval), 0.0)
        result = await rig.turns.signoff.result(turn_of(approval))
        assert [each.code for each in result.calls] == ["ok"]
    assert len(place.ledger.rows) == 1
