"""Dependencies of routes: the access that each route requires, and the objects that it uses."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request

from signoff.contracts.decision import at_least
from signoff.contracts.errors import Refused
from signoff.contracts.limits import REPORT_BODY_BYTES, REQUEST_BODY_BYTES, STRANGER_BODY_BYTES
from signoff.gateway.auth.authenticator import Authenticator, Credential
from signoff.gateway.auth.caller import AuthenticatedCaller, caller_of
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.live import Live
from signoff.store.tokens import Scope

_ADMITTED: Final = "signoff.admitted"
_BEARER: Final = HTTPBearer(
    # Without this, FastAPI refuses a missing header itself, also in development.
    auto_error=False,
    scheme_name="personal token",
    description="`signoff token create` makes one; scopes `read`, `decide`, `start`, and `peer` or `call` for other "
    "agents. Needless in development.",
)


@dataclass(frozen=True)
class Access:
    """A route's requirements for its caller. A gateway does not start if a route lacks one or has two.

    Checked once a request: before the body is read if there is one, else with FastAPI's dependencies.
    """

    credential: Credential | None = None
    """The kind of credential. `None` identifies no caller."""
    scope: Scope | None = None
    """The required scope. `None` admits every caller."""
    optional: bool = False
    """Whether requests without a token are answered too."""
    reports: bool = False
    """Whether the body carries a tool's whole result, which may be large."""
    strong: bool = False
    """Whether a sign-in by an email link does not suffice."""

    async def __call__(self, request: Request) -> AuthenticatedCaller | None:
        """Return `None` for an anonymous caller. Raises like `admit`."""
        await self.admit(request)
        return caller_of(request)

    async def admit(self, request: Request) -> None:
        """Raises `SignInNeeded`, `Refused` (`scope`), `StoreUnavailable`."""
        # Another access may have required less: a route must not rely on an earlier check against that.
        if request.scope.get(_ADMITTED) != self:
            await self._admit(request)
            request.scope[_ADMITTED] = self

    @property
    def body_bytes(self) -> int:
        """Routes without a scope get the limit for strangers."""
        if self.scope is None:
            return STRANGER_BODY_BYTES
        return REPORT_BODY_BYTES if self.reports else REQUEST_BODY_BYTES

    async def _admit(self, request: Request) -> None:
        # Health must answer while the store is down: a liveness probe must not restart the gateway for that.
        if self.credential is None or (self.optional and "authorization" not in request.headers):
            return
        authenticator: Authenticator = request.app.state.authenticator
        caller = await authenticator.identify(request, self.credential)
        if self.scope is not None:
            authenticator.require(caller, self.scope)
        if self.strong and caller is not None and not at_least(caller.assurance, "session"):
            raise Refused("an email link does not suffice for this; sign in with a personal token", code="assurance")


class TokenAccess(Access):
    """Access by a personal token. The API's description shows it."""

    # The authenticator reads the token, strictly. `described` serves the description alone.
    async def __call__(
        self, request: Request, described: Annotated[object, Security(_BEARER)] = None
    ) -> AuthenticatedCaller | None:
        await self.admit(request)
        return caller_of(request)


class VendorAccess(Access):
    """Access for vendors' webhooks without sign-in: the channel authenticates the message."""


def require_scope(request: Request, caller: AuthenticatedCaller | None, scope: Scope) -> None:
    """Raises `SignInNeeded`, `Refused` (`scope`)."""
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.require(caller, scope)


def access_of_request(request: Request) -> Access:
    access: Access = request.scope[_ADMITTED]
    return access


TokenReader = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "read"))]
"""An API route that only reads."""
TokenStarter = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "start"))]
"""An API route that starts or stops turns and sessions."""
TokenDecider = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "decide"))]
"""An API route that changes anything else."""
TokenAgent = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "call"))]
"""An API route through which external agents propose calls. It admits no person's token."""
KeyReader = Annotated[AuthenticatedCaller | None, Depends(Access("key", "read"))]
KeyDecider = Annotated[AuthenticatedCaller | None, Depends(Access("key", "decide"))]
"""API routes for programs that send a personal token as `X-Api-Key`."""
MaybeTokenReader = Annotated[AuthenticatedCaller | None, Depends(TokenAccess("token", "read", optional=True))]
"""An API route for all callers, which shows more to a caller with a token."""
PAGE_READ: Final = Depends(Access("cookie", "read"))
"""A page that only reads, or judges a call without running it."""
PAGE_START: Final = Depends(Access("cookie", "start"))
"""A form that starts or stops turns and sessions."""
PAGE_DECIDE: Final = Depends(Access("cookie", "decide"))
"""A form that changes anything else."""
PAGE_CONTROL: Final = Depends(Access("cookie", "decide", strong=True))
"""A form that changes the rules of later requests."""
OPEN_PAGE: Final = Depends(Access("cookie"))
"""A page that shows no data of the installation, or checks its input. It knows the signed-in person."""
OPEN: Final = Depends(Access())
"""A route for all callers, which identifies none."""
VENDOR: Final = Depends(VendorAccess())
"""A webhook for vendors' messages."""


async def _gateway_deps(request: Request) -> GatewayDeps:
    deps: GatewayDeps = request.app.state.deps
    return deps


async def _live(request: Request) -> Live:
    live: Live = request.app.state.live
    return live


# Async although they await nothing: FastAPI runs plain functions in its small thread pool, which costs more.
Deps = Annotated[GatewayDeps, Depends(_gateway_deps)]
LiveUpdates = Annotated[Live, Depends(_live)]
"""Live updates that several readers share."""
As = Annotated[
    str | None,
    Query(
        alias="as",
        description="The acting person, or the owner of the list. Must be the caller, except in development.",
    ),
]
"""The acting person of a request; see `acting_person`."""
