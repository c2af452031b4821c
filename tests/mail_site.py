from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from mail_kit import Relay, key_record, relay, replied
from mail_post import Post
from name_server import NameServer, Zone, name_server

from signoff.channels.envelopes import InboundBatch, InboundRequest
from signoff.testing.channel_cards import open_rig
from signoff.testing.channels import ChannelSuite
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor


class SiteMail(Post):
    def __init__(self, server: Relay, domain: str, more: Mapping[str, Any]) -> None:
        super().__init__(server)
        self.identities = tuple(f"{name}@{domain}" for name in ("ana", "bo", "cy", "eve"))  # type: ignore[assignment, misc]
        self._more = more

    @property
    def options(self) -> Mapping[str, Any]:
        usual = {name: value for name, value in super().options.items() if name != "authserv_id"}
        return usual | self._more


@dataclass(frozen=True)
class MailSite:
    rig: ChannelRig
    relay: Relay
    names: NameServer

    @property
    def bo(self) -> str:
        return self.rig.bo

    def reply(self, words: str = "Approve", sender: str = "", **headers: str) -> EmailMessage:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return replied(self.mails(self.bo)[0], sender or self.bo, words, headers=fields)

    def mails(self, address: str) -> list[Any]:
        return [each for each in self.relay.taken if address in each.to]

    def brought(self, mail: bytes) -> InboundRequest:
        assert isinstance(self.rig.vendor, SiteMail)
        return self.rig.vendor._brought(mail)

    async def take(self, mail: bytes) -> InboundBatch:
        return await self.rig.receiver.take(self.rig.channel.name, self.brought(mail))

    async def state_after(self, mail: bytes) -> str:
        await self.rig.receive(self.brought(mail))
        return self.rig.request("main.s.t.c1.1").state


def with_keys(*domains: str, more: Zone | None = None) -> Zone:
    record = key_record()
    quoted = " ".join(f'"{record[at : at + 200]}"' for at in range(0, len(record), 200))
    return {**{f"s1._domainkey.{domain}": quoted for domain in domains}, **(more or {})}


@asynccontextmanager
async def mail_site(
    folder: Path, monkeypatch: pytest.MonkeyPatch, zone: Zone, *, domain: str = "people.example", **options: Any
) -> AsyncIterator[MailSite]:
    async with name_server(zone, monkeypatch) as names, relay() as server:

        class Suite(ChannelSuite):
            @asynccontextmanager
            async def vendor(self) -> AsyncIterator[Vendor]:
                yield SiteMail(server, domain, options)

        async with open_rig(Suite(), folder) as rig:
            await rig.ask()
            yield MailSite(rig, server, names)
            rig.receiver.close()
