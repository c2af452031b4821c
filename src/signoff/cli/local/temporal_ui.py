"""`temporal-ui`: the proxy that keeps web pages away from Temporal's UI."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from signoff.cli.terminal.log_setup import process_log
from signoff.cli.terminal.options import AsJson, UnsafeOpen
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals, until_stopped
from signoff.contracts.errors import ConfigError
from signoff.formats.web_address import address_of, web_address
from signoff.gateway.transport.server import running_server
from signoff.gateway.transport.ui_proxy import build_ui_proxy
from signoff.settings import Settings, load_settings, require_closed
from signoff.store.store import make_state_dir

app = typer.Typer(rich_markup_mode=None)


@app.command("temporal-ui")
def temporal_ui(
    upstream: Annotated[str, typer.Argument(help="Where Temporal's UI listens, such as http://temporal-ui:8080.")],
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Its port.", show_default=False)] = None,
    unsafe_open: UnsafeOpen = False,
    as_json: AsJson = False,
) -> None:
    """Run a proxy before Temporal's UI that refuses foreign host names and other sites, until Ctrl-C."""
    run(lambda out: _temporal_ui(out, upstream, port, unsafe_open), as_json=as_json)


@asynccontextmanager
async def running_ui_proxy(settings: Settings, upstream: str, host: str) -> AsyncIterator[asyncio.Task[None]]:
    """Raise `ServerUnavailable` for a taken port."""
    proxy = build_ui_proxy(upstream, host, settings.temporal_ui)
    async with running_server(proxy, host, settings.ui_port, setting="SIGNOFF_UI_PORT") as task:
        yield task


async def _temporal_ui(out: Output, upstream: str, port: int | None, unsafe_open: bool) -> int:
    settings = load_settings(ui_port=port, unsafe_open=unsafe_open or None)
    require_closed(settings)
    try:
        address = web_address(upstream)
    except ValueError as error:
        raise ConfigError(f"`{upstream}` cannot be Temporal's UI: {error}", value=upstream) from None
    make_state_dir(settings)
    as_json = settings.log == "json"
    with process_log(settings.state_dir, "temporal-ui.log", as_json=as_json), stop_signals() as stop:
        async with running_ui_proxy(settings, address, settings.host) as task:
            url = settings.temporal_ui or address_of(settings.host, settings.ui_port)
            out.show({"url": url}, f"Temporal  {url}, before {address}; Ctrl-C stops it", compact=True)
            await until_stopped(stop, task)
            out.say("stopping")
    return 0
