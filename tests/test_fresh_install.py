import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from documents import ROOT, blocks, page, shell_lines
from environments import installed_wheel
from test_document_examples import EXAMPLES

from signoff.temporal.embedded_server import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
MANIFESTS = sorted((ROOT / "examples").rglob("signoff.yaml"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("wheel")
    (command,) = [line for line in shell_lines(ROOT / "README.md") if "pip wheel" in line]
    words = [sys.executable, *shlex.split(command)[1:]]
    words[words.index("dist")] = str(built)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return installed_wheel("fresh", next(built.glob("*.whl")), "dev", ROOT / "constraints.txt")


def document_examples(folder: Path) -> list[dict[str, str]]:
    examples = []
    for number, block in enumerate(EXAMPLES):
        own = folder / block.page
        own.mkdir(exist_ok=True)
        if block.file:
            (own / block.file).parent.mkdir(exist_ok=True)
            (own / block.file).write_text(block.text, encoding="utf-8")
        named = {"folder": str(own), "file": block.file, "text": block.text, "language": block.language}
        examples.append({"name": f"{block.page} {number}", **named})
    return examples


def repository_examples(folder: Path) -> list[dict[str, str]]:
    """The tools of `examples/` also need aiosqlite, which `make dev` installs."""
    (folder / "aiosqlite").symlink_to(Path(aiosqlite.__file__).parent)
    return [
        {
            "name": str(path.relative_to(ROOT)),
            "folder": str(path.parent),
            "file": path.name,
            "text": "",
            "language": "",
            "path": str(folder),
        }
        for path in MANIFESTS
    ]


def names_its_need(error: str, text: str) -> bool:
    if extra := re.search(r"pip install '(signoff\[\w+\])'", error):
        return extra[1] in text
    return error.startswith("ModuleNotFoundError: No module named") and "pip install" in text


def test_every_documented_example_loads_or_its_page_names_the_extra(python: Path, tmp_path: Path) -> None:
    examples = [*document_examples(tmp_path), *repository_examples(tmp_path)]
    assert len(examples) > 50
    program = ROOT / "tests" / "fresh_install.py"
    done = subprocess.run(
        (str(python), "-I", str(program)), input=json.dumps(examples), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    errors: dict[str, str] = json.loads(done.stdout)
    texts = {each["name"]: _text_of(each) for each in examples}
    assert {name: error for name, error in errors.items() if not names_its_need(error, texts[name])} == {}


def _text_of(example: dict[str, str]) -> str:
    if example["language"] == "python":
        name = example["name"].partition(" ")[0]
        return page(name if name == "README.md" else f"docs/{name}")
    folder = Path(example["folder"])
    return example["text"] + "".join(each.read_text(encoding="utf-8") for each in folder.glob("signoff.yaml"))


async def test_first_manifest_of_external_calls_and_curl_end_in_an_approval(python: Path, tmp_path: Path) -> None:
    path = ROOT / "docs" / "external-calls.md"
    manifest = next(block for block in blocks(path, "yaml") if block.file == "signoff.yaml")
    (tmp_path / manifest.file).write_text(manifest.text, encoding="utf-8")
    port = free_port()
    own = {"SIGNOFF_PORT": port, "SIGNOFF_TEMPORAL_PORT": free_port(), "SIGNOFF_UI_PORT": free_port()}
    signoff = python.with_name("signoff")
    named = {"PATH": f"{python.parent}:{os.environ['PATH']}", **{name: str(each) for name, each in own.items()}}
    place: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, **named}}
    create, propose, look, use, report = shell_lines(path)

    async def run(*words: str | Path) -> str:
        started = await asyncio.create_subprocess_exec(*words, **place, stdout=PIPE, stderr=PIPE)
        printed, complaint = await started.communicate()
        assert started.returncode == 0, complaint.decode()
        return printed.decode()

    async def curl(line: str) -> Any:
        for old, new in {"8300": str(port), "TOKEN": token, "/ID": f"/{call}"}.items():
            line = line.replace(old, new)
        return json.loads(await run("sh", "-c", line))

    server = await asyncio.create_subprocess_exec(signoff, "dev", **place, stdout=PIPE, stderr=STDOUT)
    try:
        assert server.stdout is not None
        text = ""
        while "Ctrl-C stops everything" not in text:
            line = (await server.stdout.readline()).decode()
            assert line, text
            text += line
        assert "docs/external-calls.md" in text
        token, call = (await run("sh", "-c", create)).split()[0], ""
        call = (await curl(propose))["id"]
        code = (await curl(look.replace("?wait=30", "")))["code"]
        assert "approved" in await run(signoff, "approve", code)
        assert (await curl(look))["state"] == "permitted"
        assert (await curl(use))["args"] == {"order": "A7", "euro": 200}
        assert (await curl(report))["code"] == "ok"
    finally:
        if server.returncode is None:
            server.send_signal(signal.SIGINT)
        await server.wait()
