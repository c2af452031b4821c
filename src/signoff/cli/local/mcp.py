"""`mcp import`: saves the tool definitions of MCP servers next to the manifest, where all processes read them."""

from typing import Annotated

import typer
from rich.text import Text

from signoff.cli.local.installation import find_manifest
from signoff.cli.terminal.options import AppOption, AsJson
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.errors import ConfigError, NotFound
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.registry.installation import provider_of_secrets
from signoff.registry.manifest.loader import load_servers
from signoff.registry.mcp.import_file import import_path, write_import
from signoff.registry.mcp.imported_tool import listing_changes
from signoff.settings import load_settings

app = typer.Typer(
    help="Import the tools of MCP servers, and show changes.", no_args_is_help=True, rich_markup_mode=None
)


class ImportedServer(FrozenModel):
    """The import of one server: a line per changed tool, and the reasons for tools that cannot be imported."""

    server: str
    path: str
    changes: tuple[str, ...]
    left_out: dict[str, str]
    warnings: dict[str, str]


@app.callback()
def _group() -> None:
    """Makes this a group, though it has one command."""


@app.command("import")
def import_tools(
    name: Annotated[
        str, typer.Argument(metavar="SERVER", help="One server of the manifest; else all of them.", show_default=False)
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 where something is not as it was imported.")
    ] = False,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Ask MCP servers for their tools, write them to `mcp/SERVER.yaml` next to the manifest, and show the changes."""

    async def body(out: Output) -> int:
        found = await _import(name, source, write=not check)
        lines = [line for each in found for line in _lines(each, check=check)]
        out.show(found, *map(Text, lines))
        return 1 if check and any(each.changes for each in found) else 0

    run(body, as_json=as_json)


async def _import(name: str, source: str, *, write: bool) -> list[ImportedServer]:
    manifest = find_manifest(source)
    folder, servers = load_servers(manifest)
    if not servers:
        raise ConfigError(f"{manifest} declares no `mcp_servers`", field="mcp_servers")
    if name and name not in servers:
        near = did_you_mean(name, servers) or f"; known: {', '.join(f'`{each}`' for each in servers)}"
        raise NotFound(f"there is no MCP server {quote_name(name)}{near}")
    # Needs the extra; `load_servers` reports its absence.
    from signoff.activities.mcp.worker_servers import WorkerServers  # noqa: PLC0415

    wanted = {each: server for each, server in servers.items() if name in ("", each)}
    asked = WorkerServers(wanted, provider_of_secrets(load_settings()))
    found: list[ImportedServer] = []
    try:
        for each, server in wanted.items():
            listing = await asked.list_tools(each)
            path, changes = import_path(folder, each), listing_changes(server.tools, listing.tools)
            if write:
                write_import(path, each, listing.tools.values())
            found.append(
                ImportedServer(
                    server=each,
                    path=str(path),
                    changes=tuple(changes),
                    left_out=dict(listing.left_out),
                    warnings=dict(listing.warnings),
                )
            )
    finally:
        await asked.close()
    return found


def _lines(found: ImportedServer, *, check: bool) -> list[str]:
    number = len(found.changes)
    state = "is as it was imported" if not number else "is not as it was imported" if check else "imported"
    lines = [f"{found.server}: {state} ({found.path})", *(f"  {clean(each)}" for each in found.changes)]
    lines += [f"  warning: {clean(tool)}: {clean(why)}" for tool, why in found.warnings.items()]
    return [*lines, *(f"  left out: {clean(tool)}: {clean(why)}" for tool, why in found.left_out.items())]
