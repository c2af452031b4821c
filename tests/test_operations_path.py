import asyncio
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks
from fork_server import SERVER

from signoff.temporal.embedded_server import ServerOptions, find_temporal, free_port, run_server
from tools.bench.postgres import running_postgres

PAGE = ROOT / "docs" / "operations.md"
SECONDS = 1_200
"""For about sixty commands."""
PASSWORD = "superuser0123456789"
SERVICE = re.compile(r"^env \$\(cat common\.env (\S+)\.env\) signoff (worker|gateway|codec)$", re.MULTILINE)
NOT_TYPED = ("pip install",)
"""Already installed on the tests' machine."""
BEFORE_RESTORING = "pg_restore"
HELPERS = """
set -eu
running=""
stop() { kill $running; wait $running || true; running=""; }
trap 'test -z "$running" || kill $running' EXIT
start() {
  rm -f $1.log
  env $(cat common.env $1.env) signoff $2 > $1.log 2>&1 &
  running="$running $!"
  until grep -qs 'Ctrl-C stops it' $1.log; do
    kill -0 $! || { cat $1.log; exit 1; }
    sleep 0.1
  done
}
start_all() {
  for each in worker worker-2 gateway gateway-2 codec; do start $each ${each%-2}; done
}
decide() {
  asked="$(SIGNOFF_TOKEN="$(head -n 1 rui.token)" signoff ask "give Ana $1 % off" --no-wait --json)"
  turn="$(echo "$asked" | python -c 'import json, sys; print(json.load(sys.stdin)["turn"])')"
  until SIGNOFF_TOKEN="$(head -n 1 ana.token)" signoff inbox | grep "$1 %"; do sleep 0.5; done
  code="$(SIGNOFF_TOKEN="$(head -n 1 ana.token)" signoff inbox --json |
    python -c "import json, sys; print(next(each['id'] for each in json.load(sys.stdin) if each['turn'] == '$turn'))")"
  SIGNOFF_TOKEN="$(head -n 1 ana.token)" signoff approve "$code"
  # A busy machine may not answer one question in time.
  until SIGNOFF_TOKEN="$(head -n 1 rui.token)" signoff watch "$turn"; do sleep 0.1; done
}
"""
"""The actions that the sentences between the commands describe."""


def path_script(places: dict[str, str]) -> str:
    typed, written = [HELPERS], re.compile("|".join(map(re.escape, places)))
    for block in blocks(PAGE, "sh"):
        # All at once: a found port may contain the digits of a written one.
        text = written.sub(lambda found: places[found.group()], block.text)
        if text.startswith(NOT_TYPED):
            continue
        typed.append(f"echo '== {text.splitlines()[0].replace(chr(39), '')}'\n")
        if BEFORE_RESTORING in text:
            typed.append("decide 60\nstop\n")
        typed.append(SERVICE.sub(r"start \1 \2", text))
        if BEFORE_RESTORING in text:
            typed.append("start_all\ndecide 70\n")
    # The new signing key is used after the gateway's restart, and the new tables by the new processes.
    typed.append("stop\nstart_all\ndecide 80\nstop\n")
    return "".join(typed)


@pytest.mark.postgres
@pytest.mark.rehearsal
@pytest.mark.timeout(SECONDS + 60)
async def test_operations_page_leads_to_production(tmp_path: Path) -> None:
    options = ServerOptions(tmp_path / "temporal" / "temporal.db", port=free_port(), ui_port=None)
    with running_postgres("postgres", PASSWORD) as database:
        async with run_server(options) as server:
            port = free_port()
            places = {
                "db.example.com": database,
                "temporal.example.com:7233": server.address,
                "https://approvals.example.com": f"http://127.0.0.1:{port}",
            }
            places |= {written: str(free_port()) for written in ("8301", "8310", "9464", "9465", "9466", "9467")}
            code, printed = await typed(path_script(places), tmp_path, port, places["8301"])
    assert code == 0, printed
    for percent in (60, 70, 80):
        assert f"Ana gets {percent} % off, agreed by ana" in printed, printed
    assert "✗" not in printed
    kept = b"".join(each.read_bytes() for each in options.db_file.parent.iterdir())
    assert b"agreed by ana" not in kept


async def typed(script: str, folder: Path, port: int, codec_port: str) -> tuple[int, str]:
    there = (sys.executable, find_temporal(), shutil.which("psql"))
    programs = [SERVER.shell_programs(), *(Path(each).parent for each in there if each is not None)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    env = plain | {
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        "HOME": str(folder),
        "PGPASSWORD": PASSWORD,
        "SIGNOFF_PORT": str(port),
        "SIGNOFF_CODEC_PORT": codec_port,
    }
    log = folder / "path.log"
    with log.open("wb") as words:
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", script),
            cwd=folder,
            env=env,
            stdout=words,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(SECONDS):
            code = await shell.wait()
    except TimeoutError:
        # With all processes that it has started.
        os.killpg(shell.pid, signal.SIGKILL)
        code = await shell.wait()
    return code, log.read_text(encoding="utf-8")
