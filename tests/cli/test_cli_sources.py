import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, assert_one_sentence
from tests.tables import table

from signoff.cli.main import COMMANDS, _load_command

PROGRAM = """\
import signoff

app = signoff.App(model="openai:gpt-5", manifest={manifest!r})


@app.tool(effect="Refund {{amount}} EUR", auto_approve_if="args.amount <= 10.0")
async def refund(amount: float) -> str:
    "Refund a customer."
    return f"refunded {{amount}}"


app.actor("clerk", tools=[refund])
"""
CASES = "- {name: small, tool: refund, args: {amount: 5.0}, expect: auto}\n"
UPSTREAM = "version: 1\nmcp_servers: {up: {url: 'http://127.0.0.1:1/', allow_networks: [127.0.0.0/8]}}\n"
SOURCES = {("[MODULE:APP]", ""), ("MODULE:APP", "--app")}


@pytest.fixture
def folder(cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    clean_env.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "till.py").write_text(PROGRAM.format(manifest=None))
    (tmp_path / "cases.yaml").write_text(CASES)
    yield tmp_path
    sys.modules.pop("till", None)


def _every_command() -> Iterator[tuple[str, Any]]:
    for name in COMMANDS:
        command = _load_command(name)
        subs: dict[str, Any] = vars(command).get("commands", {})
        yield from ((f"{name} {sub}", each) for sub, each in subs.items()) if subs else [(name, command)]


def test_each_command_takes_its_program_in_one_way() -> None:
    found = {"": 0, "--app": 0}
    for name, command in _every_command():
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        for each in command.params:
            assert not set(each.opts) & {"--manifest", "-m"}, name
            if each.name == "source":
                way = "" if each in arguments else "--app"
                assert (each.metavar, way) in SOURCES, name
                # A command with another argument could not distinguish the two.
                assert bool(arguments) if way else arguments == [each], name
                found[way] += 1
    assert (found[""] > 10, found["--app"] > 10) == (True, True)


@table(
    "words",
    "manifest validate till:app",
    "manifest tree till:app",
    "manifest show till:app",
    "manifest diff till:app till:app",
    "tools list till:app",
    "tools explain refund --app till:app",
    "policy check till:app",
    "policy test cases.yaml --app till:app",
    "people list till:app",
    "people check --app till:app",
    "channels list till:app",
    "token create approver --scope read --app till:app",
)
async def test_program_is_named_on_the_command_line(folder: Path, cli: Cli, words: str) -> None:
    ran = await cli(*words.split())
    assert (ran.code, ran.err) == (0, "")


@table("way", "environment", "file")
async def test_configured_program_is_used_without_an_argument(
    folder: Path, cli: Cli, clean_env: pytest.MonkeyPatch, way: str
) -> None:
    # A manifest of a program is named only by the program.
    clean_env.setenv("SIGNOFF_MANIFEST", "nowhere.yaml")
    if way == "environment":
        clean_env.setenv("SIGNOFF_APP", "till:app")
    else:
        (folder / "signoff.toml").write_text('app = "till:app"\n')
    (folder / "signoff.yaml").write_text("version: 1\n")
    assert (await cli("manifest", "validate", "--json")).data["manifest"] == "till:app"
    assert (await cli("manifest", "validate", "signoff.yaml", "--json")).data["manifest"] == "signoff.yaml"


async def test_diff_compares_a_program_with_a_manifest(folder: Path, cli: Cli) -> None:
    (folder / "signoff.yaml").write_text("version: 1\n")
    ran = await cli("manifest", "diff", "till:app", "signoff.yaml")
    assert (ran.code, "`refund`" in ran.out) == (1, True)


async def test_import_reads_the_servers_of_the_programs_manifest(folder: Path, cli: Cli) -> None:
    (folder / "servers.yaml").write_text(UPSTREAM)
    none = assert_one_sentence(await cli("mcp", "import", "--app", "till:app"))
    assert none.startswith("`till:app` has no manifest, and only a manifest declares `mcp_servers`")
    sys.modules.pop("till")
    (folder / "till.py").write_text(PROGRAM.format(manifest="servers.yaml"))
    unknown = assert_one_sentence(await cli("mcp", "import", "down", "--app", "till:app"))
    assert unknown == "there is no MCP server `down`; known: `up`"
