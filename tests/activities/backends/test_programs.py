import asyncio
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from activity_kit import run, summary, task_for
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.backends import programs
from signoff.activities.backends.programs import Programs
from signoff.activities.capability_backends import built_in_backends
from signoff.contracts.errors import ConfigError
from signoff.registry.actor import Actor
from signoff.registry.capabilities import Capabilities, CapabilityError, Process
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel
from signoff.worker import build_deps

SHOWS = "import os, sys; print(sorted(os.environ), sys.argv[1:], os.listdir('.'), sys.stdin.read())"


def tool(handler: Any = None, **fields: Any) -> Tool:
    capabilities = Capabilities(**{"process": (sys.executable,)} | fields.pop("capabilities", {}))
    given = {"handler": handler} if handler else {}
    return pay_tool(Ledger(), False, capabilities=capabilities, **given, **fields)


MODEL = ScriptedModel([])


def known(tool: Tool) -> Catalog:
    return build_catalog(tools=[tool], actors=[Actor(name="desk", model=f"scripted:{__name__}:MODEL")])


def process(*names: str, environment: tuple[str, ...] = ()) -> Process:
    declared = Capabilities(process=names or (sys.executable,), environment=environment)
    return Programs().resolve(declared, "main")  # type: ignore[return-value]


def program(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(f"#!{sys.executable}\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.mark.row("E47")
async def test_declared_program_runs_in_a_call_and_others_are_not_allowed(store: Store) -> None:
    async def handler(args: dict[str, Any], context: ToolContext) -> str:
        given = context.capabilities.process
        first = await given.run(sys.executable, "-c", "print('hi')")
        await given.run("git", "status")
        return first.text

    declared = tool(handler)
    made = await build_deps(known(declared), store)
    assert summary(await run(made, declared, task_for(declared)))[0] == "execution_failed"
    reply = await run(made, declared, task_for(declared))
    assert "BINARY_NOT_ALLOWED: git" in str(summary(reply)[1])
    assert (await process().run(sys.executable, "-c", "print('hi')")).text == "hi\n"


async def test_program_sees_only_declared_variables_and_an_empty_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SHOWN", "yes"), ("HIDDEN", "no")):
        monkeypatch.setenv(name, value)
    given = process(environment=("SHOWN", "UNSET_VARIABLE"))
    result = await given.run(sys.executable, "-ISc", SHOWS, "$HOME; rm *", "`id`", content=b"from the handler")
    # Python sets this variable itself if it finds no locale.
    assert result.text.replace("'LC_CTYPE', ", "") == "['SHOWN'] ['$HOME; rm *', '`id`'] [] from the handler\n"
    assert (result.status, result.errors) == (0, b"")


async def test_exit_status_and_stderr_are_returned() -> None:
    failing = "import sys; sys.stdin.close(); print('no', file=sys.stderr); sys.exit(3)"
    result = await process().run(sys.executable, "-c", failing, content=b"x" * 1_000_000)
    assert (result.status, result.output, result.errors) == (3, b"", b"no\n")


@table("name", "git", "", "/usr/bin/git", "python3", f"{sys.executable} ", "../python")
async def test_undeclared_program_names_are_rejected(name: str) -> None:
    with pytest.raises(CapabilityError) as refused:
        await process().run(name)
    assert (refused.value.code, str(refused.value)) == ("BINARY_NOT_ALLOWED", f"BINARY_NOT_ALLOWED: {name}")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


CHILD = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], stdout=subprocess.DEVNULL)\n"
    "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid} ')\n"
)


def pids(file: Path) -> list[int]:
    text = file.read_text() if file.exists() else ""
    return [int(each) for each in text.split()] if text.endswith(" ") else []


@pytest.mark.parametrize("how", ["late", "loud", "cancelled", "done"])
async def test_child_processes_end_together_with_the_program(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "OUTPUT_BYTES", 100_000)
    file = tmp_path / "pids"
    end = {"loud": "print('x' * 100_001, flush=True)\ntime.sleep(600)", "done": ""}.get(how, "time.sleep(600)")
    seconds = 0.5 if how == "late" else 600.0
    running = asyncio.create_task(process().run(sys.executable, "-c", f"{CHILD}{end}", str(file), seconds=seconds))
    while not (pids(file) or running.done()):
        await asyncio.sleep(0.01)
    if how == "cancelled":
        running.cancel()
    if how == "done":
        assert (await running).status == 0
    else:
        expected = {"late": TimeoutError, "loud": CapabilityError, "cancelled": asyncio.CancelledError}[how]
        with pytest.raises(expected):
            await running
    # The processes end soon after the kill. A process that timed out may not have written its pid.
    while any(alive(pid) for pid in pids(file)):
        await asyncio.sleep(0.01)


async def test_output_exactly_at_the_limit_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "OUTPUT_BYTES", 10)
    assert (await process().run(sys.executable, "-c", "print('x' * 9)")).output == b"x" * 9 + b"\n"
    for stream in ("stdout", "stderr"):
        with pytest.raises(CapabilityError, match=r"^REPLY_TOO_LARGE: .* wrote more than 10 bytes$"):
            await process().run(sys.executable, "-c", f"import sys; print('x' * 10, file=sys.{stream})")


@pytest.mark.row("E47")
async def test_missing_declared_program_fails_at_start_with_its_name(store: Store) -> None:
    declared = tool(capabilities={"process": ("no-such-program",)})
    with pytest.raises(ConfigError) as refused:
        await build_deps(known(declared), store)
    words = "tool `pay` needs the program `no-such-program`, which is not on this machine: install it, or name its path"
    assert refused.value.message == words
    assert refused.value.context == {"tool_name": "pay", "field": "capabilities.process"}
    elsewhere = tool(capabilities={"process": ("no-such-program",)}, task_queue="gpu")
    await build_deps(known(elsewhere), store)
    with pytest.raises(ConfigError, match="no-such-program"):
        await build_deps(known(elsewhere), store, task_queue="gpu")
    await build_deps(known(declared), store, backends={})


async def test_program_path_is_resolved_once_and_never_from_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("first", "second", "here"):
        (tmp_path / folder).mkdir()
        program(tmp_path / folder, "teller", f"print('{folder}')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", f".:{tmp_path / 'first'}")
    backend, declared = Programs(), Capabilities(process=("teller",))
    assert backend.problem(declared) == ""
    monkeypatch.setenv("PATH", f"{tmp_path / 'second'}")
    given: Any = backend.resolve(declared, "main")
    assert (await given.run("teller")).text == "first\n"
    monkeypatch.setenv("PATH", ".")
    assert "`teller`" in Programs().problem(declared)
    os.remove(tmp_path / "first" / "teller")
    with pytest.raises(CapabilityError, match=r"^BINARY_NOT_ALLOWED: teller cannot be started \(FileNotFoundError\)$"):
        await given.run("teller")


@table(
    ("declared", "words"),
    ({"process": ("sh",)}, "may run `sh`, a shell, which runs any command"),
    ({"process": ("/bin/BASH",)}, "may run `/bin/BASH`, a shell, which runs any command"),
    ({"process": ("bin/git",)}, "which is neither a plain name nor an absolute path"),
    ({"environment": ("A=1",), "process": ("git",)}, "shows its programs `A=1`, which is no variable's name"),
    ({"environment": ("LANG",)}, "declares an `environment`, but no `process` that would see it"),
    ({"process": True}, "needs `capabilities.process` to be a list of names"),
)
def test_invalid_program_declaration_is_rejected(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ToolRegistry([pay_tool(Ledger(), False, capabilities=Capabilities(**declared))])


def test_process_backend_is_built_in(tmp_path: Path) -> None:
    assert isinstance(built_in_backends(tmp_path)["process"], Programs)
