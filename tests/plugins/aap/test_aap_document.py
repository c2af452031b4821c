import asyncio
import contextlib
import uuid
from typing import Any

import pytest
from aap_rig import Adapter
from agentapprovalprotocol import Client
from app_server import running_app
from documents import ROOT, blocks

from signoff.temporal.embedded_server import free_port


def example() -> Any:
    scope: dict[str, Any] = {}
    [text] = [block.text for block in blocks(ROOT / "docs" / "aap.md", "python")]
    exec(compile(text, "aap.md", "exec"), scope)
    return scope["guarded"]


@pytest.mark.parametrize("verdict", ["approved", "denied"])
async def test_documented_example_ends_in_a_decision_and_an_outcome(coder: Adapter, verdict: str) -> None:
    port, order = free_port(), uuid.uuid4().hex
    async with running_app(coder.agent.rig.app, port):
        with contextlib.closing(Client(f"http://127.0.0.1:{port}/aap/coder", coder.token)) as client:
            asking = asyncio.create_task(asyncio.to_thread(example(), client, order, order, 200))
            call = await coder.decide({"order": order}, verdict=verdict, reason="looked at")
            text = await asking
    ended = await coder.agent.show(call)
    if verdict == "approved":
        assert (text, ended["state"], ended["code"]) == (f"refunded 200 EUR for {order}", "ended", "ok")
    else:
        assert ("looked at" in text, ended["state"]) == (True, "denied")


async def test_documented_example_runs_a_call_approved_by_rule(coder: Adapter) -> None:
    guarded, port = example(), free_port()
    async with running_app(coder.agent.rig.app, port):
        with contextlib.closing(Client(f"http://127.0.0.1:{port}/aap/coder", coder.token)) as client:
            ran = await asyncio.to_thread(guarded, client, uuid.uuid4().hex, "A7", 20)
            denied = await asyncio.to_thread(guarded, client, uuid.uuid4().hex, "A7", 2_000)
    assert ran == "refunded 20 EUR for A7"
    assert "`deny_if` is true" in denied


async def test_unreachable_gateway_runs_nothing(coder: Adapter) -> None:
    base = f"http://127.0.0.1:{free_port()}/aap/coder"
    with contextlib.closing(Client(base, coder.token, retry_budget=0.1)) as client:
        text = await asyncio.to_thread(example(), client, uuid.uuid4().hex, "A7", 20)
    assert text.startswith("not run: ")
