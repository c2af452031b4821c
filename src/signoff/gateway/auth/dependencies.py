"""Holds the dependencies by which each route says who may use it, and gets what its function needs."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request

from signoff.contracts.limits import REPORT_BODY_BYTES, REQUEST_BODY_BYTES, STRANGER_BODY_BYTES
from signoff.gateway.auth.authenticator import Authenticator, Credential
from signoff.gateway.auth.caller import AuthenticatedCaller, caller_of
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.live import Live
from signoff.store.tokens import Scope

_ADMITTED: Final = "signoff.admitted"
_BEARER: Final = HTTPBearer(
    # Else FastAPI would answer for us where the header is missing, in development as well.
    auto_error=False,
    scheme_name="personal token",
    description="`signoff token create` makes one; scopes `read`, `decide`, `start`, and `peer` or `call` for other "
    "agents. Needless in development.",
)


@dataclass(frozen=True)
class Access:
    """What a route asks of whoever calls it. A gateway with a route that has not exactly one of these does not start.

    It is asked once a request: before the body is read where there is one, else as FastAPI asks dependencies.
    """

    credential: Credential | None = None
    """By what people are known there; None where nobody is looked at."""
    scope: Scope | None = None
    """What they need; None where whoever comes is answered."""
    optional: bool = False
    """Whether whoever shows nothing at all is answered, too."""
    reports: bool = False
    """Whether all that a tool has answered is sent there, which may be much."""

    async def __call__(self, request: Request) -> AuthenticatedCaller | None:
        """Returns the caller of `request`, None for nobody in particular. Raises as `admit`."""
        await self.admit(request)
        return caller_of(request)

    async def admit(self, request: Request) -> None:
        """Lets a request in. Raises `SignInNeeded`, `Refused` (`scope`), `StoreUnavailable`."""
        # By another access it was let in for less: a route must not rely on what was found for it beforehand.
        if request.scope.get(_ADMITTED) != self:
            await self._admit(request)
            request.scope[_ADMITTED] = self

    @property
    def body_bytes(self) -> int:
        """How long a body may be: where no sign-in is needed it is a stranger's."""
        if self.scope is None:
            return STRANGER_BODY_BYTES
        return REPORT_BODY_BYTES if self.reports else REQUEST_BODY_BYTES

    async def _admit(self, request: Request) -> None:
        # Health has to answer while the store is away: a liveness probe must not restart a gateway for that.
        if self.credential is None or (self.optional and "authorization" not in request.headers):
            return
        authenticator: Authenticator = request.app.state.authenticator
        caller = await authenticator.identify(request, self.credential)
        if self.scope is not None:
            authenticator.require(caller, self.scope)


class TokenAccess(Access):
    """Access by a personal token, which the description of the API tells."""

    # What is sent is read by the authenticator, strictly: `described` is there for the description alone.
    async def __call__(
        self, request: Request, described: Annotated[object, Security(_BEARER)] = None
    ) -> AuthenticatedCaller | None:
        """See `Access`."""
        await self.admit(request)
        return caller_of(request)


class VendorAccess(Access):
    """Access for vendors' webhooks: nobody signs in, the channel itself proves who brings something."""


def require_scope(request: Request, caller: AuthenticatedCaller | None, scope: Scope) -> None:
    """Refuses what a route does beside what its access allows. Raises `SignInNeeded`, `Refused` (`scope`)."""
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.require(caller, scope)


def access_of_request(request: Request) -> Access:
    """Returns by which access a request came in."""
    access: Access = request.scope[_ADMITTED]
    return access


TokenReader = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "read"))]
"""A route of the API that only shows something."""
TokenStarter = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "start"))]
"""A route of the API by which turns and sessions begin and stop."""
TokenDecider = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "decide"))]
"""A route of the API that changes anything else."""
TokenAgent = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "call"))]
"""A route of the API by which external agents propose their calls; no person's token is let in."""
MaybeTokenReader = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "read", optional=True))]
"""A route of the API for everybody, which tells more to whoever shows a token."""
PAGE_READ: Final = Depends(Access("cookie", "read"))
"""A page that only shows something, or judges what nobody runs."""
PAGE_START: Final = Depends(Access("cookie", "start"))
"""A form by which turns and sessions begin and stop."""
PAGE_DECIDE: Final = Depends(Access("cookie", "decide"))
"""A form that changes anything else."""
OPEN_PAGE: Final = Depends(Access("cookie"))
"""A page that shows nothing of an installation, or checks what it is given; it sees who is signed in."""
OPEN: Final = Depends(Access())
"""A route for whoever asks, which looks at nobody."""
VENDOR: Final = Depends(VendorAccess())
"""An address at which vendors bring what people say."""


async def _gateway_deps(request: Request) -> GatewayDeps:
    deps: GatewayDeps = request.app.state.deps
    return deps


async def _live(request: Request) -> Live:
    live: Live = request.app.state.live
    return live


# Not plain functions: FastAPI would call each in a thread of its small pool, which costs more than what they do.
Deps = Annotated[GatewayDeps, Depends(_gateway_deps)]
"""What every part of the gateway is given."""
LiveUpdates = Annotated[Live, Depends(_live)]
"""The streams that several readers share."""
As = Annotated[
    str | None, Query(alias="as", description="Who acts, or whose list it is: oneself, unless in development.")
]
"""The person as whom a request acts; see `acting`."""
