"""Explains wrong arguments of a declaration: the place, the keyword and the nearest valid one."""

import inspect
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar

from signoff.contracts.errors import ConfigError
from signoff.formats.nearest_name import did_you_mean
from signoff.registry.program.call_site import call_site

P = ParamSpec("P")
R = TypeVar("R")
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def explain_keywords(called: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a method raise `ConfigError` instead of `TypeError` for wrong arguments. `called` is its public name."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def declare(*args: P.args, **given: P.kwargs) -> R:
            problem = next(_problems(called, method, args, given), "")
            if problem:
                site = call_site()
                raise ConfigError(f"{site}: {problem}", field=called, file=site.shown, line=site.line)
            return method(*args, **given)

        return declare

    return decorate


def _problems(called: str, method: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Iterator[str]:
    parameters = _parameters(method)
    named = [name for name, each in parameters.items() if each.kind in _BY_NAME]
    by_place = [name for name in named if parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    # The first argument is the object itself.
    filled = by_place[: len(args) - 1]
    needed = [name for name in named if parameters[name].default is inspect.Parameter.empty]
    lacking = [name for name in needed if name not in {*filled, *given}]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        # Its other keywords are keys of a section, which reports their errors.
        strange = [name for name in given if name not in named and did_you_mean(name, lacking)]
    else:
        strange = [name for name in given if name not in named]
    for name in strange:
        near = did_you_mean(name, named) or f"; it takes {', '.join(f'`{each}`' for each in named)}"
        yield f"`{called}` has no keyword `{name}`{near}"
    if len(args) - 1 > len(by_place):
        but = f", but for {' and '.join(f'`{each}`' for each in by_place)}" if by_place else ""
        yield f"`{called}` takes its arguments by name{but}"
    for name in (each for each in filled if each in given):
        yield f"`{called}` has `{name}` twice, by place and by name; keep one"
    for name in lacking:
        yield f"`{called}` needs `{name}`"


@cache
def _parameters(method: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(method).parameters.items() if name != "self"}
