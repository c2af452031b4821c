"""The API of the record: what happened in a turn, or in a tenant beside its turns."""

from fastapi import APIRouter

from signoff.audit.stream_report import StreamReport
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import own_tenant, person_of
from signoff.gateway.auth.dependencies import Deps, TokenReader
from signoff.gateway.read_access import read_record

router = APIRouter(prefix="/v1/audit", tags=["audit"], responses=FAULTS)


@router.get("/{name:path}", summary="The timeline of a turn")
async def show_record(name: str, deps: Deps, caller: TokenReader, tenant: str | None = None) -> StreamReport:
    """For the roles `admin` and `auditor`, and in development for everybody.

    `name` is `<tenant>.<session>.<turn>`, a workflow id, a turn's id or its beginning, or `admin/<tenant>` for what
    belongs to no turn. `finding` says what is not as it was written; how far the whole record holds is told by
    `signoff audit verify`, which needs no gateway.
    """
    return await read_record(deps, name, own_tenant(caller, tenant), person_of(caller))
