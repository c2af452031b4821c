"""The destinations of tools' records and their filters, checked when the catalog is built."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

from signoff.contracts.errors import ConfigError
from signoff.formats.declared_fields import IN_CODE, FieldSpec
from signoff.formats.nearest_name import did_you_mean
from signoff.registry.hooks import Hook
from signoff.registry.import_reference import load_reference
from signoff.registry.tool import Tool
from signoff.registry.tool_fields import FieldProblem
from signoff.registry.tool_result import AnnotatedRecord, Filter, for_model, for_record, identity

LLM_SESSION: Final = "llm-session"
AUDIT: Final = "audit"
PEER_RESPONSE: Final = "peer-response"
FILTER: Final = Hook[AnnotatedRecord](field="filter", takes=("record",), style="plain")
# A synchronous sink would block every turn of the worker.
SINK: Final = Hook[object](field="sink", takes=("delivery",))
OBSERVER: Final = Hook[object](field="observer", takes=("undelivered",), style="any")
_WHOLE: Final = ("ui-streaming", "cache")
# `\Z`, not `$`, which also matches before a final line break: it would get into records and logs.
_FORMATTER: Final = re.compile(r"formatter:[A-Za-z0-9_-]{1,48}\Z")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")
_KNOWN: Final = (LLM_SESSION, *_WHOLE, AUDIT, PEER_RESPONSE, "formatter:<name>")
_OURS: Final[Mapping[str, Filter]] = MappingProxyType({LLM_SESSION: for_model, AUDIT: for_record})


@dataclass(frozen=True)
class Delivery:
    """The record of one call, as a destination's sink function receives it.

    After the loss of a worker it may receive the same one again, with the same `idempotency_key`.
    """

    destination: str
    record: AnnotatedRecord
    """The record after its filter."""
    tool: str
    call_id: str
    """The call's id within its turn."""
    actor_name: str
    """The actor that called."""
    tenant_id: str
    session_id: str
    turn_id: str
    idempotency_key: str
    """The key of the call, the same for each attempt."""


@dataclass(frozen=True)
class DeliveryFailure:
    """The argument of an observer: a destination did not receive its view."""

    destination: str
    tool: str
    call_id: str
    """The call's id within its turn."""
    tenant_id: str
    turn_id: str
    why: str
    """The reason, without any value of the record."""


Sink: TypeAlias = Callable[[Delivery], Awaitable[None]]
Observer: TypeAlias = Callable[[DeliveryFailure], Any]


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A destination of records."""

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    """`llm-session`, `ui-streaming`, `cache`, `audit`, `peer-response` or `formatter:<name>`."""
    filter: Annotated[Filter | None, FieldSpec(key=str)] = None
    """Its view of a record: `module:function`, or `identity` for the whole record.

    A tool's own filter for it wins.
    """
    sink: Annotated[Sink | None, FieldSpec(key=str)] = None
    """`module:function`: receives the filtered record.

    `llm-session` and `audit` have none, they are Signoff's own.
    """
    reads: tuple[str, ...] = ()
    """Namespaces of the slots that it receives."""


@dataclass(frozen=True)
class Distribution:
    """The destinations of a catalog."""

    destinations: Mapping[str, Destination] = field(default_factory=dict)
    observer: Observer | None = None
    """Receives failed deliveries. `None`: only the log has them."""

    def view(self, tool: Tool, name: str) -> Filter | None:
        """`None` if records of `tool` are not sent to the destination."""
        declared = self.destinations.get(name)
        # Before any filter: an actor's own tools are private for every declared destination.
        if name == PEER_RESPONSE and not tool.for_peers:
            return None
        # No fallback to the whole record: without a declared filter, nothing is sent.
        return tool.filters.get(name) or (declared.filter if declared is not None else None) or _OURS.get(name)

    def sinks(self, tool: Tool) -> tuple[Destination, ...]:
        every = self.destinations.values()
        return tuple(each for each in every if each.sink is not None and self.view(tool, each.name) is not None)

    @property
    def content(self) -> dict[str, Any]:
        """The part for the catalog's hash: everything except the functions."""
        return {
            # No property of a function is the same in every process: hash only its presence.
            name: {"reads": sorted(each.reads), "filters": each.filter is not None}
            for name, each in self.destinations.items()
        }


NOWHERE: Final = Distribution()


def build_distribution(
    destinations: Iterable[Destination], observer: Observer | None, tools: Iterable[Tool]
) -> Distribution:
    """Check destinations alone and against the filters of `tools`. Raises `ConfigError`."""
    known: dict[str, Destination] = {}
    for each in destinations:
        if each.name in known:
            raise _refuse(each.name, "name", "is declared twice; keep one")
        _check(each)
        known[each.name] = each
    flaw = "" if observer is None else OBSERVER.problem(observer)
    if flaw:
        raise ConfigError(f"`observer` {flaw}; it is a function `{OBSERVER.form}`", field="observer")
    tools = tuple(tools)
    for tool in tools:
        for name in tool.filters:
            if name not in known and name not in _OURS:
                near = did_you_mean(name, known)
                why = (
                    f"tool `{tool.name}` has a filter for `{name}`, which is not declared{near}; declare a destination"
                )
                raise ConfigError(why, tool_name=tool.name, field="filters", value=name)
    for name, each in known.items():
        # At build: a destination that silently gets nothing looks as if it works.
        if each.filter is None and name not in _OURS and not any(name in tool.filters for tool in tools):
            raise _refuse(name, "filter", "has no `filter`, and no tool has one for it: nothing would ever go there")
    return Distribution(MappingProxyType(known), observer)


def named_filter(name: object) -> Filter:
    """The name is `identity`, `module:function`, or a program's function. Raises `ConfigError`."""
    if name == identity.__name__:
        return identity
    if isinstance(name, str) and ":" not in name:
        raise ConfigError(f"`{name}` is neither `identity` nor `module:function`", field="filter", value=name)
    found: Any = load_reference(name)
    return found  # type: ignore[no-any-return]


def filter_problems(tool: Tool) -> Iterator[FieldProblem]:
    for name, given in tool.filters.items():
        field_name = f"filters.{name}"
        why = _wrong_name(name) or _wrong_view(name, given)
        if why:
            yield FieldProblem(field_name, name, f"has in `filters` a destination `{name}` that {why}")
        elif name == PEER_RESPONSE and not tool.peer_exposed:
            yield FieldProblem(
                field_name, name, f"has a filter for `{name}` but is not `peer_exposed`; drop one of them"
            )


def _check(given: Destination) -> None:
    name = given.name
    wrong = _wrong_name(name)
    if wrong:
        raise _refuse(name, "name", wrong)
    wrong = "" if given.filter is None else _wrong_view(name, given.filter)
    if wrong:
        raise _refuse(name, "filter", wrong)
    if name in _OURS and given.sink is not None:
        raise _refuse(name, "sink", "has a `sink`; it is Signoff's own, drop it")
    if name not in _OURS and given.sink is None:
        raise _refuse(name, "sink", "needs a `sink`: an async function `(delivery)`")
    objection = "" if given.sink is None else SINK.objection(given.sink)
    if objection:
        raise _refuse(name, "sink", objection)
    for namespace in given.reads:
        if not isinstance(namespace, str) or _NAMESPACE.match(namespace) is None:
            raise _refuse(name, "reads", f"reads `{namespace}`, which is no namespace: letters, digits, `_`, `-`")


def _wrong_name(name: Any) -> str:
    if isinstance(name, str) and (name in _KNOWN[:-1] or _FORMATTER.match(name)):
        return ""
    near = did_you_mean(str(name), _KNOWN)
    return f"is none of {', '.join(f'`{each}`' for each in _KNOWN)}{near}"


def _wrong_view(name: str, given: Any) -> str:
    objection = FILTER.objection(given)
    if objection:
        return objection
    # X24: elsewhere it would show private fields to a model and peers, and secret ones in the audit log.
    if given is identity and name not in _WHOLE:
        return "has the filter `identity`, which only `ui-streaming` and `cache` may have; name another filter"
    return ""


def _refuse(name: str, field_name: str, why: str) -> ConfigError:
    return ConfigError(
        f"destination `{name}` {why}", destination=name, field=f"destinations.{name}.{field_name}", value=name
    )
