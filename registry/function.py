"""Makes a tool from a typed function: schema from its signature, description from its docstring."""

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.formats.json_schema import SchemaProblem, describe_place
from signoff.formats.nearest_name import cut_text
from signoff.registry.hooks import Handler, InputCheck
from signoff.registry.tool import UNDECLARED, Tool, ToolOptions, refuse_tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_fields import FieldProblem, by_own_names

P = ParamSpec("P")
ToolFunction: TypeAlias = Callable[..., Any]

_UNPASSABLE: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "positional only",
    inspect.Parameter.VAR_POSITIONAL: "`*args`",
    inspect.Parameter.VAR_KEYWORD: "`**kwargs`",
}
_SHOWN_CHARS: Final = 60
_INSIDE: Final = "an argument whose type contains `ToolContext`; take the context as a separate parameter"
_FORM: Final = "write `@tool(scope=...)` above an `async def`, or `@tool` where the manifest gives the scope"
_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?|See Also):\s*$"
)
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY: Final = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


# Titles repeat the arguments' names, and every completion would send them to the model.
class _Untitled(GenerateJsonSchema):
    """Omits the titles that pydantic derives from argument names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class _Signature:
    """A function's arguments as one pydantic type. `context` names the parameter for the `ToolContext`."""

    adapter: TypeAdapter[Any]
    context: str

    def values(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Missing arguments keep the function's defaults."""
        # Not in strict mode: arguments are plain JSON, without dates, tuples or enums, and the schema check has passed.
        # They are converted for the check and again for the run, because a history lies in between.
        arguments = self.adapter.validate_python(dict(args))
        # Not `asdict`: it would also convert the function's own dataclasses.
        return {field.name: vars(arguments)[field.name] for field in dataclasses.fields(arguments)}


class _Origin(NamedTuple):
    """The tool's name and the function's position, `file:line`; "" if unknown."""

    name: str
    site: str


class ToolDecorator(Generic[P]):
    """Declares the decorated async function as a `Tool`; its keywords are the fields of `ToolOptions`."""

    def __init__(self, options: Callable[P, object]) -> None:
        self.__signature__ = inspect.signature(options)

    # No keyword of `P` is a positional function, but mypy cannot know that.
    @overload
    def __call__(self, function: ToolFunction, /) -> Tool: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, *args: P.args, **fields: P.kwargs) -> Callable[[ToolFunction], Tool]: ...

    def __call__(self, *args: Any, **fields: Any) -> Any:
        """Return the tool of a function, or with keywords the decorator of one. Raises `ConfigError`."""
        if not args:
            return lambda function: tool_from_function(function, fields)
        if len(args) > 1 or fields or not (callable(args[0]) or isinstance(args[0], Tool)):
            why = f"`@tool` takes keywords alone, and `{cut_text(repr(args[0]), _SHOWN_CHARS)}` is none; {_FORM}"
            raise ConfigError(why, field="handler")
        return tool_from_function(args[0], {})


tool: Final = ToolDecorator(ToolOptions)
"""Turn the decorated function into a `Tool`. Register it with `app.add` or a registry.

Keywords are the fields of `ToolOptions`: `@tool(scope=...)`. Bare `@tool` leaves the scope to the manifest. A plain
`def` runs in a thread. To keep the function: `tool(scope=..., ...)(function)`.
"""


def tool_from_function(function: Any, fields: Mapping[str, Any]) -> Tool:
    """Make the `Tool` of a typed function. A parameter annotated `ToolContext` receives the context.

    A plain `def` runs in a thread.

    Raises `ConfigError` if it is not a function. Raises `RegistrationError` for an unknown keyword, or a parameter
    without a type or JSON Schema.
    """
    named = by_own_names(Tool, fields)
    if isinstance(named, FieldProblem):
        raise _refuse(_origin(function, fields), named.field, named.why)
    fields = named
    origin = _origin(function, fields)
    # `inspect.isfunction` is false for functions in C, whose signatures have no types.
    written = inspect.isfunction(inspect.unwrap(function)) or inspect.ismethod(function)
    if origin.name == "<lambda>" or not written or inspect.isasyncgenfunction(function):
        kind = "a lambda" if origin.name == "<lambda>" else "another object"
        raise _refuse(origin, "handler", f"needs `handler` to be a `def` or an `async def`, but it is {kind}")
    words = parse_docstring(function.__doc__)
    signature = _signature(function, origin, words.arguments)
    given: dict[str, Any] = {**origin._asdict(), "description": words.summary, "scope": UNDECLARED, **fields}
    made: dict[str, Any] = {
        "input_schema": _json_schema(signature, origin),
        "handler": _handler(function, signature),
        "validate_input": _input_check(signature),
    }
    doubled = next((each for each in made if each in given), None)
    if doubled is not None:
        why = f"has `{doubled}` among its keywords, which its function's signature gives; declare a `Tool` instead"
        raise _refuse(origin, doubled, why)
    return Tool(**given, **made)


def _origin(function: Any, fields: Mapping[str, Any]) -> _Origin:
    # A class is called to make an object, not to run a tool. A `Tool` is declared already.
    if isinstance(function, Tool):
        raise _refuse(_Origin(function.name, function.site), "handler", "is declared twice; drop one `@tool`")
    if not inspect.isroutine(function):
        shown = cut_text(repr(function), _SHOWN_CHARS)
        kind = f"the class `{function.__name__}`" if isinstance(function, type) else f"`{shown}`"
        raise ConfigError(f"`@tool` is for functions, and {kind} is none; {_FORM}", field="handler")
    # Look below other decorators for the author's function. Functions in C have no position.
    author = inspect.unwrap(function)
    code = author.__code__ if inspect.isfunction(author) else None
    site = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    return _Origin(str(fields.get("name") or function.__name__), site)


def _refuse(origin: _Origin, field: str, why: str) -> RegistrationError:
    return refuse_tool(origin.name, FieldProblem(field, "", why), origin.site)


def _signature(function: Callable[..., Any], origin: _Origin, words: Mapping[str, str]) -> _Signature:
    try:
        hints = get_type_hints(function, include_extras=True)
    # Text annotations are evaluated here: the module author's code may raise anything.
    except Exception as error:
        raise _refuse(origin, "handler", f"has a type that cannot be resolved: {error}") from None
    context, fields = "", []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _UNPASSABLE:
            raise _refuse(origin, "handler", f"has {_UNPASSABLE[parameter.kind]} parameters; name each argument")
        hint = hints.get(parameter.name)
        if hint is None:
            raise _refuse(origin, "handler", f"has no type for its argument `{parameter.name}`")
        # The context is not an argument. The closed schema leaves it out, so that no model can send one.
        if is_context_type(hint):
            if context:
                raise _refuse(origin, "handler", f"has two parameters for the context; drop `{parameter.name}`")
            context = parameter.name
        else:
            fields.append(_field(parameter, hint, words.get(parameter.name, "")))
    # `kw_only`: after `*`, a parameter without a default may follow one with a default; fields may not.
    arguments = dataclasses.make_dataclass(
        "Arguments", fields, kw_only=True, namespace={"__pydantic_config__": ConfigDict(extra="forbid")}
    )
    try:
        signature = _Signature(TypeAdapter(arguments), context)
        if _holds_context(signature.adapter.core_schema):
            raise _refuse(origin, "handler", f"has {_INSIDE}")
        return signature
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise _refuse(origin, "handler", f"has an argument type pydantic cannot read: {_first_line(error)}") from None


def is_context_type(hint: Any) -> bool:
    """Also if the type is optional, annotated or an alias."""
    if hasattr(hint, "__value__"):
        return is_context_type(hint.__value__)
    if get_origin(hint) is Annotated:
        return is_context_type(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return all(each is NoneType or is_context_type(each) for each in get_args(hint)) and hint is not NoneType
    return hint is ToolContext


def _holds_context(schema: Any) -> bool:
    """Return whether a pydantic core schema contains `ToolContext`: a model could then forge one."""
    stack = [schema]
    while stack:
        each = stack.pop()
        if isinstance(each, Mapping):
            stack.extend(each.values())
        elif isinstance(each, list | tuple):
            stack.extend(each)
        elif isinstance(each, type) and issubclass(each, ToolContext):
            return True
    return False


def _field(parameter: inspect.Parameter, hint: Any, words: str) -> tuple[str, Any, Any]:
    annotation = Annotated[hint, Field(description=words)] if words else hint
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, annotation, dataclasses.field()
    default = parameter.default
    # A dataclass rejects these defaults, and a change by one handler would affect every later call.
    if isinstance(default, list | dict | set):
        return parameter.name, annotation, dataclasses.field(default_factory=lambda: default.copy())
    return parameter.name, annotation, dataclasses.field(default=default)


def _json_schema(signature: _Signature, origin: _Origin) -> dict[str, Any]:
    try:
        schema = signature.adapter.json_schema(schema_generator=_Untitled)
    except PydanticInvalidForJsonSchema as error:
        raise _refuse(origin, "handler", f"has an argument type without JSON Schema: {_first_line(error)}") from None
    # Remove the generated class name: approvals would be bound to it.
    schema.pop("title", None)
    return schema


def _handler(function: Callable[..., Any], signature: _Signature) -> Handler:
    is_async = inspect.iscoroutinefunction(function)

    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        values = signature.values(args)
        if signature.context:
            values[signature.context] = context
        # A thread cannot be stopped: after a timeout the call may still run, and its outcome is unknown.
        return await function(**values) if is_async else await asyncio.to_thread(function, **values)

    # Readers of a traceback or of two catalogs look for the function, not for this wrapper.
    handler.__module__, handler.__qualname__ = function.__module__, function.__qualname__
    return handler


def _input_check(signature: _Signature) -> InputCheck:
    def check(args: Mapping[str, Any]) -> list[SchemaProblem]:
        try:
            signature.values(args)
        except ValidationError as error:
            return [_problem(each) for each in error.errors(include_url=False, include_context=False)]
        return []

    return check


def _problem(error: ErrorDetails) -> SchemaProblem:
    # Pydantic's message may quote the value, which may be secret.
    quoted = str(error["input"])
    message = "is not acceptable" if quoted and quoted in error["msg"] else error["msg"]
    return SchemaProblem(describe_place(error["loc"]), message[:1].lower() + message[1:])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class ParsedDocstring(NamedTuple):
    """The text before the first section, and one sentence per argument."""

    summary: str
    arguments: dict[str, str]


def parse_docstring(text: str | None) -> ParsedDocstring:
    """Reads the Google style. Missing parts are empty."""
    summary: list[str] = []
    sections: dict[str, list[str]] = {}
    section = ""
    for line in inspect.cleandoc(text or "").splitlines():
        # Only without indent: `Returns:` within an argument's description belongs to it.
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
        elif section:
            sections.setdefault(section, []).append(line)
        else:
            summary.append(line)
    lines = [line for name in sections if name in _ARGUMENTS for line in sections[name]]
    return ParsedDocstring("\n".join(summary).strip(), _entries(lines))


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    current, depth = "", 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line)
        # A line with more indent continues the entry, even if it looks like `name: words`.
        if entry and (not current or indent <= depth):
            current, depth = entry[1], indent
            found[current] = entry[2].strip()
        elif current and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
