"""Reads a call's tool and arguments from an activity's input, and writes approved arguments into it."""

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

_ENCODING: Final = "encoding"
_NULL: Final = b"binary/null"
_PLAIN: Final = b"json/plain"
_READABLE: Final = (_PLAIN, b"json/protobuf")


@dataclass(frozen=True)
class GatedActivity:
    """Names a dangerous activity, and the place of the tool's call in its input.

    By default, the call's arguments are the fields of the activity's single argument, or its arguments by name.
    """

    activity: str | Callable[..., Any]
    """The activity, or its name."""
    tool: str = ""
    """The tool's name at the gateway; by default the activity's name."""
    tool_at: str = ""
    """The place of the tool's name in the first argument, for an activity with several tools: `name`, or `call.name`.
    """
    args_at: str = ""
    """The place of the tool's arguments in the first argument."""
    tools: Sequence[str] = ()
    """The dangerous tools at `tool_at`; by default all."""

    @property
    def name(self) -> str:
        """The activity's name. Raises `ValueError` for a function that is not an activity."""
        if isinstance(self.activity, str):
            return self.activity
        definition = activity._Definition.from_callable(self.activity)
        if definition is None or not definition.name:
            raise ValueError(f"`{self.activity}` is not a named activity: decorate it with `@activity.defn`")
        return definition.name


@dataclass(frozen=True)
class ToolCall:
    """A tool's call, as read from an activity's input."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True)
class CallReader:
    """Reads calls from an activity's input as JSON values, and writes them."""

    gated: GatedActivity
    names: tuple[str, ...] | None = None
    """`None` if the activity's function is unknown."""

    def read(self, values: Sequence[Any]) -> ToolCall | None:
        """Return `None` for a safe tool. Raises `ValueError` if the input holds no call."""
        gated = self.gated
        tool: Any = gated.tool or gated.name
        if gated.tool_at:
            tool = _find(values, gated.tool_at, gated.name)
            if gated.tools and tool not in gated.tools:
                return None
        args = _find(values, gated.args_at, gated.name) if gated.args_at else self._args(values)
        if not isinstance(tool, str) or not isinstance(args, dict):
            raise ValueError(f"the input of activity `{gated.name}` holds no tool with arguments at the given places")
        return ToolCall(tool, args)

    def write(self, values: Sequence[Any], args: Mapping[str, Any]) -> list[Any]:
        """Raise `ValueError` for arguments without a place in the input."""
        changed = copy.deepcopy(list(values))
        if self.gated.args_at:
            *way, last = self.gated.args_at.split(".")
            _step(_follow(changed[0], way), last, dict(args))
            return changed
        if _is_object(values):
            return [dict(args)]
        names = self.names or ()
        present = [name for name in names if name in args]
        if len(present) != len(args) or list(names[: len(present)]) != present:
            raise ValueError(f"activity `{self.gated.name}` cannot be run with just {', '.join(map(repr, args))}")
        return [args[name] for name in present]

    def _args(self, values: Sequence[Any]) -> Any:
        if _is_object(values):
            return values[0]
        if values and (self.names is None or len(values) > len(self.names)):
            raise ValueError(
                f"the arguments of activity `{self.gated.name}` have no names to show to approvers: give the gate "
                "its function instead of its name, or give the activity one argument with fields"
            )
        return dict(zip(self.names or (), values, strict=False))


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    names = tuple(inspect.signature(function).parameters)
    return names[1:] if names[:1] == ("self",) else names


def to_json(converter: PayloadConverter, value: Any) -> Any:
    """Return the JSON that an activity receives. Raises `ValueError` for a value that is not JSON."""
    payload = converter.to_payload(value)
    encoding = payload.metadata.get(_ENCODING)
    if encoding == _NULL:
        return None
    if encoding not in _READABLE:
        raise ValueError(f"a value of type `{type(value).__name__}` is not JSON, so approvers could not read it")
    return json.loads(payload.data)


def from_json(converter: PayloadConverter, value: Any, like: Any, hint: Any) -> Any:
    """Decode the JSON as the activity's argument, in the encoding of the value `like` and with the type `hint`."""
    metadata = dict(converter.to_payload(like).metadata)
    if metadata.get(_ENCODING) not in _READABLE:
        metadata = {_ENCODING: _PLAIN}
    return converter.from_payload(Payload(metadata=metadata, data=json.dumps(value).encode()), hint)


def _is_object(values: Sequence[Any]) -> bool:
    return len(values) == 1 and isinstance(values[0], dict)


def _find(values: Sequence[Any], place: str, name: str) -> Any:
    try:
        return _follow(values[0], place.split("."))
    except (IndexError, KeyError, TypeError, ValueError):
        raise ValueError(f"the first argument of activity `{name}` has no `{place}`") from None


def _follow(value: Any, way: Sequence[str]) -> Any:
    for each in way:
        value = value[int(each)] if isinstance(value, list) else value[each]
    return value


def _step(holder: Any, place: str, value: Any) -> None:
    holder[int(place) if isinstance(holder, list) else place] = value
