import dataclasses
import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from registry_kit import a_context, a_tool
from some import some
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.formats.yaml_file import parse_yaml
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.registry import ToolRegistry

HANDLERS = '''
"""Handlers of the manifest tests."""

from typing import Any

from signoff.registry.tool_context import ToolContext
from signoff.registry.function import tool


async def search(destination: str, limit: int = 3) -> str:
    """Search."""
    return f"{destination} {limit}"


async def raw(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Raw.

    More words.
    """
    return args


@tool(scope="generalist", tags=("code",), timeout=7)
async def pay(amount: float) -> None:
    """Pay."""


def sync(amount: float) -> None:
    """Sync."""


constant = 3
'''

HEAD = "version: 1\npath: [code]\n"
GOOD = """\
version: 1
path: [code]
defaults: {model: "scripted:x:y", approvers: [role:finance]}
context:
  user.costCentre: {type: string}
people:
  - {id: ana, tier: trusted, roles: [finance]}
actors:
  desk:
    tools: [search, raw]
    limits: {calls: 7, activeSeconds: 10m}
    modelSettings: {temperature: 0.5}
  other: {model: "openai:x", tools: []}
tools:
  search:
    handler: kit_handlers:search
    scope: generalist
    read_only: true
    maxResultSizeChars: 500
    timeout: 2m
  raw:
    execute: kit_handlers:raw
    scope: specialist
    justification: only the desk may
    routing: bypass
    bypassRouting: {reason: adds numbers}
    parameters: {type: object, properties: {n: {type: integer}}, required: [n]}
    requiresApproval: {autoApproveIf: "args.n < 3", timeout: 1h}
  pay:
    handler: kit_handlers:pay
    tags: [yaml]
    requires_approval: true
policies:
  - {name: r, rule: "tool.tags.includes('yaml')", effect: deny, reason: frozen}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "kit_handlers.py").write_text(HANDLERS)
    (tmp_path / "code" / "kit_broken.py").write_text("1 / 0\n")
    (tmp_path / "code" / "kit_leaves.py").write_text("raise SystemExit(1)\n")
    return tmp_path


def load(folder: Path, text: str) -> Catalog:
    path = folder / "signoff.yaml"
    path.write_text(dedent(text))
    return load_manifest(path)


def refusal(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return caught.value


@pytest.mark.row("V04", "B48")
async def test_manifest_extends_the_declarations_in_code(folder: Path) -> None:
    catalog = load(folder, GOOD)
    actor, other = catalog.actor("desk"), catalog.actor("other")
    assert (actor.model, actor.tools, actor.limits.calls, actor.limits.active_seconds) == (
        "scripted:x:y",
        ("search", "raw"),
        7,
        600.0,
    )
    assert (other.model, other.tools, actor.model_settings["temperature"]) == ("openai:x", (), 0.5)
    search, raw, pay = (catalog.registry.resolve(name) for name in ("search", "raw", "pay"))
    assert (search.max_result_chars, search.timeout, search.read_only) == (500, 120.0, True)
    assert await search.handler({"destination": "Rome"}, a_context()) == "Rome 3"
    assert await raw.handler({"n": 1}, a_context()) == {"n": 1}
    assert (raw.description, raw.routing, raw.bypass_routing.reason) == ("Raw.", "bypass", "adds numbers")
    assert (raw.requires_approval.auto_approve_if, raw.requires_approval.timeout) == ("args.n < 3", 3600.0)
    assert (pay.tags, pay.timeout, pay.requires_approval, pay.scope) == (("yaml",), 7, True, "generalist")
    assert search.site.endswith("signoff.yaml:15")
    assert catalog.people.find("ana").roles == ("finance",)
    assert catalog.default_approvers == ("role:finance",)
    assert "user.costCentre" in catalog.fields.declared


PLAIN = {
    "name": "raw",
    "handler": "kit_handlers:raw",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "scope": "generalist",
    "max_result_chars": 500,
    "toolset": "numbers",
    "tags": ["a"],
    "read_only": True,
}
SPELLINGS = {
    "name": ["id"],
    "handler": ["execute"],
    "input_schema": ["inputSchema", "parameters", "schema"],
    "max_result_chars": ["maxResultChars", "max_result_size_chars", "maxResultSizeChars"],
    "read_only": ["readOnly"],
}
OTHERS = [(field, other) for field, others in SPELLINGS.items() for other in others]


def manifest_of(tool: dict[str, Any]) -> str:
    return f"{HEAD}tools: {json.dumps({'raw': tool})}\n"


@pytest.mark.row("X20")
@table(("field", "other"), *OTHERS)
def test_each_alias_sets_its_field(folder: Path, field: str, other: str) -> None:
    value = PLAIN[field]
    plain = load(folder, manifest_of(PLAIN)).hash
    renamed = {(other if key == field else key): each for key, each in PLAIN.items()}
    assert load(folder, manifest_of(renamed)).hash == plain
    assert load(folder, manifest_of({**PLAIN, other: value})).hash == plain
    # A `name` next to another `id` is the title.
    if field == "name":
        return
    differs = {"handler": "kit_handlers:search", "max_result_chars": 501, "read_only": False}
    wrong = {**PLAIN, other: differs.get(field, {"type": "object"})}
    assert (
        f"`{field}` and `{other}` of tool `raw` mean the same and differ" in refusal(folder, manifest_of(wrong)).message
    )


def test_tags_and_toolset_are_separate_fields(folder: Path) -> None:
    tool = some(load(folder, manifest_of(PLAIN)).registry.resolve("raw"))
    assert (tool.tags, tool.toolset) == (("a",), "numbers")


def test_inner_sections_accept_camel_case(folder: Path) -> None:
    tool = some(load(folder, manifest_of({**PLAIN, "capabilities": {"fsReach": ["/data"]}})).registry.resolve("raw"))
    assert tool.capabilities.fs_reach == ("/data",)


@pytest.mark.row("N05")
@table("given", {}, {"name": "respond"}, {"id": "respond"}, {"id": "RESPOND"})
def test_respond_is_reserved_under_every_key(folder: Path, given: dict[str, str]) -> None:
    bare = {key: value for key, value in PLAIN.items() if key != "name"}
    key = "raw" if given else "respond"
    error = refusal(folder, f"{HEAD}tools: {json.dumps({key: {**bare, **given}})}\n")
    assert "reserved name" in error.message
    listed = refusal(folder, f"{HEAD}actors: {{a: {{model: m, tools: [respond]}}}}\n")
    assert "lists `respond`; every actor has it already" in listed.message


@pytest.mark.row("F23")
@table("name", "a b", "a.b", "ä", "a" * 65, "", "a/b")
def test_tool_name_is_validated_in_every_declaration(folder: Path, name: str) -> None:
    bare = {key: value for key, value in PLAIN.items() if key != "name"}
    assert "needs a name that matches" in refusal(folder, f"{HEAD}tools: {json.dumps({name: bare})}\n").message
    with pytest.raises(ConfigError, match="needs a name that matches"):
        ToolRegistry([a_tool(name)])


@pytest.mark.row("P15")
def test_manifest_tool_equals_the_same_tool_in_code(folder: Path) -> None:
    loaded = some(load(folder, manifest_of(PLAIN)).registry.resolve("raw"))
    own = ToolRegistry([dataclasses.replace(loaded)])
    assert own.resolve("raw") == loaded
    coded = a_tool(
        "raw", input_schema=PLAIN["input_schema"], read_only=True, handler=loaded.handler, description="Raw."
    )
    assert coded.definition == loaded.definition


@pytest.mark.row("P13", "Q1")
def test_catalog_does_not_change_with_its_manifest_file(folder: Path) -> None:
    catalog = load(folder, manifest_of(PLAIN))
    before = catalog.hash
    (folder / "signoff.yaml").write_text(manifest_of({**PLAIN, "title": "Another"}))
    assert catalog.hash == before
    assert catalog.registry.resolve("raw").title == ""
    assert load_manifest(folder / "signoff.yaml").hash != before


def test_manifest_names_policy_handler_and_probe_functions(folder: Path) -> None:
    approval = "    requires_approval: {handler: 'kit_handlers:raw'}\n"
    catalog = load(folder, TOOL + approval + "    probe: kit_handlers:raw\n")
    tool = some(catalog.registry.resolve("search"))
    assert tool.probe is not None
    assert catalog.handlers == {"search": tool.probe}
    assert load(folder, TOOL).handlers == {}


def test_same_manifest_has_the_same_hash(folder: Path) -> None:
    assert load(folder, GOOD).hash == load(folder, "# words\n" + GOOD.replace("read_only", "readOnly")).hash
    assert load(folder, GOOD).hash != load(folder, GOOD.replace("args.n < 3", "args.n < 4")).hash


def test_people_may_be_declared_in_a_separate_file(folder: Path) -> None:
    (folder / "people.yaml").write_text("- id: ana\n- id: ben\n  tir: trusted\n")
    error = refusal(folder, "version: 1\npeople: people.yaml\n")
    assert "people.yaml:3: unknown key `tir` of a person" in error.message
    assert "did you mean `tier`?" in error.message
    (folder / "people.yaml").write_text("- id: ana\n")
    assert load(folder, "version: 1\npeople: people.yaml\n").people.find("ana") is not None


TOOL = HEAD + "tools:\n  search:\n    handler: kit_handlers:search\n    scope: generalist\n"
RAW = HEAD + "tools:\n  raw:\n    handler: kit_handlers:raw\n    scope: generalist\n"
BAD: dict[str, tuple[str, int | None, str]] = {
    "empty": ("", 1, "begins with `version: 1`"),
    "list": ("- a\n", 1, "begins with `version: 1`"),
    "no version": ("path: []\n", 1, "`version` is missing"),
    "other version": ("version: 2\n", 1, "`version` of the manifest must be 1"),
    "broken yaml": ("version: 1\nactors: [\n", 3, "not valid YAML"),
    "tab": ("version: 1\nactors:\n\ta: 1\n", 3, "not valid YAML"),
    "unknown key": (
        HEAD + "zzz: {}\n",
        3,
        "unknown key `zzz` of the manifest; `signoff manifest schema --help` lists the keys",
    ),
    "nearest key": (
        HEAD + "toools: {}\n",
        3,
        "`toools` of the manifest; did you mean `tools`? `signoff manifest schema --help` lists the keys",
    ),
    "duplicate key": (HEAD + "actors: {}\nactors: {}\n", 4, "given twice (first on line 3)"),
    "duplicate tool": (TOOL + "  search: {}\n", 7, "the key `search` is given twice (first on line 4)"),
    "variable": (HEAD + "defaults:\n  model: ${MODEL}\n", 4, "`${MODEL}`: variables are not read"),
    "python tag": (HEAD + "actors: !!python/object:os.system {}\n", 3, "plain YAML"),
    "own tag": (HEAD + "defaults: {model: !secret x}\n", 3, "plain YAML"),
    "recursive alias": (HEAD + "actors: &a {x: *a}\n", 3, "alias"),
    "folder": ("version: 1\npath: [nowhere]\n", 2, "there is no folder"),
    "path type": ("version: 1\npath: code\n", 2, "`path` of the manifest must be a list"),
    "yes is text": (TOOL + "    read_only: yes\n", 7, "`read_only` of tool `search` must be `true` or `false`"),
    "number is not text": (TOOL + "    version: 1.10\n", 7, "must be text; put it in quotes"),
    "both spellings": (TOOL + "    read_only: true\n    readOnly: false\n", 8, "mean the same and differ; keep one"),
    "both aliases": (TOOL + "    execute: kit_handlers:raw\n", 7, "`handler` and `execute` of tool `search` mean"),
    "unknown tool key": (TOOL + "    requireApproval: true\n", 7, "did you mean"),
    "no handler": (HEAD + "tools:\n  search:\n    scope: generalist\n", 4, "`handler` of tool `search` is missing"),
    "tool is no mapping": (HEAD + "tools:\n  search: kit_handlers:search\n", 4, "must be a mapping"),
    "no scope": (HEAD + "tools:\n  search:\n    handler: kit_handlers:search\n", 4, "needs `scope`"),
    "wrong scope": (TOOL.replace("generalist", "general"), 6, "must be `generalist` or `specialist`"),
    "not a reference": (TOOL.replace("handlers:s", "handlers.s"), 5, "is not `module:attribute`"),
    "no module": (TOOL.replace("kit_handlers", "kit_nowhere"), 5, "cannot import `kit_nowhere`: ModuleNotFoundError"),
    "no module in its path": (
        TOOL.replace("kit_handlers", "kit_nowhere.tools"),
        5,
        "add its directory to `path`",
    ),
    "broken module": (TOOL.replace("kit_handlers", "kit_broken"), 5, "cannot import `kit_broken`: ZeroDivisionError"),
    "leaving module": (TOOL.replace("kit_handlers", "kit_leaves"), 5, "cannot import `kit_leaves`: SystemExit"),
    "no attribute": (TOOL.replace("handlers:search", "handlers:serch"), 5, "no `serch`; did you mean `search`?"),
    "no function": (TOOL.replace("handlers:search", "handlers:constant"), 5, "neither a function nor a tool"),
    "raw without schema": (RAW, 5, "give its `input_schema`"),
    "raw with bad schema": (RAW + "    schema: {type: array}\n", 4, "`type: object`"),
    "sync with schema": (
        TOOL.replace("handlers:search", "handlers:sync") + "    input_schema: {type: object}\n",
        5,
        "but it is not `async def`",
    ),
    "other name": (TOOL + "    name: find\n", 7, "calls itself `find`"),
    "other tool's name": (HEAD + "tools:\n  buy:\n    handler: kit_handlers:pay\n", 5, "is the tool `pay`"),
    "other schema": (
        HEAD + "tools:\n  pay:\n    handler: kit_handlers:pay\n    input_schema: {type: object}\n",
        6,
        "keep one",
    ),
    "reserved": (HEAD + "tools:\n  respond:\n    handler: kit_handlers:search\n    scope: generalist\n", 4, "reserved"),
    "reserved by id": (TOOL + "    id: respond\n", 7, "`respond` is a reserved name"),
    "reserved by name": (TOOL + "    name: Respond\n", 7, "`Respond` is a reserved name"),
    "reserved in any case": (
        HEAD + "tools:\n  Respond:\n    handler: kit_handlers:search\n    scope: generalist\n",
        4,
        "has a reserved name",
    ),
    "generalist bypass": (TOOL + "    routing: bypass\n", 7, "may not bypass"),
    "filler": (TOOL.replace("generalist", "specialist") + "    justification: todo\n", 7, "needs a real"),
    "effect": (TOOL + '    effect: "Search {destinatoin}"\n', 7, "did you mean `destination`?"),
    "duration": (TOOL + "    timeout: soon\n", 7, "`soon` is not a duration"),
    "policy type": (TOOL + "    requires_approval: yes\n", 7, "`requires_approval` of tool `search`"),
    "policy key": (TOOL + "    requires_approval:\n      autoApproveIff: x\n", 8, "did you mean `autoApproveIf`?"),
    "policy typo": (TOOL + "    requires_approval:\n      denyIf: args.limti > 3\n", 8, "limit"),
    "probe unknown": (
        TOOL + "    probe: kit_handlers:serch\n",
        7,
        "`probe` of tool `search`: module `kit_handlers` has",
    ),
    "probe sync": (
        TOOL + "    probe: kit_handlers:sync\n",
        7,
        "needs `probe` to be `async def (args, context)`, but it is not `async def`",
    ),
    "probe of other arguments": (
        TOOL + "    probe: kit_handlers:pay\n",
        7,
        "needs `probe` to be `async def (args, context)`, but it is no function",
    ),
    "policy handler": (TOOL + "    requires_approval:\n      handler: desk\n", 8, "`desk` is not `module:function`"),
    "policy handler unknown": (
        TOOL + "    requires_approval:\n      deny_if: 'false'\n      handler: kit_handlers:serch\n",
        9,
        "`handler` of the policy of tool `search`: module `kit_handlers` has no `serch`; did you mean `search`?",
    ),
    "policy handler no function": (
        TOOL + "    requires_approval:\n      handler: kit_handlers:constant\n",
        8,
        "`kit_handlers:constant` is no function",
    ),
    "policy handler of one argument": (
        TOOL + "    requires_approval:\n      handler: kit_handlers:sync\n",
        8,
        "`kit_handlers:sync` does not take `(call, context)`",
    ),
    "mask typo": (TOOL + "    requires_approval:\n      show: {secret: [limti]}\n", 8, "did you mean `limit`?"),
    "actor key": (HEAD + "actors:\n  a:\n    tool: []\n", 5, "did you mean `tools`"),
    "actor tool": (
        TOOL + "actors:\n  a:\n    model: m\n    tools:\n      - search\n      - serch\n",
        12,
        "did you mean `search`?",
    ),
    "actor model": (HEAD + "actors:\n  a: {}\n", 4, "has no model"),
    "actor name": (HEAD + "actors:\n  a b: {model: m}\n", 4, "matches"),
    "limits": (HEAD + "actors:\n  a:\n    model: m\n    limits:\n      calls: 0\n", 7, "greater than or equal to 1"),
    "limits key": (HEAD + "actors:\n  a:\n    model: m\n    limits: {cals: 3}\n", 6, "did you mean `calls`?"),
    "approvers": (HEAD + "defaults:\n  approvers: [finance]\n", 4, "neither `role:<role>`"),
    "rule key": (HEAD + "policies:\n  - name: a\n    rule: 'true'\n    effects: hide\n", 6, "did you mean `effect`?"),
    "rule effect": (HEAD + "policies:\n  - name: a\n    rule: 'true'\n    effect: forbid\n", 6, "effect"),
    "rule typo": (HEAD + "policies:\n  - name: a\n    effect: hide\n    rule: tool.nmae == 'x'\n", 6, "name"),
    "rule is no mapping": (HEAD + "policies:\n  - hide\n", 4, "is a mapping with `rule`"),
    "person": (HEAD + "people:\n  - id: a\n  - id: a\n", 5, "declared twice"),
    "person's shape": (HEAD + "people:\n  - ana\n", 4, "with an `id`"),
    "person's id": (HEAD + "people:\n  - id: a b\n", 4, "does not match"),
    "people file": (HEAD + "people: nowhere.yaml\n", None, "there is no such file"),
    "context": (HEAD + "context:\n  user.tier: {type: string}\n", 4, "cannot be declared again"),
    "context schema": (HEAD + "context:\n  project: {type: strin}\n", 4, "not valid JSON Schema"),
}


@pytest.mark.row("B22", "B81")
@table("case", *BAD)
def test_each_manifest_error_is_one_sentence_with_its_line(folder: Path, case: str) -> None:
    text, line, words = BAD[case]
    error = refusal(folder, text)
    assert words in error.message, error.message
    assert error.context.get("line") == line, error.message
    assert error.message.count("signoff.yaml:") == (line is not None), error.message
    assert "\n" not in error.message
    assert not error.message.endswith(".")


def test_missing_manifest_error_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: there is no such file"):
        load_manifest(tmp_path / "nowhere.yaml")


@table(
    ("text", "value"),
    ("yes", "yes"),
    ("off", "off"),
    ("true", True),
    ("12:30", "12:30"),
    ("010", "010"),
    ("10", 10),
    ("-3", -3),
    ("1.5", 1.5),
    ("1e3", 1000.0),
    ("2030-01-02", "2030-01-02"),
    ("~", None),
    ("'5'", "5"),
    (".nan", ".nan"),
    ("0x1F", "0x1F"),
    ("1_000", "1_000"),
)
def test_yaml_values_have_no_implicit_types(text: str, value: Any) -> None:
    data = parse_yaml(f"a: {text}\non: 1\n", "x").data
    assert data == {"a": value, "on": 1}
    assert type(data["a"]) is type(value)
