from pathlib import Path

import pytest
from some import some
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry.actor import Surface
from signoff.registry.capabilities import Capabilities
from signoff.registry.manifest.loader import load_manifest
from signoff.testing import a_call_context

CODE = '''
from signoff.registry.hooks import Permission

async def find(args, context):
    """Find something."""

def checked(args):
    return [("x", "is not there")] if args else []

async def typed(city: str):
    """Say hello."""

async def open_now(context):
    return True

async def own(args, context):
    return Permission.allow()
'''
WHOLE = """
version: 1
tools:
  find:
    handler: gate_code:find
    parameters: {type: object}
    scope: generalist
    readOnly: true
    toolset: desk
    alwaysInclude: true
    strict: true
    settingsSchema:
      type: object
      properties: {region: {enum: [eu, us]}}
      required: [region]
    settings: {region: eu}
    maxResultSizeChars: 100
    untrusted_output: true
    validation: off
    validate_input: gate_code:checked
    available: gate_code:open_now
    checkPermissions: gate_code:own
    capabilities:
      network: [api.example.com, "localhost:8080"]
      secrets: [TOKEN]
      storage: true
      fsReach: [/srv]
  mcp__github__search:
    handler: gate_code:find
    input_schema: {type: object}
    scope: generalist
    plugin: maps
    capabilities: {}
actors:
  desk:
    model: scripted:nowhere:model
    toolset: desk
    allowed_plugins: []
    allowedMcpServers: [github]
    allowed_mcp_tools: {github: [search]}
    surfaces:
      whatsapp: {exclude: [find]}
      slack: {}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gate_code.py").write_text(CODE)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "signoff.yaml"
    path.write_text(text)
    return path


@pytest.mark.row("E07")
def test_manifest_sets_all_fields_the_gates_read(folder: Path) -> None:
    catalog = load_manifest(written(folder, WHOLE))
    tool, other = catalog.registry.resolve("find"), catalog.registry.resolve("mcp__github__search")
    assert tool is not None
    assert other is not None
    assert (tool.validation, tool.toolset, tool.max_result_chars, tool.untrusted_output) == ("off", "desk", 100, True)
    assert (tool.always_include, tool.strict, tool.settings) == (True, True, {"region": "eu"})
    shown = {each.name: each.strict for each in catalog.definitions(a_call_context(), frozenset())}
    assert shown == {"find": True, "respond": None}
    assert tool.available is not None
    assert (tool.available.__name__, some(tool.check_permissions).__name__) == ("open_now", "own")
    hosts = ("api.example.com", "localhost:8080")
    assert tool.capabilities == Capabilities(network=hosts, secrets=("TOKEN",), storage=True, fs_reach=("/srv",))
    assert other.capabilities == Capabilities()
    actor = catalog.actor("desk")
    assert (actor.toolset, actor.allowed_plugins, actor.allowed_mcp_servers) == ("desk", (), ("github",))
    assert actor.allowed_mcp_tools == {"github": ("search",)}
    assert actor.surfaces == {"whatsapp": Surface(exclude=("find",)), "slack": Surface()}


@table(
    ("before", "after", "words"),
    ("[TOKEN]", "[$TOKEN]", "which is neither a variable's name"),
    ("settings: {region: eu}", "settings: {region: mars}", "`settings.region` that does not fit its `settings_schema`"),
    ("settings: {region: eu}", "settings: {}", "does not fit its `settings_schema`"),
    ("settings: {region: eu}", "settings: {region: eu, api_key: abc}", "has a secret in `settings.api_key`"),
    ("settings: {region: eu}", "settings: eu", "must be"),
    ("strict: true", "strict: maybe", "must be `true` or `false`"),
    ("storage: true", "storage: 1", "must be `true` or `false`"),
    ("storage: true", "store: true", "unknown key `store`"),
    ("gate_code:open_now", "gate_code:opened", "opened"),
    ("gate_code:own", "gate_code:open_now", "does not take `(args, context)`"),
    ("validation: off", "validation: loose", "`validation` of tool `find` must be"),
    ("[github]", "github", "must be a list"),
    ("[find]", "[fnd]", "did you mean `find`?"),
    ("slack: {}", "slack: {without: [find]}", "unknown key `without`"),
    ("toolset: desk\n    allowed", "toolset: dusk\n    allowed", "did you mean `desk`?"),
)
def test_invalid_gate_field_is_named_with_its_place(folder: Path, before: str, after: str, words: str) -> None:
    assert before in WHOLE
    path = written(folder, WHOLE.replace(before, after, 1))
    with pytest.raises(ConfigError) as refused:
        load_manifest(path)
    assert words in refused.value.message
    assert refused.value.message.startswith(f"{path}:")
    assert int(refused.value.message.removeprefix(f"{path}:").partition(":")[0]) > 3


def test_custom_check_is_named_in_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "gate_code.py").write_text(CODE)
    (tmp_path / "signoff.yaml").write_text(WHOLE)
    tool = some(load_manifest(tmp_path / "signoff.yaml").registry.resolve("find"))
    assert tool.validate_input is not None
    assert tool.validate_input({"x": 1}) == [("x", "is not there")]
    assert tool.validate_input({}) == []


def test_typed_function_may_have_no_second_check(tmp_path: Path) -> None:
    """Two checks could contradict each other."""
    (tmp_path / "gate_code.py").write_text(CODE)
    text = "version: 1\ntools:\n  typed:\n    handler: gate_code:typed\n    scope: generalist\n"
    (tmp_path / "signoff.yaml").write_text(f"{text}    validate_input: gate_code:checked\n")
    with pytest.raises(ConfigError, match=r"signoff.yaml:6: .*`validate_input` among its keywords"):
        load_manifest(tmp_path / "signoff.yaml")
