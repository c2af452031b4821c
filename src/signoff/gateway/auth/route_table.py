"""Finds the access of a request's route before FastAPI reads a body."""

from collections.abc import Iterable, Iterator
from typing import Final

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from signoff.contracts.errors import ConfigError
from signoff.gateway.auth.dependencies import Access
from signoff.gateway.auth.person_place import NAMES, misplaced
from signoff.gateway.transport.json_route import JsonRoute

_FOUND: Final = "signoff.access"


class RouteTable:
    """Holds the access of each route.

    Raises `ConfigError` for a route with no access or two, and for a route whose body FastAPI would read itself.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = tuple((route, access_of(route)) for route in routes)
        for route, _ in self._routes:
            if isinstance(route, APIRoute) and route.body_field is not None and not isinstance(route, JsonRoute):
                raise ConfigError(f"the route `{route.path}` declares a body: make its router with `JsonRoute`")

    def access(self, scope: Scope) -> Access | None:
        if _FOUND not in scope:
            answers = (access for route, access in self._routes if route.matches(scope)[0] is Match.FULL)
            scope[_FOUND] = next(answers, None)
        answer: Access | None = scope[_FOUND]
        return answer

    def has_path(self, scope: Scope) -> bool:
        """Any method counts."""
        return any(route.matches(scope)[0] is not Match.NONE for route, _ in self._routes)

    def misplaced_person(self, scope: Scope) -> str:
        if not any(name.encode() in scope["query_string"] for name in NAMES):
            return ""
        route = next((each for each, _ in self._routes if each.matches(scope)[0] is Match.FULL), None)
        return misplaced(route, scope)

    def find(self, path: str, method: str) -> Access | None:
        matches = (
            access
            for route, access in self._routes
            if isinstance(route, APIRoute) and route.path == path and method in (route.methods or ())
        )
        return next(matches, None)


def access_of(route: BaseRoute) -> Access:
    """Raises `ConfigError` for a route without an access, or with two."""
    declared = list(_list_declared(route.dependant)) if isinstance(route, APIRoute) else []
    if len(declared) != 1:
        named = getattr(route, "path", type(route).__name__)
        raise ConfigError(
            f"the route `{named}` declares {len(declared)} kinds of access; declare one of gateway/auth/dependencies.py"
        )
    return declared[0]


def _list_declared(dependant: Dependant) -> Iterator[Access]:
    for each in dependant.dependencies:
        if isinstance(each.call, Access):
            yield each.call
        yield from _list_declared(each)
