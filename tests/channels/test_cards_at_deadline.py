from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from answer_rigs import Kind, answer_rig
from tables import table

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import OutboundCard, SentCard
from signoff.formats.replace import replace
from signoff.testing.rig import ChannelRig

WORDS = "Timed out without an answer, so the call was denied"


async def end_during_delivery(rig: ChannelRig, after: Callable[[], Awaitable[None]]) -> None:
    """The vendor accepts the card, the request ends, and `after` runs before the vendor's answer arrives."""
    real = rig.channel.deliver

    async def slow(card: OutboundCard, before: SentCard | None) -> SentCard | None:
        sent = await real(card, before)
        if card.person.id == "bo":
            await rig.report_event("closed", replace(card.request, state="timed_out"))
            await rig.dispatcher.read()
            await after()
        return sent

    rig.channel.deliver = slow  # type: ignore[method-assign]
    await rig.ask(expires_at=rig.time.now() + timedelta(seconds=1))
    rig.channel.deliver = real  # type: ignore[method-assign]
    await rig.dispatch()


def cards_of_bo(rig: ChannelRig) -> list[Any]:
    return [card for card in rig.vendor.cards() if card.to == rig.bo]


@pytest.mark.parametrize("kind", ["slack", "telegram"])
async def test_card_acknowledged_after_the_end_shows_the_end(kind: Kind, tmp_path: Path) -> None:
    async def nothing() -> None:
        return

    async with answer_rig(kind, tmp_path) as rig:
        await end_during_delivery(rig, nothing)
        assert WORDS in rig.text_read_by(rig.bo)


@table("kind", "slack", "telegram")
async def test_card_that_times_out_at_the_end_is_followed_by_the_outcome_at_once(kind: Kind, tmp_path: Path) -> None:
    async def lost() -> None:
        raise NotDelivered("the vendor did not answer in time", code="timeout", again=True)

    async with answer_rig(kind, tmp_path) as rig:
        await end_during_delivery(rig, lost)
        assert len(cards_of_bo(rig)) == 1
        assert rig.text_read_by(rig.bo).count(WORDS) == 1


@pytest.mark.parametrize("kind", ["slack", "telegram"])
async def test_card_acknowledged_after_the_closing_message_is_closed_too(kind: Kind, tmp_path: Path) -> None:
    async with answer_rig(kind, tmp_path) as rig:

        async def lapse() -> None:
            await rig.make_due()
            await rig.dispatcher.step()
            assert rig.text_read_by(rig.bo).count(WORDS) == 1

        await end_during_delivery(rig, lapse)
        assert rig.text_read_by(rig.bo).count(WORDS) == 2
