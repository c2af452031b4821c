import asyncio
import json
import subprocess
from typing import Any

import httpx2
import pytest
from app_server import running_app
from authzen_rig import EnforcementPoint, asking
from authzen_schemas import schema_problems
from call_rig import call_token
from documents import ROOT, blocks

from signoff.temporal.embedded_server import free_port

PAGE = ROOT / "docs" / "authzen.md"


async def test_documented_curl_line_gets_a_decision(point: EnforcementPoint) -> None:
    [block] = blocks(PAGE, "sh")
    port = free_port()
    line = block.text.strip().replace("127.0.0.1:8300", f"127.0.0.1:{port}")
    line = line.replace("TOKEN", await call_token(point.agent.rig, "coder"))
    async with running_app(point.agent.rig.app, port):
        shell = f"{line} -H 'host: 127.0.0.1:8300'"
        done = await asyncio.to_thread(subprocess.run, shell, shell=True, capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert schema_problems("response", told) == []
    assert (told["decision"], "access_request" in told["context"]) == (False, True)


@pytest.mark.parametrize(("verdict", "decision"), [("approved", True), ("denied", False)])
async def test_documented_python_example_waits_and_ends_in_a_decision(
    point: EnforcementPoint, verdict: str, decision: bool
) -> None:
    scope: dict[str, Any] = {}
    exec(compile(decide_example(), str(PAGE), "exec"), scope)
    body = asking()
    order = body["action"]["properties"]["arguments"]["order"]
    deciding = asyncio.create_task(scope["decide"](point.http, body))
    found: list[str] = []
    while not found:
        assert not deciding.done(), deciding
        listed = (await point.agent.http.get("/v1/approvals?limit=100")).json()["approvals"]
        found = [each["id"] for each in listed if order in each["effect"]]
        await asyncio.sleep(0.05)
    assert (await point.agent.rig.decide(found[0], **await shown(point, found[0], verdict))).status_code == 200
    told = await deciding
    assert told["decision"] is decision
    if decision:
        assert (await point.agent.report(told["context"]["call"])).json()["state"] == "ended"


async def test_unreachable_gateway_raises_an_error() -> None:
    scope: dict[str, Any] = {}
    exec(compile(decide_example(), str(PAGE), "exec"), scope)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{free_port()}") as http:
        with pytest.raises(httpx2.ConnectError):
            await scope["decide"](http, asking(20))


def decide_example() -> str:
    block = next(each for each in blocks(PAGE, "python") if "async def decide" in each.text)
    return block.text.replace("sleep(5)", "sleep(0.05)")


async def shown(point: EnforcementPoint, approval: str, verdict: str) -> dict[str, Any]:
    request = await point.agent.rig.request(approval)
    return {"verdict": verdict, "revision": request.revision, "question_hash": request.question_hash}
