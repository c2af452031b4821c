import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks_below
from served_stack import MANIFEST, gateway_alone
from temporalio.api.operatorservice.v1 import RemoveSearchAttributesRequest

from existing_worker import orders
from existing_worker.orders import Order, main
from signoff.app import App
from signoff.client.client import Client
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server
from signoff.temporal.server_connection import DEFAULT_ADDRESS, SEARCH_ATTRIBUTES

OWN_PROGRAM = ROOT / "docs" / "own-program.md"
SECONDS = 240
GATEWAY_ANSWERS = "until signoff inbox; do sleep 0.3; done\n"
DECIDED = """
until signoff inbox | grep '50 %'; do sleep 0.3; done
signoff approve "$(signoff inbox --json | python -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])')"
signoff watch "$(signoff turns --json | python -c 'import json, sys; print(json.load(sys.stdin)[0]["turn"])')"
"""


async def test_four_lines_add_signoff_to_a_worker(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, server: ServerHandle, task_queue: str
) -> None:
    (tmp_path / "signoff.yaml").symlink_to(MANIFEST)
    clean_env.setattr(orders, "app", App(manifest=tmp_path / "signoff.yaml"))
    clean_env.syspath_prepend(str(MANIFEST.parent))
    async with gateway_alone(clean_env, server, task_queue, tmp_path / "signoff.yaml"):
        worker = asyncio.create_task(main(server.address, task_queue))
        try:
            temporal = await server.connect()
            own = temporal.execute_workflow(Order.run, "no 7", id=f"order-{task_queue}", task_queue=task_queue)
            assert await own == "packed no 7"
            async with await Client.connect() as client:
                turn = await client.start("pay 420", user="rui")
                async for request in turn.pending():
                    await client.approve(request, by="ana")
                assert (await turn.result()).text == "ok paid 420 to Ana"
        finally:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker


def test_example_adds_four_lines() -> None:
    text = (Path(__file__).parents[2] / "examples" / "existing_worker" / "orders.py").read_text(encoding="utf-8")
    assert (
        sum(bool(re.search(r"\b(app|plugin)\b", line.lower())) for line in text.partition('"""\n')[2].splitlines()) == 4
    )


async def test_documented_commands_suffice_on_a_server_without_search_attributes(
    clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = blocks_below(OWN_PROGRAM, "A Temporal worker that you have")
    program, commands = shown[0], next(each for each in shown if each.startswith("signoff init"))
    options = ServerOptions(tmp_path / "temporal" / "temporal.db", port=free_port(), ui_port=None)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "orders.py").write_text(program.replace(DEFAULT_ADDRESS, options.address), encoding="utf-8")
    script = re.sub(r"#.*terminal|# in a third one", "&", commands.replace(DEFAULT_ADDRESS, options.address))
    script = script.replace("signoff ask", f"{GATEWAY_ANSWERS}signoff ask")
    async with run_server(options) as server, contextlib.AsyncExitStack() as files:
        log = files.enter_context((tmp_path / "shell.log").open("wb"))
        client = await server.connect()
        mine = RemoveSearchAttributesRequest(namespace=client.namespace, search_attributes=[*SEARCH_ATTRIBUTES])
        await client.operator_service.remove_search_attributes(mine)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *("sh", "-ec", f"{script}{DECIDED}"),
            cwd=folder,
            env={**os.environ, "PATH": path, "SIGNOFF_PORT": str(free_port())},
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(SECONDS):
                await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            printed = (tmp_path / "shell.log").read_text(encoding="utf-8")
    assert (process.returncode, "Ana gets 50 % off, agreed by approver" in printed) == (0, True), printed
