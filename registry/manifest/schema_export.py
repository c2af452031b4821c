"""Exports the JSON Schema of the manifest for editors, from the loader's sections, in either spelling."""

import copy
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from signoff.formats.declared_fields import first_words
from signoff.formats.json_schema import DIALECT
from signoff.formats.yaml_section import spellings
from signoff.people.people_file import DelegationSection, PersonSection, ReachSection
from signoff.policy.approval_policy import APPROVER, MAX_QUORUM, ApprovalPolicy, GlobalRule, ShownArguments, TermRule
from signoff.registry.manifest.channel_sections import INBOX, RoutingSection
from signoff.registry.manifest.destination_sections import DestinationSection
from signoff.registry.manifest.on_call_sections import OnCallSection
from signoff.registry.manifest.room_sections import RoomSection
from signoff.registry.manifest.scope_sections import RouteSection, StepSection, UseSection
from signoff.registry.manifest.sections import (
    ActorSection,
    Defaults,
    InsightsSection,
    LimitsSection,
    ManifestSection,
)
from signoff.registry.manifest.server_sections import ToolServerSection
from signoff.registry.manifest.subscription_sections import SubscriptionSection
from signoff.registry.manifest.tool_section import RUN_KEYS, OwnToolSection, ServerToolSection, ToolSection

ManifestPart = Literal["manifest", "tool", "actor", "policies", "people"]

_MODELS: Final[Mapping[type[BaseModel], str]] = {
    ManifestSection: "manifest",
    Defaults: "`defaults`",
    LimitsSection: "`limits` of an actor",
    InsightsSection: "`insights`",
    ActorSection: "actor",
    RouteSection: "route",
    StepSection: "step",
    UseSection: "entry of a route's or step's `tools`",
    ToolSection: "tool",
    OwnToolSection: "own tool",
    ServerToolSection: "tool of an MCP server",
    DestinationSection: "destination",
    RoutingSection: "`routing`",
    RoomSection: "room of `rooms`",
    OnCallSection: "rota of `oncall`",
    SubscriptionSection: "subscription",
    ToolServerSection: "MCP server",
    ApprovalPolicy: "`requires_approval`",
    ShownArguments: "`show`",
    TermRule: "entry of `terms`",
    GlobalRule: "rule of `policies`",
    PersonSection: "person",
    DelegationSection: "delegation",
    ReachSection: "`reach` of a person",
}
"""The models of a manifest's parts, and the name of each part for messages."""
_KIND: Final = {
    "type": "string",
    "pattern": r"^([a-z][a-z0-9_]*|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+)$",
    "description": "`email`, `slack` and the like, or `package.module`; all other keys are its options.",
}


def keys_by_part() -> dict[str, tuple[str, ...]]:
    """In snake_case."""
    parts = {part: tuple(model.model_fields) for model, part in _MODELS.items()}
    models = list(_MODELS)
    for model in models:
        for field, info in model.model_fields.items():
            found = [each for each in _models_in(info.annotation) if each not in models]
            parts.update({f"`{field}`": tuple(each.model_fields) for each in found})
            models.extend(found)
    return parts


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models_in(each)]


class _Untitled(GenerateJsonSchema):
    """Omits titles derived from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def manifest_schema(part: ManifestPart = "manifest") -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a whole manifest, or of one file of a directory.

    It rejects wrong shapes; the loader rejects the rest, such as unknown names.
    """
    _, made = models_json_schema(
        [(model, "validation") for model in _MODELS], by_alias=False, schema_generator=_Untitled
    )
    known = made["$defs"]
    _join(known)
    for name, definition in known.items():
        _spell(name, definition)
    tops: dict[ManifestPart, dict[str, Any]] = {
        "manifest": _ref("ManifestSection"),
        "tool": _ref("ToolSection"),
        "actor": _ref("ActorSection"),
        "policies": {"type": "array", "items": _ref("GlobalRule")},
        "people": {"type": "array", "items": _ref("PersonSection")},
    }
    return {"$schema": DIALECT, "title": f"Signoff: {part}", **tops[part], "$defs": known}


def _join(known: dict[str, Any]) -> None:
    top, actor, tool = (known[name]["properties"] for name in ("ManifestSection", "ActorSection", "ToolSection"))
    person, policy = known["PersonSection"]["properties"], known["ApprovalPolicy"]["properties"]
    top["defaults"] |= _ref("Defaults")
    # An actor may consist of its name, but a tool needs its handler: only an actor may be null.
    top["actors"] |= {"additionalProperties": {"anyOf": [_ref("ActorSection"), {"type": "null"}]}}
    top["tools"] |= {
        "additionalProperties": _ref("ToolSection"),
        "patternProperties": {"^mcp__": {"anyOf": [_ref("ServerToolSection"), _ref("ToolSection")]}},
        # Letter by letter: patterns of JSON Schema (ECMA-262) have no flag to ignore case.
        "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,64}$", "not": {"pattern": "^[Rr][Ee][Ss][Pp][Oo][Nn][Dd]$"}},
    }
    top["destinations"] |= {"additionalProperties": _ref("DestinationSection")}
    top["insights"] |= _ref(InsightsSection.__name__)
    top["routing"] |= _ref(RoutingSection.__name__)
    top["rooms"] |= {
        "additionalProperties": {"type": "array", "items": _ref(RoomSection.__name__)},
        "propertyNames": {"pattern": "^role:[A-Za-z0-9_-]{1,48}$"},
    }
    top["oncall"] |= {
        "additionalProperties": _ref(OnCallSection.__name__),
        "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,48}$"},
    }
    top["subscriptions"] |= {"additionalProperties": _ref("SubscriptionSection")}
    top["mcp_servers"] |= {"additionalProperties": _ref("ToolServerSection")}
    asks = known["ToolServerSection"]["properties"]["requires_approval"]
    asks["anyOf"] = [{"type": "boolean"}, _ref("ApprovalPolicy"), {"type": "null"}]
    top["channels"] |= {
        "additionalProperties": {"type": "object", "properties": {"kind": _KIND}, "required": ["kind"]},
        "propertyNames": {"pattern": "^[A-Za-z0-9_-]{1,48}$", "not": {"const": INBOX}},
    }
    top["policies"] |= {"items": _ref("GlobalRule")}
    top["people"]["anyOf"] = [{"type": "array", "items": _ref("PersonSection")}, {"type": "string"}]
    actor["limits"] |= _ref(LimitsSection.__name__)
    chooses = {"type": "string", "description": "Selects the available routes for each completion."}
    actor["routes"] |= {
        "properties": {"select": chooses},
        "additionalProperties": {"anyOf": [_ref("RouteSection"), {"type": "null"}]},
    }
    route, step = (known[name]["properties"] for name in ("RouteSection", "StepSection"))
    route["steps"] |= {"additionalProperties": {"anyOf": [_ref("StepSection"), {"type": "null"}]}}
    for level in (route, step):
        level["tools"] |= {"items": {"anyOf": [{"type": "string"}, _ref(UseSection.__name__)]}}
    for level in (actor, route, step):
        level["own_tools"] |= {"additionalProperties": _ref("OwnToolSection")}
    of_server = known["ServerToolSection"]["properties"]
    for name in RUN_KEYS:
        del of_server[name]
    for each in (tool, known["OwnToolSection"]["properties"], of_server):
        each["requires_approval"]["anyOf"] = [{"type": "boolean"}, _ref("ApprovalPolicy"), {"type": "null"}]
    # Reducers use names of the registry, which has no own tools.
    del known["OwnToolSection"]["properties"]["reducer"]
    person["reach"]["anyOf"] = [_ref(ReachSection.__name__), {"type": "null"}]
    person["delegations"] |= {"items": _ref("DelegationSection")}
    for approvers in (known["Defaults"]["properties"]["approvers"], policy["approvers"], policy["escalate_to"]):
        # ECMA-262 has no `\Z`. `chr(92)`, as Python 3.11 takes no backslash within an f-string's braces.
        approvers["items"] = {"type": "string", "pattern": f"^{APPROVER.pattern.removesuffix(chr(92) + 'Z')}$"}
    del known["ApproverGroup"]
    term = known["TermRule"]["properties"]
    term["escalate_to"]["items"] = policy["escalate_to"]["items"]
    for asking in (policy, term):
        asking["approvers"]["items"] = _approver_schema(policy["escalate_to"]["items"])


def _approver_schema(approver: dict[str, Any]) -> dict[str, Any]:
    """An approver is a name, or a group of names."""
    of = {"anyOf": [approver, {"type": "array", "items": approver, "minItems": 1}]}
    quorum = {"type": "integer", "minimum": 1, "maximum": MAX_QUORUM, "default": 1}
    group = {"type": "object", "properties": {"of": of, "quorum": quorum}, "required": ["of"]}
    return {"anyOf": [approver, group | {"additionalProperties": False}]}


def _spell(name: str, definition: dict[str, Any]) -> None:
    """Describe each key, and accept it in every spelling of the loader."""
    definition.pop("title", None)
    definition["description"] = str(definition.get("description", "")).partition("\n\n")[0]
    fields = definition["properties"]
    model = next((model for model in _MODELS if model.__name__ == name), None)
    for field, schema in fields.items():
        # Other models have their descriptions under each field.
        if model is not None and "description" not in schema:
            schema["description"] = first_words(model, field)
    for schema in fields.values():
        # Null means "not given" here; an editor would offer to write it.
        if schema.get("default", ...) is None:
            del schema["default"]
    keys: dict[str, list[str]] = {field: [] for field in fields}
    for key, field in _spellings(name, fields).items():
        if field in keys:
            keys[field].append(key)
    definition["properties"] = {key: copy.deepcopy(fields[field]) for field in fields for key in sorted(keys[field])}
    needed: list[tuple[str, ...]] = [(field,) for field in definition.pop("required", ())]
    needed += [RUN_KEYS] if {*RUN_KEYS} <= fields.keys() else []
    if needed:
        # `required` can name one spelling only, and would reject the other.
        spelled = [sorted(key for field in each for key in keys[field]) for each in needed]
        definition["allOf"] = [{"anyOf": [{"required": [key]} for key in each]} for each in spelled]


def _spellings(name: str, fields: Mapping[str, Any]) -> dict[str, str]:
    model = next((model for model in _MODELS if model.__name__ == name), None)
    if model is not None:
        return spellings(model)
    return {to_camel(field): field for field in fields} | {field: field for field in fields}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}
