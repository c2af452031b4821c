import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, assert_one_sentence
from documents import ROOT, blocks, shell_lines

from signoff.cli.local.init import EXAMPLE_SIGNATURE, MANIFEST, PROGRAM
from signoff.contracts.completion import CompletionRequest
from signoff.contracts.message import user_message
from signoff.temporal.embedded_server import free_port

START_SECONDS = 60
CODE = "K7Q-2FM"
TURN = "0355QgOLoRCXrtjscGr3gX"


async def test_init_writes_a_program_and_overwrites_none(cli: Cli, tmp_path: Path) -> None:
    ran = await cli("init", "--json")
    assert (ran.code, ran.err, ran.data["files"]) == (0, "", list(PROGRAM))
    (tmp_path / "refunds.py").write_text("mine", encoding="utf-8")
    assert "`refunds.py` is there already" in assert_one_sentence(await cli("init"))
    assert (tmp_path / "refunds.py").read_text(encoding="utf-8") == "mine"
    assert (await cli("init", "shop")).code == 0
    assert (tmp_path / "shop" / "refunds.py").read_text(encoding="utf-8") == PROGRAM["refunds.py"]


async def test_init_writes_a_manifest(cli: Cli, tmp_path: Path) -> None:
    ran = await cli("init", "--yaml", "--json")
    assert (ran.code, ran.err, ran.data["files"]) == (0, "", list(MANIFEST))
    assert (await cli("manifest", "validate")).code == 0
    assert "use one of the two" in assert_one_sentence(await cli("init", "--yaml", "--tool", EXAMPLE_SIGNATURE))


async def run_pytest(folder: Path, file: str) -> subprocess.CompletedProcess[str]:
    """Run the tests without the plugins installed here."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file)
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return await asyncio.to_thread(
        subprocess.run, command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )


async def test_generated_program_test_passes_and_fails_with_another_rule(cli: Cli, tmp_path: Path) -> None:
    await cli("init")
    passed = await run_pytest(tmp_path, "test_refunds.py")
    assert (passed.returncode, "2 passed" in passed.stdout) == (0, True), passed.stdout
    program = tmp_path / "refunds.py"
    program.write_text(program.read_text(encoding="utf-8").replace("<= 10.0", "<= 50.0"), encoding="utf-8")
    failed = await run_pytest(tmp_path, "test_refunds.py")
    assert (failed.returncode, "1 failed, 1 passed" in failed.stdout) == (1, True), failed.stdout


async def test_generated_manifest_test_passes_and_fails_with_another_rule(cli: Cli, tmp_path: Path) -> None:
    await cli("init", "--yaml")
    passed = await run_pytest(tmp_path, "test_discounts.py")
    assert (passed.returncode, "2 passed" in passed.stdout) == (0, True), passed.stdout
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("<= 5", "<= 50"), encoding="utf-8")
    failed = await run_pytest(tmp_path, "test_discounts.py")
    assert (failed.returncode, "1 failed, 1 passed" in failed.stdout) == (1, True), failed.stdout


async def test_own_tool_needs_a_function_an_entry_and_a_script_line(cli: Cli, tmp_path: Path) -> None:
    await cli("init", "--yaml")
    tool = 'async def refund_order(order: str, euros: int) -> str:\n    """Refund an order."""\n    return order\n'
    (tmp_path / "refunds.py").write_text(tool, encoding="utf-8")
    entry = '  refund_order: {handler: "refunds:refund_order", scope: generalist, requires_approval: true}\n'
    manifest, script = tmp_path / "signoff.yaml", tmp_path / "clerk_script.py"
    text = manifest.read_text(encoding="utf-8").replace("tools: [give_discount", "tools: [give_discount, refund_order")
    manifest.write_text(text + entry, encoding="utf-8")
    assert (await cli("manifest", "validate")).code == 0
    line = '    (r"refund (\\d+) of order (\\w+)", "refund_order", {"euros": int, "order": str}),\n]\n'
    namespace: dict[str, Any] = {}
    exec(script.read_text(encoding="utf-8").replace("]\n\n\ndef", f"{line}\n\ndef", 1), namespace)
    expected = {"refund 30 of order 7": ("refund_order", {"euros": 30, "order": "7"})}
    expected["Give Bo 5%"] = ("give_discount", {"customer": "Bo", "percent": 5})
    for words, call in expected.items():
        proposed = namespace["react"](CompletionRequest("", "", (user_message(words),), (None,), ()))
        assert [(each.tool, each.args) for each in proposed.calls] == [call]


async def test_program_with_an_own_tool_asks_each_time(cli: Cli, tmp_path: Path) -> None:
    ran = await cli("init", "--tool", EXAMPLE_SIGNATURE)
    assert (ran.code, ran.err) == (0, "")
    assert 'signoff ask "refund_order A7 30.5"' in ran.out
    passed = await run_pytest(tmp_path, "test_own_tools.py")
    assert (passed.returncode, "2 passed" in passed.stdout) == (0, True), passed.stdout


@pytest.mark.parametrize(
    "signature",
    [
        "refund", "refund order(a: str)", "refund(a)", "refund(a: list)", "refund(*a: str)", "refund(a: str = '1')",
        "refund(a: str, a: int)", "refund(ctx: str)", "refund(): import os\nasync def f()", "f" * 65 + "()", "(a: str)",
    ],
)  # fmt: skip
async def test_invalid_tool_signature_is_refused(cli: Cli, tmp_path: Path, signature: str) -> None:
    assert EXAMPLE_SIGNATURE in assert_one_sentence(await cli("init", "--tool", signature))
    assert os.listdir(tmp_path) == []


def test_readme_shows_the_generated_program() -> None:
    shown = {block.file: block.text for block in blocks(ROOT / "README.md") if block.file}
    assert shown == {"refunds.py": PROGRAM["refunds.py"]}


def typed() -> list[list[str]]:
    lines = [words for line in shell_lines(ROOT / "README.md") if (words := shlex.split(line, comments=True))]
    first = next(at for at, words in enumerate(lines) if words[1:] == ["init"])
    last = next(at for at, words in enumerate(lines) if words[1:2] == ["watch"])
    return lines[first : last + 1]


@pytest.mark.timeout(300)
async def test_readme_commands_work_in_an_empty_directory(clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("signoff")
    ports = {f"SIGNOFF_{name}": str(free_port()) for name in ("PORT", "TEMPORAL_PORT", "UI_PORT")}
    env = {**os.environ, **ports}
    assert not [name for name in env if name.endswith("_API_KEY")]

    async def run(*words: str) -> str:
        ran = await asyncio.create_subprocess_exec(
            program, *words, cwd=tmp_path, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, complaint = await ran.communicate()
        assert ran.returncode == 0, complaint.decode()
        return output.decode()

    init, dev, ask, inbox, approve, watch = ([*words[1:]] for words in typed())
    assert "signoff dev" in await run(*init)
    server = await asyncio.create_subprocess_exec(
        program, *dev, cwd=tmp_path, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert server.stdout is not None
        text = ""
        async with asyncio.timeout(START_SECONDS):
            while "Ctrl-C stops everything" not in text:
                line = (await server.stdout.readline()).decode()
                assert line, text
                text += line
        # The suggested command works here.
        assert "signoff ask 'refund" in text
        turn = (await run(*ask)).split()[1]
        listed = ""
        async with asyncio.timeout(START_SECONDS):
            while "Refund 50 EUR to ana" not in listed:
                listed = await run(*inbox)
        code = next(line.split()[0] for line in listed.splitlines() if "Refund 50" in line)
        assert "approved: Refund 50 EUR to ana" in await run(*(code if word == CODE else word for word in approve))
        assert "refunded 50.0 to ana, approved by approver" in await run(
            *(turn if word == TURN else word for word in watch)
        )
    finally:
        server.send_signal(signal.SIGINT)
        async with asyncio.timeout(START_SECONDS):
            await server.communicate()
    assert server.returncode == 0
