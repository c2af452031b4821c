"""`codec`: the server with which Temporal's UI and command line read encrypted payloads."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from temporalio.client import Client

from signoff.cli.local.installation import LocalInstallation, find_installation
from signoff.cli.terminal.log_setup import process_log
from signoff.cli.terminal.options import AppArgument, AsJson, UnsafeOpen
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.contracts.errors import ConfigError
from signoff.engine.connection import open_encryption
from signoff.engine.credential_check import check_public_keys, check_store_role
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.gateway.app import build_codec_app
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.transport.server import running_server
from signoff.keys.key_files import FileVerifier
from signoff.settings import Settings, exposure_warnings
from signoff.store.store import Store, make_state_dir, working_store
from signoff.temporal.encryption import Encryption
from signoff.temporal.server_connection import DEFAULT_ADDRESS, configured_namespace

_log = logging.getLogger(__name__)

app = typer.Typer(rich_markup_mode=None)


@app.command()
def codec(
    source: AppArgument = "",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Its port.", show_default=False)] = None,
    unsafe_open: UnsafeOpen = False,
    as_json: AsJson = False,
) -> None:
    """Run the codec server until Ctrl-C: operators and auditors read payloads with it, and each reading is recorded."""
    run(lambda out: _codec(out, port, source, unsafe_open), as_json=as_json)


@asynccontextmanager
async def running_codec(
    place: LocalInstallation, store: Store, encryption: Encryption, namespace: str
) -> AsyncIterator[asyncio.Task[None]]:
    """The server answers when the block begins.

    Raises `ServerUnavailable` for a taken port, `ConfigError` for a production profile without people.
    """
    settings, verifier = place.settings, FileVerifier(place.settings.public_keys)
    check_store_role(store, "codec server")
    if settings.profile == "production" and verifier.key_ids:
        await check_public_keys(store, verifier.key_ids, str(settings.public_keys))
    for warning in exposure_warnings(settings):
        _log.warning("%s", warning)
    deps = GatewayDeps(
        # Never used: the store knows the callers, and payloads arrive with the request.
        client=TurnClient(await Client.connect(DEFAULT_ADDRESS, namespace=namespace, lazy=True)),
        catalog=place.catalog,
        people=place.people,
        store=store,
        settings=replace(settings, public_url=settings.codec_url),
        # For people known by a login alone, the store has the gateway's signed statement.
        public_keys=verifier,
    )
    served = build_codec_app(deps, encryption.codec(namespace), _origins(settings))
    async with running_server(served, settings.host, settings.codec_port, setting="SIGNOFF_CODEC_PORT") as task:
        yield task


async def _codec(out: Output, port: int | None, source: str, unsafe_open: bool) -> int:
    place = find_installation(source, codec_port=port, unsafe_open=unsafe_open or None)
    settings, namespace = place.settings, configured_namespace()
    encryption = await open_encryption(settings, place.secrets)
    if encryption is None:
        raise ConfigError(
            "nothing is encrypted here, so there is nothing to decrypt: turn it on with SIGNOFF_ENCRYPTION=true",
            field="encryption",
        )
    make_state_dir(settings)
    with process_log(settings.state_dir, "codec.log", as_json=settings.log == "json"), stop_signals() as stop:
        async with working_store(settings) as store, running_codec(place, store, encryption, namespace) as task:
            url = settings.codec_url
            out.show({"url": url}, f"Codec     {url}, for {_words(settings)}; Ctrl-C stops it", compact=True)
            await until_stopped(stop, task)
            out.say("stopping")
    return 0


def _origins(settings: Settings) -> tuple[str, ...]:
    """Return the origins of Temporal's UI. Their pages may call the codec server."""
    if settings.temporal_ui:
        scheme, _, rest = settings.temporal_ui.partition("://")
        return (f"{scheme}://{rest.partition('/')[0]}",)
    if settings.profile == "production":
        return ()
    return tuple(f"http://{name}:{settings.ui_port}" for name in ("127.0.0.1", "localhost"))


def _words(settings: Settings) -> str:
    if settings.temporal_ui:
        return f"Temporal's UI at {settings.temporal_ui} and its command line"
    return "Temporal's command line" if settings.profile == "production" else "Temporal's UI here and its command line"
