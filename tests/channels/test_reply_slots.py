import asyncio

from signoff.channels.envelopes import ChannelReply
from signoff.channels.inbound.reply_slots import ReplySlots

REPLY = ChannelReply(text="Approved.")
LONG = 30.0


async def test_reply_given_before_the_wait_is_returned() -> None:
    slots = ReplySlots()
    with slots.open("a") as slot:
        assert slots.give("a", REPLY)
        assert await slot.wait(LONG) == REPLY


async def test_second_reply_is_not_taken() -> None:
    slots = ReplySlots()
    with slots.open("a"):
        assert [slots.give("a", REPLY), slots.give("a", REPLY)] == [True, False]


async def test_reply_after_the_wait_is_not_taken() -> None:
    slots = ReplySlots()
    with slots.open("a") as slot:
        assert await slot.wait(0.0) is None
        assert not slots.give("a", REPLY)
    assert not slots.give("a", REPLY)


async def test_end_without_a_reply_ends_the_wait() -> None:
    slots = ReplySlots()
    with slots.open("a") as slot:
        waiting = asyncio.create_task(slot.wait(LONG))
        slots.give("b", REPLY)
        slots.give("a", None)
        assert await waiting is None


async def test_repetition_during_the_wait_leaves_the_reply_to_the_first_request() -> None:
    slots = ReplySlots()
    with slots.open("a") as first:
        with slots.open("a"):
            pass
        assert slots.give("a", REPLY)
        assert await first.wait(LONG) == REPLY
