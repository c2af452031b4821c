import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence
from jsonschema import Draft202012Validator
from served_stack import MANIFEST, PROJECT

from signoff.registry.manifest.loader import load_manifest
from signoff.registry.manifest.schema_export import manifest_schema
from signoff.registry.manifest.scope_sections import RouteSection, StepSection
from signoff.registry.manifest.tool_section import ToolSection
from signoff.registry.normal_form import normal_text

ODD = f"""\
version: 1
path: ['{PROJECT}']
defaults: {{model: 'scripted:cli_project_tools:model'}}
actors:
  desk: {{tools: [mine]}}
  back: {{tools: [mine]}}
tools:
  mine: {{handler: 'cli_project_tools:look', scope: specialist, justification: the desk's own}}
  idle: {{handler: 'cli_project_tools:look', scope: generalist}}
"""


@pytest.fixture
def manifest(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    return cli


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    path = tmp_path / "changed.yaml"
    text = MANIFEST.read_text().replace("args.amount < 10", "args.amount < 11")
    path.write_text(f"path: ['{PROJECT}']\n{text}")
    return path


async def test_validate_counts_the_checked_items(manifest: Cli) -> None:
    ran = await manifest("manifest", "validate")
    assert (ran.code, "is right: 1 actor, 3 tools, 0 global rules" in ran.out) == (0, True)
    assert (await manifest("manifest", "validate", "--json")).data["tools"] == ["hurry", "look", "pay"]


@pytest.mark.row("F55")
async def test_validate_notes_unusual_declarations(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(ODD)
    ran = await cli("manifest", "validate", str(path), "--json")
    assert (ran.code, ran.data["findings"]) == (
        0,
        ["tool `idle`: no actor has it", "tool `mine`: a specialist, but `desk` and `back` have it"],
    )
    path.write_text(ODD.replace("back: {tools: [mine]}", "back: {tools: [mien]}"))
    message = assert_one_sentence(await cli("manifest", "validate", str(path)))
    assert "odd.yaml:6: actor `back` lists the unknown tool `mien`; did you mean `mine`?" in message


async def test_validate_refuses_an_escalation_without_an_approver_as_a_start_does(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    asks = "requires_approval: {escalate_after: 1h, escalate_to: ['user:nobody']}"
    path.write_text(ODD.replace("scope: generalist", f"scope: generalist, {asks}"))
    message = assert_one_sentence(await cli("manifest", "validate", str(path)))
    assert "escalates to `user:nobody`, but no active person is one of them" in message


async def test_validate_refuses_a_missing_program_of_a_tool_as_a_start_does(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    needs = "capabilities: {process: [no-such-program-here]}"
    path.write_text(ODD.replace("scope: generalist", f"scope: generalist, {needs}"))
    message = assert_one_sentence(await cli("manifest", "validate", str(path)))
    assert "tool `idle` needs" in message


async def test_tree_shows_tools_by_scope_and_by_actor(manifest: Cli) -> None:
    data = (await manifest("manifest", "tree", "--json")).data
    assert [row["tool"] for row in data["scopes"]["generalist"]] == ["hurry", "look", "pay"]
    assert data["scopes"]["specialist"] == []
    (actor,) = data["actors"]
    assert data["actors"][actor] == ["hurry", "look", "pay"]
    drawn = (await manifest("manifest", "tree")).out
    assert "generalist tools" in drawn
    assert f"pay  routed, maybe asks, may be denied  ({actor})" in drawn
    assert drawn.index(f"actor {actor}") > drawn.index("specialist tools")


async def test_tree_shows_routes_and_steps_of_an_actor(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "routed.yaml"
    routes = "routes: {trip: {mode: only, tools: [idle], steps: {ask: {}, buy: {tools: [idle]}}}}"
    path.write_text(ODD.replace("desk: {tools: [mine]}", f"desk: {{tools: [mine, idle], {routes}}}"))
    lines = (await cli("manifest", "tree", str(path))).out.splitlines()
    drawn = [line.strip("│├└─ ") for line in lines]
    at = drawn.index("route trip  idle  (no tools but these)")
    assert drawn[at : at + 4] == ["route trip  idle  (no tools but these)", "step ask", "step buy  idle", "actor back"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "scripted:cli_project_tools:modl",
            "actor `back`: the model `scripted:cli_project_tools:modl` cannot be imported",
        ),
        ("nonsense", "; write `provider:model`, such as `openai:gpt-5`"),
    ],
)
async def test_validate_names_the_actor_with_an_unavailable_model(
    cli: Cli, tmp_path: Path, model: str, message: str
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(ODD.replace("back: {", f"back: {{model: '{model}', "))
    found = assert_one_sentence(await cli("manifest", "validate", str(path)))
    assert found.startswith("actor `back`: ")
    assert message in found


async def test_diff_of_equal_manifests_is_empty(manifest: Cli) -> None:
    ran = await manifest("manifest", "diff", str(MANIFEST), str(MANIFEST))
    assert (ran.code, ran.out.strip()) == (0, "nothing differs")


async def test_diff_shows_changes_and_their_effect(manifest: Cli, changed: Path) -> None:
    ran = await manifest("manifest", "diff", str(MANIFEST), str(changed))
    assert ran.code == 1
    assert "~ tool `pay`: requires_approval.auto_approve_if; its definition is unchanged" in ran.out
    data = (await manifest("manifest", "diff", str(MANIFEST), str(changed), "--json")).data
    assert data["old"] != data["new"]
    assert (data["changes"][0]["fields"], data["stale"]) == (["requires_approval.auto_approve_if"], [])


@pytest.mark.row("B81")
async def test_diff_with_an_unreadable_manifest_exits_with_2(manifest: Cli, tmp_path: Path) -> None:
    message = assert_one_sentence(await manifest("manifest", "diff", str(MANIFEST), str(tmp_path / "none.yaml")), 2)
    assert "none.yaml` here: check the path" in message
    (tmp_path / "wrong.yaml").write_text("version: 2\n")
    assert_one_sentence(await manifest("manifest", "diff", str(tmp_path / "wrong.yaml"), str(MANIFEST)), 2)
    assert (await manifest("manifest", "diff", str(MANIFEST))).code == 2


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("percent <= 5", "percent <= 2", 0),
        ("version: 1", "version: 1", 0),
        ("% off the next order", "% off", 1),
        ("    scope: generalist\n", "    scope: generalist\n    version: '2'\n", 1),
        ("give_discount", "grant_discount", 1),
    ],
    ids=["policy", "nothing", "effect", "version", "gone"],
)
async def test_diff_of_waiting_fails_if_open_requests_become_stale(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, code: int
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    await cli("init", "--yaml", str(tmp_path))
    manifest, new = tmp_path / "signoff.yaml", tmp_path / "new.yaml"
    text = manifest.read_text(encoding="utf-8")
    # Not the handler, whose function keeps its name.
    text = text.replace(before, after).replace("discounts:grant_discount", "discounts:give_discount")
    new.write_text(text, encoding="utf-8")
    assert (await cli("manifest", "diff", "--waiting", str(manifest), str(new))).code == code
    assert (await cli("manifest", "diff", str(manifest), str(new))).code == (1 if before != after else 0)


@pytest.mark.parametrize("part", ["manifest", "tool", "actor", "policies", "people"])
async def test_schema_is_json_schema_for_each_kind_of_file(manifest: Cli, part: str) -> None:
    schema = (await manifest("manifest", "schema", "--part", part)).data
    Draft202012Validator.check_schema(schema)
    assert not Draft202012Validator(schema).is_valid(3)
    assert (await manifest("manifest", "schema", "--part", "tols")).code == 2


async def test_show_prints_the_normal_form(manifest: Cli) -> None:
    assert (await manifest("manifest", "show")).out == normal_text(load_manifest(MANIFEST))


async def test_wrong_manifest_is_reported_in_one_sentence_with_exit_code_1(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("version: 1\ntols: {}\n")
    for command in ("validate", "tree", "show"):
        message = assert_one_sentence(await cli("manifest", command, str(tmp_path / "wrong.yaml")))
        assert "wrong.yaml:2: unknown key `tols`" in message


async def test_unknown_key_message_names_the_help_that_lists_every_key(cli: Cli, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("version: 1\nzzz: {}\n")
    message = assert_one_sentence(await cli("manifest", "validate", str(wrong)))
    assert message.endswith("unknown key `zzz` of the manifest; `signoff manifest schema --help` lists the keys")
    listed = (await cli("manifest", "schema", "--help")).out
    keys = {key for part in manifest_schema()["$defs"].values() for key in part["properties"] if key.islower()}
    assert keys - set(re.findall(r"\w+", listed)) <= {
        alias for section in (ToolSection, RouteSection, StepSection) for alias in section.key_aliases
    }


async def test_tree_shows_the_tools_exposed_to_peers(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text(ODD.replace("scope: generalist}", "scope: generalist, peerExposed: true, requiresApproval: true}"))
    ran = await cli("manifest", "tree", "--peers", str(path))
    assert (ran.code, "idle  asks  " in ran.out, "mine" in ran.out) == (0, True, False)
    (found,) = (await cli("manifest", "tree", "--peers", str(path), "--json")).data["tools"]
    assert (found["name"], found["approval"], found["input_schema"]["type"]) == ("idle", "always", "object")
    path.write_text(ODD)
    nothing = await cli("manifest", "tree", "--peers", str(path))
    assert nothing.out == "no tool is for other agents; `peer_exposed: true` makes a generalist so\n"


@pytest.mark.parametrize("command", [("manifest", "validate"), ("manifest", "show"), ("tools", "list")])
async def test_manifest_command_loads_neither_temporal_nor_a_database(
    command: tuple[str, ...],
) -> None:
    code = (
        "import sys; from signoff.cli.main import invoke; "
        f"code = invoke({[*command, str(MANIFEST)]!r}); "
        "print([each for each in ('temporalio', 'sqlalchemy') if each in sys.modules], code)"
    )
    ran = await asyncio.to_thread(
        subprocess.run, (sys.executable, "-c", code), capture_output=True, text=True, check=False
    )
    assert ran.stdout.splitlines()[-1:] == ["[] 0"], ran.stderr


async def test_schema_with_a_top_level_choice_is_noted(cli: Cli, tmp_path: Path) -> None:
    schema = "{type: object, properties: {a: {}, b: {}}, oneOf: [{required: [a]}, {required: [b]}]}"
    given = "description: Choose, scope: generalist, runs: external, effect: Choose, requires_approval: false"
    plain = "{type: object, properties: {a: {}}}"
    (tmp_path / "signoff.yaml").write_text(
        "version: 1\nactors: {coder: {external: {acts_for: ['user:guest']}}}\ntools:\n"
        f"  idle: {{{given}, input_schema: {schema}}}\n  plain: {{{given}, input_schema: {plain}}}\n"
    )
    ran = await cli("manifest", "validate", str(tmp_path / "signoff.yaml"))
    assert "note: tool `idle`: `input_schema` chooses between schemas at its top" in ran.out, ran.err
    assert ran.out.count("chooses between schemas") == 1
