import asyncio
import sys
from pathlib import Path

import pytest
from served_stack import gateway_alone, worker_alone

from own_program.book import main
from signoff.temporal.embedded_server import ServerHandle

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_program_books_a_flight(
    clean_env: pytest.MonkeyPatch,
    tmp_path: Path,
    server: ServerHandle,
    task_queue: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clean_env.setenv("TRAVEL_DESK_DB", str(tmp_path / "books.db"))
    manifest = EXAMPLES / "travel_desk" / "signoff.yaml"
    async with gateway_alone(clean_env, server, task_queue, manifest), worker_alone(server, task_queue):
        assert (await main()).startswith("Booked: TP 531 to Lisbon for 420 EUR")
    assert "accepted Book flight TP 531 to Lisbon" in capsys.readouterr().out


async def test_worker_py_runs_the_worker_of_the_directory(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, server: ServerHandle, task_queue: str
) -> None:
    clean_env.setenv("TRAVEL_DESK_DB", str(tmp_path / "books.db"))
    manifest = EXAMPLES / "travel_desk" / "signoff.yaml"
    command = (sys.executable, str(EXAMPLES.parent / "worker.py"))
    pipe = asyncio.subprocess.PIPE
    async with gateway_alone(clean_env, server, task_queue, manifest):
        worker = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        try:
            assert worker.stdout is not None
            async with asyncio.timeout(60):
                line = (await worker.stdout.readline()).decode()
            assert line == f"a worker of the task queue {task_queue}; Ctrl-C stops it\n"
            assert (await main()).startswith("Booked: TP 531")
        finally:
            worker.terminate()
            _, complaint = await worker.communicate()
    assert (worker.returncode, complaint) == (0, b"")
    clean_env.setenv("SIGNOFF_MANIFEST", "nowhere.yaml")
    ended = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    _, complaint = await ended.communicate()
    assert (ended.returncode, complaint.decode()) == (
        1,
        "worker: there is no manifest `nowhere.yaml` here: check the path\n",
    )
