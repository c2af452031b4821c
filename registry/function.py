"""A tool out of a typed async function: schema from its signature, words from its docstring, values by pydantic."""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, Required, TypedDict, Unpack, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from signoff.contracts.errors import RegistrationError
from signoff.contracts.usage import UsageLimit
from signoff.formats.json_schema import Problem, place_told
from signoff.policy.approval_policy import RequiresApproval
from signoff.registry.capabilities import Capabilities
from signoff.registry.docstring import parse_docstring
from signoff.registry.hooks import Available, Handler, InputCheck, PermissionCheck, Probe
from signoff.registry.results.annotated_record import Filter
from signoff.registry.tool import BypassRouting, Concurrency, Routing, Scope, Tool, Validation
from signoff.registry.tool_context import ToolContext

_UNPASSABLE: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "positional only",
    inspect.Parameter.VAR_POSITIONAL: "`*args`",
    inspect.Parameter.VAR_KEYWORD: "`**kwargs`",
}


class ToolFields(TypedDict, total=False):
    """The fields of a `Tool` that a function does not give by itself; `name` and `description` override its own."""

    scope: Required[Scope]
    name: str
    description: str
    output_schema: Mapping[str, Any] | None
    routing: Routing
    bypass_routing: BypassRouting | None
    justification: str
    requires_approval: RequiresApproval
    tags: tuple[str, ...]
    peer_exposed: bool
    title: str
    effect: str
    secrets: tuple[str, ...]
    version: str
    read_only: bool
    idempotent: bool
    timeout: float
    max_result_chars: int | None
    task_queue: str
    toolset: str
    plugin: str
    concurrency: Concurrency
    attempts: int | None
    fallbacks: tuple[str, ...]
    tenants: tuple[str, ...] | None
    hours: tuple[str, ...]
    usage_limit: UsageLimit | None
    updates: tuple[str, ...]
    validation: Validation
    capabilities: Capabilities
    untrusted_output: bool
    return_direct: bool
    filters: Mapping[str, Filter]
    available: Available | None
    check_permissions: PermissionCheck | None
    probe: Probe | None
    site: str


# Titles repeat the arguments' names, and the model would be sent all of them with every completion.
class _Untitled(GenerateJsonSchema):
    """pydantic's schemas without the titles it makes up from argument names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class _Signature:
    """A function's arguments as one pydantic type; `context` is the parameter that receives the `ToolContext`."""

    adapter: TypeAdapter[Any]
    context: str

    def values(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Typed values by parameter name; those not given are left to the function's defaults."""
        # Not in strict mode: what arrives is plain JSON, which has no dates, tuples or enums, and the schema has been
        # checked before. Made once to check and again to run, as a history lies between the two.
        arguments = self.adapter.validate_python(dict(args))
        # Not `asdict`: it would take the function's own dataclasses apart again.
        return {field.name: vars(arguments)[field.name] for field in dataclasses.fields(arguments)}


def tool(**fields: Unpack[ToolFields]) -> Callable[[Callable[..., Awaitable[Any]]], Tool]:
    """Declare the decorated async function as a `Tool`. Raises `RegistrationError`."""
    return lambda function: from_function(function, **fields)


def from_function(function: Callable[..., Awaitable[Any]], **fields: Unpack[ToolFields]) -> Tool:
    """The `Tool` of a typed async function; a parameter annotated `ToolContext` receives the context.

    Raises `RegistrationError` when a parameter has no type, or one that has no JSON Schema.
    """
    name = fields.get("name", function.__name__)
    if not inspect.iscoroutinefunction(function):
        raise _refuse(name, "handler", "has a handler that is not `async def`; handlers are async only")
    words = parse_docstring(function.__doc__)
    signature = _signature(function, name, words.arguments)
    # Below other decorators: the site is where the author wrote the function.
    code = inspect.unwrap(function).__code__
    given: dict[str, Any] = {
        "name": name,
        "description": words.summary,
        "site": f"{code.co_filename}:{code.co_firstlineno}",
        **fields,
    }
    return Tool(
        input_schema=_json_schema(signature, name),
        handler=_handler(function, signature),
        validate_input=_input_check(signature),
        **given,
    )


def _refuse(name: str, field: str, why: str) -> RegistrationError:
    return RegistrationError(f"tool `{name}` {why}", tool_name=name, field=field, value="")


def _signature(function: Callable[..., Any], name: str, words: Mapping[str, str]) -> _Signature:
    try:
        hints = get_type_hints(function, include_extras=True)
    # Annotations as text are evaluated here, so that anything the module's author wrote may fail.
    except Exception as error:
        raise _refuse(name, "handler", f"has a type that cannot be resolved: {error}") from None
    context, fields = "", []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _UNPASSABLE:
            raise _refuse(name, "handler", f"has {_UNPASSABLE[parameter.kind]} parameters; name each argument")
        hint = hints.get(parameter.name)
        if hint is None:
            raise _refuse(name, "handler", f"has no type for its argument `{parameter.name}`")
        # It is no argument: left out of the schema, which is closed, so that no model can send a context of its own.
        if hint is ToolContext:
            context = parameter.name
        else:
            fields.append(_field(parameter, hint, words.get(parameter.name, "")))
    # `kw_only`: behind a `*` a parameter without a default may follow one that has it, which fields may not.
    arguments = dataclasses.make_dataclass(
        "Arguments", fields, kw_only=True, namespace={"__pydantic_config__": ConfigDict(extra="forbid")}
    )
    try:
        return _Signature(TypeAdapter(arguments), context)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise _refuse(name, "handler", f"has an argument type pydantic cannot read: {_first_line(error)}") from None


def _field(parameter: inspect.Parameter, hint: Any, words: str) -> tuple[str, Any, Any]:
    annotation = Annotated[hint, Field(description=words)] if words else hint
    if parameter.default is inspect.Parameter.empty:
        return parameter.name, annotation, dataclasses.field()
    default = parameter.default
    # A dataclass refuses these as defaults, and one that a handler changes would be changed for every later call.
    if isinstance(default, list | dict | set):
        return parameter.name, annotation, dataclasses.field(default_factory=lambda: default.copy())
    return parameter.name, annotation, dataclasses.field(default=default)


def _json_schema(signature: _Signature, name: str) -> dict[str, Any]:
    try:
        schema = signature.adapter.json_schema(schema_generator=_Untitled)
    except PydanticInvalidForJsonSchema as error:
        raise _refuse(name, "handler", f"has an argument type without JSON Schema: {_first_line(error)}") from None
    # The name of a class that nobody wrote; it would be part of what approvals are bound to.
    schema.pop("title", None)
    return schema


def _handler(function: Callable[..., Awaitable[Any]], signature: _Signature) -> Handler:
    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        values = signature.values(args)
        if signature.context:
            values[signature.context] = context
        return await function(**values)

    # Whoever reads a traceback or compares two catalogs looks for the function, not for this one around it.
    handler.__module__, handler.__qualname__ = function.__module__, function.__qualname__
    return handler


def _input_check(signature: _Signature) -> InputCheck:
    def check(args: Mapping[str, Any]) -> list[Problem]:
        try:
            signature.values(args)
        except ValidationError as error:
            return [_problem(each) for each in error.errors(include_url=False, include_context=False)]
        return []

    return check


def _problem(error: ErrorDetails) -> Problem:
    # pydantic's words may quote the value, which may be a secret.
    quoted = str(error["input"])
    message = "is not acceptable" if quoted and quoted in error["msg"] else error["msg"]
    return Problem(place_told(error["loc"]), message[:1].lower() + message[1:])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
