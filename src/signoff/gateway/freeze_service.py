"""Freezes and unfreezes tenants for the API and the inbox."""

from functools import partial
from typing import Final

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import entry_writer
from signoff.contracts.content import Remark
from signoff.contracts.errors import NotFound
from signoff.contracts.grant import Freeze, FreezeResult, SweepResult
from signoff.contracts.person import Person
from signoff.engine.kill_switch import check_operator, is_operator, sweep
from signoff.formats.nearest_name import quote_name
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.deps import GatewayDeps
from signoff.languages.remarks import worded
from signoff.store.freezes import Freezes

_SWEEP_SECONDS: Final = 15.0
_SWEPT: Final = 1_000


async def freeze(deps: GatewayDeps, person: Person, *, reason: str, channel: str) -> FreezeResult:
    """Freeze first, then withdraw the waiting requests.

    A repeat withdraws again. Raises `Refused` (`not_allowed`), `StoreUnavailable`, `ServerUnavailable`. After the last
    one the freeze is in force.
    """
    require_operator(deps, person)
    tenant = person.tenant
    entry = admin_entry(tenant, "freeze", person.id, deps.clock(), reason=reason, channel=channel)
    standing = await Freezes(deps.store).freeze(tenant, reason=reason, by=person.id, also=entry_writer([entry]))
    return FreezeResult(freeze=standing, swept=await sweep_tenant(deps, person, standing.reason, _SWEEP_SECONDS))


async def sweep_tenant(deps: GatewayDeps, person: Person, reason: str, patience: float) -> SweepResult:
    """Withdraw the tenant's waiting requests in the name of `person`. Raises `StoreUnavailable`."""
    return await sweep(
        partial(deps.requests.list_waiting, person.tenant, limit=_SWEPT),
        lambda approval, why: DecisionService(deps).withdraw(approval, person, why),
        reason,
        patience=patience,
    )


async def unfreeze(deps: GatewayDeps, person: Person, *, channel: str) -> Freeze:
    """Raises `Refused` (`not_allowed`), `NotFound` if the tenant is not frozen, `StoreUnavailable`."""
    require_operator(deps, person)
    entry = admin_entry(person.tenant, "unfreeze", person.id, deps.clock(), channel=channel)
    lifted = await Freezes(deps.store).unfreeze(person.tenant, also=entry_writer([entry]))
    if lifted is None:
        raise worded(NotFound, Remark.of("not_frozen", tenant=quote_name(person.tenant)))
    return lifted


def require_operator(deps: GatewayDeps, person: Person) -> None:
    """Raise `Refused` (`not_allowed`) for a person who may not act for the whole tenant."""
    check_operator(person, deps.catalog.default_approvers, development=_in_development(deps))


def operates(deps: GatewayDeps, person: Person) -> bool:
    """Return whether a person may act for the whole tenant."""
    return is_operator(person, deps.catalog.default_approvers, development=_in_development(deps))


def _in_development(deps: GatewayDeps) -> bool:
    return deps.settings.profile == "development"
