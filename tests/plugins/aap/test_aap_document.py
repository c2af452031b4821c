"""What docs/aap.md and docs/external-calls.md show is run as it stands, against a gateway that is served."""

import asyncio
import contextlib
import uuid
from typing import Any

import httpx2
import pytest
from aap_rig import Adapter
from agentapprovalprotocol import AsyncClient, Client
from app_server import running_app
from documents import ROOT, blocks_below

from signoff.temporal.embedded_server import free_port


def example(page: str, heading: str) -> Any:
    """The function of a page that a reader copies."""
    scope: dict[str, Any] = {}
    text = next(each for each in blocks_below(ROOT / "docs" / page, heading) if "agentapprovalprotocol" in each)
    exec(compile(text, page, "exec"), scope)
    return scope.get("gated") or scope["guarded"]


@pytest.mark.parametrize("verdict", ["approved", "denied"])
async def test_the_example_of_external_calls_ends_in_an_approval_and_an_outcome(coder: Adapter, verdict: str) -> None:
    port, order, gated = free_port(), uuid.uuid4().hex, example("external-calls.md", "Agent Approval Protocol")
    async with running_app(coder.agent.rig.app, port), httpx2.AsyncClient(timeout=60) as http:
        client = AsyncClient(f"http://127.0.0.1:{port}/aap/coder", coder.token, http=http)
        asking = asyncio.create_task(gated(client, order, order, 200))
        call = await coder.decide({"order": order}, verdict=verdict, reason="looked at")
        text = await asking
    ended = await coder.agent.show(call)
    if verdict == "approved":
        assert (text, ended["state"], ended["code"]) == (f"refunded 200 EUR for {order}", "ended", "ok")
    else:
        assert ("looked at" in text, ended["state"]) == (True, "denied")


async def test_the_example_of_the_page_runs_what_a_rule_lets_pass(coder: Adapter) -> None:
    guarded, port = example("aap.md", "Agent Approval Protocol"), free_port()
    async with running_app(coder.agent.rig.app, port):
        with contextlib.closing(Client(f"http://127.0.0.1:{port}/aap/coder", coder.token)) as client:
            ran = await asyncio.to_thread(guarded, client, uuid.uuid4().hex, "A7", 20)
            denied = await asyncio.to_thread(guarded, client, uuid.uuid4().hex, "A7", 2_000)
    assert ran == "refunded 20 EUR for A7"
    assert "`deny_if` is true" in denied


async def test_a_gateway_that_cannot_be_reached_lets_nothing_run(coder: Adapter) -> None:
    base = f"http://127.0.0.1:{free_port()}/aap/coder"
    with contextlib.closing(Client(base, coder.token, retry_budget=0.1)) as client:
        text = await asyncio.to_thread(example("aap.md", "Agent Approval Protocol"), client, uuid.uuid4().hex, "A7", 20)
    assert text.startswith("not run: ")
