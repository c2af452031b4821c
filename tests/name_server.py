import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import dns.asyncresolver
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

Zone = Mapping[str, str | None]


class NameServer(asyncio.DatagramProtocol):
    """Answers TXT from `zone`. A name with None, and all below, gets no answer. An empty text means no TXT. Other names
    do not exist. `asked` counts the queries by name.
    """

    def __init__(self, zone: Zone) -> None:
        self.zone = dict(zone)
        self.asked: Counter[str] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        name = query.question[0].name.to_text().lower().removesuffix(".")
        self.asked[name] += 1
        if any(f".{name}".endswith(f".{each}") for each, text in self.zone.items() if text is None):
            return
        answer = dns.message.make_response(query)
        text = self.zone.get(name)
        if text:
            answer.answer.append(dns.rrset.from_text(f"{name}.", 60, "IN", dns.rdatatype.TXT, text))
        elif text is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def name_server(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: NameServer(zone), local_addr=("127.0.0.1", 0))
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = transport.get_extra_info("sockname")[1]
    with monkeypatch.context() as patched:
        patched.setattr(dns.asyncresolver, "default_resolver", resolver)
        try:
            yield server
        finally:
            transport.close()
