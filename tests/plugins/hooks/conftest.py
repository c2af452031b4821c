import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from call_rig import CallRig
from polling import pauses

RECORDED = Path(__file__).parent / "recorded"
"""Bodies as sent by Claude Code 2.1.332 and Codex 0.171.0, without their ids and paths."""


@dataclass
class Hooks:
    agent: CallRig
    host: str = "claude-code"
    session: str = field(default_factory=lambda: str(uuid.uuid4()))

    def body(self, event: str, command: str = "", **fields: Any) -> dict[str, Any]:
        sent: dict[str, Any] = json.loads((RECORDED / f"{self.host}.json").read_text(encoding="utf-8"))[event]
        if command:
            sent["tool_input"] = {"command": command}
        return sent | {"session_id": self.session} | fields

    async def send(self, body: Any, **params: Any) -> httpx2.Response:
        query = {"agent": "coder", "hold": 0} | params
        return await self.agent.http.post(f"/v1/hooks/{self.host}", json=body, params=query)

    async def answer(self, event: str, command: str = "", *, hold: float = 600, **fields: Any) -> dict[str, Any]:
        answer = await self.send(self.body(event, command, **fields), hold=hold)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def decision(self, command: str, use: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = (await self.answer("PreToolUse", command, tool_use_id=use, **more))[
            "hookSpecificOutput"
        ]
        assert found.pop("hookEventName") == "PreToolUse"
        return found

    async def waiting(self) -> str:
        for pause in pauses():
            answer = await self.agent.http.get("/v1/approvals", params={"as": "approver", "limit": 500})
            assert answer.status_code == 200, answer.text
            found = [each["id"] for each in answer.json()["approvals"] if f".{self.session}" in each["id"]]
            if found:
                [only] = found
                return str(only).removesuffix(".c1.1")
            await asyncio.sleep(pause)
        raise AssertionError("pauses end")


@pytest.fixture
def hooks(agent: CallRig) -> Callable[..., Hooks]:
    return lambda host="claude-code": Hooks(agent, host)
