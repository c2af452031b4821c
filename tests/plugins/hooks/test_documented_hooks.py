import asyncio
import json
import os
import re
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from app_server import running_app
from call_rig import CallRig, call_token
from documents import blocks_below
from gateway_login import locked_rig

from signoff.temporal.embedded_server import free_port

PAGE = Path(__file__).parents[3] / "docs" / "external-calls.md"


@pytest.fixture
async def served(agent: CallRig) -> AsyncIterator[dict[str, str]]:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    locked = locked_rig(agent.rig, public_url=address)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    token = await call_token(agent.rig, "coder")
    async with locked.http, running_app(locked.app, port):
        yield {"PATH": path, "SIGNOFF_PUBLIC_URL": address, "SIGNOFF_TOKEN": token}


async def test_claude_code_settings_end_in_an_approval_and_an_outcome(hooks: Any, served: dict[str, str]) -> None:
    session = hooks()
    [text] = blocks_below(PAGE, "Claude Code, by its hooks")
    events = json.loads(text.replace("http://127.0.0.1:8300", served["SIGNOFF_PUBLIC_URL"]))["hooks"]

    async def send(event: str) -> dict[str, Any]:
        [matcher] = events[event]
        assert re.fullmatch(matcher["matcher"], "Bash")
        [hook] = matcher["hooks"]
        assert hook["type"] == "http"
        variables = {name: served[name] for name in hook["allowedEnvVars"]}
        headers = {
            name: re.sub(r"\$(\w+)", lambda at: variables[at[1]], text) for name, text in hook["headers"].items()
        }
        async with httpx2.AsyncClient(timeout=hook.get("timeout", 600)) as http:
            answer = await http.post(hook["url"], json=session.body(event), headers=headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    [gate] = events["PreToolUse"][0]["hooks"]
    assert gate["onFailure"] == "block"
    assert gate["timeout"] > float(gate["url"].partition("hold=")[2])
    asked = asyncio.create_task(send("PreToolUse"))
    call = await session.waiting()
    await session.agent.decide(call)
    assert (await asked)["hookSpecificOutput"]["permissionDecision"] == "allow"
    assert await send("PostToolUseFailure") == {}
    assert (await session.agent.ended(call))["code"] == "execution_failed"
    assert await send("PostToolUse") == {}


async def test_codex_settings_end_in_an_approval_and_an_outcome(hooks: Any, served: dict[str, str]) -> None:
    session = hooks("codex")
    events = tomllib.loads(blocks_below(PAGE, "Codex")[0])["hooks"]
    [gate], [report] = events["PreToolUse"][0]["hooks"], events["PostToolUse"][0]["hooks"]
    assert re.fullmatch(events["PreToolUse"][0]["matcher"], "Bash")
    assert gate["timeout"] > float(re.findall(r"--hold (\d+)", gate["command"])[0])
    asked = asyncio.create_task(run(gate["command"], session.body("PreToolUse"), served))
    call = await session.waiting()
    await session.agent.decide(call)
    assert await asked == (0, "{}\n", "")
    assert await run(report["command"], session.body("PostToolUse"), served) == (0, "{}\n", "")
    assert (await session.agent.ended(call))["result"] == "hi\n"
    code, out, _ = await run(gate["command"], session.body("PreToolUse", "sudo ls", tool_use_id="call_2"), served)
    assert (code, json.loads(out)["hookSpecificOutput"]["permissionDecision"]) == (0, "deny")
    for env in ({"SIGNOFF_TOKEN": "x"}, {"SIGNOFF_PUBLIC_URL": f"http://127.0.0.1:{free_port()}"}, {"PATH": "/bin"}):
        code, out, err = await run(gate["command"], session.body("PreToolUse"), served | env)
        # Codex blocks only by this code, and only with a message.
        assert (code, out, bool(err.strip())) == (2, "", True), env


async def run(command: str, event: dict[str, Any], env: dict[str, str]) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        command,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(json.dumps(event).encode())
    return process.returncode, out.decode(), err.decode()
