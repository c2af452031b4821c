"""Where each route takes the person of a request: `as` or `user`, in the address or in the body."""

from typing import Final
from urllib.parse import parse_qs

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute
from starlette.types import Scope

NAMES: Final = ("as", "user")


def person_place(route: BaseRoute | None) -> str:
    """Return text for an error; "" if the route takes the person from the token alone."""
    if not isinstance(route, APIRoute):
        return ""
    if named := next((each for each in NAMES if each in _query_names(route)), ""):
        return f"`?{named}=PERSON` in the address"
    return "`user` in the body" if _has_user(route) else ""


def misplaced(route: BaseRoute | None, scope: Scope) -> str:
    """Return an error if the address names a person and the route takes none there."""
    if not isinstance(route, APIRoute):
        return ""
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    name = next((each for each in NAMES if each in query and each not in _query_names(route)), "")
    return name and f"`{name}` is not taken in this address; {whose(person_place(route))}"


def whose(place: str) -> str:
    return f"name the person by {place}" if place else "the token names the person"


def _query_names(route: APIRoute) -> frozenset[str]:
    return frozenset(field.alias for field in route.dependant.query_params)


def _has_user(route: APIRoute) -> bool:
    kinds = (field.field_info.annotation for field in route.dependant.body_params)
    return any(isinstance(kind, type) and issubclass(kind, BaseModel) and "user" in kind.model_fields for kind in kinds)
