"""Declares an MCP server whose tools Signoff runs, and checks its declaration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_id
from signoff.formats.declared_fields import IN_CODE, FieldSpec
from signoff.formats.nearest_name import quote_name
from signoff.keys.secret_references import FORMS, literal_secrets
from signoff.registry.extras import missing_extra
from signoff.registry.mcp.imported_tool import ImportedTool
from signoff.registry.tool_context import ToolContext

EXTRA: Final = "mcp"
MAX_SERVER_SECONDS: Final = 600.0
HANDLER: Final = f"{__name__}:run_on_server"
"""The handler of every imported tool, as a manifest names it."""


@dataclass(frozen=True)
class ToolServer:
    """An MCP server whose tools Signoff runs; its name is its key."""

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    """The middle of `mcp__<server>__<tool>`."""
    url: Annotated[str, FieldSpec(unset="or `command`")] = ""
    """The address of its Streamable HTTP endpoint."""
    command: Annotated[tuple[str, ...], FieldSpec(key=list[str] | str, unset="or `url`")] = ()
    """Instead of `url`: a program that speaks MCP on its standard streams, as a list without a shell."""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Headers of requests to `url`; a secret as a [reference](manifest.md#secrets) such as `env:NAME`."""
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables of the program; a secret as `env:NAME`.

    It also gets the worker's `PATH`, `HOME`, `USER`, `SHELL`, `TERM` and `LOGNAME`.
    """
    timeout: float = 30.0
    """The time limit to connect and to list tools. Calls use the tool's `timeout`."""
    allow_networks: tuple[str, ...] = ()
    """Allowed private networks of `url`, such as `10.0.0.0/8`. Only these work without TLS."""
    tools: Annotated[Mapping[str, ImportedTool], FieldSpec(key=IN_CODE)] = field(default_factory=dict, hash=False)
    """The imported tools, by catalog name."""

    @property
    def address(self) -> str:
        """Its address or command line, for people."""
        return self.url or " ".join(self.command)


async def run_on_server(args: dict[str, Any], context: ToolContext) -> Any:
    """Raise an error. A worker replaces this handler of imported tools with its connection to the server."""
    raise ConfigError("this worker has no connection to MCP servers", field="mcp_servers")


def build_servers(given: Iterable[ToolServer]) -> Mapping[str, ToolServer]:
    """Raises `ConfigError`."""
    known: dict[str, ToolServer] = {}
    for server in given:
        if server.name in known:
            raise _refuse(server, "", "is declared twice; keep one")
        _check(server)
        known[server.name] = server
    return MappingProxyType(known)


def _check(server: ToolServer) -> None:
    name = server.name
    # The tool's name begins after the first `__` behind the server's name.
    if not is_id(name) or "__" in name or name.startswith("_") or name.endswith("_"):
        why = "has no name such as `github`: letters, digits, `-` and single `_` between them, at most 48"
        raise _refuse(server, "", why)
    if missing := missing_extra(EXTRA):
        raise _refuse(server, "", missing)
    if bool(server.url) == bool(server.command):
        raise _refuse(server, "url", "needs a `url`, or a `command` in its place, and not both")
    if server.url:
        if server.env:
            raise _refuse(server, "env", "has an `env`, but no `command` that would see it; drop one")
        _check_url(server)
    else:
        unused = next((name for name in ("headers", "allow_networks") if getattr(server, name)), "")
        if unused:
            raise _refuse(server, unused, f"has `{unused}`, but is a `command`, which takes its secrets by `env`")
        if not all(server.command):
            raise _refuse(server, "command", "has an empty word in its `command`")
    # The declaration is printed, shown and compared.
    for place in literal_secrets({"headers": dict(server.headers), "env": dict(server.env)}):
        raise _refuse(server, place, f"has a secret in `{place}`; write {FORMS} there and put it where that leads")
    if not 0 < server.timeout <= MAX_SERVER_SECONDS:
        why = f"needs a `timeout` above 0 and at most {MAX_SERVER_SECONDS:.0f} seconds"
        raise _refuse(server, "timeout", why)


def _check_url(server: ToolServer) -> None:
    if not _is_web_address(server.url):
        raise _refuse(server, "url", "needs a `url` such as https://mcp.example.com/mcp, without a user or a fragment")
    try:
        for network in server.allow_networks:
            ip_network(network)
    except ValueError:
        raise _refuse(server, "allow_networks", "needs networks such as `10.0.0.0/8`") from None


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Reads the port for its check: otherwise an invalid one would fail only at the first call.
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and not parts.fragment
    return plain and parts.scheme in ("https", "http") and bool(parts.hostname) and "@" not in parts.netloc


def _refuse(server: ToolServer, field_name: str, why: str) -> ConfigError:
    where = f"mcp_servers.{server.name}.{field_name}" if field_name else f"mcp_servers.{server.name}"
    return ConfigError(f"MCP server {quote_name(server.name)} {why}", field=where, value=server.name)
