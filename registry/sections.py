"""The manifest's sections: which keys there are, of which type, and what a wrong one is told."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from signoff.policy.durations import Seconds
from signoff.registry.nearest import did_you_mean
from signoff.registry.yamlfile import Place, YamlFile

ALIASES: Final[Mapping[str, str]] = {
    "id": "name",
    "parameters": "input_schema",
    "schema": "input_schema",
    "execute": "handler",
    "max_result_size_chars": "max_result_chars",
    "maxResultSizeChars": "max_result_chars",
    "output_is_untrusted": "untrusted_output",
    "outputIsUntrusted": "untrusted_output",
}
"""Other designs' words for a tool's fields (X20)."""

_EXPECTED: Final = {
    "string_type": "must be text; put it in quotes",
    "bool_type": "must be `true` or `false`",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "missing": "is missing",
}


class Section(BaseModel):
    """Closed and strict: a text is not a number, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Top(Section):
    """The whole file; the values of the inner sections are read one by one."""

    version: Literal[1]
    path: list[str] = ["."]
    context: dict[str, dict[str, Any]] = {}
    defaults: dict[str, Any] = {}
    people: list[Any] | str = []
    actors: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    policies: list[Any] = []
    part_types: list[str] = []


class Defaults(Section):
    """What actors and policies fall back on."""

    approvers: list[str] = ["role:approvers"]
    model: str = ""


class LimitsSection(Section):
    """Caps of one turn; cost in USD."""

    completions: Annotated[int, Field(ge=1)] | None = None
    calls: Annotated[int, Field(ge=1)] | None = None
    cost: Annotated[float, Field(gt=0)] | None = None
    active_seconds: Seconds | None = None


class SurfaceSection(Section):
    """What is left out where people come by one channel."""

    exclude: list[str] = []


class ActorSection(Section):
    """One actor; its name is its key. No `tools` means all of them, `[]` none."""

    description: str = ""
    instructions: str = ""
    model: str = ""
    tools: list[str] | None = None
    toolset: str | None = None
    allowed_plugins: list[str] | None = None
    allowed_mcp_servers: list[str] | None = None
    allowed_mcp_tools: dict[str, list[str]] | None = None
    surfaces: dict[str, SurfaceSection] = {}
    read_rest: bool = False
    mode: Literal["parallel", "sequential"] = "parallel"
    on_failure: Literal["continue", "abort_siblings"] = "continue"
    limits: dict[str, Any] = {}
    model_settings: dict[str, Any] = {}
    tags: list[str] = []


class BypassSection(Section):
    """Why a specialist tool bypasses routing."""

    reason: str


class CapabilitiesSection(Section):
    """What a tool's handler is given."""

    network: list[str] = []
    secrets: list[str] = []
    storage: bool = False
    process: bool = False
    fs_reach: list[str] = []
    attachments: bool = False


class ToolSection(Section):
    """One tool; its name is its key. What is not given is left to the handler's own declaration."""

    handler: str
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    scope: Literal["generalist", "specialist"] | None = None
    routing: Literal["routed", "bypass"] | None = None
    bypass_routing: BypassSection | None = None
    justification: str | None = None
    requires_approval: bool | dict[str, Any] | None = None
    tags: list[str] | None = None
    peer_exposed: bool | None = None
    title: str | None = None
    effect: str | None = None
    secrets: list[str] | None = None
    version: str | None = None
    read_only: bool | None = None
    idempotent: bool | None = None
    timeout: Seconds | None = None
    max_result_chars: int | None = None
    task_queue: str | None = None
    toolset: str | None = None
    plugin: str | None = None
    concurrency: Literal["safe", "exclusive"] | None = None
    attempts: int | None = None
    fallbacks: list[str] | None = None
    validation: Literal["strict", "warn", "off"] | None = None
    capabilities: CapabilitiesSection | None = None
    untrusted_output: bool | None = None
    return_direct: bool | None = None
    reducer: str | None = None
    available: str | None = None
    check_permissions: str | None = None
    probe: str | None = None


S = TypeVar("S", bound=Section)


def read_section(file: YamlFile, place: Place, model: type[S], data: Any, what: str) -> S:
    """`data` as a section. Raises `ConfigError` with file, line, key, what is allowed and the nearest name."""
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise file.error(place, f"{what} must be a mapping of keys and values")
    written = check_keys(file, place, model, data, what)
    try:
        return model.model_validate({field: data[key] for field, key in written.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    field = str(first["loc"][0])
    inner = (written.get(field, field), *first["loc"][1:])
    raise file.error((*place, *inner), f"`{written.get(field, field)}` of {what} {_expectation(first)}", field=field)


def check_keys(
    file: YamlFile, place: Place, model: type[BaseModel], data: Mapping[str, Any], what: str
) -> dict[str, str]:
    """The key that gives each field of `model`. Raises `ConfigError` for unknown keys and for two of one meaning."""
    fields = model.model_fields
    known = {**{alias: name for alias, name in ALIASES.items() if model is ToolSection}}
    known |= {to_camel(name): name for name in fields} | {name: name for name in fields}
    written: dict[str, str] = {}
    for key in data:
        field = known.get(key)
        if field is None:
            near = did_you_mean(key, [name for name in known if (name.islower() if key.islower() else "_" not in name)])
            allowed = ", ".join(f"`{name}`" for name in fields)
            raise file.error((*place, key), f"unknown key `{key}` of {what}; allowed: {allowed}{near}", field=key)
        if field in written:
            raise file.error(
                (*place, key), f"`{key}` and `{written[field]}` of {what} mean the same; keep one", field=field
            )
        written[field] = key
    return written


def _expectation(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"must be {error['ctx']['expected'].replace(chr(39), '`')}" if "ctx" in error else "is not allowed"
    if error["type"] == "extra_forbidden":
        return f"has an unknown key `{error['loc'][-1]}`"
    return _EXPECTED.get(error["type"]) or f"is not right: {error['msg'][:1].lower()}{error['msg'][1:]}"
