"""The API of the record: what happened in a turn, or in a tenant beside its turns."""

from typing import Any

from fastapi import APIRouter, Request

from signoff.audit.stream_report import Telling
from signoff.contracts.responses import Fault
from signoff.gateway.auth.caller import caller_of, own_tenant
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.record_access import read_record


class AuditApi:
    """Handlers of `/v1/audit`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

    def router(self) -> APIRouter:
        """The routes."""
        faults: dict[int | str, dict[str, Any]] = {status: {"model": Fault} for status in (403, 404, 503)}
        router = APIRouter(prefix="/v1/audit", tags=["audit"], responses=faults)
        router.add_api_route("/{name:path}", self.show, methods=["GET"], summary="The timeline of a turn")
        return router

    async def show(self, name: str, request: Request, tenant: str | None = None) -> Telling:
        """For the roles `admin` and `auditor`, and in development for everybody.

        `name` is `<tenant>.<session>.<turn>`, a workflow id, a turn's id or its beginning, or `admin/<tenant>` for what
        belongs to no turn. `finding` says what is not as it was written; how far the whole record holds is told by
        `signoff audit verify`, which needs no gateway.
        """
        caller = caller_of(request)
        person = None if caller is None else caller.person
        return await read_record(self._deps, name, own_tenant(caller, tenant), person)
