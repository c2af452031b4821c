"""If any six letters are a code, `hardly approved` decides a request with that code."""

from pathlib import Path

import pytest
from answer_rigs import CHATS, Kind, answer_rig, answered, reply

from signoff.contracts.ids import show_code
from signoff.testing.rig import ChannelRig


async def answered_as(rig: ChannelRig, words: str, code: str, number: int) -> str:
    """Real codes contain digits."""
    request = await rig.ask(number, code=code)
    await reply(rig, words, show_code(code))
    return rig.request(request.id).state


@pytest.mark.parametrize("kind", ["email", *CHATS])
async def test_word_next_to_a_decision_is_not_read_as_a_code(kind: Kind, tmp_path: Path) -> None:
    # A contradicting or doubting word approves nothing, and thanks keep an approval. Without the digits required by
    # `read_code`, `hardly approved` approved the request HARD1Y.
    async with answer_rig(kind, tmp_path) as rig:
        assert await answered_as(rig, "hardly approved", "HARD1Y", 40) == "pending"
        assert await answered_as(rig, "cannot approve", "CANN0T", 41) == "denied"
        for number, words in enumerate(("hardly approved", "approve rather", "yes ABC-DEF", "maybe K7Q2FM yes"), 1):
            assert await answered(rig, words, number) == "pending", words
        for number, words in enumerate(("Yes please", "yes, THANKS", "{code} yes"), 20):
            assert await answered(rig, words, number) == "approved", words
        for number, words in enumerate(("cannot approve", "No thanks"), 30):
            assert await answered(rig, words, number) == "denied", words


async def test_word_of_another_language_is_not_read_as_a_code(tmp_path: Path) -> None:
    # `talvez sim` doubts, `Sì, grazie` approves. Without the digits required by `read_code`, `talvez sim` approved the
    # request TA1VEZ.
    async with answer_rig("whatsapp", tmp_path, "pt") as rig:
        assert await answered_as(rig, "talvez sim", "TA1VEZ", 40) == "pending"
        assert await answered(rig, "talvez sim") == "pending"
    async with answer_rig("whatsapp", tmp_path, "it") as rig:
        assert await answered(rig, "Sì, grazie") == "approved"
