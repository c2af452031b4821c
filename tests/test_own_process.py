from pathlib import Path

import pytest
from served_stack import MANIFEST
from temporalio.client import Client as Temporal

import signoff
from signoff.people import FixedDirectory, Person
from signoff.settings import Settings
from signoff.testing import serve_vendor


async def test_program_runs_worker_gateway_and_client(
    clean_env: pytest.MonkeyPatch, client: Temporal, task_queue: str, tmp_path: Path
) -> None:
    settings = Settings(task_queue=task_queue, state_dir=tmp_path / "state")
    program = signoff.App(manifest=MANIFEST, settings=settings)
    app = program.asgi(client)
    async with (
        program.worker(client),
        app.router.lifespan_context(app),
        serve_vendor(app) as url,
        await signoff.Client.connect(url) as people,
    ):
        turn = await people.start("pay 420", user="rui")
        async for request in turn.pending():
            assert (await people.approve(request, by="ana")).status == "accepted"
        assert (await turn.result()).text == "ok paid 420 to Ana"
    assert (tmp_path / "state" / "signoff.db").exists()


async def test_program_supplies_its_own_directory(
    clean_env: pytest.MonkeyPatch, client: Temporal, task_queue: str, tmp_path: Path
) -> None:
    settings = Settings(task_queue=task_queue, state_dir=tmp_path / "state")
    people = FixedDirectory([Person(id="rui"), Person(id="eve", roles=("approvers",))])
    program = signoff.App(manifest=MANIFEST, people=people, settings=settings)
    app = program.asgi(client)
    async with (
        program.worker(client),
        app.router.lifespan_context(app),
        serve_vendor(app) as url,
        await signoff.Client.connect(url) as gateway,
    ):
        turn = await gateway.start("pay 420", user="rui")
        async for request in turn.pending():
            assert (await gateway.deny(request, by="ana", reason="no")).status == "refused"
            assert (await gateway.approve(request, by="eve")).status == "accepted"
        assert (await turn.result()).text == "ok paid 420 to Ana"


async def test_mistake_is_reported_before_anything_runs(
    clean_env: pytest.MonkeyPatch, client: Temporal, tmp_path: Path
) -> None:
    nowhere = signoff.App(manifest=tmp_path / "nowhere.yaml", settings=Settings(state_dir=tmp_path))
    unready = signoff.App(manifest=MANIFEST, settings=Settings(profile="production", state_dir=tmp_path))
    for program, found in ((nowhere, r"nowhere\.yaml"), (unready, "`profile` is `production`, and this is missing")):
        with pytest.raises(signoff.ConfigError, match=found):
            async with program.worker(client):
                pass
        with pytest.raises(signoff.ConfigError, match=found):
            async with program.plugin():
                pass
