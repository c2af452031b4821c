import contextlib
import copy
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
from authzen_schemas import schema_problems
from call_rig import CallRig, call_token
from gateway_login import bearer
from gateway_rig import BASE

EVALUATION = "/access/v1/evaluation"
REQUESTS = "/access/v1/requests"


@dataclass
class EnforcementPoint:
    agent: CallRig
    http: httpx2.AsyncClient

    async def evaluate(self, body: dict[str, Any]) -> dict[str, Any]:
        assert schema_problems("request", body) == []
        answer = await self.http.post(EVALUATION, json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
        found: dict[str, Any] = answer.json()
        assert schema_problems("response", found) == []
        return found

    async def submit(self, body: dict[str, Any], decision: dict[str, Any], key: str = "") -> httpx2.Response:
        headers = {"idempotency-key": key} if key else {}
        return await self.http.post(REQUESTS, json=submission(body, decision), headers=headers)

    async def asked(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.submit(body, await self.evaluate(body))
        assert answer.status_code == 202, answer.text
        task: dict[str, Any] = answer.json()["task"]
        return task

    async def show(self, task: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.get(task["status_endpoint"])
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def approved(self, body: dict[str, Any]) -> dict[str, Any]:
        task = await self.asked(body)
        await self.decide(task)
        found = await self.show(task)
        assert found["task"]["status"] == "approved", found
        approval: dict[str, Any] = found["result"]["approval"]
        return approval

    async def decide(self, task: dict[str, Any], **fields: Any) -> None:
        call = call_of(task)
        assert (await self.agent.decide(call, **fields)).json()["status"] == "accepted"
        assert (await self.agent.show(call, wait=50))["state"] != "waiting"


def asking(euro: float = 200, order: str = "", tool: str = "refund", **context: Any) -> dict[str, Any]:
    return {
        "subject": {"type": "user", "id": "guest", "properties": {"act": {"sub": "coder"}}},
        "action": {
            "name": "tools/call",
            "properties": {"arguments": {"order": order or uuid.uuid4().hex, "euro": euro}},
        },
        "resource": {"type": "tool", "id": tool},
        "context": context,
    }


def submission(body: dict[str, Any], decision: dict[str, Any]) -> dict[str, Any]:
    told = decision["context"]
    denial = {"evaluation_id": told["evaluation_id"], "evaluated_at": told["evaluated_at"], "reason": told["reason"]}
    return copy.deepcopy(body) | {"denial": denial | {"expires_at": told["access_request"]["expires_at"]}}


def with_approval(body: dict[str, Any], approval: Any) -> dict[str, Any]:
    return body | {"context": {**body.get("context", {}), "approval": approval}}


def call_of(task: dict[str, Any]) -> str:
    return str(task["links"]["ticket"]).rpartition("/")[2]


@contextlib.asynccontextmanager
async def enforcement_point(agent: CallRig, name: str = "coder") -> AsyncIterator[EnforcementPoint]:
    transport, headers = httpx2.ASGITransport(app=agent.rig.app), bearer(await call_token(agent.rig, name))
    async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers, timeout=60) as http:
        yield EnforcementPoint(agent, http)
