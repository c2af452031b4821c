import asyncio
import sys
from asyncio.subprocess import PIPE

import psutil
import pytest

from signoff.activities.mcp.server_session import bind_to_parent

PROGRAM = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(3600)"
"""Ignores its standard input, so that a closed pipe does not end it."""
WORKER = f"""
import subprocess, sys
from signoff.activities.mcp.server_session import bind_to_parent

subprocess.run(bind_to_parent((sys.executable, "-c", {PROGRAM!r})))
"""


def is_running(process: int) -> bool:
    """A process that just ended may not be reaped yet."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other kernels end no program with its parent")
async def test_server_process_ends_when_its_worker_is_killed() -> None:
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, stdout=PIPE)
    assert worker.stdout is not None
    program = int(await worker.stdout.readline())
    assert is_running(program)
    assert psutil.Process(program).ppid() == worker.pid
    worker.kill()
    await worker.wait()
    while is_running(program):
        await asyncio.sleep(0.01)


def test_missing_server_program_fails_before_any_process_starts() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program-here"):
        bind_to_parent(("no-such-program-here",))
    with pytest.raises(FileNotFoundError):
        bind_to_parent(("sh",), "/nowhere")
