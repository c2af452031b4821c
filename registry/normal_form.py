"""Writes the normal form of a catalog: all declarations as plain data, byte for byte equal in every process."""

import dataclasses
import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from signoff.contracts.canonical_json import canonical_json, sha256_hex
from signoff.contracts.message import PART_TYPES, WITHHELD_PART_TYPES
from signoff.keys.secret_references import is_reference
from signoff.people.directory import declared_people
from signoff.people.people_file import FileDirectory
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.registry.manifest.on_call_sections import OnCallRota
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.mcp.tool_server import ToolServer
from signoff.registry.tool import Tool

_SITE: Final = "site"
"""The place of a declaration is not part of it."""


def normal_form(catalog: Catalog) -> dict[str, Any]:
    """Return all declarations of a catalog as plain data, by section and name.

    An actor's own tool has the name of its `activity`, `<name>@<actor>.<route>.<step>`. Only values that differ from
    defaults appear. A function is `module:function`: its code does not count. A people's file appears by its name.
    """
    return {
        "hash": catalog.hash,
        "tools": {tool.activity: _tool(catalog, tool) for tool in catalog.every_tool},
        "actors": {name: _declared_fields(actor) for name, actor in catalog.actors.items()},
        "policies": {rule.name: _rule(rule) for rule in catalog.declared_rules},
        # Mappings are sorted, but among rules of one effect the first match decides.
        "order_of_policies": [rule.name for rule in catalog.declared_rules],
        "default_approvers": list(catalog.default_approvers),
        "context": _plain(catalog.fields.declared),
        "destinations": {each.name: _fields(each) for each in catalog.distribution.destinations.values()},
        "observer": _plain(catalog.distribution.observer),
        "part_types": [each for each in catalog.part_types if each not in PART_TYPES],
        "requires_peer_consumes": sorted(catalog.requires_peer_consumes - set(WITHHELD_PART_TYPES)),
        "people": _people(catalog),
        "channels": {each.name: _declared_fields(each) for each in catalog.channels.declared.values()},
        "routing": _fields(catalog.channels.routing),
        "rooms": _plain(catalog.channels.rooms),
        "oncall": {name: _rota(each) for name, each in catalog.on_call.items()},
        "subscriptions": {each.name: _declared_fields(each) for each in catalog.subscriptions.values()},
        "mcp_servers": {each.name: _server(each) for each in catalog.mcp_servers.values()},
        "insights": {"by_person": True} if catalog.insights_by_person else {},
    }


def normal_text(catalog: Catalog) -> str:
    """Return sorted, indented JSON, with numbers in RFC 8785 form and one final newline."""
    form = json.loads(canonical_json(normal_form(catalog)))
    return json.dumps(form, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _tool(catalog: Catalog, tool: Tool) -> dict[str, Any]:
    reducer = catalog.reducers.get(tool.name)
    form = {"definition": tool.definition, **_declared_fields(tool), "input_schema": _plain(tool.schema.schema)}
    return form if reducer is None else {**form, "reducer": _plain(reducer)}


def _rule(rule: GlobalRule) -> dict[str, Any]:
    return rule.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)


def _rota(rota: OnCallRota) -> dict[str, Any]:
    form = _declared_fields(rota)
    # An address is often a secret. Its hash shows a change.
    return form if not rota.ical or is_reference(rota.ical) else {**form, "ical": f"sha256:{sha256_hex(rota.ical)}"}


def _people(catalog: Catalog) -> dict[str, Any]:
    directory = declared_people(catalog.people)
    if isinstance(directory, FileDirectory):
        return {"file": directory.path.name}
    return {f"{person.tenant}/{person.id}": _plain(person) for person in directory.all()}


def _declared_fields(thing: Tool | Actor | DeclaredChannel | OnCallRota | Subscription) -> dict[str, Any]:
    """Return the fields that differ from their defaults, without the name."""
    return {name: value for name, value in _fields(thing).items() if name != "name"}


def _server(server: ToolServer) -> dict[str, Any]:
    return {name: value for name, value in _fields(server).items() if name not in ("name", "tools")}


def _fields(thing: Any) -> dict[str, Any]:
    values = vars(thing)
    return {
        field.name: _plain(values[field.name])
        for field in dataclasses.fields(thing)
        if field.name != _SITE and values[field.name] != _default(field)
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Tool):
        # An actor's own tool is listed among the tools.
        return {"own": value.name}
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(each) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    return _reference(value)


def _reference(value: Any) -> str:
    """Return the name of a function, or the class of a callable object. Never its address, which differs each time."""
    named = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    return f"{named.__module__}:{named.__qualname__}"
