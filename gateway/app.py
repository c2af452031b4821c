"""The gateway: the HTTP API, and the inbox."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import signoff
from signoff.contracts.errors import SignoffError
from signoff.gateway.approvals_api import ApprovalsApi
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.faults import Ambiguous, BadRequest, Fault, fault_of, sentence, status_of
from signoff.gateway.guard import Guard
from signoff.gateway.live import Live
from signoff.gateway.service_api import ServiceApi
from signoff.gateway.turns_api import TurnsApi
from signoff.settings import require_supported_profile

_DESCRIPTION = (
    "Start agents' turns, follow them, and decide the calls that wait for a person. Errors are "
    "`{code, message}`, one sentence; every decision is answered by a receipt."
)


def build_app(desk: GatewayDeps) -> FastAPI:
    """The gateway as an ASGI application; `serve` runs it. Raises `ConfigError` for a profile it cannot keep safe."""
    require_supported_profile(desk.settings)
    app = FastAPI(title="Signoff", version=signoff.__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None)
    live = Live()
    app.state.live = live
    for router in (TurnsApi(desk, live).router(), ApprovalsApi(desk).router(), ServiceApi(desk).router()):
        app.include_router(router)
    _answer_errors(app)
    app.add_middleware(Guard, settings=desk.settings)
    return app


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(SignoffError)
    async def ours(request: Request, error: SignoffError) -> Response:
        body: dict[str, Any] = fault_of(error).model_dump()
        if isinstance(error, Ambiguous):
            body["approvals"] = list(error.approval_ids)
        return JSONResponse(body, status_code=status_of(error))

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> Response:
        return _fault(BadRequest(sentence(error.errors())))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        code, message = _PLAIN.get(error.status_code, ("refused", "the request was refused"))
        body = Fault(code=code, message=message).model_dump()
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return JSONResponse(Fault(code="internal", message=_BROKEN).model_dump(), status_code=500)


_BROKEN = "something went wrong here; the gateway's log has it"
_PLAIN = {
    404: ("unknown", "there is nothing at this address"),
    405: ("method", "this address does not take that method"),
}


def _fault(error: SignoffError) -> Response:
    return JSONResponse(fault_of(error).model_dump(), status_code=status_of(error))
