"""A Temporal worker that was there before runs Signoff's turns too."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from served_stack import MANIFEST, gateway_alone

from existing_worker.orders import Order, main
from signoff.client.client import Client
from signoff.temporal.embedded_server import ServerHandle


async def test_three_lines_add_signoff_to_a_worker(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, server: ServerHandle, task_queue: str
) -> None:
    """Its own workflow goes on as before, and a turn that people approve runs to its end beside it."""
    (tmp_path / "signoff.yaml").symlink_to(MANIFEST)
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


def test_it_is_three_lines() -> None:
    """One to make the plugin, one to name it; what stood there before stands there still."""
    text = (Path(__file__).parents[2] / "examples" / "existing_worker" / "orders.py").read_text(encoding="utf-8")
    assert sum("plugin" in line.lower() for line in text.partition('"""\n')[2].splitlines()) == 3
