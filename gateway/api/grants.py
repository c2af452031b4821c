"""The API of remembered answers and of the kill switch."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from signoff.approvals.audit_events import act
from signoff.audit.log import writing
from signoff.contracts.errors import NotFound
from signoff.contracts.grant import Freeze, Frozen, Grant
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.person import Person
from signoff.contracts.requests import FreezeBody
from signoff.contracts.responses import Fault
from signoff.formats.nearest_name import shown
from signoff.gateway.auth.caller import As, acting, caller_of, own_tenant, person_of
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.freeze_service import freeze, require_operator, thaw
from signoff.gateway.read_access import Concerned, may_read
from signoff.store.freezes import Freezes
from signoff.store.grants import Grants, shown_grant


class GrantsApi:
    """Handlers of `/v1/grants` and `/v1/freezes`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._freezes = Freezes(deps.store)

    def router(self) -> APIRouter:
        """The routes."""
        faults: dict[int | str, dict[str, Any]] = {status: {"model": Fault} for status in (403, 404, 503)}
        router = APIRouter(prefix="/v1", responses=faults)
        grants, freezes = ["grants"], ["freezes"]
        add = router.add_api_route
        add("/grants", self.grants, methods=["GET"], tags=[*grants], summary="Answers that are remembered")
        add("/grants/{grant}", self.revoke, methods=["DELETE"], tags=[*grants], summary="Take a remembered answer back")
        add("/freezes", self.freezes, methods=["GET"], tags=[*freezes], summary="Whether the tenant is frozen")
        add("/freezes", self.freeze, methods=["POST"], tags=[*freezes], summary="Deny everything in a tenant")
        add("/freezes/{tenant}", self.thaw, methods=["DELETE"], tags=[*freezes], summary="Lift a freeze")
        return router

    async def grants(
        self,
        request: Request,
        tenant: str | None = None,
        every: Annotated[bool, Query(description="Also what is over, used up or taken back.")] = False,
    ) -> dict[str, list[Grant]]:
        """Newest first; those that whoever asks gave, is served by, or might have given."""
        tenant = own_tenant(caller_of(request), tenant)
        found = await readable_grants(self._deps, person_of(request), tenant, every=every)
        return {"grants": [shown_grant(grant) for grant in found]}

    async def revoke(self, grant: str, request: Request, as_person: As = None, tenant: str | None = None) -> Grant:
        """Whose answer it is may take it back, and who has the role `admin`."""
        tenant = own_tenant(caller_of(request), tenant)
        person = self._acting(request, as_person, tenant)
        return await take_back(self._deps, grant, person, tenant)

    async def freezes(self, request: Request, tenant: str | None = None) -> dict[str, list[Freeze]]:
        """The freeze of the tenant, if there is one."""
        found = await self._freezes.look(own_tenant(caller_of(request), tenant))
        return {"freezes": [] if found is None else [found]}

    async def freeze(self, body: FreezeBody, request: Request, as_person: As = None) -> Frozen:
        """Once this has written its row nothing of the tenant starts; then it withdraws what waits.

        Sent again it sweeps again: `swept.waiting` names what could not be withdrawn in time.
        """
        tenant = own_tenant(caller_of(request), body.tenant)
        person = self._acting(request, as_person, tenant)
        return await freeze(self._deps, person, reason=body.reason, channel="api")

    async def thaw(self, tenant: str, request: Request, as_person: As = None) -> Freeze:
        """New calls are judged as before; what was denied meanwhile stays denied."""
        tenant = own_tenant(caller_of(request), tenant)
        return await thaw(self._deps, self._acting(request, as_person, tenant), channel="api")

    def _acting(self, request: Request, named: str | None, tenant: str) -> Person:
        return acting(self._deps, caller_of(request), named, default=DEFAULT_DECIDER, tenant=tenant)


async def readable_grants(deps: GatewayDeps, person: Person | None, tenant: str, *, every: bool = False) -> list[Grant]:
    """What is remembered in a tenant and concerns `person`, newest first; None is nobody in particular."""
    found = await Grants(deps.store).all(tenant, every=every)
    return [grant for grant in found if _may_read(deps, person, grant)]


async def take_back(deps: GatewayDeps, grant: str, person: Person, tenant: str) -> Grant:
    """Revoke a grant as `person`: one of those whose answer it is, or an operator.

    Raises `Refused` for who may only read it, `NotFound` for what is not there and for everybody else.
    """
    grants = Grants(deps.store)
    found = await grants.look(grant)
    if found is None or found.like.tenant != tenant or not _may_read(deps, person, found):
        raise NotFound(f"there is no grant {shown(grant)}")
    if person.id not in found.people:
        require_operator(deps, person)
    told = act(tenant, "revoke", person.id, deps.clock(), kind="grant", grant=found.id, channel="gateway")
    return shown_grant(await grants.revoke(found.id, tenant, by=person.id, also=writing([told])))


def _may_read(deps: GatewayDeps, person: Person | None, grant: Grant) -> bool:
    if person is None:
        return deps.development
    tool = deps.catalog.registry.resolve(grant.like.tool)
    asked = frozenset() if tool is None else frozenset(deps.catalog.approvers(tool.activity))
    requester = deps.people.person_id(grant.requester, grant.like.tenant)
    own = {person.id} if deps.people.person_id(person.id, person.tenant) == requester else set()
    about = Concerned(grant.like.tenant, frozenset({*grant.people, *own}), asked)
    return may_read(person, deps.rights(person), about, development=deps.development)
