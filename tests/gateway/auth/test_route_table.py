import re
from inspect import iscoroutinefunction
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from gateway_login import locked_rig
from gateway_rig import GatewayRig
from starlette.requests import Request
from starlette.routing import Mount
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.gateway.auth.caller import SignInNeeded
from signoff.gateway.auth.dependencies import OPEN, PAGE_READ, Access, TokenAccess, TokenReader, VendorAccess
from signoff.gateway.auth.route_table import RouteTable, access_of
from signoff.gateway.transport.body_limit import READING

OPEN_PAGES = re.compile(r"/(login|logout|link|language|icon\.svg|manifest\.webmanifest|service-worker\.js)\b")
CONTROLS = re.compile(r"/(freeze|unfreeze|grants|away|passkeys|notifications)\b")
"""Forms for which an email link does not suffice."""
STARTING = re.compile(r"/(v1/)?(turns|sessions)\b")


def test_every_route_declares_its_expected_access(gateway: GatewayRig) -> None:
    checked = 0
    for route in gateway.app.routes:
        if isinstance(route, Mount):
            assert route.path == "/static"
            continue
        assert isinstance(route, APIRoute)
        for method in route.methods or ():
            assert access_of(route) == wanted(method, route.path), (method, route.path)
            checked += 1
    assert checked > 60


def test_every_route_and_dependency_is_async(gateway: GatewayRig) -> None:
    checked: set[Any] = set()
    for route in gateway.app.routes:
        if isinstance(route, APIRoute):
            left = [route.dependant]
            while left:
                each = left.pop()
                called = each.call
                assert iscoroutinefunction(called) or iscoroutinefunction(type(called).__call__), (route.path, called)
                checked.add(called)
                left += each.dependencies
    assert len(checked) > 60


def wanted(method: str, path: str) -> Access:
    # Schemas describe events in general. Receivers of webhooks read them without a token.
    if path in ("/healthz", "/openapi.json") or path.startswith("/v1/events/schemas"):
        return Access()
    # Anyone may look up agent cards without a token (A2A 1.0, 8.2).
    if path.endswith("/.well-known/agent-card.json"):
        return Access()
    if path.startswith("/a2a/"):
        return TokenAccess("token", "peer")
    # MCP clients look there before they have a token (RFC 9728, 3.1).
    if path.startswith("/.well-known/oauth-protected-resource/"):
        return Access()
    # An enforcement point finds its decision point in the same way (Authorization API 1.0, 9).
    if path == "/.well-known/authzen-configuration":
        return Access()
    if path == "/readyz":
        return TokenAccess("token", "read", optional=True)
    if path.startswith("/channels/"):
        return VendorAccess()
    if path.startswith("/v1/agent-inbox/"):
        # Its clients search by POST.
        return Access("key", "read" if method in READING or path.endswith("/search") else "decide")
    if OPEN_PAGES.match(path):
        return Access("cookie")
    # These forms judge sample or recorded calls: no tool runs and no approver is asked.
    looks = method in READING or path.startswith(("/tools/", "/insights/"))
    if path.startswith(("/v1/calls", "/v1/hooks/", "/mcp/", "/access/", "/aap/")):
        return TokenAccess("token", "call", reports=path.startswith("/v1/hooks/"))
    scope: Any = "read" if looks else "start" if STARTING.match(path) else "decide"
    strong = not looks and CONTROLS.match(path) is not None
    return TokenAccess("token", scope) if path.startswith("/v1/") else Access("cookie", scope, strong=strong)


async def nothing() -> None:
    """Return nothing."""


async def two(first: TokenReader, second: Annotated[None, Depends(nothing)]) -> None:
    """Declares one access and one ordinary dependency."""


async def test_route_checks_its_own_access(gateway: GatewayRig) -> None:
    locked = locked_rig(gateway)
    scope = {"type": "http", "method": "POST", "path": "/v1/turns", "headers": [], "app": locked.app}
    request = Request(scope)
    await Access().admit(request)
    with pytest.raises(SignInNeeded):
        await TokenAccess("token", "start")(request)


@table("declared", [], [OPEN, PAGE_READ])
def test_route_without_exactly_one_access_is_refused_at_start(declared: list[Any]) -> None:
    router = APIRouter()
    router.add_api_route("/secret", nothing, dependencies=declared)
    with pytest.raises(ConfigError, match=rf"`/secret` declares {len(declared)} kinds of access.*dependencies.py"):
        RouteTable(router.routes)


def test_route_that_is_no_api_route_is_refused_at_start() -> None:
    """A plain Starlette route has no dependencies, so nothing would guard it."""
    router = APIRouter()
    router.add_route("/plain", nothing)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`/plain`"):
        RouteTable(router.routes)


def test_access_is_found_by_method_and_path() -> None:
    router = APIRouter()
    router.add_api_route("/a/{b}", two, methods=["GET"])
    router.add_api_route("/a/{b}", nothing, methods=["POST"], dependencies=[OPEN])
    table = RouteTable(router.routes)

    def found(method: str, path: str) -> Access | None:
        return table.access({"type": "http", "method": method, "path": path, "headers": []})

    assert found("GET", "/a/1") == TokenAccess("token", "read")
    assert found("POST", "/a/1") == Access()
    assert [found("DELETE", "/a/1"), found("GET", "/a/1/2"), found("GET", "/")] == [None, None, None]
    paths = [table.has_path({"type": "http", "method": "PUT", "path": path}) for path in ("/a/1", "/a")]
    assert paths == [True, False]
