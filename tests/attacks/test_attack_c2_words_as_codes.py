"""Attack C2: any six letters beside a decision are read as a code: `cannot approve` approves the request CANN0T.

Seen to fail without the mend: with every six letters of the alphabet of codes taken for one, `hardly approved` decides
where the request has that code.
"""

from pathlib import Path

import pytest
from answer_rigs import CHATS, Kind, answer_rig, answered, reply

from signoff.contracts.ids import show_code
from signoff.testing.rig import ChannelRig


async def answered_as(rig: ChannelRig, words: str, code: str, number: int) -> str:
    """What becomes of a request with this code, as none was given before codes had digits, that Bo answers so."""
    request = await rig.ask(number, code=code)
    await reply(rig, words, show_code(code))
    return rig.request(request.id).state


@pytest.mark.parametrize("kind", ["email", *CHATS])
async def test_a_word_beside_a_decision_is_no_code(kind: Kind, tmp_path: Path) -> None:
    # What says the opposite, or doubts, approves nothing; what thanks does not lose its yes. Without the digits that
    # `read_code` asks for `hardly approved` approved the request HARD1Y.
    async with answer_rig(kind, tmp_path) as rig:
        assert await answered_as(rig, "hardly approved", "HARD1Y", 40) == "pending"
        assert await answered_as(rig, "cannot approve", "CANN0T", 41) == "denied"
        for number, words in enumerate(("hardly approved", "approve rather", "yes ABC-DEF", "maybe K7Q2FM yes"), 1):
            assert await answered(rig, words, number) == "pending", words
        for number, words in enumerate(("Yes please", "yes, THANKS", "{code} yes"), 20):
            assert await answered(rig, words, number) == "approved", words
        for number, words in enumerate(("cannot approve", "No thanks"), 30):
            assert await answered(rig, words, number) == "denied", words


async def test_another_language_s_words_are_none_either(tmp_path: Path) -> None:
    # `talvez sim` doubts, `Sì, grazie` agrees. Without the digits that `read_code` asks for `talvez sim` approved the
    # request TA1VEZ.
    async with answer_rig("whatsapp", tmp_path, "pt") as rig:
        assert await answered_as(rig, "talvez sim", "TA1VEZ", 40) == "pending"
        assert await answered(rig, "talvez sim") == "pending"
    async with answer_rig("whatsapp", tmp_path, "it") as rig:
        assert await answered(rig, "Sì, grazie") == "approved"
