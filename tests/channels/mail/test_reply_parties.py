"""Checks replies by mail that concern other people than the approver and Signoff."""

from pathlib import Path

import pytest
from answer_rigs import answer_rig
from mail_post import Post

from signoff.contracts.ids import show_code
from signoff.testing.rig import ChannelRig

MARIA = "Maria <maria@people.example>"


async def answered(rig: ChannelRig, number: int, words: str, **headers: str) -> str:
    """Return the state of a new request after Bo replied to its card with these header fields."""
    request = await rig.ask(number)
    assert isinstance(rig.vendor, Post)
    card = rig.card(rig.bo, show_code(request.code))
    await rig.receive(rig.vendor.reply_with(card, rig.bo, words, headers))
    return rig.request(request.id).state


@pytest.mark.parametrize(
    "words", ["please approve", "Approve", "Go ahead", "Hi Maria,\n\nplease approve.\n\nThanks\nBo"]
)
async def test_order_in_a_reply_to_all_is_asked_back(words: str, tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, words, Cc=MARIA) == "pending"
        assert await answered(rig, 2, "Approved.\n\nBo", Cc=MARIA) == "approved"
        assert await answered(rig, 3, "No.\n\nBo", Cc=MARIA) == "denied"


async def test_copy_to_an_address_of_the_approver_changes_nothing(tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, "Please approve", Cc=f"{rig.bo}, signoff@signoff.example") == "approved"
