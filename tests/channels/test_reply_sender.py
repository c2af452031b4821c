import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import ChannelReply
from signoff.channels.inbound import processor as processing
from signoff.channels.inbound.processor import CLAIMED, InboundProcessor, send_reply
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.contracts.audit import AuditEntry
from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.store.store import Store
from signoff.testing.recording_channel import RecordingChannel, recording_channel
from signoff.testing.rig import RecordingDecisions

SAID = ChannelReply(text="no")


def soon(seconds: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_all_attempts_of_a_reply_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    channel: RecordingChannel = recording_channel("chat")
    tries = before = 0

    async def slow(where: Any, reply: ChannelReply) -> None:
        nonlocal tries
        tries += 1
        if tries == before + 2:
            await asyncio.Event().wait()
        raise NotDelivered("busy", code="429", again=True, after=after)

    monkeypatch.setattr(channel, "answer", slow)
    monkeypatch.setattr(processing, "REPLY_PAUSES", (0.0, 0.0))
    after = 0.0
    async with asyncio.timeout(60):
        # The second attempt hangs. If a busy machine uses all the time for the first one, there is no second.
        assert not await send_reply(channel, {}, SAID, soon(0.3))
        assert 1 <= tries <= 2
        before = tries
        assert not await send_reply(channel, {}, SAID, soon(-1.0))
        assert tries <= before + 1
        monkeypatch.setattr(processing, "TOTAL_SECONDS", 0.3)
        before = tries
        assert not await send_reply(channel, {}, SAID, soon())
        assert before + 1 <= tries <= before + 2
        monkeypatch.setattr(processing, "TOTAL_SECONDS", 25.0)
        before, after = tries, 30.0
        assert not await send_reply(channel, {}, SAID, soon())
        assert tries == before + 1


async def test_hanging_channel_delays_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [Person(id=f"p{n}", identities={"recording": (f"p{n}",)}) for n in range(CLAIMED + 10)]
    healthy, hanging = recording_channel("healthy"), recording_channel("hanging")

    hung = asyncio.Event()

    async def hangs(where: Any, reply: ChannelReply) -> None:
        hung.set()
        await asyncio.Event().wait()

    async def record(entries: Sequence[AuditEntry]) -> int:
        return len(entries)

    monkeypatch.setattr(hanging, "answer", hangs)
    directory = FixedDirectory(people)
    decisions = RecordingDecisions(directory, healthy.context.clock)
    channels = {"healthy": healthy, "hanging": hanging}
    processor = InboundProcessor(store, channels, directory, decisions, record, healthy.context.clock)
    receiver = InboundReceiver(store, channels, record, healthy.context.clock)
    for person in people:
        await receiver.take("hanging", hanging.raw(key=person.id, identity=person.id, text="hm"))
    running = asyncio.create_task(processor.run())
    await hung.wait()
    await receiver.take("healthy", healthy.raw(key="k", identity="p0", text="hm"))
    # Less than the timeout of a reply.
    async with asyncio.timeout(processing.TOTAL_SECONDS * 0.8):
        while not healthy.replies:
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    receiver.close()
    assert (len(healthy.replies), hanging.replies) == (1, [])
