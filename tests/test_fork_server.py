"""Programs of Signoff's that are forks are what a start would have made of them, and nothing else is forked."""

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
from fork_server import HERE, PROGRAM, SIGNOFF, ForkingPopen, forkable_words

from signoff.contracts.names import VERSION

PYTHON = sys.executable
CODEC = [PYTHON, "-m", PROGRAM, "codec"]


async def test_a_fork_has_what_it_was_given(tmp_path: Path) -> None:
    """Its folder, environment, arguments and files; and its code is told."""
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
def test_a_fork_is_a_child_that_is_killed_and_waited_for(number: signal.Signals) -> None:
    """It has its own pid and this process as its parent. A signal ends what reads its input, its parent sees by which,
    and nothing of it is left.
    """
    with subprocess.Popen([PYTHON, "-m", PROGRAM, "hook", "claude-code"], stdin=subprocess.PIPE) as process:
        # It waits for its input: of a program that has ended nobody could say this.
        assert psutil.Process(process.pid).ppid() == os.getpid()
        assert psutil.Process(process.pid).cmdline()[1] == str(HERE / "fork_server.py")
        process.send_signal(number)
        assert process.wait() == -number
    assert not psutil.pid_exists(process.pid)


def test_who_orphans_somebody_does_not_hand_them_to_the_tests() -> None:
    """What a process of the tests' leaves behind becomes the system's child, as it would anywhere."""
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
        ([PYTHON, "-m", "bench"], {}, None),
        ([PYTHON, "-c", "pass"], {}, None),
        (CODEC, {"PYTHONPATH": "elsewhere"}, None),
        (CODEC, {"LC_ALL": "C"}, None),
        (["temporal", "--version"], {}, None),
        ("signoff worker", {}, None),
    ],
)
def test_nothing_else_is_forked(words: str | list[str], env: dict[str, str], forked: list[str] | None) -> None:
    """Another program, another interpreter's options, or another way to start it: that one starts as ever."""
    assert forkable_words(words, {**os.environ, "LC_ALL": os.environ.get("LC_ALL", ""), **env}) == forked


def test_what_a_start_alone_can_do_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is given files beside the three is started, and has them."""
    monkeypatch.delattr(fork_server.ForkServer, "fork")
    ours, theirs = os.pipe()
    with ForkingPopen([str(SIGNOFF), "--version"], pass_fds=(theirs,), stdout=theirs) as process:
        os.close(theirs)
        assert process.wait() == 0
    with os.fdopen(ours) as printed:
        assert printed.read() == f"signoff {VERSION}\n"
