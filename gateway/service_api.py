"""Health, readiness and the tool inventory."""

import dataclasses
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request

from signoff.contracts.errors import SignoffError
from signoff.embedded import check_server
from signoff.gateway.caller import caller_of, own_tenant
from signoff.gateway.deps import GatewayDeps
from signoff.registry.inventory import inventory


class ServiceApi:
    """Handlers of `/healthz`, `/readyz` and `/v1/tools`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

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

    async def ready(self) -> JSONResponse:
        """200 when turns can be started and decided, else 503 with one sentence a failed check."""
        checks = {"server": await self._server(), "store": await self._store()}
        ready = all(said == "ok" for said in checks.values())
        body = {"status": "ready" if ready else "not ready", "checks": checks}
        return JSONResponse(body, status_code=200 if ready else 503)

    async def tools(self, request: Request, tenant: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """The gate inventory of this gateway's manifest: of the tools that exist for the tenant."""
        found = inventory(self._deps.catalog, own_tenant(caller_of(request), tenant))
        return {"tools": [dataclasses.asdict(row) for row in found]}

    async def _server(self) -> str:
        try:
            await check_server(self._deps.desk.temporal)
        except SignoffError as error:
            return error.message
        return "ok"

    async def _store(self) -> str:
        try:
            await self._deps.store.check()
        except SignoffError as error:
            return error.message
        return "ok"
