import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import fork_server
import psutil
import pytest
from fork_server import HERE, PROGRAM, SERVER, SIGNOFF, ForkingPopen, forkable_words

from signoff.contracts.names import VERSION

PYTHON = sys.executable
CODEC = [PYTHON, "-m", PROGRAM, "codec"]
DEMO = f"""
import os, psutil, subprocess, sys
with subprocess.Popen([sys.executable, "-m", "{PROGRAM}", "hook", "claude-code"], stdin=subprocess.PIPE) as process:
    print(psutil.Process(process.pid).cmdline()[1])
    print(psutil.Process(process.pid).ppid() == os.getpid())
    process.kill()
    print(process.wait())
"""
"""A program that starts Signoff as the demo does."""


async def test_fork_has_its_arguments_directory_and_environment(tmp_path: Path) -> None:
    manifest = "SIGNOFF_MANIFEST"
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-m", PROGRAM, "manifest", "validate"),
        cwd=tmp_path,
        env=os.environ | {manifest: "nowhere.yaml"},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert b"nowhere.yaml" in err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_fork_is_a_child_that_can_be_killed_and_awaited(number: signal.Signals) -> None:
    with subprocess.Popen([PYTHON, "-m", PROGRAM, "hook", "claude-code"], stdin=subprocess.PIPE) as process:
        # It waits for its input, because an ended program could not be checked.
        assert psutil.Process(process.pid).ppid() == os.getpid()
        assert psutil.Process(process.pid).cmdline()[1] == str(HERE / "fork_server.py")
        process.send_signal(number)
        assert process.wait() == -number
    assert not psutil.pid_exists(process.pid)


def test_orphan_is_not_adopted_by_the_tests() -> None:
    subprocess.run([str(SIGNOFF), "--version"], check=True, stdout=subprocess.DEVNULL)
    left = subprocess.run(
        ["sh", "-c", "sleep 600 >&- 2>&- & echo $!"], capture_output=True, text=True, check=True
    ).stdout
    orphan = psutil.Process(int(left))
    try:
        assert orphan.ppid() != os.getpid()
    finally:
        orphan.kill()


@pytest.mark.parametrize(
    ("words", "env", "forked"),
    [
        (CODEC, {}, CODEC[1:]),
        ((str(SIGNOFF), "worker"), {}, ["-m", PROGRAM, "worker"]),
        (["signoff", "worker"], {"PATH": str(SIGNOFF.parent)}, ["-m", PROGRAM, "worker"]),
        (["signoff", "worker"], {"PATH": "/nowhere"}, None),
        ([PYTHON, str(HERE / "held_worker.py"), "some"], {}, [str(HERE / "held_worker.py"), "some"]),
        ([PYTHON, str(HERE / "face_workflow.py"), "some"], {}, None),
        ([PYTHON, str(HERE.parent / "worker.py")], {}, None),
        ([PYTHON, "-u", "-m", PROGRAM, "worker"], {}, None),
        ([PYTHON, "-m", "demo", "edit"], {}, ["-m", "demo", "edit"]),
        ([PYTHON, "-m", "pytest"], {}, None),
        ([PYTHON, "-m"], {}, None),
        ([PYTHON, "-c", "pass"], {}, None),
        (CODEC, {"PYTHONPATH": "elsewhere"}, None),
        (CODEC, {"PYTHONPATH": str(HERE.parent)}, CODEC[1:]),
        (CODEC, {"LC_ALL": "C"}, None),
        (["temporal", "--version"], {}, None),
        ("signoff worker", {}, None),
    ],
)
def test_no_other_program_is_forked(words: str | list[str], env: dict[str, str], forked: list[str] | None) -> None:
    assert forkable_words(words, {**os.environ, "LC_ALL": os.environ.get("LC_ALL", ""), **env}) == forked


def test_fork_of_the_demo_starts_its_own_forks(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(DEMO)
    done = subprocess.run([PYTHON, "-m", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(HERE / "fork_server.py"), "True", "-9"], done.stderr


@pytest.fixture
def shell_env() -> dict[str, str]:
    path = os.pathsep.join([str(SERVER.shell_programs()), os.environ["PATH"]])
    return {name: value for name, value in os.environ.items() if not name.startswith("SIGNOFF_")} | {"PATH": path}


def test_shells_fork_has_the_shells_environment(shell_env: dict[str, str], tmp_path: Path) -> None:
    script = (
        "cd $0 && SIGNOFF_MANIFEST=nowhere.yaml signoff manifest validate 2> complaint || { echo $?; cat complaint; }"
    )
    ran = subprocess.run(["sh", "-c", script, tmp_path], env=shell_env, capture_output=True, text=True, check=True)
    code, complaint = ran.stdout.splitlines()
    assert (code, "nowhere.yaml" in complaint) == ("1", True)


@pytest.mark.parametrize(("number", "ended"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)])
def test_shells_fork_ends_with_its_placeholder(shell_env: dict[str, str], number: signal.Signals, ended: int) -> None:
    stand_in = str(SERVER.shell_programs() / "signoff")
    with subprocess.Popen(
        [stand_in, "hook", "claude-code"], env=shell_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.send_signal(number)
        assert process.wait() == ended
        assert process.stdout is not None
        assert process.stdout.read() == b""


def test_shell_starts_the_program_itself_in_another_environment(shell_env: dict[str, str], tmp_path: Path) -> None:
    """A fork would not have read the interpreter's start options."""
    (tmp_path / "sitecustomize.py").write_text("print('started')")
    words = ["sh", "-c", "signoff --version"]
    told = [
        subprocess.run(words, env=shell_env | more, capture_output=True, text=True, check=True).stdout.splitlines()
        for more in ({}, {"PYTHONPATH": str(tmp_path)})
    ]
    assert told == [[f"signoff {VERSION}"], ["started", f"signoff {VERSION}"]]


def test_program_that_cannot_be_forked_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fork_server.ForkServer, "fork")
    ours, theirs = os.pipe()
    with ForkingPopen([str(SIGNOFF), "--version"], pass_fds=(theirs,), stdout=theirs) as process:
        os.close(theirs)
        assert process.wait() == 0
    with os.fdopen(ours) as printed:
        assert printed.read() == f"signoff {VERSION}\n"
