"""The base of most commands: settings, catalog, people and a client."""

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from signoff.client.dev_process import DevProcess, read_running
from signoff.contracts.errors import ConfigError, NotFound
from signoff.contracts.names import DEFAULT_TENANT, RUNNING_FILE
from signoff.contracts.person import Person
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.replace import replace
from signoff.keys.secrets import SecretProvider
from signoff.registry.installation import Installation, load_installation, provider_of_secrets
from signoff.registry.program.program import Program
from signoff.registry.program.program_loader import check_manifest_path, is_program, load_program
from signoff.settings import Settings, load_settings

# Temporal's client takes half a second to import, and commands that only read the manifest do not need it.
if TYPE_CHECKING:
    from temporalio.client import Client

    from signoff.engine.turn_client import TurnClient


@dataclass(frozen=True)
class LocalInstallation(Installation):
    """An installation as the command line finds it."""

    running: DevProcess | None = None
    """The running `signoff dev`, if any."""

    @property
    def task_queue(self) -> str:
        """Defaults to the queue of the running `signoff dev`."""
        given = "task_queue" in self.settings.model_fields_set
        return self.settings.task_queue if given or self.running is None else self.running.task_queue

    def person(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person:
        """Raises `NotFound` with the nearest ids."""
        found = self.people.find(person_id, tenant)
        if found is None:
            ids = [person.id for person in self.people.all(tenant)]
            near = did_you_mean(person_id, ids) or f"; known: {', '.join(f'`{each}`' for each in ids) or 'nobody'}"
            where = "" if tenant == DEFAULT_TENANT else f" in the tenant {quote_name(tenant)}"
            elsewhere = [each.tenant for each in self.people.all() if each.id == person_id]
            if elsewhere:
                near = f"; of {quote_name(elsewhere[0])} there is one: add `--tenant {elsewhere[0]}`"
            raise NotFound(f"there is no person {quote_name(person_id)}{where}{near}")
        return found

    async def connect(self, address: str | None = None) -> "TurnClient":
        """Connect to the server at `address`, else of `TEMPORAL_*`, else of the running `signoff dev`.

        Raises `ServerUnavailable` or `ConfigError`.
        """
        from signoff.engine.turn_client import TurnClient  # noqa: PLC0415

        client = await _reach(self.settings, self.secrets, self.running, address)
        return TurnClient(client, task_queue=self.task_queue)


def find_installation(source: str = "", *, program: Program | None = None, **overrides: Any) -> LocalInstallation:
    """`source` is `MODULE:APP`, or the file or directory of a manifest. `overrides` are settings. Raises `ConfigError`.

    If neither `source` nor a setting names one, the `signoff dev` in this directory does.
    """
    settings, running = _find_settings(source, **overrides)
    if program is None:
        program = _program_of(settings, running)
    found = load_installation(settings, program=program)
    return LocalInstallation(**vars(found), running=running)


def find_manifest(source: str = "") -> Path:
    """Search like `find_installation`. Raises `ConfigError` for a program without a manifest."""
    settings, running = _find_settings(source)
    program = _program_of(settings, running)
    if program is None:
        return settings.manifest
    if program.manifest is None:
        why = f"`{settings.app}` has no manifest, and only a manifest declares `mcp_servers`: add `App(manifest=...)`"
        raise ConfigError(why, field="manifest")
    return program.manifest


def _program_of(settings: Settings, running: DevProcess | None) -> Program | None:
    if not settings.app:
        return None
    folder = Path(running.folder) if running is not None and settings.app == running.app else None
    return load_program(settings.app, folder)


def _find_settings(source: str, **overrides: Any) -> tuple[Settings, DevProcess | None]:
    if not source:
        settings = load_settings(**overrides)
    elif is_program(source):
        settings = load_settings(app=source, **overrides)
    else:
        check_manifest_path(Path(source))
        settings = load_settings(app="", manifest=Path(source), **overrides)
    running = read_running(settings.state_dir)
    if running is not None and not settings.model_fields_set & {"app", "manifest"}:
        settings = replace(settings, app=running.app, manifest=Path(running.manifest))
    return settings, running


async def reach_server(settings: Settings, address: str | None = None) -> "Client":
    """Connect to the server at `address`, else of `TEMPORAL_*`, else of the running `signoff dev`, else the local one.

    Raises `ServerUnavailable` or `ConfigError`.
    """
    return await _reach(settings, provider_of_secrets(settings), read_running(settings.state_dir), address)


async def _reach(
    settings: Settings, secrets: SecretProvider, running: DevProcess | None, address: str | None
) -> "Client":
    from signoff.engine.connection import connect_installation  # noqa: PLC0415

    if address or running is None or server_is_configured():
        return await connect_installation(settings, secrets, address)
    return await connect_installation(settings, secrets, running.address, running.namespace)


def server_is_configured() -> bool:
    """Read `TEMPORAL_*` and Temporal's own file. `connect` reports unreadable values."""
    from temporalio.envconfig import ClientConfig  # noqa: PLC0415

    try:
        return bool(ClientConfig.load_client_connect_config().get("target_host"))
    except (RuntimeError, ValueError, OSError):
        return True


def write_running(settings: Settings, running: DevProcess) -> Path:
    """Publish the running process. The caller removes the file at the end. Raises `OSError`."""
    path = settings.state_dir / RUNNING_FILE
    path.write_text(running.model_dump_json(), encoding="utf-8")
    return path


def account() -> str:
    """Return the only known identity on the command line."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
