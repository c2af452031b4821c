"""Runs the services of docker-compose.yml as processes, with the file's commands and environment, as a container engine
would.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from fork_server import SERVER

from signoff.temporal.embedded_server import ServerHandle, ServerOptions, find_temporal, free_port, run_server
from tools.bench.postgres import running_postgres

ROOT: Final = Path(__file__).parent.parent
RAW: Final = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
_PARSED: Final[dict[str, Any]] = yaml.safe_load(RAW)
_ROLES: Final = ("POSTGRES", "TEMPORAL", "OWNER", "WORKER", "GATEWAY")
PASSWORDS: Final = {f"{name}_PASSWORD": f"{name.lower()}0123456789abcdef" for name in _ROLES}
"""The contents of `.env`."""
_VARIABLE: Final = re.compile(r"\$(?:\$|\{(\w+)(?:(:[-+?])([^}]*))?\})")
_ENTRYPOINT: Final = re.compile(r"^ENTRYPOINT (\[.*\])$", re.MULTILINE)
_LOOKS_AT: Final = re.compile(r"http://127\.0\.0\.1:(\d+)/")
METRICS: Final = "9464"
PUBLISHED: Final = ("8300", "8301", "8080")
"""The ports of the processes in their containers. Each container has its own `METRICS` port as well."""
_READY_SECONDS: Final = 60.0


def read_compose(env: Mapping[str, str]) -> dict[str, Any]:
    """Raises `KeyError` with the file's message for a missing value."""

    def value(found: re.Match[str]) -> str:
        name, form, word = found.groups()
        if name is None:
            return "$"
        given = env.get(name, "")
        if form == ":+":
            return word if given else ""
        if not given and form != ":-":
            raise KeyError(word)
        return given or word

    # In the values, as Compose does: comments may look like a variable.
    def resolve(node: Any) -> Any:
        if isinstance(node, str):
            return _VARIABLE.sub(value, node)
        if isinstance(node, list):
            return [resolve(each) for each in node]
        return {key: resolve(each) for key, each in node.items()} if isinstance(node, dict) else node

    read: dict[str, Any] = resolve(_PARSED)
    return read


@dataclass
class Box:
    folder: Path
    postgres: str
    server: ServerHandle
    env: dict[str, str]
    ui: str = ""
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in PUBLISHED})
    metrics: dict[str, int] = field(default_factory=lambda: defaultdict(free_port))

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        services: dict[str, dict[str, Any]] = read_compose(PASSWORDS | self.env)["services"]
        return services

    def volume(self, name: str) -> Path:
        path = self.folder / "volumes" / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def environment(self, name: str, **more: str) -> dict[str, str]:
        service = self.services[name]
        told = {key: self._here(name, service, str(value)) for key, value in service["environment"].items()}
        if told.get("PGHOST") == "postgres":
            told["PGHOST"], _, told["PGPORT"] = self.postgres.partition(":")
        programs = [SERVER.shell_programs(), Path(sys.executable).parent, *_programs()]
        path = os.pathsep.join(dict.fromkeys([*map(str, programs), os.environ["PATH"]]))
        return {"PATH": path, "HOME": str(self.folder), **told, **more}

    def command(self, name: str) -> list[str]:
        service = self.services[name]
        entry = service.get("entrypoint") or json.loads(_ENTRYPOINT.findall((ROOT / "Dockerfile").read_text())[0])
        return [*entry, *(each.replace("http://temporal-ui:8080", self.ui) for each in service["command"])]

    def check_command(self, name: str) -> list[str]:
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return [self._here(name, self.services[name], word) for word in words]

    async def run(self, name: str, *words: str, **more: str) -> str:
        """Run `words` in a service as `docker compose exec` does, or its own command. Raises with its output."""
        process = await self._begin(name, words or self.command(name), PIPE, more)
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"{name}: {output}"
        return output

    async def start(self, name: str, **more: str) -> "Running":
        log = self.folder / f"{name}.log"
        with log.open("ab") as words:
            return Running(await self._begin(name, self.command(name), words, more), log)

    async def healthy(self, name: str, running: "Running", **more: str) -> None:
        """Wait until the health check succeeds. A check is a program: it runs once there is a listener, not repeatedly
        during a start.
        """
        port = int(_LOOKS_AT.findall(" ".join(self.check_command(name)))[0])
        async with asyncio.timeout(_READY_SECONDS):
            while not await _listens(port):
                assert running.process.returncode is None, running.log.read_text()
                await asyncio.sleep(0.05)
            while True:
                check = await self._begin(name, self.check_command(name), PIPE, more)
                output = (await check.communicate())[0].decode()
                if check.returncode == 0:
                    return
                assert running.process.returncode is None, running.log.read_text() + output
                await asyncio.sleep(0.2)

    async def _begin(self, name: str, words: Sequence[str], out: Any, more: Mapping[str, str]) -> Process:
        place = self.folder / "work"
        place.mkdir(exist_ok=True)
        return await asyncio.create_subprocess_exec(
            *words, cwd=place, env=self.environment(name, **more), stdout=out, stderr=STDOUT
        )

    def _here(self, name: str, service: Mapping[str, Any], text: str) -> str:
        places = {"postgres:5432": self.postgres, "temporal:7233": self.server.address, "/app": str(ROOT)}
        for mount in service.get("configs", ()):
            file = self.folder / mount["source"]
            # Once: processes follow it.
            if not file.exists():
                file.write_text(read_compose(PASSWORDS)["configs"][mount["source"]]["content"], encoding="utf-8")
            places[mount["target"]] = str(file)
        for mount in sorted(service.get("volumes", ()), key=len, reverse=True):
            volume, _, target = mount.partition(":")
            places[target] = str(self.volume(volume))
        if text == "0.0.0.0":
            return "127.0.0.1"
        ports = self.ports | {METRICS: self.metrics[name]}
        if text in ports:
            return str(ports[text])
        # The longest first: one directory's name is the prefix of another.
        found = re.compile("|".join(map(re.escape, sorted(places, key=len, reverse=True))))
        text = found.sub(lambda each: places[each.group()], text)
        return re.sub(r"(?<=127\.0\.0\.1:)(8300|8301|8080|9464)", lambda each: str(ports[each.group()]), text)


@dataclass
class Running:
    process: Process
    log: Path

    async def kill(self) -> None:
        self.process.kill()
        assert await self.process.wait() == -signal.SIGKILL, self.log.read_text()

    async def stop(self) -> int:
        if self.process.returncode is None:
            self.process.terminate()
        return await self.process.wait()


@contextlib.asynccontextmanager
async def running_box(folder: Path, **env: str) -> AsyncIterator[Box]:
    """`env` is added to `.env` after the passwords."""
    options = ServerOptions(folder / "temporal.db", port=free_port(), ui_port=None)
    with running_postgres("postgres", PASSWORDS["POSTGRES_PASSWORD"]) as address:
        async with run_server(options) as server:
            yield Box(folder, address, server, dict(env))


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _programs() -> list[Path]:
    found = [find_temporal(), shutil.which("psql")]
    return [Path(each).parent for each in found if each is not None]
