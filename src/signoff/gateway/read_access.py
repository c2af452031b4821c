"""Says who may read a conversation or the record and who may stop a turn: one rule for pages, the API, lists and live
events alike.
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
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.person import Person, Principal
from signoff.engine.kill_switch import AUDITOR, OPERATOR
from signoff.gateway.deps import GatewayDeps
from signoff.languages.remarks import worded

READERS: Final = frozenset((OPERATOR, AUDITOR))
"""The roles that read every conversation of their tenant, and its record."""


@dataclass(frozen=True)
class Audience:
    """Whom a turn or a session concerns: the people who asked for it, and those it asked, as approver entries."""

    tenant: str
    askers: frozenset[str]
    asked: frozenset[str] = frozenset()


def reads_all(person: Person, *, development: bool) -> bool:
    """Returns whether a person reads everything of their tenant, the record as well; in development everybody does."""
    return development or (person.active and not READERS.isdisjoint(person.roles))


def may_read(person: Person, rights: Collection[str], about: Audience, *, development: bool) -> bool:
    """Returns whether a person may read a conversation: they asked for it, or are among those it asks or asked, or
    read all.

    `rights` are the approver entries that the person answers to now, by delegation as well.
    """
    if development:
        return True
    if not person.active or person.tenant != about.tenant:
        return False
    concerned = person.id in about.askers or not about.asked.isdisjoint(rights)
    return concerned or reads_all(person, development=development)


def may_stop(person: Person, about: Audience, *, development: bool) -> bool:
    """Returns whether a person may stop what they may read: who asked for all of it, and the role `admin`."""
    if development:
        return True
    own = about.askers == {person.id}
    return person.active and person.tenant == about.tenant and (own or OPERATOR in person.roles)


def of_request(request: ApprovalRequest) -> Audience:
    """Says whom a request concerns: who asked, who is asked, and who answered."""
    answered = {f"user:{vote.subject}" for vote in request.votes}
    return Audience(request.tenant, frozenset((request.requester.user,)), frozenset({*request.approvers, *answered}))


def of_turn(tenant: str, requester: Principal | None, requests: Iterable[ApprovalRequest]) -> Audience:
    """Says whom a turn concerns that `requester` asked for, as far as anybody proves it, and that asks `requests`.

    Who answered was asked, whatever has become of the list since.
    """
    asked = [of_request(request).asked for request in requests]
    askers = () if requester is None else (requester.user,)
    return Audience(tenant, frozenset(askers), frozenset().union(*asked))


def of_row(row: TurnRow | SessionRow | WaitingCard) -> Audience:
    """Says whom a row of a list concerns."""
    return Audience(row.tenant, frozenset((row.requester,)), frozenset(row.approvers))


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
        raise worded(Refused, Remark.of("reads_record", auditor=AUDITOR, operator=OPERATOR), code="not_allowed")
    known = [each for each in await AuditLog(deps.store).streams() if _of(each, tenant)]
    verifier = deps.verifier()
    return await report_stream(deps.store, find_stream(known, name), verifier)


def _of(stream: str, tenant: str) -> bool:
    key = parse_workflow_id(stream)
    return stream == admin_stream(tenant) if key is None else key.tenant == tenant
