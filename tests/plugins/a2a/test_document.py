import asyncio
from typing import Any

import httpx
import pytest
from documents import ROOT, blocks
from gateway_login import bearer, token_of
from peer_rig import PeerRig, fresh_id


async def test_documented_program_asks_and_follows_a_task(peers: PeerRig, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [each for each in blocks(ROOT / "docs" / "a2a.md", "python") if not each.file]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example.text, "a2a.md", "exec"), names)
    asking = asyncio.ensure_future(names["ask"](peers.url, await peers.token(), "pay", fresh_id()))
    printed = ""
    while "Waiting for approval, " not in printed:
        assert not asking.done()
        printed += capsys.readouterr().out
        await asyncio.sleep(0.05)
    code = printed.partition("Waiting for approval, ")[2].partition(".")[0]
    async with httpx.AsyncClient(headers=bearer(await token_of(peers.gateway, "approver")), timeout=60) as http:
        address = f"{peers.url}/v1/approvals/{code}"
        shown = (await http.get(address)).json()
        answer = await http.post(
            f"{address}/decide", json={"verdict": "approved", "question_hash": shown["question_hash"]}
        )
    assert answer.status_code == 200
    assert await asking == "TASK_STATE_COMPLETED: pay: ok paid"
    assert await names["ask"](peers.url, await peers.token(), "hello", fresh_id()) == (
        "TASK_STATE_COMPLETED: You said: hello"
    )
