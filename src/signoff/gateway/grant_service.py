"""Reads and revokes grants for the people concerned."""

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import entry_writer
from signoff.contracts.content import Remark
from signoff.contracts.errors import NotFound
from signoff.contracts.grant import Grant
from signoff.contracts.person import Person
from signoff.formats.nearest_name import quote_name
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.freeze_service import require_operator
from signoff.gateway.read_access import Audience, may_read
from signoff.languages.remarks import worded
from signoff.store.grants import Grants, masked_grant


async def readable_grants(deps: GatewayDeps, person: Person | None, tenant: str, *, every: bool = False) -> list[Grant]:
    """Newest first. `None` is an anonymous caller."""
    grants = await Grants(deps.store).all(tenant, every=every)
    return [grant for grant in grants if _may_read(deps, person, grant)]


async def take_back(deps: GatewayDeps, grant: str, person: Person, tenant: str) -> Grant:
    """For its authors and operators.

    Raises `Refused` for a mere reader, `NotFound` for an unknown grant and for all others.
    """
    grants = Grants(deps.store)
    row = await grants.read(grant)
    if row is None or row.like.tenant != tenant or not _may_read(deps, person, row):
        raise worded(NotFound, Remark.of("no_grant", grant=quote_name(grant)))
    if person.id not in row.people:
        require_operator(deps, person)
    entry = admin_entry(tenant, "revoke", person.id, deps.clock(), kind="grant", grant=row.id, channel="gateway")
    return masked_grant(await grants.revoke(row.id, tenant, by=person.id, also=entry_writer([entry])))


def _may_read(deps: GatewayDeps, person: Person | None, grant: Grant) -> bool:
    if person is None:
        return deps.development
    tool = deps.catalog.resolve(grant.like.tool)
    asked = frozenset() if tool is None else frozenset(deps.catalog.approvers(tool.activity))
    requester = deps.people.person_id(grant.requester, grant.like.tenant)
    own = {person.id} if deps.people.person_id(person.id, person.tenant) == requester else set()
    about = Audience(grant.like.tenant, frozenset({*grant.people, *own}), asked)
    return may_read(person, deps.rights(person), about, development=deps.development)
