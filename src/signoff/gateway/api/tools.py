"""The API of tools: the gate inventory."""

from fastapi import APIRouter
from pydantic import BaseModel

from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import own_tenant
from signoff.gateway.auth.dependencies import Deps, TokenReader
from signoff.registry.gates.inventory import InventoryRow, inventory

router = APIRouter(prefix="/v1/tools", tags=["tools"], responses=FAULTS)


class ToolList(BaseModel):
    """Every tool with what its calls need."""

    tools: tuple[InventoryRow, ...]


@router.get("", summary="Every tool: auto, asks or denied")
async def list_tools(deps: Deps, caller: TokenReader, tenant: str | None = None) -> ToolList:
    """The gate inventory of this gateway's manifest: of the tools that exist for the tenant."""
    return ToolList(tools=tuple(inventory(deps.catalog, own_tenant(caller, tenant))))
