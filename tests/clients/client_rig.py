import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from app_server import running_app
from call_rig import CallRig, approval_of
from polling import until

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import TurnKey
from signoff.temporal.embedded_server import free_port
from signoff_client import Call, Gate

SMALL = {"order": "A7", "euro": 20}
"""Permitted by a rule."""
LARGE = {"order": "A7", "euro": 200}
"""Needs approval."""
HUGE = {"order": "A7", "euro": 2_000}
"""Denied by a rule."""


@dataclass
class ClientRig:
    agent: CallRig
    app: Any
    token: str
    url: str = ""

    def gate(self, url: str = "", **fields: Any) -> Gate:
        """It gives up at once without an answer, unless configured otherwise."""
        return Gate(url or self.url, self.token, **({"patience": 0.0} | fields))

    def call(self, args: dict[str, Any], tool: str = "refund", *, url: str = "", **fields: Any) -> Call:
        return self.gate(url).call(tool, args, **({"key": uuid.uuid4().hex} | fields))

    @contextlib.asynccontextmanager
    async def serve(self, app: Any = None, port: int = 0) -> AsyncIterator[str]:
        """At the end it stops with requests in progress."""
        port = port or free_port()
        async with running_app(app or self.app, port, grace=0):
            yield f"http://127.0.0.1:{port}"

    async def show(self, call: str) -> dict[str, Any]:
        return await self.agent.show(call)

    async def settled(self, call: str) -> dict[str, Any]:
        await self.agent.rig.turns.signoff.result(TurnKey(*call.split(".")))
        return await self.show(call)

    async def request(self, call: Call) -> ApprovalRequest:
        return await self.agent.rig.request(approval_of(call.id))

    async def decide(self, call: Call, **fields: Any) -> None:
        await until(lambda: bool(call.id))
        answer = await self.agent.decide(call.id, **fields)
        assert answer.json()["status"] == "accepted", answer.text
