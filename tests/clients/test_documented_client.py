import asyncio
from pathlib import Path
from typing import Any

from client_rig import ClientRig
from documents import blocks

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def example(rig: ClientRig) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    text = blocks(PAGE, "python")[0].text
    text = text.replace("https://signoff.example.com", rig.url).replace("TOKEN", rig.token)
    exec(compile(text, str(PAGE), "exec"), scope)
    return scope


async def test_documented_example_runs_approved_calls(rig: ClientRig) -> None:
    refund_order = example(rig)["refund_order"]
    task = asyncio.create_task(refund_order("toolu-1", "D1", 200))
    waiting = rig.call({"order": "D1", "euro": 200}, key="toolu-1", user="guest", wait=0)
    await waiting.settle()
    await rig.decide(waiting, edited_args={"order": "D1", "euro": 120})
    assert (await task).startswith("refunded 120 EUR for D1\n(Approver edited the arguments")
    assert (await rig.show(waiting.id))["result"] == "refunded 120 EUR for D1"
    assert (await refund_order("toolu-2", "D1", 2_000)).startswith("Not run: a rule denies it")


async def test_documented_guard_example_needs_no_key(rig: ClientRig) -> None:
    refund = example(rig)["refund"]
    assert await refund("D2", 20) == "refunded 20 EUR for D2"
    assert await refund("D2", 20) == "refunded 20 EUR for D2"
    task = asyncio.create_task(refund("D2", 200))
    says = "Refund 200 EUR for D2"
    waiting = rig.call({"order": "D2", "euro": 200}, key=None, says=says, wait=0)
    await waiting.settle()
    assert (await rig.request(waiting)).agent_says == says
    await rig.decide(waiting)
    assert await task == "refunded 200 EUR for D2"
    assert (await rig.show(waiting.id))["code"] == "ok"
