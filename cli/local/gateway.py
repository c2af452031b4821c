"""`gateway`: the process of an installation that people and programs reach, alone or as a part of another."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from signoff.audit.config_snapshots import people_followed
from signoff.channels.base import Channel
from signoff.channels.channel_loader import open_channels
from signoff.cli.local.installation import Workplace, find_workplace
from signoff.cli.local.stores import make_state_dir, working_store
from signoff.cli.terminal.log_setup import logged_to
from signoff.cli.terminal.options import Address, AsJson, Manifest
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.contracts.clock import system_clock
from signoff.engine.turn_client import Signoff
from signoff.gateway.app import build_app
from signoff.gateway.auth.oidc import check_secret
from signoff.gateway.auth.provider_people import knowing_logins
from signoff.gateway.checkpoint_task import checkpoints_kept
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.server import serve
from signoff.gateway.vendors.channel_tasks import channels_running
from signoff.keys.key_files import ensure_development_keys, read_private
from signoff.keys.signatures import Signer
from signoff.settings import require_ready
from signoff.store.store import Store
from signoff.store.tokens import Tokens
from signoff.temporal.embedded_server import check_server

_log = logging.getLogger(__name__)
app = typer.Typer(rich_markup_mode=None)


@app.command()
def gateway(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Its port.", show_default=False)] = None,
    manifest: Manifest = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run the gateway: the HTTP API and the inbox, until Ctrl-C."""
    run(lambda out: _gateway(out, port, manifest, address), as_json=as_json)


@asynccontextmanager
async def running_gateway(place: Workplace, signoff: Signoff, store: Store) -> AsyncIterator[asyncio.Task[None]]:
    """The gateway, which answers when the block begins, until it ends.

    It signs checkpoints of the record meanwhile, and records whom it knows where that changes. Channels carry, hear and
    listen beside it; one that lacks something is named in a warning, and the others run.

    Raises `ServerUnavailable` for a taken port, `ConfigError` for a production profile that lacks something.
    """
    settings = place.settings
    deps = GatewayDeps(
        desk=signoff,
        catalog=place.catalog,
        people=place.people,
        store=store,
        settings=settings,
        signer=await gateway_signer(place, store),
        secrets=place.secrets,
    )
    await check_secret(settings, place.secrets)
    deps = knowing_logins(deps)
    stop, ready = asyncio.Event(), asyncio.Event()
    async with (
        checkpoints_kept(store, deps.signer),
        people_followed(store, place.people, "gateway", clock=deps.clock),
        channels_running(deps, await _channels(deps), place.catalog.channels.routing) as intake,
    ):
        app = build_app(deps, intake)
        task = asyncio.create_task(serve(app, settings.host, settings.port, stop=stop, ready=ready.set))
        waiting = asyncio.create_task(ready.wait())
        try:
            # Whichever is first: where the port is taken the gateway ends and is never ready.
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield task
        finally:
            waiting.cancel()
            stop.set()
            await asyncio.gather(task, return_exceptions=True)


async def gateway_signer(place: Workplace, store: Store) -> Signer:
    """The gateway's keys; the development profile makes them on its first start.

    Raises `ConfigError` that names all that a production profile lacks, or for a file that holds no keys.
    """
    settings = place.settings
    if settings.profile == "development":
        return Signer(ensure_development_keys(settings.signing_keys, settings.public_keys, system_clock()))
    login = settings.oidc_issuer is not None or await _has_tokens(place, store)
    there = settings.signing_keys.exists()
    require_ready(settings, people=place.peopled, signing_keys=there, login=login)
    # Read, never made: workers would refuse what a key signs whose public half nobody gave them.
    return Signer(read_private(settings.signing_keys))


async def _gateway(out: Output, port: int | None, manifest: Path | None, address: str | None) -> int:
    place = find_workplace(manifest, port=port)
    make_state_dir(place.settings)
    with logged_to(place.settings.state_dir, "gateway.log"), stop_signals() as stop:
        signoff = await place.reach(address)
        await check_server(signoff.temporal)
        async with working_store(place.settings) as store, running_gateway(place, signoff, store) as task:
            url = place.settings.public_url
            out.show({"url": url}, f"Inbox     {url}; Ctrl-C stops it", compact=True)
            await until_stopped(stop, task)
            out.say("stopping")
    return 0


async def _channels(deps: GatewayDeps) -> dict[str, Channel]:
    """The channels of the manifest that can be made."""
    declared = deps.catalog.channels.declared.values()
    opened, problems = await open_channels(
        declared, deps.store, public_url=deps.settings.public_url, clock=deps.clock, secrets=deps.secrets
    )
    for problem in problems:
        _log.warning("channel `%s` does not run: %s", problem.channel, problem.what)
    return opened


async def _has_tokens(place: Workplace, store: Store) -> bool:
    now = system_clock()
    for tenant in {person.tenant for person in place.people.all()}:
        for token in await Tokens(store).all(tenant):
            if token.revoked_at is None and now < token.expires_at:
                return True
    return False
