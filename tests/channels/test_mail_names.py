"""Texts in the DNS, asked of a real name server on this machine."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from signoff.channels import mail_names
from signoff.channels.mail_names import lookup_txt

ZONE = {"s1._domainkey.example.org.": '"v=DKIM1; p=AA" "BB"', "two.example.org.": '"a"', "mute.example.org.": ""}


class Server(asyncio.DatagramProtocol):
    """Answers TXT from `ZONE`; what has no text there is not answered at all, what is not there does not exist."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way back."""
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answers one question."""
        query = dns.message.from_wire(data)
        name = query.question[0].name.to_text().lower()
        answer = dns.message.make_response(query)
        text = ZONE.get(name)
        if text:
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", text))
        elif text is None:
            answer.set_rcode(dns.rcode.NOERROR if name.startswith("empty.") else dns.rcode.NXDOMAIN)
        if text != "":
            self.transport.sendto(answer.to_wire(), addr)


@pytest.fixture(autouse=True)
async def name_server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """This machine's resolver, for the time of a test."""
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Server, local_addr=("127.0.0.1", 0))
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = transport.get_extra_info("sockname")[1]
    monkeypatch.setattr(dns.resolver, "default_resolver", resolver)
    yield
    transport.close()


async def test_texts_of_a_name_are_joined_from_their_strings() -> None:
    """A long key stands in several strings of one record."""
    assert await asyncio.to_thread(lookup_txt, "s1._domainkey.example.org") == ["v=DKIM1; p=AABB"]


async def test_name_without_texts_has_none() -> None:
    """Neither one that does not exist, nor one that holds no texts."""
    assert await asyncio.to_thread(lookup_txt, "none.example.org") == []
    assert await asyncio.to_thread(lookup_txt, "empty.example.org") == []


async def test_server_that_does_not_answer_is_an_error_of_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then, and it ends."""
    monkeypatch.setattr(mail_names, "PATIENCE", 0.2)
    with pytest.raises(OSError, match="does not answer"):
        await asyncio.to_thread(lookup_txt, "mute.example.org")
