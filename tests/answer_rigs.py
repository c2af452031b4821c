from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from mail_kit import relay
from mail_post import Post

from signoff.contracts.ids import show_code
from signoff.testing.channel_cards import open_rig
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_slack import fake_slack
from signoff.testing.fake_telegram import fake_telegram
from signoff.testing.fake_whatsapp import fake_whatsapp
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor

Kind = Literal["email", "slack", "telegram", "whatsapp"]
CHATS: tuple[Kind, ...] = ("slack", "telegram", "whatsapp")


@asynccontextmanager
async def answer_rig(kind: Kind, folder: Path, locale: str = "en") -> AsyncIterator[ChannelRig]:
    class Suite(ChannelSuite):
        @asynccontextmanager
        async def vendor(self) -> AsyncIterator[Vendor]:
            if kind == "email":
                async with relay() as server:
                    yield Post(server)
            else:
                chats = {"slack": fake_slack, "telegram": fake_telegram, "whatsapp": fake_whatsapp}
                async with chats[kind]() as vendor:
                    yield vendor

    own = folder / f"{kind}-{locale}"
    own.mkdir()
    async with open_rig(Suite(), own, locale) as rig:
        yield rig


async def answered(rig: ChannelRig, words: str, number: int = 1) -> str:
    """`{code}` in `words` is the request's code."""
    request = await rig.ask(number)
    code = show_code(request.code)
    await reply(rig, words.replace("{code}", code), code)
    return rig.request(request.id).state


async def reply(rig: ChannelRig, words: str, code: str) -> None:
    raw = rig.vendor.reply(rig.card(rig.bo, code), rig.bo, words)
    assert raw is not None
    await rig.receive(raw)
