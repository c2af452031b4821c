"""Bounds one connection to the gateway: how long its headers may take, and that nothing comes in pieces without a
length.
"""

import asyncio
import socket
from collections import Counter
from ipaddress import ip_address
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from signoff.contracts.limits import CONNECTIONS_OF_ONE, HEADER_SECONDS

_PIECE_BYTES: Final = 2_048
"""So much is parsed before it is looked at what came: h11 takes some 10 microseconds for each chunk of a body, however
small, and 256 KiB of chunks of one byte would hold up everybody for half a second."""


class BoundedConnection(H11Protocol):
    """Extends uvicorn's connection by an end to waiting for headers; ignores bodies of requests that will be refused.

    uvicorn ends a connection that is idle between two requests, but none that has not said anything yet, or half of
    what it wants.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None
        self._deaf = False
        self._address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        _send_at_once(transport)
        address = _address(transport)
        if address and _OPEN[address] >= CONNECTIONS_OF_ONE:
            # Without an answer: whoever opens as many reads none.
            transport.abort()
            return
        self._address = address
        if address:
            _OPEN[address] += 1
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._address:
            _OPEN[self._address] -= 1
            if not _OPEN[self._address]:
                del _OPEN[self._address]
            self._address = ""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        for start in range(0, len(data), _PIECE_BYTES):
            if self._deaf or self.transport.is_closing():
                return
            super().data_received(data[start : start + _PIECE_BYTES])
            self._deaf = self._deaf or (self._is_receiving() and is_chunked(self.headers))
        if self._deaf:
            self.flow.pause_reading()
        elif self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._wait_for_headers()

    def _is_receiving(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _wait_for_headers(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hang_up(self) -> None:
        self._late = None
        # A request that is at work was whole once, and its answer may take as long as it takes.
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


_OPEN: Final[Counter[str]] = Counter()
"""How many connections each address has."""


def _send_at_once(transport: asyncio.Transport) -> None:
    """Has the system send each piece of an answer as it is written.

    Else the body of an answer waits for the other side to confirm its head, which a client may put off for 40 ms.
    asyncio asks for this only where a socket says that it speaks TCP, and one of `socket.create_server` does not.
    """
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _address(transport: asyncio.Transport) -> str:
    """Says where a connection comes from; "" of this machine itself, where a proxy speaks for everybody."""
    peer = transport.get_extra_info("peername")
    try:
        host = ip_address(peer[0])
    except (TypeError, ValueError, IndexError):
        return ""
    return "" if host.is_loopback else str(host)


def is_chunked(headers: list[tuple[bytes, bytes]]) -> bool:
    """Returns whether a request says no length of its body beforehand."""
    return any(name == b"transfer-encoding" for name, _ in headers)
