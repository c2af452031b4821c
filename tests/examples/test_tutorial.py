import ast
import asyncio
import json
import os
import re
import shlex
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks
from tables import table

from signoff.registry.program.program_loader import load_program
from signoff.temporal.embedded_server import ServerHandle, free_port

PAGE = ROOT / "docs" / "tutorial.md"
FINISHED = ROOT / "examples" / "refunds"
SECONDS = 60
READY = "Ctrl-C stops"
CODE = "K7Q-2FM"
MAY_FAIL = ("was denied", "✗ worker: no worker polls")
SERVERS = ("signoff dev", "signoff worker", "signoff gateway")


def steps() -> list[list[Block]]:
    found: list[list[Block]] = []
    headings = re.findall(r"^## (\d+)\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [str(number) for number in range(1, 13)]
    every = iter(blocks(PAGE))
    for text in re.split(r"^## \d+\. .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        found.append([next(every) for _ in re.findall(r"^```\w+$", text, re.MULTILINE)])
    return found


STEPS = steps()


def name_of(statement: ast.stmt) -> str:
    """A later block replaces the statement with the same key: its defined name, or otherwise its text."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return statement.name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ast.unparse(statement)


def merge(program: str, block: str) -> str:
    statements = ast.parse(program).body
    for new in ast.parse(block).body:
        named = [name_of(each) for each in statements]
        if name_of(new) in named:
            statements[named.index(name_of(new))] = new
        else:
            # The program ends with `if __name__ == "__main__"`.
            statements.insert(len(statements) - 1, new)
    return "\n\n".join(map(ast.unparse, statements))


def files_after(step: int) -> dict[str, str]:
    files: dict[str, str] = {}
    for block in (block for blocks_of_step in STEPS[:step] for block in blocks_of_step if block.file):
        known = files.get(block.file)
        merges = known is not None and block.file == "refunds.py"
        files[block.file] = merge(known or "", block.text) if merges else block.text
    return files


def write(folder: Path, step: int) -> None:
    for name, text in files_after(step).items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@table("step", *range(1, 13))
def test_program_of_every_step_builds(step: int, folder: Path) -> None:
    write(folder, step)
    try:
        catalog = load_program("refunds:app").build()
    finally:
        sys.modules.pop("refunds", None)
    assert "refund" in catalog.registry.list()
    assert len(catalog.rules.rules) == (step >= 10)


def test_last_step_has_the_files_of_the_finished_program() -> None:
    files = files_after(12)
    assert sorted(files) == sorted(path.name for path in FINISHED.iterdir() if path.is_file())
    finished = ast.parse((FINISHED / "refunds.py").read_text(encoding="utf-8"))
    assert isinstance(finished.body.pop(0), ast.Expr)
    assert ast.unparse(ast.parse(files["refunds.py"])) == ast.unparse(finished)
    for name in ("people.yaml", "test_refunds.py"):
        assert files[name] == f"# {name}\n{(FINISHED / name).read_text(encoding='utf-8')}"


def test_each_step_has_at_most_twenty_lines_of_text() -> None:
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for step in re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:]:
        assert len([line for line in step.splitlines() if line.strip()]) <= 20


@dataclass
class Reader:
    folder: Path
    env: dict[str, str]
    temporal: str
    turn: str = ""
    printed: str = ""
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def type(self, line: str) -> None:
        if line.startswith("pip install"):
            return
        if line.startswith("export "):
            given = dict(each.split("=", 1) for each in shlex.split(line)[1:])
            self.env |= {name: self.temporal if name == "TEMPORAL_ADDRESS" else value for name, value in given.items()}
            return
        if line.startswith(SERVERS):
            await self._serve(line)
            return
        if CODE in line:
            line = line.replace(CODE, await self._code())
        process = await self._start(line)
        words, _ = await asyncio.wait_for(process.communicate(), SECONDS)
        self.printed += words.decode()
        assert process.returncode == 0 or any(each in words.decode() for each in MAY_FAIL), f"{line}: {words.decode()}"
        if found := re.search(r"^turn (\w+) is accepted", words.decode(), re.MULTILINE):
            self.turn = found[1]

    async def stop(self, *names: str) -> None:
        for name in names:
            if (process := self.running.pop(name, None)) and process.returncode is None:
                process.send_signal(signal.SIGINT)
                await asyncio.wait_for(process.communicate(), SECONDS)

    async def _serve(self, line: str) -> None:
        name = line.split()[1]
        await self.stop(name)
        ports = f" --temporal-port {free_port()} --no-ui" if name == "dev" else ""
        self.env["SIGNOFF_PORT"] = str(free_port())
        process = self.running[name] = await self._start(f"exec {line}{ports}")
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while READY not in (said := (await process.stdout.readline()).decode()):
                self.printed += said
                assert said, f"{line} ended: {self.printed}"

    async def _code(self) -> str:
        async with asyncio.timeout(SECONDS):
            while True:
                process = await self._start("signoff inbox --json --as approver")
                words, _ = await process.communicate()
                for request in json.loads(words):
                    if request["turn"] == self.turn:
                        return str(request["code"])
                await asyncio.sleep(0.2)

    async def _start(self, line: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("sh", "-c", line),
            cwd=self.folder,
            env=self.env | {"TURN": self.turn},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_commands_of_every_step_print_the_documented_output(
    tmp_path: Path, server: ServerHandle, task_queue: str
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    kept.pop("OPENAI_API_KEY", None)
    paths = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}", "HOME": str(tmp_path)}
    reader = Reader(tmp_path, kept | paths | {"SIGNOFF_TASK_QUEUE": task_queue, "COLUMNS": "200"}, server.address)
    try:
        for number, step in enumerate(STEPS, start=1):
            write(tmp_path, number)
            reader.printed = ""
            for block in step:
                if block.language == "sh":
                    for line in block.text.splitlines():
                        await reader.type(line)
                elif block.language == "text":
                    for line in block.text.splitlines():
                        assert line in reader.printed, f"step {number}: {reader.printed}"
    finally:
        await reader.stop(*reader.running)
