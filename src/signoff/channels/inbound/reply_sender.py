"""Sends replies to those who answered: three attempts, in bounded time. The decision stands, answered or not."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import ChannelReply, SentCard

TOTAL_SECONDS: Final = 25.0
"""How long all tries of one reply take at most; far less than a claim, so that nobody else answers meanwhile."""
_PAUSES: Final = (0.5, 2.0)
_log = logging.getLogger(__name__)


async def send_reply(channel: Channel, where: Mapping[str, Any], reply: ChannelReply, until: float) -> SentCard | None:
    """Sends `reply` until `until` of the loop's clock; returns the message, or None if it was not sent."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(min(until, loop.time() + TOTAL_SECONDS)):
            return await _try(channel, where, reply)
    except TimeoutError:
        _log.warning("an answer on `%s` did not get out in time", channel.name)
        return None


async def _try(channel: Channel, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
    for pause in (*_PAUSES, None):
        try:
            return await channel.answer(where, reply) or SentCard()
        except NotDelivered as error:
            _log.warning("an answer on `%s` did not get out: %s", channel.name, error.message)
            # A pause beyond our own end would only be cut off there.
            if not error.again or pause is None or error.after > TOTAL_SECONDS:
                return None
            await asyncio.sleep(max(pause, error.after))
        except Exception as error:
            # Adapters are anybody's code, and what was decided stands.
            _log.warning("an answer on `%s` did not get out: %s", channel.name, type(error).__name__)
            return None
    return None
