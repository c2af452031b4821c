"""The API of the audit log: the entries of a turn, or of a tenant outside its turns."""

from fastapi import APIRouter

from signoff.audit.stream_report import StreamReport
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import own_tenant, person_of
from signoff.gateway.auth.dependencies import Deps, TokenReader
from signoff.gateway.read_access import read_record

router = APIRouter(prefix="/v1/audit", tags=["audit"], responses=FAULTS)


@router.get("/{name:path}", summary="Read the audit log of a turn")
async def show_record(name: str, deps: Deps, caller: TokenReader, tenant: str | None = None) -> StreamReport:
    """For the roles `admin` and `auditor`, and in development for all.

    `name` is `<tenant>.<session>.<turn>`, a workflow id, a turn's id or its beginning, or `admin/<tenant>` for entries
    outside turns. `finding` names entries that were changed. `signoff audit verify` checks the whole audit log without
    a gateway.
    """
    return await read_record(deps, name, own_tenant(caller, tenant), person_of(caller))
