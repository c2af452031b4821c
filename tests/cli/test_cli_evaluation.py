import asyncio
import json
import resource
import sys
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence, waiting_request
from documents import ROOT
from served_stack import MANIFEST, PROJECT

PIN = "4711-very-secret"
CASE = """- name: pay
  recorded: {turn: turn/main/s/t}
  actor: clerk
  user: {user: guest}
  messages: [{role: user, text: pay}]
  completions: [{at: '2026-11-24T10:00:00+00:00'}]
  ending: complete
"""


async def test_turn_is_recorded_and_played_without_server_or_store(
    served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clean_env.syspath_prepend(str(PROJECT))
    ran = await served_cli("ask", "pay 5", "--json")
    asked = await waiting_request(served_cli, "pay 80")
    await served_cli("approve", asked["id"], "--as", "ana")
    assert (await served_cli("watch", asked["turn"])).code == 0
    recorded = await served_cli("eval", "record", ran.data["turn"], asked["turn"])
    assert recorded.code == 0, recorded.err
    assert PIN not in recorded.out
    cases = tmp_path / "cases" / "pay.yaml"
    cases.parent.mkdir()
    cases.write_text(recorded.out)
    clean_env.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    clean_env.setenv("SIGNOFF_STORE_URL", f"sqlite:///{tmp_path}/none/none.db")
    for model in ((), ("--model", "manifest")):
        same = await served_cli("eval", "run", str(cases.parent), "--json", *model)
        assert same.code == 0, same.err
        assert [[call["verdict"] for call in case["calls"]] for case in same.data["cases"]] == [["run"], ["ask"]]
        assert [case["differences"] for case in same.data["cases"]] == [[], []]
        assert [case["unrecorded"] for case in same.data["cases"]] == [0, 0]
        assert {case["recorded"]["catalog"] for case in same.data["cases"]} == {same.data["catalog"]}
        assert PIN not in same.out
    tighter = tmp_path / "tighter.yaml"
    tighter.write_text(MANIFEST.read_text().replace("args.amount < 10", "args.amount < 1"))
    other = await served_cli("eval", "run", str(cases), "--app", str(tighter), "--json")
    assert other.code == 1
    assert [[(each["was"], each["now"]) for each in case["differences"]] for case in other.data["cases"]] == [
        [("run", "ask")],
        [],
    ]
    assert not (tmp_path / "none").exists()


async def test_unknown_or_open_turn_is_no_case(served_cli: Cli) -> None:
    assert "nothing is recorded of `nobody`" in assert_one_sentence(await served_cli("eval", "record", "nobody"))
    waiting = await waiting_request(served_cli, "pay 80")
    assert "the turn has not ended" in assert_one_sentence(await served_cli("eval", "record", waiting["turn"]))
    await served_cli("deny", waiting["id"], "--as", "ana")


async def test_unavailable_model_is_a_misfit(cli: Cli, tmp_path: Path) -> None:
    """Its behaviour is unknown, so it is neither a difference nor a match."""
    (tmp_path / "cli_silent_model.py").write_text(
        "from signoff.contracts.errors import ModelUnavailable\n"
        "class model:\n    async def complete(request):\n        raise ModelUnavailable('nobody is there')\n"
    )
    manifest = tmp_path / "silent.yaml"
    manifest.write_text(
        f"version: 1\npath: ['{tmp_path}']\nactors:\n  clerk: {{model: 'scripted:cli_silent_model:model', tools: []}}\n"
    )
    (tmp_path / "cases.yaml").write_text(CASE)
    ran = await cli("eval", "run", str(tmp_path / "cases.yaml"), "--app", str(manifest), "--model", "manifest")
    assert ran.code == 2, ran.err
    assert f"misfit: {tmp_path}/cases.yaml:1: nobody is there" in ran.out


async def test_each_misfit_is_a_line_and_the_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASE + CASE.replace("clerk", "clrk") + CASE.replace("ending", "endng"))
    manifest = ("--app", str(MANIFEST))
    ran = await cli("eval", "run", str(path), str(tmp_path / "none.yaml"), *manifest)
    assert ran.code == 2, ran.err
    lines = [line for line in ran.out.splitlines() if line.startswith("misfit: ")]
    assert [line for line in lines if f"{path}:8: there is no actor `clrk`; did you mean `clerk`?" in line]
    assert [line for line in lines if f"{path}:21: unknown key `endng`" in line]
    assert [line for line in lines if "none.yaml: there is no such file" in line]
    assert len(lines) == 3
    assert "cases: 1; differences: 0, forbidden: 0; misfits: 3" in ran.out
    listed = await cli("eval", "run", str(path), *manifest, "--json")
    assert (listed.code, len(listed.data["misfits"]), len(listed.data["cases"])) == (2, 2, 1)


async def test_case_takes_under_five_seconds(clean_env: pytest.MonkeyPatch) -> None:
    folder = ROOT / "examples" / "travel_desk"
    cases = folder / "cases.yaml"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "signoff.cli.main", "eval", "run", str(cases), "--json"),
        *("--app", str(folder / "signoff.yaml")),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    played = json.loads(output)["cases"]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert process.returncode == 0
    assert len(played) == cases.read_text().count("\n- name:") + cases.read_text().startswith("- name:")
    assert len(played) >= 5
    # The total time of child processes between the two measurements, which includes the command.
    assert spent / len(played) < 5
