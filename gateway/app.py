"""The gateway: the HTTP API, and the inbox."""

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from signoff import policypool
from signoff.channels.inbound.receiver import Intake
from signoff.contracts.errors import SignoffError
from signoff.contracts.limits import REQUEST_BODY_BYTES, STRANGER_BODY_BYTES
from signoff.contracts.requests import DecisionDraft
from signoff.contracts.responses import Fault
from signoff.contracts.version import VERSION
from signoff.gateway.api.approvals import ApprovalsApi
from signoff.gateway.api.audit import AuditApi
from signoff.gateway.api.grants import GrantsApi
from signoff.gateway.api.health import ServiceApi
from signoff.gateway.api.previews import PreviewsApi
from signoff.gateway.api.sessions import SessionsApi
from signoff.gateway.api.turns import TurnsApi
from signoff.gateway.auth.caller import CHANNELS, Door, SignInNeeded, open_to_all
from signoff.gateway.auth.middleware import Answer, Authentication
from signoff.gateway.auth.provider_people import Logins, knowing_logins
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
from signoff.gateway.pages.session_list import SessionList
from signoff.gateway.pages.sessions import SessionPages
from signoff.gateway.pages.sign_in import LoginPages, to_login
from signoff.gateway.pages.site import SitePages
from signoff.gateway.pages.tools import ToolPages
from signoff.gateway.pages.turns import TalkPages
from signoff.gateway.pages.visitor import Visitors, language_for
from signoff.gateway.vendors.routes import ChannelDoors
from signoff.settings import login_roles, require_ready

_DESCRIPTION = (
    "Start agents' turns, follow them, and decide the calls that wait for a person. Errors are "
    "`{code, message}`, one sentence; every decision is answered by a receipt."
)


def build_app(desk: GatewayDeps, intake: Intake | None = None) -> FastAPI:
    """The gateway as an ASGI application; `serve` runs it. `intake` takes what channels are brought.

    Raises `ConfigError` for a production profile without people or keys, and for half a sign-in provider.
    """
    policypool.install()
    desk = knowing_logins(desk)
    has_people = any(person.active for person in desk.people.all()) or bool(login_roles(desk.settings))
    require_ready(desk.settings, people=has_people, signing_keys=desk.signer is not None)
    logins = Logins(desk)
    door = Door(desk, logins)
    app = FastAPI(
        title="Signoff",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        # Every route there is, and every one that is added.
        dependencies=[Depends(door.admit)],
    )
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    live = Live()
    app.state.live = live
    visitors = Visitors(desk)
    pages = Pages(desk, visitors)
    rooms = (
        TurnsApi(desk, live),
        SessionsApi(desk),
        ApprovalsApi(desk),
        PreviewsApi(desk),
        GrantsApi(desk),
        AuditApi(desk),
        ServiceApi(desk),
        WaitingPages(desk, visitors, pages, live),
        EditPages(desk, visitors, pages),
        BatchPages(desk, visitors, pages),
        GrantsPages(desk, visitors, pages),
        FreezePages(desk, visitors, pages),
        SessionList(desk, visitors, pages),
        TalkPages(desk, visitors, pages, live),
        SessionPages(desk, visitors, pages, live),
        RecordPages(desk, visitors, pages),
        ToolPages(desk, visitors, pages),
        SitePages(desk, visitors, pages),
        LoginPages(desk, visitors, pages, logins),
        LinkPages(desk, visitors, pages),
        *(() if intake is None else (ChannelDoors(desk, intake),)),
    )
    for room in rooms:
        app.include_router(room.router())
    app.mount("/static", StaticFiles(directory=STATIC))
    # Each stands around the ones before it: what is forbidden is refused before anybody is asked for, who is nobody
    # before a body is read, and a body is whole and small before it is parsed.
    app.add_middleware(BodyLimit, allowed=_body_bytes(intake), refused=desk.store.count_refusal)
    _answer_errors(app, visitors, pages, door)
    app.add_middleware(Guard, settings=desk.settings)
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """The description of the API, with what a decision's body may say, which is read as bytes and not by FastAPI."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        draft = DecisionDraft.model_json_schema(ref_template="#/components/schemas/{model}")
        described["components"]["schemas"] |= {**draft.pop("$defs"), DecisionDraft.__name__: draft}
    return app.openapi_schema or {}


def _body_bytes(intake: Intake | None) -> Callable[[str], int | None]:
    """How many bytes may be sent to a path; None where there is nothing."""

    def allowed(path: str) -> int | None:
        if path.startswith(CHANNELS):
            return None if intake is None else intake.room(path.removeprefix(CHANNELS))
        return STRANGER_BODY_BYTES if open_to_all(path) else REQUEST_BODY_BYTES

    return allowed


def _answer_errors(app: FastAPI, visitors: Visitors, pages: Pages, door: Door) -> None:
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
    app.add_middleware(Authentication, door=door, answer=refusal)
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
