"""Mounts the routes of plugins behind the gateway's sign-in, guard, limits and record of refusals."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from signoff.contracts.responses import Fault
from signoff.formats.visible_text import one_line
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.dependencies import Access, TokenAccess
from signoff.gateway.auth.route_table import access_of
from signoff.gateway.transport.json_route import JsonRoute
from signoff.plugins.loader import LoadedPlugin, Plugins
from signoff.plugins.router import PluginRoute, PluginRouter

_log: Final = logging.getLogger(__name__)
_WHY_CHARS: Final = 300


def load_plugin_routers(names: Sequence[str]) -> tuple[PluginRouter, ...]:
    """Logs a warning for each plugin that fails."""
    routers: list[PluginRouter] = []
    for plugin in Plugins(names).with_routes():
        if problem := plugin_problem(plugin):
            _log.warning("plugin `%s` is not loaded: %s", plugin.name, problem)
        else:
            routers.extend(plugin.routers)
    return tuple(routers)


def plugin_problem(plugin: LoadedPlugin) -> str:
    return plugin.problem or _routes_problem(plugin.routers)


@cache
def routes_of(router: PluginRouter) -> tuple[BaseRoute, ...]:
    """Analysed once, for all gateways of the process."""
    plugin_router = APIRouter(tags=[router.tag], responses=FAULTS, route_class=JsonRoute)
    for each in router.routes:
        plugin_router.add_api_route(
            each.path,
            each.function,
            methods=[each.method],
            summary=each.summary,
            status_code=each.status,
            responses=dict(each.responses),
            dependencies=[Depends(_access(each)), *map(Depends, each.dependencies)],
            openapi_extra=_extra(each),
        )
    return tuple(plugin_router.routes)


def answer_in_dialect(
    routers: Sequence[PluginRouter], request: Request, fault: Fault, status: int, headers: dict[str, str]
) -> Response | None:
    """Return `None` without a plugin at this address, or without a format."""
    router = next((each for each in routers if each.has_path(request.url.path)), None)
    return None if router is None or router.fault is None else router.fault(request, fault, status, headers)


def _routes_problem(routers: Sequence[PluginRouter]) -> str:
    for router in routers:
        try:
            for route in routes_of(router):
                access_of(route)
        # FastAPI analyses functions of plugins, which may raise anything.
        except Exception as error:
            why = one_line(f"{type(error).__name__}: {error}".partition("\n")[0], _WHY_CHARS).text
            return f"its routes below `{router.prefix}` fail: {why}"
    return ""


def _access(route: PluginRoute) -> Access:
    if route.caller == "anyone":
        return Access()
    return TokenAccess("token", "peer" if route.caller == "peer" else "call", reports=route.reports)


def _extra(route: PluginRoute) -> dict[str, Any] | None:
    if route.body is None:
        return None
    if isinstance(route.body, Mapping):
        schema = dict(route.body)
    else:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
