from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry import extras
from signoff.registry.catalog import build_catalog
from signoff.registry.mcp.tool_server import ToolServer, build_servers, run_on_server

URL = "https://mcp.example.com/mcp"


@table(
    ("fields", "problem"),
    ({"name": "a__b"}, "MCP server `a__b` has no name such as `github`"),
    ({"name": "_a"}, "MCP server `_a` has no name such as `github`"),
    ({"name": "a.b"}, "MCP server `a.b` has no name such as `github`"),
    ({"url": ""}, "needs a `url`, or a `command` in its place"),
    ({"command": ("x",)}, "needs a `url`, or a `command` in its place"),
    ({"url": "ftp://example.com"}, "needs a `url` such as"),
    ({"url": "https://ada:word@example.com/"}, "needs a `url` such as"),
    ({"url": "https://example.com:x/"}, "needs a `url` such as"),
    ({"env": {"A": "1"}}, "has an `env`, but no `command`"),
    ({"url": "", "command": ("x",), "headers": {"A": "1"}}, "has `headers`, but is a `command`"),
    ({"url": "", "command": ("x", "")}, "has an empty word in its `command`"),
    ({"headers": {"Authorization": "Bearer abc"}}, "has a secret in `headers.Authorization`"),
    ({"url": "", "command": ("x",), "env": {"API_TOKEN": "abc"}}, "has a secret in `env.API_TOKEN`"),
    ({"allow_networks": ("here",)}, "needs networks such as `10.0.0.0/8`"),
    ({"timeout": 0}, "needs a `timeout` above 0"),
    ({"timeout": 601}, "needs a `timeout` above 0"),
)
def test_invalid_server_declaration_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_servers([ToolServer(**{"name": "github", "url": URL} | fields)])
    assert problem in caught.value.message
    assert str(caught.value.context["field"]).startswith("mcp_servers.")


def test_servers_are_found_by_name() -> None:
    one = ToolServer("one", url=URL, headers={"Authorization": "env:KEY"})
    two = ToolServer("two", command=("npx", "-y", "two"), env={"TWO_TOKEN": "file:/run/two", "LEVEL": "debug"})
    assert build_catalog(mcp_servers=[one, two]).mcp_servers == {"one": one, "two": two}
    assert (one.address, two.address) == (URL, "npx -y two")
    with pytest.raises(ConfigError, match="is declared twice"):
        build_servers([one, one])


def test_server_without_the_extra_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRAS", {**extras.EXTRAS, "mcp": ("a_module_that_nobody_has",)})
    build_catalog()
    with pytest.raises(ConfigError) as caught:
        build_catalog(mcp_servers=[ToolServer("github", url=URL)])
    sentence = "MCP server `github` needs an extra of Signoff: pip install 'signoff[mcp]'"
    assert caught.value.message == sentence


async def test_handler_of_an_imported_tool_needs_a_server_connection() -> None:
    with pytest.raises(ConfigError, match="no connection to MCP servers"):
        await run_on_server({}, None)  # type: ignore[arg-type]
