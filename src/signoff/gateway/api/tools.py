"""The API of tools: the gate inventory."""

from fastapi import APIRouter
from pydantic import BaseModel

from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import own_tenant
from signoff.gateway.auth.dependencies import Deps, TokenReader
from signoff.registry.gates.inventory import InventoryRow, inventory

router = APIRouter(prefix="/v1/tools", tags=["tools"], responses=FAULTS)


class ToolList(BaseModel):
    """All tools and the gate decision for their calls."""

    tools: tuple[InventoryRow, ...]


@router.get("", summary="List all tools: auto, ask or denied")
async def list_tools(deps: Deps, caller: TokenReader, tenant: str | None = None) -> ToolList:
    """Returns this gateway's gate inventory: the tools that exist for the tenant."""
    return ToolList(tools=tuple(inventory(deps.catalog, own_tenant(caller, tenant))))
