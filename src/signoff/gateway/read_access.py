"""Rules for reading conversations and the audit log, and for stopping turns.

Pages, API, lists and events share them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from signoff.approvals.audit_events import admin_stream
from signoff.audit.log import AuditLog
from signoff.audit.stream_report import StreamReport, find_stream, report_stream
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Remark
from signoff.contracts.errors import Refused
from signoff.contracts.ids import parse_workflow_id
from signoff.contracts.person import Person, Principal
from signoff.contracts.responses import SessionRow, TurnRow, WaitingCard
from signoff.engine.kill_switch import AUDITOR, OPERATOR
from signoff.gateway.deps import GatewayDeps
from signoff.languages.remarks import worded

READERS: Final = frozenset((OPERATOR, AUDITOR))
"""The roles that read every conversation of their tenant, and its audit log."""


@dataclass(frozen=True)
class Audience:
    """The people that a turn or session concerns: its requesters, and its approvers as approver entries."""

    tenant: str
    askers: frozenset[str]
    asked: frozenset[str] = frozenset()


def reads_all(person: Person, *, development: bool) -> bool:
    """Includes the audit log. Always true in development."""
    return development or (person.active and not READERS.isdisjoint(person.roles))


def may_read(person: Person, rights: Collection[str], about: Audience, *, development: bool) -> bool:
    """The person reads as requester, as approver now or then, or with a reading role.

    `rights` are the person's current approver entries, including entries by delegation.
    """
    if development:
        return True
    if not person.active or person.tenant != about.tenant:
        return False
    concerned = person.id in about.askers or not about.asked.isdisjoint(rights)
    return concerned or reads_all(person, development=development)


def may_stop(person: Person, about: Audience, *, development: bool) -> bool:
    """True for the requester of all of it, and the role `admin`."""
    if development:
        return True
    own = about.askers == {person.id}
    return person.active and person.tenant == about.tenant and (own or OPERATOR in person.roles)


def of_request(request: ApprovalRequest) -> Audience:
    """Includes the authors of decisions."""
    authors = {f"user:{vote.subject}" for vote in request.votes}
    return Audience(request.tenant, frozenset((request.requester.user,)), frozenset({*request.approvers, *authors}))


def of_turn(tenant: str, requester: Principal | None, requests: Iterable[ApprovalRequest]) -> Audience:
    """`requester` is proven. Authors of decisions keep access if the list of approvers changes."""
    asked = [of_request(request).asked for request in requests]
    askers = () if requester is None else (requester.user,)
    return Audience(tenant, frozenset(askers), frozenset().union(*asked))


def of_row(row: TurnRow | SessionRow | WaitingCard) -> Audience:
    """Includes the authors of a waiting request's decisions."""
    authors = [f"user:{each}" for each in row.answered_by] if isinstance(row, WaitingCard) else []
    return Audience(row.tenant, frozenset((row.requester,)), frozenset((*row.approvers, *authors)))


def reads_record(deps: GatewayDeps, person: Person | None) -> bool:
    """`None` is an anonymous caller."""
    development = deps.settings.profile == "development"
    return development or (person is not None and reads_all(person, development=development))


async def read_record(deps: GatewayDeps, name: str, tenant: str, person: Person | None) -> StreamReport:
    """Find a stream by `name`, like `find_stream`.

    Raises `Refused` without read access, `NotFound` for an unknown name, `StoreUnavailable`.
    """
    if not reads_record(deps, person):
        raise worded(Refused, Remark.of("reads_record", auditor=AUDITOR, operator=OPERATOR), code="not_allowed")
    # Pages link to the tenant's own stream before its first record.
    streams = {admin_stream(tenant), *(each for each in await AuditLog(deps.store).streams() if _of(each, tenant))}
    verifier = deps.verifier()
    return await report_stream(deps.store, find_stream(streams, name), verifier)


def _of(stream: str, tenant: str) -> bool:
    key = parse_workflow_id(stream)
    return stream == admin_stream(tenant) if key is None else key.tenant == tenant
