from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from registry_kit import pinned
from some import some
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.formats.yaml_file import read_yaml
from signoff.registry.actor import instructions_at
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.manifest.schema_export import manifest_schema

MANIFEST = """\
version: 1
defaults: {model: "scripted:nowhere:model"}
tools:
  pay: {handler: "registry_kit:handler", scope: generalist, description: Pays., inputSchema: {type: object}}
  note: {handler: "registry_kit:handler", scope: generalist, description: Notes., inputSchema: {type: object}}
actors:
  desk:
    shadowing: allow
    own_tools:
      greet: {handler: "registry_kit:handler", scope: generalist, description: Greets., inputSchema: {type: object}}
    routes:
      trip:
        description: From the wish to the ticket.
        tools: [note, {name: fly, optional: true}]
        own_tools:
          pay:
            handler: registry_kit:handler
            scope: generalist
            description: Pays by the agency's card.
            inputSchema: {type: object}
            minStep: buy
            loosens: The agency's card has a limit of its own.
        mode: only
        steps:
          ask: {instructions: Ask for the city., collect: {city: {type: string}}}
          buy: {tools: [{name: note}], requires: [city], toolFilter: "tool.name != 'greet'"}
      talk:
        select: registry_kit:nothing
      rest:
        toolFilter: "tool.name != 'pay'"
        toolFilterReason: nothing is paid on a day of rest
"""


def loaded(folder: Path, text: str = MANIFEST) -> Catalog:
    file = folder / "signoff.yaml"
    file.write_text(text)
    return load_manifest(file)


def summary(catalog: Catalog, route: str = "", step: str = "", **data: object) -> list[str]:
    ctx = pinned(route=route, step=step, extra={"data": data})
    return [tool.activity for tool in catalog.tool_view(ctx).visible()]


@pytest.mark.row("F05", "F06")
def test_manifest_declares_the_routes_and_steps_of_an_actor(tmp_path: Path) -> None:
    catalog = loaded(tmp_path)
    assert summary(catalog) == summary(catalog, "talk") == ["greet@desk", "note", "pay"]
    position = some(catalog.tool_view(pinned(route="talk")).position)
    assert [each.__name__ for each in position.selects] == ["nothing"]
    assert summary(catalog, "trip", "ask") == ["collect@desk.trip.ask", "note"]
    assert summary(catalog, "trip", "buy", city="Porto") == ["note", "pay@desk.trip"]
    assert summary(catalog, "trip", "buy") == ["pay@desk.trip"]
    assert catalog.tool_view(pinned(route="rest")).resolution("pay").reason == "nothing is paid on a day of rest"
    assert catalog.actors["desk"].routes[0].description == "From the wish to the ticket."


@table(
    ("route", "step", "prompt"),
    ("", "", "You serve."),
    ("trip", "", "You serve.\n\nYou plan a trip."),
    ("trip", "ask", "You serve.\n\nYou plan a trip.\n\nAsk for the city."),
    ("trip", "buy", "You serve.\n\nYou plan a trip."),
    ("talk", "", "You serve."),
)
def test_route_and_step_instructions_follow_the_actors_instructions(
    tmp_path: Path, route: str, step: str, prompt: str
) -> None:
    text = MANIFEST.replace("    shadowing:", "    instructions: You serve.\n    shadowing:")
    text = text.replace(
        "        description: From", "        instructions: You plan a trip.\n        description: From"
    )
    actor = loaded(tmp_path, text).actors["desk"]
    assert instructions_at(actor, route, step) == prompt


def test_catalog_hash_covers_instructions_of_a_step(tmp_path: Path) -> None:
    changed = loaded(tmp_path, MANIFEST.replace("Ask for the city.", "Ask for the town.")).hash
    assert changed != loaded(tmp_path).hash


def test_editor_schema_accepts_routes_and_steps(tmp_path: Path) -> None:
    loaded(tmp_path)
    schema = Draft202012Validator(manifest_schema())
    data = read_yaml(tmp_path / "signoff.yaml").data
    assert [error.message for error in schema.iter_errors(data)] == []
    for change in ({"mode": "alone"}, {"step": {}}, {"tools": [{"min_step": "buy"}]}, {"own_tools": {"x": {}}}):
        wrong = {**data, "actors": {"desk": {"routes": {"trip": change}}}}
        assert list(schema.iter_errors(wrong)) != []


@pytest.mark.row("F10")
def test_manifest_names_the_function_that_selects_routes(tmp_path: Path) -> None:
    text = MANIFEST.replace("    routes:\n", "    routes:\n      select: registry_kit:nothing\n")
    catalog = loaded(tmp_path, text)
    chosen = some(catalog.actors["desk"].route_select)
    assert chosen.__name__ == "nothing"
    assert [route.name for route in catalog.actors["desk"].routes] == ["trip", "talk", "rest"]
    schema = Draft202012Validator(manifest_schema())
    assert list(schema.iter_errors(read_yaml(tmp_path / "signoff.yaml").data)) == []
    with pytest.raises(ConfigError, match=r"12: `select` in `routes` is `module:function`, which chooses routes"):
        loaded(tmp_path, text.replace("select: registry_kit:nothing", "select: {tools: [note]}", 1))
    with pytest.raises(ConfigError, match="12: `select`: "):
        loaded(tmp_path, text.replace("select: registry_kit:nothing", "select: registry_kit:nobody", 1))


@table(
    ("old", "new", "words"),
    ("mode: only", "mode: alone", "23: `mode` of route `trip` must be"),
    ("minStep: buy", "minStep: by", "14: actor `desk` has the tool `pay` in route `trip` from the unknown step `by`"),
    ("requires: [city]", "requires: [town]", "26: actor `desk` requires `town`"),
    ("{name: note}", "{nmae: note}", "26: unknown key `nmae`"),
    ("{name: fly, optional: true}", "fly", "14: actor `desk` lists the unknown tool `fly`"),
    ("tool.name != 'greet'", "tool.nmae != 'greet'", "26: actor `desk`: step `buy`: `tool_filter`"),
    ("shadowing: allow", "shadowing: forbid", "14: actor `desk` has a tool `pay` in `routes.trip.tools` that shadows"),
    ("loosens: The agency", "reducer: x:y\n            loosens: The agency", "22: own tool `pay` has a `reducer`"),
    ("loosens: The agency's card has a limit of its own.", "loosens: todo", "14: actor `desk` gives no real reason"),
    ("greet: {handler", "respond: {handler", "actor `desk` has in `own_tools` an invalid tool"),
    ("talk:\n        select: registry_kit:nothing", "talk: []", "27: route `talk` must be a mapping"),
    ("registry_kit:nothing", "registry_kit:nobody", "28: `select`: "),
    ("registry_kit:nothing", "registry_kit:a_call", "28: actor `desk` needs `routes.talk.select` to be"),
    ("greet: {handler", "greet: {loosens: 1, handler", "10: `loosens` of tool `greet` must be text"),
)
def test_route_and_step_errors_have_their_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in MANIFEST
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, MANIFEST.replace(old, new, 1))
    assert words in caught.value.message
