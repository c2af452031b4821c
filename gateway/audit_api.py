"""The API of the record: what happened in a turn, or in a tenant beside its turns."""

from typing import Any

from fastapi import APIRouter, Request

from signoff.approvals.entries import admin_stream
from signoff.audit.log import AuditLog
from signoff.audit.telling import Telling, find_stream, tell
from signoff.contracts.errors import Refused
from signoff.contracts.ids import parse_workflow_id
from signoff.gateway.caller import caller_of, own_tenant
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.faults import Fault
from signoff.gateway.reading import reads_all
from signoff.killswitch import AUDITOR, OPERATOR
from signoff.signing import Verifier


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
        tenant = own_tenant(caller, tenant)
        development = self._deps.settings.profile == "development"
        if not development and not (caller is not None and reads_all(caller.person, development=development)):
            raise Refused(f"reading the record takes the role `{AUDITOR}` or `{OPERATOR}`", code="not_allowed")
        known = [each for each in await AuditLog(self._deps.store).streams() if _of(each, tenant)]
        signer = self._deps.signer
        verifier = Verifier() if signer is None else signer.verifier()
        return await tell(self._deps.store, find_stream(known, name), verifier)


def _of(stream: str, tenant: str) -> bool:
    key = parse_workflow_id(stream)
    return stream == admin_stream(tenant) if key is None else key.tenant == tenant
