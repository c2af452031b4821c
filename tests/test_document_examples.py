import asyncio
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from documents import PAGES, ROOT, Block, blocks, links, shell_lines
from tables import table
from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, catalog_of, pay_tool, running_turns, yes

from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.receipt import Receipt
from signoff.formats.yaml_file import read_yaml
from signoff.people.people_file import load_people
from signoff.policy.cases import run_cases
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.mcp.import_file import read_import
from signoff.registry.program.program_loader import load_program
from signoff.store.store import Store
from signoff.temporal.embedded_server import ServerHandle, find_temporal
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SHOWN = [block for path in PAGES for block in blocks(path) if block.file.startswith("examples/")]
# Blocks of the tutorial are parts of one program: tests/examples/test_tutorial.py runs them.
EXAMPLES = [
    block
    for path in PAGES
    if path.name != "tutorial.md"
    for block in blocks(path)
    if block.language in ("python", "yaml") and block not in SHOWN
]

LINKED = [ROOT / "examples" / path for path in ("depot/depot.py", "pigeon/post/gull.py")]
"""Examples that pages link to instead of showing them."""


def write_files(folder: Path, page: str) -> None:
    for block in EXAMPLES:
        if block.page == page and block.file:
            path = folder / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"{block.page}-{block.file or block.language}")
def test_every_example_loads(block: Block, tmp_path: Path) -> None:
    write_files(tmp_path, block.page)
    if block.language == "python":
        exec(compile(block.text, block.file or block.page, "exec"), {"__name__": "example"})
        return
    assert block.file, "a YAML block names its file in its first line"
    if block.file == "signoff.yaml":
        assert load_manifest(tmp_path / block.file).registry.size > 0
    elif block.file.startswith("mcp/"):
        assert read_import(tmp_path / block.file, "shown")[1]
    elif block.file == "people.yaml":
        assert len(load_people(tmp_path / block.file)) > 1
    else:
        cases = read_yaml(tmp_path / block.file, block.file).data
        catalog = load_manifest(tmp_path / "signoff.yaml")
        results = run_cases(cases, catalog.policies, catalog.zone)
        assert all(result.passed for result in results)
        assert len(results) > 1


@table("path", *LINKED, ids=lambda path: path.stem)
def test_every_linked_example_loads(path: Path) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), names)
    assert {"app", "CHANNEL"} & set(names)


@table("face", "signoff", "signoff.channels", "signoff.people", "signoff.testing", "signoff.tools")
def test_every_public_name_is_in_an_example(face: str) -> None:
    linked = {(path.parent / link).resolve() for path in PAGES for link in links(path) if link.endswith(".py")}
    examples = [path for path in linked if path.is_relative_to(ROOT / "examples")]
    shown = [block.text for block in (*EXAMPLES, *SHOWN) if block.language == "python"]
    text = "\n".join((*shown, *(path.read_text(encoding="utf-8") for path in examples)))
    missing = [name for name in import_module(face).__all__ if re.search(rf"\b{name}\b", text) is None]
    assert missing == []


def write_modules(folder: Path) -> None:
    for number, block in enumerate(block for block in EXAMPLES if block.language == "python"):
        page = block.page.removesuffix(".md").replace("-", "_")
        (folder / f"{page}_{number}.py").write_text(block.text, encoding="utf-8")
    for path in LINKED:
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")


@pytest.mark.long
def test_python_of_every_example_type_checks(tmp_path: Path) -> None:
    """mypy is strict, but functions may lack types, as in short examples. Files of `examples/` use frameworks whose
    pins exclude ours: they run with their frameworks instead.
    """
    write_modules(tmp_path)
    kept = ("--cache-dir", str(Path(sys.prefix) / ".mypy_cache_of_examples"), "--follow-imports", "silent")
    allowed = ("--allow-untyped-defs", "--allow-incomplete-defs", "--no-warn-return-any", "--ignore-missing-imports")
    command = (sys.executable, "-m", "mypy", "--config-file=", "--strict", *kept, *allowed, str(tmp_path))
    paths = {"MYPYPATH": f"{ROOT / 'src'}:{ROOT / 'clients' / 'python'}"}
    done = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


MISSPELT = """
import signoff

app = signoff.App(aprovers=["role:approvers"])


@app.tool(efect="Refund {customer}")
async def refund(customer: str) -> str:
    return customer


async def call() -> str:
    return await refund(7)
"""


@pytest.mark.long
@pytest.mark.pyright
def test_pyright_accepts_every_example_and_refuses_misspelt_keywords(tmp_path: Path) -> None:
    write_modules(tmp_path)
    (tmp_path / "misspelt.py").write_text(MISSPELT, encoding="utf-8")
    paths = [str(ROOT / "src"), str(ROOT / "clients" / "python")]
    config = {"typeCheckingMode": "strict", "extraPaths": paths, "reportMissingTypeStubs": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    program = ROOT / "tests" / "vercel_packages" / "node_modules" / ".bin" / "pyright"
    command = (program, "--outputjson", "--pythonpath", sys.executable, "-p", tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    refused = [each for each in found if Path(each["file"]).name == "misspelt.py"]
    assert [each for each in found if each not in refused] == []
    assert [each["range"]["start"]["line"] for each in refused] == [3, 6, 6, 12], refused


@table("block", *SHOWN, ids=lambda block: block.file)
def test_shown_example_equals_its_file(block: Block) -> None:
    mark = "//" if block.language == "js" else "#"
    assert block.text == f"{mark} {block.file}\n{(ROOT / block.file).read_text(encoding='utf-8')}"


def test_every_file_of_the_styles_is_shown_or_linked() -> None:
    files = (ROOT / "examples" / "styles").glob("*/*.*")
    shown = {block.file for block in SHOWN if block.file.startswith("examples/styles/")}
    linked = {link.removeprefix("../") for link in links(ROOT / "docs" / "styles.md")}
    assert {path.relative_to(ROOT).as_posix() for path in files} <= shown | linked


async def test_readme_tool_runs_and_requests_approval_as_documented(
    client: Client, store: Store, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, "README.md")
    monkeypatch.chdir(tmp_path)
    small, large = ({"customer": "ana", "amount": amount} for amount in (5.0, 50.0))
    script = [calls(("refund", small), ("refund", large)), respond("done")]
    catalog = load_program("refunds:app").build()
    async with running_turns(client, store, task_queue, catalog, script) as turns:
        key = await turns.start(actor="clerk")
        view = await turns.until(key, lambda view: [call.state for call in view.calls] == ["ok", "waiting"])
        request = view.calls[1].approval
        assert request is not None
        assert request.card.effect == "Refund 50 EUR to ana"
        await turns.signoff.decide(yes(key, "c1.2"))
        result = await turns.signoff.result(key)
    assert [outcome.value.inline for outcome in result.calls] == [
        "refunded 5.0 to ana, approved by policy",
        "refunded 50.0 to ana, approved by approver",
    ]


@table(
    ("file", "name"),
    ("test_shop.py", "test_denied_refund_does_not_run"),
    ("test_booking.py", "test_booking_advances"),
)
async def test_tests_of_the_python_page_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str
) -> None:
    write_files(tmp_path, "python.md")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile((tmp_path / file).read_text(encoding="utf-8"), file, "exec"), namespace)
    assert await namespace[name]() is None


def test_program_of_the_readme_has_at_most_twenty_lines() -> None:
    [program] = [block for block in EXAMPLES if block.page == "README.md" and block.file == "refunds.py"]
    assert len(program.text.strip().splitlines()) <= 20


class Terminal:
    def __init__(self, server: ServerHandle, key: TurnKey) -> None:
        program = find_temporal()
        assert program is not None
        self._env = os.environ | {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "TEMPORAL_ADDRESS": server.address,
            "TURN": key.workflow_id,
            "APPROVAL": ApprovalKey(key, "c1.1").id,
        }

    async def run(self, line: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "sh", "-euc", line, env=self._env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()
        return printed.decode()


def documented(part: str) -> str:
    [line] = [line for line in shell_lines(ROOT / "docs" / "temporal.md") if part in line]
    return line


COMMANDS = {
    '--query "SignoffState',
    "--type pending_approvals",
    "--type state",
    "--type receipt",
    "--name decide",
    "--name approval_response",
    "--name cancel",
    "workflow cancel",
    # Run by tests/gateway/codec/test_codec_server.py.
    "--codec-endpoint",
    # Run by tests/workflows/test_worker_versions.py.
    "set-current-version",
    "--percentage",
    "--delete",
    "deployment describe",
    "update-options",
    # Run by tests/test_operations_path.py.
    "operator namespace create",
}


def test_every_documented_temporal_command_is_run_by_a_test() -> None:
    lines = [line for path in PAGES for line in shell_lines(path) if line.startswith("temporal ")]
    assert len(lines) > len(COMMANDS)
    for line in lines:
        assert any(part in line for part in COMMANDS), line


@pytest.mark.row("B72")
async def test_request_is_found_read_and_decided_with_the_temporal_program(
    plain_client: Client, server: ServerHandle, store: Store, task_queue: str
) -> None:
    script = [calls(PAY), respond("done")]
    ledger = Ledger()
    async with running_turns(plain_client, store, task_queue, catalog_of([pay_tool(ledger)]), script) as turns:
        key = await turns.start()
        request = (await turns.waiting(key)).calls[0].approval
        assert request is not None
        terminal = Terminal(server, key)
        while key.workflow_id not in await terminal.run(documented('--query "SignoffState')):
            await asyncio.sleep(0.1)
        read = await terminal.run(documented("--type pending_approvals"))
        for found in (request.id, '"tool":"pay"', '"amount":20', '"level":"user"', key.session, key.turn, "opened_at"):
            assert found in read
        assert '"state":"suspended"' in await terminal.run(documented("--type state"))
        assert '"status":"pending"' in await terminal.run(documented("--type receipt"))
        assert "status:accepted" in await terminal.run(documented("--name decide"))
        result = await turns.signoff.result(key)
        assert "already_decided" in await terminal.run(documented("--type receipt"))
    assert (result.calls[0].code, result.calls[0].decided_by) == ("ok", "approver")
    assert len(ledger.rows) == 1


async def test_request_is_denied_or_withdrawn_and_a_turn_stopped_with_the_temporal_program(
    plain_client: Client, server: ServerHandle, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    ended: dict[str, Any] = {}
    async with running_turns(
        plain_client, store, task_queue, catalog_of([pay_tool(ledger)]), [calls(PAY), respond("oh")]
    ) as turns:
        for part in ("--name approval_response", "--name cancel", "workflow cancel"):
            ended[part] = await _ended_by(turns, server, documented(part))
    assert [(part, state, source) for part, (state, source, _) in ended.items()] == [
        ("--name approval_response", "complete", "human"),
        ("--name cancel", "complete", "cancelled"),
        ("workflow cancel", "cancelled", "cancelled"),
    ]
    assert ended["--name approval_response"][2].reason == "too expensive"
    assert ended["--name approval_response"][2].decided_by == "unsigned"
    assert ledger.rows == []


async def _ended_by(turns: RunningTurns, server: ServerHandle, line: str) -> tuple[str, str, Receipt]:
    key = await turns.start()
    await turns.waiting(key)
    await Terminal(server, key).run(line)
    result = await turns.signoff.result(key)
    denied = result.calls[0].denied
    assert denied is not None
    return (
        result.state,
        denied.source,
        await turns.client.get_workflow_handle(key.workflow_id).query(
            "receipt", ApprovalKey(key, "c1.1").id, result_type=Receipt
        ),
    )
