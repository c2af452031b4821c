import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agentapprovalprotocol import AsyncClient, ConflictError, Request

_PATIENCE = 600.0
IN_FLIGHT = 3
STEPS = ("pending", "approved", "lost", "unreported", "reported")


class KilledRequests:
    """The adapter returns with its keys only. It uses each request once and loses none."""

    def __init__(self, base: str, token: str) -> None:
        self._client = AsyncClient(base, token, retry_budget=_PATIENCE)
        self._ids: dict[str, str] = {}
        self._under_way: list[asyncio.Task[Request]] = []

    async def begin(self) -> None:
        self._ids = {step: (await self._ask(step)).id for step in STEPS}
        for step in STEPS[1:]:
            assert (await self._settled(self._ids[step])).status == "approved"
        for step in STEPS[2:]:
            await self._client.consume(self._ids[step], f"use-{step}")
        await self._client.report_outcome(self._ids["reported"], "succeeded", "refunded")
        self._under_way = [
            asyncio.create_task(self._settled(self._ids["pending"])),
            *(asyncio.create_task(self._run(f"way-{number}")) for number in range(IN_FLIGHT)),
        ]

    async def finish(self, approve: Callable[[str], Awaitable[Any]]) -> None:
        again = {step: await self._ask(step) for step in STEPS}
        assert {step: each.id for step, each in again.items()} == self._ids
        assert again["pending"].status == "pending"
        assert {again[step].status for step in STEPS[1:]} == {"approved"}
        await approve("aap-pending")
        waited, *ran = await asyncio.gather(*self._under_way)
        assert waited.status == "approved"
        # A lost answer is repeated for the same key. Another key may not use it.
        for step, request in self._ids.items():
            await self._end(step, request)
        for number, each in enumerate(ran):
            await self._end(f"way-{number}", each.id)
        await self._client.aclose()

    async def _ask(self, name: str) -> Request:
        euro = 200 if name == "pending" else 20
        body = {"tool": "refund", "arguments": {"order": f"aap-{name}", "euro": euro}, "timeout": "1h"}
        return await self._client.create(body, name)

    async def _settled(self, request: str) -> Request:
        while (found := await self._client.get(request, wait=25)).status == "pending":
            pass
        return found

    async def _run(self, name: str) -> Request:
        request = await self._settled((await self._ask(name)).id)
        await self._client.consume(request.id, f"use-{name}")
        return await self._client.report_outcome(request.id, "succeeded", "refunded")

    async def _end(self, name: str, request: str) -> None:
        assert (await self._client.consume(request, f"use-{name}")).consumption is not None
        done = await self._client.report_outcome(request, "succeeded", "refunded")
        assert done.consumption is not None
        assert done.consumption.outcome is not None
        with pytest.raises(ConflictError, match="already_consumed"):
            await self._client.consume(request, "use-by-another")
