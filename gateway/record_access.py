"""Reads the record through the gateway, for those who may, each in their own tenant."""

from signoff.approvals.audit_events import admin_stream
from signoff.audit.log import AuditLog
from signoff.audit.stream_report import StreamReport, find_stream, report_stream
from signoff.contracts.errors import Refused
from signoff.contracts.ids import parse_workflow_id
from signoff.contracts.person import Person
from signoff.engine.kill_switch import AUDITOR, OPERATOR
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.read_access import reads_all
from signoff.keys.signatures import Verifier


def reads_record(deps: GatewayDeps, person: Person | None) -> bool:
    """Returns whether somebody reads the record of their tenant. None is nobody in particular, whom development lets
    in.
    """
    development = deps.settings.profile == "development"
    return development or (person is not None and reads_all(person, development=development))


async def read_record(deps: GatewayDeps, name: str, tenant: str, person: Person | None) -> StreamReport:
    """Returns the stream of `tenant` that `name` names, as `find_stream` reads it, in words and as it was written.

    Raises `Refused` for who may not read it, `NotFound` where the tenant has nothing of that name, `StoreUnavailable`.
    """
    if not reads_record(deps, person):
        raise Refused(f"reading the record takes the role `{AUDITOR}` or `{OPERATOR}`", code="not_allowed")
    known = [each for each in await AuditLog(deps.store).streams() if _of(each, tenant)]
    verifier = Verifier() if deps.signer is None else deps.signer.verifier()
    return await report_stream(deps.store, find_stream(known, name), verifier)


def _of(stream: str, tenant: str) -> bool:
    key = parse_workflow_id(stream)
    return stream == admin_stream(tenant) if key is None else key.tenant == tenant
