"""The gateway: the HTTP API, and the inbox."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from signoff import policypool
from signoff.channels.inbound.receiver import Intake
from signoff.contracts.errors import SignoffError
from signoff.contracts.responses import Fault
from signoff.contracts.version import VERSION
from signoff.gateway.api import approvals, audit, description, freezes, grants, health, previews, sessions, tools, turns
from signoff.gateway.api.health import Readiness
from signoff.gateway.auth.authenticator import Authenticator
from signoff.gateway.auth.caller import SignInNeeded
from signoff.gateway.auth.dependencies import VendorAccess
from signoff.gateway.auth.middleware import Answer, Authentication
from signoff.gateway.auth.provider_people import Logins, knowing_logins
from signoff.gateway.auth.route_table import RouteTable
from signoff.gateway.auth.streams import Streams
from signoff.gateway.body_limit import BodyLimit
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.error_middleware import Failing
from signoff.gateway.errors import BadRequest, fault_of, sentence, status_of
from signoff.gateway.live import Live
from signoff.gateway.middleware import Guard
from signoff.gateway.pages.audit import RecordPages
from signoff.gateway.pages.batch import BatchPages
from signoff.gateway.pages.edit import EditPages
from signoff.gateway.pages.freezes import FreezePages
from signoff.gateway.pages.grants import GrantsPages
from signoff.gateway.pages.inbox import WaitingPages
from signoff.gateway.pages.link import LinkPages
from signoff.gateway.pages.renderer import STATIC, Pages
from signoff.gateway.pages.session_list import SessionListPage
from signoff.gateway.pages.sessions import SessionPages
from signoff.gateway.pages.sign_in import LoginPages, to_login
from signoff.gateway.pages.site import SitePages
from signoff.gateway.pages.tools import ToolPages
from signoff.gateway.pages.turns import TalkPages
from signoff.gateway.pages.visitor import Visitors, language_for
from signoff.gateway.vendors import routes as vendor_routes
from signoff.settings import login_roles, require_ready

API: Final = (
    turns.router,
    sessions.router,
    approvals.router,
    previews.router,
    grants.router,
    freezes.router,
    audit.router,
    tools.router,
    health.router,
    description.router,
    vendor_routes.router,
)
"""The routes that answer programs."""
CHANNELS: Final = "/channels/"
_DESCRIPTION: Final = (
    "Start agents' turns, follow them, and decide the calls that wait for a person. Errors are "
    "`{code, message}`, one sentence; every decision is answered by a receipt."
)


class _Page(Protocol):
    def router(self) -> APIRouter: ...


def build_app(deps: GatewayDeps, intake: Intake | None = None) -> FastAPI:
    """Makes the gateway as an ASGI application; `serve` runs it. `intake` takes what channels are brought.

    Raises `ConfigError` for a production profile without people or keys, for half a sign-in provider, and for a route
    that does not say who may use it.
    """
    policypool.install()
    deps = knowing_logins(deps)
    has_people = any(person.active for person in deps.people.all()) or bool(login_roles(deps.settings))
    require_ready(deps.settings, people=has_people, signing_keys=deps.signer is not None)
    app = FastAPI(
        title="Signoff",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    logins, live, visitors = Logins(deps), Live(), Visitors(deps)
    authenticator, pages = Authenticator(deps, logins), Pages(deps, visitors)
    app.state.deps, app.state.live, app.state.intake = deps, live, intake
    app.state.authenticator, app.state.readiness = authenticator, Readiness(deps)
    app.state.streams = Streams(authenticator, deps.clock)
    routers = (*API, *(each.router() for each in _pages(deps, visitors, pages, live, logins)))
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    routes = RouteTable(route for router in routers for route in router.routes)
    app.openapi = lambda: description.describe(app, routes)  # type: ignore[method-assign]
    # Each stands around the ones before it: what is forbidden is refused before anybody is asked for, who is nobody
    # before a body is read, and a body is whole and small before it is parsed.
    app.add_middleware(BodyLimit, allowed=_body_bytes(routes, intake), refused=deps.store.count_refusal)
    _answer_errors(app, visitors, pages, routes)
    app.add_middleware(Guard, settings=deps.settings)
    return app


def _pages(deps: GatewayDeps, visitors: Visitors, pages: Pages, live: Live, logins: Logins) -> Iterable[_Page]:
    return (
        WaitingPages(deps, visitors, pages, live),
        EditPages(deps, visitors, pages),
        BatchPages(deps, visitors, pages),
        GrantsPages(deps, visitors, pages),
        FreezePages(deps, visitors, pages),
        SessionListPage(deps, visitors, pages),
        TalkPages(deps, visitors, pages, live),
        SessionPages(deps, visitors, pages, live),
        RecordPages(deps, visitors, pages),
        ToolPages(deps, visitors, pages),
        SitePages(deps, visitors, pages),
        LoginPages(deps, visitors, pages, logins),
        LinkPages(deps, visitors, pages),
    )


def _body_bytes(routes: RouteTable, intake: Intake | None) -> Callable[[Scope], int | None]:
    """How many bytes a request may bring; None where no route takes it."""

    def allowed(scope: Scope) -> int | None:
        access = routes.access(scope)
        if isinstance(access, VendorAccess):
            return None if intake is None else intake.room(scope["path"].removeprefix(CHANNELS))
        if access is None:
            # Another method would be answered there, which is said without a body.
            return 0 if routes.has_path(scope) else None
        return access.body_bytes

    return allowed


def _answer_errors(app: FastAPI, visitors: Visitors, pages: Pages, routes: RouteTable) -> None:
    async def answer(request: Request, fault: Fault, status: int) -> Response:
        if _wants_json(request.url.path):
            headers = {"www-authenticate": "Bearer"} if status == 401 else {}
            return JSONResponse(fault.model_dump(), status_code=status, headers=headers)
        return await _error_page(request, fault, status, visitors, pages)

    @app.exception_handler(SignoffError)
    async def ours(request: Request, error: SignoffError) -> Response:
        if isinstance(error, SignInNeeded) and not _wants_json(request.url.path):
            return to_login(request)
        return await answer(request, fault_of(error), status_of(error))

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> Response:
        return await answer(request, fault_of(BadRequest(sentence(error.errors()))), 422)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        code, message = _PLAIN.get(error.status_code, ("refused", "the request was refused"))
        response = await answer(request, Fault(code=code, message=message), error.status_code)
        response.headers.update(error.headers or {})
        return response

    refusal: Answer = ours
    app.add_middleware(Authentication, routes=routes, answer=refusal)
    app.add_middleware(Failing, answer=answer)


async def _error_page(request: Request, fault: Fault, status: int, visitors: Visitors, pages: Pages) -> Response:
    try:
        visitor = await visitors.visitor(request)
    except SignoffError:
        visitor = None
    return pages.page(
        "error.html", visitor, status=status, fault=fault, status_code=status, spoken=language_for(request, "")
    )


def _wants_json(path: str) -> bool:
    return path.startswith(("/v1/", CHANNELS, "/healthz", "/readyz", "/openapi.json", "/live/", "/static/"))


_PLAIN = {
    404: ("unknown", "there is nothing at this address"),
    405: ("method", "this address does not take that method"),
}
