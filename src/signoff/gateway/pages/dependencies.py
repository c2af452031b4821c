"""Dependencies of the pages: their shared state, and the visitor."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from signoff.gateway.auth.sign_in import SignIn
from signoff.gateway.auth.visitor import Visitor, Visitors
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.live import Live
from signoff.gateway.pages.renderer import PageRenderer


@dataclass(frozen=True)
class Site:
    """The state that all pages of one gateway share."""

    deps: GatewayDeps
    visitors: Visitors
    renderer: PageRenderer
    live: Live
    sign_in: SignIn

    @cached_property
    def conversations(self) -> Conversations:
        return Conversations(self.deps)


async def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


CurrentSite = Annotated[Site, Depends(_site)]


async def _visitor(request: Request, site: CurrentSite) -> Visitor:
    return await site.visitors.visitor(request)


CurrentVisitor = Annotated[Visitor, Depends(_visitor)]
"""The visitor of the page. Raises like `Visitors.visitor`."""
