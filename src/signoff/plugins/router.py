"""Routes of a plugin. The gateway mounts them behind its own sign-in, guard and limits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from signoff.contracts.responses import Fault

CallerKind: TypeAlias = Literal["agent", "peer", "anyone"]
"""The allowed callers of a route: an external agent or a peer with its token, or anyone."""
FaultWriter: TypeAlias = Callable[[Request, Fault, int, Mapping[str, str]], Response]
"""Writes a fault with its status and headers in the protocol's format."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PluginRoute:
    """One route. Its function has the parameters of a FastAPI route."""

    method: str
    path: str
    function: Callable[..., Any]
    summary: str
    caller: CallerKind = "agent"
    reports: bool = False
    """Whether agents send results of tools, which may be large."""
    status: int | None = None
    """The status of success, if it is not 200."""
    body: type[BaseModel] | Mapping[str, Any] | None = None
    """The model or the JSON Schema of a body that the function reads itself, for the API's description."""
    takes_nothing: bool = False
    """Whether a request may come without a body, which is JSON otherwise."""
    dependencies: Sequence[Callable[..., Any]] = ()
    """More dependencies of FastAPI, which run before the function."""
    responses: Mapping[int | str, dict[str, Any]] = field(default_factory=dict)
    """More answers, for the API's description."""


class PluginRouter:
    """The routes of a plugin below one prefix.

    The prefix of another distribution's plugin is `/plugins/NAME`, with the name of its entry point. `fault` formats
    the gateway's refusals there, by default as `{code, message}`. `is_typed` ignores extra slashes in addresses that
    people type into other programs.
    """

    def __init__(self, prefix: str, *, tag: str, fault: FaultWriter | None = None, is_typed: bool = False) -> None:
        self.prefix = prefix
        self.is_typed = is_typed
        self.tag = tag
        self.fault = fault
        self.routes: list[PluginRoute] = []

    def add(self, method: str, path: str, function: Callable[..., Any], *, summary: str, **options: Any) -> None:
        """`options` are fields of `PluginRoute`."""
        self.routes.append(PluginRoute(method, f"{self.prefix}{path}", function, summary, **options))

    def get(self, path: str, *, summary: str, **options: Any) -> Callable[[F], F]:
        """Add a route that changes nothing. `options` are fields of `PluginRoute`."""
        return self._adder("GET", path, summary, options)

    def post(self, path: str, *, summary: str, **options: Any) -> Callable[[F], F]:
        """Add a route that takes JSON. `options` are fields of `PluginRoute`."""
        return self._adder("POST", path, summary, options)

    def has_path(self, path: str) -> bool:
        return path == self.prefix or path.startswith(f"{self.prefix}/")

    def takes_nothing(self, method: str, path: str) -> bool:
        """Return whether a request may come without a body."""
        # A browser sends no DELETE to another site without asking it first.
        return method == "DELETE" or any(
            each.takes_nothing and each.method == method and compile_path(each.path)[0].match(path)
            for each in self.routes
        )

    def _adder(self, method: str, path: str, summary: str, options: Mapping[str, Any]) -> Callable[[F], F]:
        def add(function: F) -> F:
            self.add(method, path, function, summary=summary, **options)
            return function

        return add
