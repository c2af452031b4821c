"""Builds the gateway as one ASGI application: the HTTP API, the vendors' webhooks, and the inbox."""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Lifespan, Scope
from temporalio.client import Client

from signoff import policypool
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.contracts.errors import BadRequest, Refused, SignoffError
from signoff.contracts.names import VERSION
from signoff.contracts.requests import sentence
from signoff.contracts.responses import Fault
from signoff.engine.connection import check_client, connect_installation
from signoff.engine.metrics_endpoint import MetricsEndpoint
from signoff.engine.span_process import open_spans
from signoff.engine.turn_client import TurnClient
from signoff.engine.worker_watch import WorkerWatch
from signoff.formats.replace import replace
from signoff.gateway.act_spans import TraceHeadersMiddleware
from signoff.gateway.api import (
    absences,
    agent_inbox,
    approvals,
    audit,
    calls,
    decisions,
    description,
    events,
    freezes,
    grants,
    health,
    insights,
    previews,
    sessions,
    tools,
    turns,
)
from signoff.gateway.api.health import Readiness
from signoff.gateway.auth.authenticator import Authenticator
from signoff.gateway.auth.caller import SignInNeeded
from signoff.gateway.auth.dependencies import VendorAccess
from signoff.gateway.auth.middleware import Answer, AuthenticationMiddleware
from signoff.gateway.auth.person_place import person_place, whose
from signoff.gateway.auth.provider_people import ProviderPeople, with_provider_people
from signoff.gateway.auth.route_table import RouteTable
from signoff.gateway.auth.sign_in import SignIn
from signoff.gateway.auth.streams import Streams
from signoff.gateway.auth.visitor import Visitors
from signoff.gateway.calls.call_refusals import note_refused_request
from signoff.gateway.calls.own_calls import GatewayCalls
from signoff.gateway.codec import routes as codec_routes
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import fault_of, headers_of, status_of
from signoff.gateway.languages import asked_language, language_for
from signoff.gateway.live import Live
from signoff.gateway.pages import api_docs, batch, edit, inbox, link, sign_in, site
from signoff.gateway.pages import audit as record_pages
from signoff.gateway.pages import freezes as freeze_pages
from signoff.gateway.pages import grants as grant_pages
from signoff.gateway.pages import sessions as session_pages
from signoff.gateway.pages import tools as tool_pages
from signoff.gateway.pages import turns as turn_pages
from signoff.gateway.pages.answering import answer_page
from signoff.gateway.pages.away import page as away_page
from signoff.gateway.pages.decided import decided
from signoff.gateway.pages.dependencies import Site
from signoff.gateway.pages.email_login import email_login
from signoff.gateway.pages.insights import insight_pages
from signoff.gateway.pages.notifications import page as notifications_page
from signoff.gateway.pages.passkeys import passkey_pages
from signoff.gateway.pages.renderer import STATIC, PageRenderer
from signoff.gateway.pages.sign_in import to_login
from signoff.gateway.plugin_routes import answer_in_dialect, load_plugin_routers, routes_of
from signoff.gateway.runtime import gateway_signer, gateway_tasks
from signoff.gateway.transport.body_limit import BodyLimit
from signoff.gateway.transport.middleware import ErrorMiddleware, RequestGuard
from signoff.gateway.vendors import routes as vendor_routes
from signoff.languages.remarks import error_text, speaks
from signoff.plugins.router import PluginRouter
from signoff.registry.installation import load_installation
from signoff.registry.program.program import Program
from signoff.settings import (
    Settings,
    exposure_warnings,
    login_roles,
    require_closed,
    require_ready,
    require_real_model,
)
from signoff.store.refusal_counts import RefusalKind
from signoff.store.store import working_store
from signoff.temporal.encryption import EncryptionCodec

_log: Final = logging.getLogger(__name__)
ROUTERS: Final = (
    turns.router,
    sessions.router,
    calls.router,
    approvals.router,
    agent_inbox.router,
    previews.router,
    decisions.router,
    insights.router,
    grants.router,
    absences.router,
    freezes.router,
    audit.router,
    events.router,
    tools.router,
    health.router,
    description.router,
    vendor_routes.router,
    inbox.router,
    decided.router,
    insight_pages.router,
    edit.router,
    answer_page.router,
    passkey_pages.router,
    email_login.router,
    batch.router,
    grant_pages.router,
    freeze_pages.router,
    away_page.router,
    notifications_page.router,
    turn_pages.router,
    session_pages.router,
    record_pages.router,
    tool_pages.router,
    site.router,
    sign_in.router,
    link.router,
    api_docs.router,
)
"""All routes of the core: the API, the vendors' webhooks, and the pages."""
CHANNELS: Final = "/channels/"
_DESCRIPTION: Final = (
    "Start agents' turns, follow them, and decide the calls that wait for a person. Errors are "
    "`{code, message}`, one sentence; every decision is answered by a receipt."
)


def create_app(settings: Settings, program: Program, temporal: Client | None = None) -> FastAPI:
    """Make the gateway of a program as an application for any ASGI server.

    `temporal` is a client of the server with Signoff's data converter. Without it, `TEMPORAL_*` names the server. The
    application opens the program, store, keys and channels when it starts, and closes them when it ends. Starting
    raises `ConfigError`, `ServerUnavailable` or `StoreUnavailable`. The ASGI server must limit connections and slow
    clients, as `signoff gateway` does. Serve the application at the root of an address, not below a path.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        metrics = MetricsEndpoint(settings)
        installation = load_installation(settings, program=program)
        catalog, directory, secrets = installation.catalog, installation.people, installation.secrets
        client = check_client(settings, temporal) if temporal else await connect_installation(settings, secrets)
        turns = TurnClient(client, task_queue=settings.task_queue)
        async with (
            working_store(settings) as store,
            metrics.serve(store, "gateway", WorkerWatch(client, settings.task_queue)),
            open_spans(settings, "gateway") as spans,
        ):
            signer = await gateway_signer(settings, directory, store)
            named = installation.name
            deps = with_provider_people(
                GatewayDeps(
                    turns, catalog, directory, store, settings, signer=signer, secrets=secrets, spans=spans, name=named
                )
            )
            async with gateway_tasks(deps, directory) as receiver:
                _hold(app, deps, receiver)
                try:
                    yield
                finally:
                    app.state.live.close()

    return _application(settings, lifespan, plugins=load_plugin_routers(settings.plugins))


def build_app(deps: GatewayDeps, receiver: InboundReceiver | None = None) -> FastAPI:
    """Make the gateway from opened dependencies; `serve` runs it. `receiver` takes the vendors' messages.

    Raises `ConfigError` for a production profile without people or keys, for incomplete provider settings, for a route
    without an access, and for a development profile that is open to the network.
    """
    app = _application(deps.settings, plugins=load_plugin_routers(deps.settings.plugins))
    _hold(app, with_provider_people(deps), receiver)
    return app


def build_codec_app(deps: GatewayDeps, codec: EncryptionCodec, origins: Collection[str]) -> FastAPI:
    """Make the codec server from opened dependencies.

    Pages of `origins` may use it. `deps.settings.public_url` is the codec server's own address. Raises `ConfigError`
    for a production profile without people.
    """
    app = _application(deps.settings, routers=(codec_routes.router,), origins=origins)
    app.state.codec = codec
    _hold(app, with_provider_people(deps), None, signs=False)
    return app


def gateway_routes(plugins: Sequence[PluginRouter], routers: Sequence[APIRouter] = ROUTERS) -> list[BaseRoute]:
    """Plugins' routes follow the core's, so they cannot hide a route of the core."""
    return [route for router in routers for route in router.routes] + [
        route for router in plugins for route in routes_of(router)
    ]


def _application(
    settings: Settings,
    lifespan: Lifespan[FastAPI] | None = None,
    *,
    routers: Sequence[APIRouter] = ROUTERS,
    plugins: Sequence[PluginRouter] = (),
    origins: Collection[str] = (),
) -> FastAPI:
    """Routes and middleware read all state from `app.state` at each request."""
    all_routes = gateway_routes(plugins, routers)
    app = FastAPI(
        title="Signoff",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        # Not included router by router: each route was analysed at import, and would be analysed again here.
        routes=all_routes,
    )
    app.mount("/static", StaticFiles(directory=STATIC))
    routes = RouteTable(all_routes)
    bodies = [route.body for router in plugins for route in router.routes if isinstance(route.body, type)]
    app.openapi = lambda: description.describe(app, routes, bodies)  # type: ignore[method-assign]
    # Each wraps the earlier ones. The guard runs first, then authentication before the body is read, then the body
    # limit before the body is parsed.
    app.add_middleware(BodyLimit, allowed=_body_bytes(app, routes), refused=_make_counter(app))
    _answer_errors(app, routes, plugins)
    if origins:
        # Lets browsers show the answers to these pages. The guard decides which pages may send requests.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_credentials=True,
            allow_methods=["POST"],
            allow_headers=["content-type", "x-namespace", "authorization", "authorization-extras"],
        )
    if settings.otel:
        app.add_middleware(TraceHeadersMiddleware)
    app.add_middleware(RequestGuard, settings=settings, origins=origins, plugins=plugins)
    return app


def _hold(app: FastAPI, deps: GatewayDeps, receiver: InboundReceiver | None, *, signs: bool = True) -> None:
    """Raises `ConfigError` like `build_app`."""
    policypool.install()
    require_closed(deps.settings)
    # The codec server's `public_url` is its own address, and it has already reported its exposure.
    for warning in exposure_warnings(deps.settings) if signs else ():
        _log.warning("%s", warning)
    has_people = any(person.active for person in deps.people.all()) or bool(login_roles(deps.settings))
    require_ready(deps.settings, people=has_people, signing_keys=deps.signer is not None or not signs)
    require_real_model(deps.settings.profile, (*deps.catalog.models, deps.settings.model) if signs else ())
    deps.store.counts.tenants.declare(person.tenant for person in deps.people.all())
    logins, live, visitors = ProviderPeople(deps), Live(), Visitors(deps)
    authenticator = Authenticator(deps, logins)
    app.state.external_calls = GatewayCalls(deps)
    app.state.deps, app.state.live, app.state.receiver = deps, live, receiver
    channel = receiver.channel if receiver is not None else lambda name: None
    app.state.site = Site(deps, visitors, PageRenderer(deps, visitors), live, SignIn(deps, visitors, logins, channel))
    app.state.authenticator, app.state.readiness = authenticator, Readiness(deps)
    app.state.streams = Streams(authenticator, deps.clock)


def _make_counter(app: FastAPI) -> Callable[[RefusalKind], None]:
    def count(kind: RefusalKind) -> None:
        deps: GatewayDeps = app.state.deps
        deps.store.count_refusal(kind)

    return count


def _body_bytes(app: FastAPI, routes: RouteTable) -> Callable[[Scope], int | None]:
    """The function returns `None` for a request without a route."""

    def allow(scope: Scope) -> int | None:
        access = routes.access(scope)
        if isinstance(access, VendorAccess):
            receiver: InboundReceiver | None = app.state.receiver
            return None if receiver is None else receiver.max_bytes(scope["path"].removeprefix(CHANNELS))
        if access is None:
            # The route has other methods. The error for that needs no body.
            return 0 if routes.has_path(scope) else None
        return access.body_bytes

    return allow


def _answer_errors(app: FastAPI, routes: RouteTable, plugins: Sequence[PluginRouter]) -> None:
    def wants_json(path: str) -> bool:
        return _wants_json(path) or any(each.has_path(path) for each in plugins)

    async def answer(request: Request, fault: Fault, status: int, error: SignoffError | None = None) -> Response:
        # Shows the caller the scheme of sign-in.
        headers = {"www-authenticate": "Bearer"} if fault.code == "unauthenticated" else {}
        if (response := answer_in_dialect(plugins, request, fault, status, headers)) is not None:
            return response
        if wants_json(request.url.path):
            if error is not None:
                fault = replace(fault, message=error_text(error, asked_language(request)))
            return JSONResponse(fault.model_dump(), status_code=status, headers=headers)
        return await _error_page(request, error or SignoffError(fault.message), status)

    @app.exception_handler(SignoffError)
    async def ours(request: Request, error: SignoffError) -> Response:
        if isinstance(error, SignInNeeded) and not wants_json(request.url.path):
            return to_login(request)
        access = routes.access(request.scope)
        if (access is not None and access.scope == "call") or (isinstance(error, Refused) and error.code == "scope"):
            await note_refused_request(request, error)
        response = await answer(request, fault_of(error), status_of(error), error)
        response.headers.update(headers_of(error))
        return response

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> Response:
        place = person_place(request.scope.get("route"))
        return await answer(request, fault_of(BadRequest(sentence(error.errors(), whose(place)))), 422)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        code, message = _PLAIN.get(error.status_code, ("refused", "the request was refused"))
        response = await answer(request, Fault(code=code, message=message), error.status_code)
        response.headers.update(error.headers or {})
        return response

    refusal: Answer = ours
    app.add_middleware(AuthenticationMiddleware, routes=routes, answer=refusal)
    app.add_middleware(ErrorMiddleware, answer=answer)


async def _error_page(request: Request, error: SignoffError, status: int) -> Response:
    pages: Site = request.app.state.site
    try:
        visitor = await pages.visitors.visitor(request)
    except SignoffError:
        visitor = None
    language = visitor.formatter.language if visitor is not None else language_for(request, "")
    why = error_text(error, language).removesuffix(".")
    return pages.renderer.page(
        "error.html",
        visitor,
        status=status,
        why=f"{why[:1].upper()}{why[1:]}.",
        understood=speaks(error, language),
        status_code=status,
        spoken=language,
    )


def _wants_json(path: str) -> bool:
    return path.endswith(("/decode", "/encode")) or path.startswith(
        (
            "/v1/",
            CHANNELS,
            "/.well-known/",
            "/healthz",
            "/readyz",
            "/openapi.json",
            "/live/",
            "/static/",
        )
    )


_PLAIN = {
    400: ("malformed", "the body cannot be read; send JSON in UTF-8"),
    404: ("unknown", "there is nothing at this address"),
    405: ("method", "this address does not take that method"),
}
