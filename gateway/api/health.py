"""Health, readiness and the tool inventory."""

import asyncio
import dataclasses
import time
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request

from signoff.contracts.errors import SignoffError
from signoff.contracts.limits import CLOCK_LOOK_SECONDS, READY_SECONDS
from signoff.engine.clock_check import clock_problem, server_ahead, store_ahead
from signoff.engine.kill_switch import OPERATOR
from signoff.gateway.auth.caller import caller_of, own_tenant
from signoff.gateway.deps import GatewayDeps
from signoff.registry.gates.inventory import inventory
from signoff.store.refusal_counts import refusals_since
from signoff.temporal.embedded_server import check_server

_COUNTED: Final = timedelta(days=1)


class ServiceApi:
    """Handlers of `/healthz`, `/readyz` and `/v1/tools`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._readiness = Readiness(deps)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(tags=["service"])
        router.add_api_route("/healthz", self.health, methods=["GET"], summary="The gateway itself is alive")
        router.add_api_route("/readyz", self.ready, methods=["GET"], summary="Server, search attributes, store")
        router.add_api_route("/v1/tools", self.tools, methods=["GET"], summary="Every tool: auto, asks or denied")
        return router

    async def health(self) -> dict[str, str]:
        """Always `ok` while the gateway runs."""
        return {"status": "ok"}

    async def ready(self, request: Request) -> JSONResponse:
        """200 when turns can be started and decided, else 503 with one sentence a failed check.

        Operators with a token, and everybody in development, read as `refused` how much bad input was refused in the
        last day, by kind.
        """
        checks = await self._readiness.checks()
        ready = all(said == "ok" for said in checks.values())
        body: dict[str, Any] = {"status": "ready" if ready else "not ready", "checks": checks}
        if self._tells(request):
            body["refused"] = await self._refused()
        return JSONResponse(body, status_code=200 if ready else 503)

    async def tools(self, request: Request, tenant: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """The gate inventory of this gateway's manifest: of the tools that exist for the tenant."""
        found = inventory(self._deps.catalog, own_tenant(caller_of(request), tenant))
        return {"tools": [dataclasses.asdict(row) for row in found]}

    def _tells(self, request: Request) -> bool:
        caller = caller_of(request)
        # To a stranger the counts would say what became of each thing that they try.
        if caller is None:
            return self._deps.settings.profile == "development"
        return OPERATOR in caller.person.roles

    async def _refused(self) -> dict[str, int]:
        try:
            return await refusals_since(self._deps.store.run, _COUNTED)
        # That the store is away stands among the checks.
        except SignoffError:
            return {}


class Readiness:
    """Looks whether turns can be started and decided: once a second at most, however many ask."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._looking = asyncio.Lock()
        self._checks: dict[str, str] = {}
        self._due = 0.0
        self._server_apart = ""
        self._server_due = 0.0

    async def checks(self) -> dict[str, str]:
        """`ok`, or what is wrong, of `server`, `store` and `clocks`."""
        async with self._looking:
            if time.monotonic() >= self._due:
                server = await self._server()
                store, apart = await self._store()
                wrong = apart or await self._server_clock(server)
                self._checks = {"server": server, "store": store, "clocks": wrong or "ok"}
                self._due = time.monotonic() + READY_SECONDS
            return self._checks

    async def _server(self) -> str:
        try:
            await check_server(self._deps.desk.temporal)
        except SignoffError as error:
            return error.message
        return "ok"

    async def _store(self) -> tuple[str, str]:
        """What is wrong with the store, and with its clock."""
        try:
            return "ok", clock_problem("the store", await store_ahead(self._deps.store, clock=self._deps.clock))
        except SignoffError as error:
            return error.message, ""

    async def _server_clock(self, server: str) -> str:
        if server == "ok" and time.monotonic() >= self._server_due:
            ahead = await server_ahead(self._deps.desk.temporal, clock=self._deps.clock)
            self._server_apart = clock_problem("the Temporal server", ahead)
            self._server_due = time.monotonic() + CLOCK_LOOK_SECONDS
        return self._server_apart
