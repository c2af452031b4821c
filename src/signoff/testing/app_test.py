"""Runs an app for a test, with a Temporal server, a worker and a gateway in this process."""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client as TemporalClient
from temporalio.testing import TimeSkipper

from signoff.activities.models.offline_choice import replace_providers
from signoff.cli.local.gateway import running_gateway
from signoff.cli.local.installation import LocalInstallation
from signoff.cli.local.worker import running_worker
from signoff.client.client import Client
from signoff.client.turn_handle import TurnHandle
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.completion import Driver
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import CallView, TurnResult
from signoff.engine.turn_client import TurnClient
from signoff.registry.installation import load_installation
from signoff.registry.manifest.channel_sections import Channels
from signoff.registry.program.program import Program
from signoff.settings import given_settings
from signoff.store.store import make_state_dir, working_store
from signoff.temporal.embedded_server import ServerOptions, free_port, start_server

_PATIENCE = timedelta(seconds=20)
"""Tests often run on busy machines."""


@dataclass(frozen=True)
class TestedTurn:
    """One turn of an app under test."""

    __test__ = False

    handle: TurnHandle
    _test: "AppTest"

    async def request(self) -> ApprovalRequest:
        """Wait until a call of the turn needs approval. Raises `LookupError` if the turn ends."""
        async for request in self.handle.pending():
            return request
        raise LookupError("the turn ended, and none of its calls asked people")

    async def result(self) -> TurnResult:
        """Wait for the end of the turn."""
        return await self.handle.result()

    async def calls(self) -> tuple[CallView, ...]:
        """Return the calls of the turn at this time, with their states."""
        return (await self.handle.view()).calls

    async def skip(self, **span: float) -> None:
        """Move the clock of a waiting turn forward, by `hours=25` and the like.

        Grants, hours of tools and expiries of people keep the machine's time.
        """
        turn = self._test.temporal.get_workflow_handle(self.handle.key.workflow_id)
        await TimeSkipper(self._test.temporal).fast_forward(turn, timedelta(**span))


@dataclass(frozen=True)
class AppTest:
    """A running app for one test. `guest` asks and `approver` decides by default."""

    client: Client
    temporal: TemporalClient

    async def say(self, text: str, *, actor: str = "", user: str = "", **options: Any) -> TestedTurn:
        """Start a turn. Takes the `options` of `Client.start`."""
        return TestedTurn(await self.client.start(text, actor=actor, user=user, **options), self)

    async def approve(self, request: ApprovalRequest, *, by: str = "", **options: Any) -> Receipt:
        """Approve a request. Takes the `options` of `Client.approve`."""
        return await self.client.approve(request, by=by, **options)

    async def deny(self, request: ApprovalRequest, reason: str = "", *, by: str = "") -> Receipt:
        """Deny a request. The model reads the reason."""
        return await self.client.deny(request, by=by, reason=reason)


@asynccontextmanager
async def open_app_test(program: Program, model: Driver | None, settings: Mapping[str, Any]) -> AsyncIterator[AppTest]:
    """Run a program until the block ends. `model` replaces every model of its actors.

    Without `model`, scripts stay and `offline` replaces every other model: no test reaches a provider. Channels, and
    subscriptions with an address, do not run: no test writes to people or other systems. Neither `SIGNOFF_*` nor
    `signoff.toml` affects a test.
    """
    with tempfile.TemporaryDirectory(prefix="signoff-") as folder:
        given: dict[str, Any] = {
            "profile": "development",
            "state_dir": folder,
            "store_url": f"sqlite:///{folder}/signoff.db",
        }
        given |= {"host": "127.0.0.1", "port": free_port(), "public_url": None, "encryption": False, **settings}
        found = load_installation(given_settings(**given), program=program)
        place = LocalInstallation(**vars(found) | {"driver": model})
        catalog = replace_providers(place.catalog) if model is None and not place.settings.model else place.catalog
        channels = Channels(routing=catalog.channels.routing)
        own = {name: each for name, each in catalog.subscriptions.items() if not each.url}
        place = replace(place, catalog=replace(catalog, channels=channels, subscriptions=own))
        make_state_dir(place.settings)
        options = ServerOptions(Path(folder) / "temporal.db", port=free_port(), ui_port=None, time_skipping=True)
        queue = place.settings.task_queue
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(working_store(place.settings))
            server = await start_server(options)
            # A graceful stop takes seconds, up to ten while turns wait. The data disappears with the directory.
            stack.push_async_callback(server.kill)
            temporal = await server.connect()
            async with (
                running_worker(place, temporal, store, task_queue=queue),
                running_gateway(place, TurnClient(temporal, task_queue=queue, patience=_PATIENCE), store),
                Client(place.settings.public_url, token="") as client,
            ):
                yield AppTest(client, temporal)
