from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog
from signoff.registry.manifest import server_sections
from signoff.registry.manifest.loader import load_manifest, load_servers
from signoff.registry.mcp.import_file import import_path, read_import, write_import
from signoff.registry.mcp.imported_tool import read_listing
from signoff.registry.mcp.tool_server import run_on_server
from signoff.registry.tool import Tool

TOP = "version: 1\ndefaults: {model: 'scripted:x:y'}\nactors: {desk: {}}\n"
SERVER = "mcp_servers:\n  github: {url: https://mcp.example.com/mcp, headers: {Authorization: 'env:GITHUB'}}\n"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}, "key": {"type": "string"}}}
SEARCH, CLOSE, BARE = "mcp__github__search", "mcp__github__close", "mcp__github__bare"


def listed(name: str, **hints: bool) -> dict[str, Any]:
    return {"name": name, "title": f"The {name}", "description": f"Does {name}", "inputSchema": SCHEMA} | {
        "annotations": hints
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bare = {"name": "bare", "inputSchema": SCHEMA}
    tools = [listed("search", readOnlyHint=True), listed("close", destructiveHint=True, idempotentHint=True), bare]
    write_import(import_path(tmp_path, "github"), "github", read_listing("github", tools).tools.values())
    return tmp_path


def load(folder: Path, text: str) -> Catalog:
    (folder / "signoff.yaml").write_text(TOP + text)
    return load_manifest(folder / "signoff.yaml")


def tools_of(catalog: Catalog) -> Mapping[str, Tool]:
    return {tool.name: tool for tool in catalog.tools()}


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return caught.value.message.replace(f"{folder}/", "")


def test_imported_tools_need_approval_despite_server_hints(folder: Path) -> None:
    catalog = load(folder, SERVER)
    tools = tools_of(catalog)
    assert list(tools) == [BARE, CLOSE, SEARCH]
    for tool in tools.values():
        assert (tool.requires_approval, tool.read_only, tool.idempotent) == (True, False, False)
        assert (tool.scope, tool.untrusted_output, tool.handler) == ("generalist", True, run_on_server)
        assert catalog.policies[tool.name].needs_person == "always"
    assert (tools[SEARCH].title, tools[SEARCH].description) == ("The search", "Does search")
    assert tools[BARE].description == "`bare` of github"
    assert catalog.mcp_servers["github"].tools.keys() == tools.keys()


def test_manifest_overrides_the_imported_fields(folder: Path) -> None:
    text = SERVER.replace("headers", "requires_approval: {quorum: 2}, timeout: 5s, headers") + (
        "tools:\n"
        f"  {SEARCH}: {{requiresApproval: false, untrustedOutput: false, description: Find, readOnly: true}}\n"
        f"  {BARE}: {{secrets: [key], parameters: {{type: object, properties: {{key: {{type: string}}}}}}}}\n"
    )
    tools = tools_of(load(folder, text))
    search, close, bare = tools[SEARCH], tools[CLOSE], tools[BARE]
    assert (search.requires_approval, search.untrusted_output, search.read_only) == (False, False, True)
    assert (search.description, search.title) == ("Find", "The search")
    assert close.requires_approval.quorum == 2  # type: ignore[union-attr]
    assert (bare.secrets, list(bare.input_schema["properties"])) == (("key",), ["key"])


def test_hints_are_trusted_only_if_the_developer_allows_it(folder: Path) -> None:
    tools = tools_of(load(folder, SERVER.replace("headers", "trust_hints: true, headers")))
    assert (tools[SEARCH].read_only, tools[SEARCH].requires_approval) == (True, False)
    assert (tools[CLOSE].read_only, tools[CLOSE].idempotent, tools[CLOSE].requires_approval) == (False, True, True)
    both = SERVER.replace("headers", "trust_hints: true, requires_approval: true, headers")
    assert tools_of(load(folder, both))[SEARCH].requires_approval is True


def test_hash_covers_import_and_server_address(folder: Path) -> None:
    before = load(folder, SERVER)
    assert load(folder, SERVER).hash == before.hash
    moved = load(folder, SERVER.replace("mcp.example.com", "mcp.example.org"))
    assert moved.hash != before.hash
    assert tools_of(moved)[SEARCH].definition != tools_of(before)[SEARCH].definition
    path = import_path(folder, "github")
    path.write_text(path.read_text().replace("Does search", "Does more"))
    reworded = load(folder, SERVER)
    assert reworded.hash != before.hash
    assert tools_of(reworded)[SEARCH].definition == tools_of(before)[SEARCH].definition


def test_server_without_an_import_has_no_tools(tmp_path: Path) -> None:
    assert load(tmp_path, SERVER).tools() == ()
    text = SERVER + f"tools: {{{SEARCH}: {{requires_approval: false}}}}\n"
    (tmp_path / "signoff.yaml").write_text(TOP + text)
    found, servers = load_servers(tmp_path / "signoff.yaml")
    assert (found, servers["github"].headers) == (tmp_path, {"Authorization": "env:GITHUB"})
    assert refusal(tmp_path, text).endswith("run `signoff mcp import github`")


def test_own_tool_may_have_a_name_like_an_imported_one(folder: Path) -> None:
    own = "tools:\n  mcp__jira__x: {handler: 'signoff.registry.mcp.tool_server:run_on_server', scope: generalist, "
    own += "description: X, input_schema: {type: object}}\n"
    assert "mcp__jira__x" in tools_of(load(folder, own))


@table(
    ("text", "problem"),
    (
        f"{SERVER}tools:\n  {SEARCH}: {{handler: 'a:b'}}\n",
        f"signoff.yaml:7: tool `{SEARCH}` is run on its MCP server; drop `handler`",
    ),
    (f"{SERVER}tools:\n  {SEARCH}: {{runs: external}}\n", "is run on its MCP server; drop `runs`"),
    (
        f"{SERVER}tools:\n  mcp__github__serch: {{title: X}}\n",
        "signoff.yaml:7: `mcp__github__serch` is no tool that was imported of `github`; did you mean "
        f"`{SEARCH}` or `{CLOSE}`?; run `signoff mcp import github`",
    ),
    (f"{SERVER}tools:\n  {SEARCH}: [a]\n", f"signoff.yaml:7: tool `{SEARCH}` must be a mapping"),
    (f"{SERVER}tools:\n  {SEARCH}: {{tilte: X}}\n", "signoff.yaml:7: unknown key `tilte`"),
    (
        "mcp_servers:\n  github: {url: https://a.example, adress: x}\n",
        "signoff.yaml:5: unknown key `adress` of MCP server `github`",
    ),
    (
        "mcp_servers:\n  github: {url: https://a.example, headers: {Authorization: Bearer x}}\n",
        "signoff.yaml:5: MCP server `github` has a secret in `headers.Authorization`",
    ),
    (SERVER.replace("headers", "requires_approval: {deny_if: 'args.txt == 1'}, headers"), "mcp/github.yaml:"),
)
def test_server_section_errors_have_file_and_line(folder: Path, text: str, problem: str) -> None:
    assert problem in refusal(folder, text)


def test_manifest_directory_has_its_imports_next_to_it(folder: Path) -> None:
    (folder / "signoff.yaml").write_text(TOP + SERVER)
    (folder / "tools").mkdir()
    (folder / "tools" / f"{SEARCH}.yaml").write_text("requires_approval: false\n")
    assert tools_of(load_manifest(folder))[SEARCH].requires_approval is False


def test_import_of_a_server_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def note(path: Path, *given: Any) -> Any:
        read.append(path)
        return read_import(path, *given)

    monkeypatch.setattr(server_sections, "read_import", note)
    write_import(import_path(tmp_path, "shop"), "shop", [])
    (tmp_path / "signoff.yaml").write_text("version: 1\nmcp_servers: {shop: {url: 'https://shop.example/mcp'}}\n")
    load_manifest(tmp_path / "signoff.yaml")
    assert read == [import_path(tmp_path, "shop")]
