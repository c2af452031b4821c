import asyncio
import socket
from typing import Any

import pytest
from tables import table

from signoff.contracts.limits import CONNECTIONS_OF_ONE
from signoff.gateway.transport import server as serving
from signoff.gateway.transport.server import _OPEN, _address


class Wire(asyncio.Transport):
    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.host, 40_000) if name == "peername" else default

    def abort(self) -> None:
        self.aborted = True


async def test_accepted_connection_disables_nagle(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the gateway's listening socket, asyncio does not detect TCP. Without the fix each body waited 40 ms for the
    acknowledgement of its header.
    """
    accepted = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            accepted.set_result(transport)

    listener = socket.create_server(("127.0.0.1", 0))
    server = await asyncio.get_running_loop().create_server(Accepting, sock=listener)
    async with server:
        _, writer = await asyncio.open_connection(*listener.getsockname())
        transport = await accepted
        connection = transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        make_bare(monkeypatch)
        protocol: Any = serving.BoundedConnection()
        protocol.connection_made(transport)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        transport.close()
        writer.close()
        await writer.wait_closed()


@table(("host", "counted"), ("203.0.113.9", "203.0.113.9"), ("127.0.0.1", ""), ("::1", ""), ("", ""))
def test_loopback_addresses_are_not_counted(host: str, counted: str) -> None:
    assert _address(Wire(host)) == counted


def test_connections_of_one_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `CONNECTIONS_OF_ONE`, 2,005 silent connections of one address caused a 503 for all clients."""
    make_bare(monkeypatch)

    def opened(host: str) -> tuple[Any, Wire]:
        protocol, wire = serving.BoundedConnection(), Wire(host)
        protocol.connection_made(wire)
        return protocol, wire

    many = [opened("203.0.113.9") for _ in range(CONNECTIONS_OF_ONE)]
    assert not any(wire.aborted for _, wire in many)
    assert opened("203.0.113.9")[1].aborted
    other = opened("203.0.113.10")
    assert not other[1].aborted
    many.pop()[0].connection_lost(None)
    again = opened("203.0.113.9")
    assert not again[1].aborted
    for protocol, _ in (*many, other, again):
        protocol.connection_lost(None)
    assert _OPEN == {}


def make_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep only our part of a connection, without the web server's."""
    bare = serving.H11Protocol
    monkeypatch.setattr(bare, "connection_made", lambda self, transport: None)
    monkeypatch.setattr(bare, "connection_lost", lambda self, why: None)
    monkeypatch.setattr(serving.BoundedConnection, "__init__", _bare)
    monkeypatch.setattr(serving.BoundedConnection, "_wait_for_headers", lambda self: None)


def _bare(self: Any) -> None:
    self._late, self._deaf, self._address = None, False, ""
