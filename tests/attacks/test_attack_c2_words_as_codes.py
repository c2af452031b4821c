"""Attack C2: any six letters beside a decision are read as a code: `cannot approve` approves the request CANN0T.

Seen to fail without the mend: with every six letters of the alphabet of codes taken for one, `hardly approved` decides.
"""

from pathlib import Path

import pytest
from answer_rigs import CHATS, Kind, answer_rig, answered


@pytest.mark.parametrize("kind", ["email", *CHATS])
async def test_a_word_beside_a_decision_is_no_code(kind: Kind, tmp_path: Path) -> None:
    """What says the opposite, or doubts, approves nothing; what thanks does not lose its yes."""
    async with answer_rig(kind, tmp_path) as rig:
        for number, words in enumerate(("hardly approved", "approve rather", "yes ABC-DEF", "maybe K7Q2FM yes"), 1):
            assert await answered(rig, words, number) == "pending", words
        for number, words in enumerate(("Yes please", "yes, THANKS", "{code} yes"), 20):
            assert await answered(rig, words, number) == "approved", words
        for number, words in enumerate(("cannot approve", "No thanks"), 30):
            assert await answered(rig, words, number) == "denied", words


async def test_another_language_s_words_are_none_either(tmp_path: Path) -> None:
    """`talvez sim` doubts, `Sì, grazie` agrees."""
    async with answer_rig("whatsapp", tmp_path, "pt") as rig:
        assert await answered(rig, "talvez sim") == "pending"
    async with answer_rig("whatsapp", tmp_path, "it") as rig:
        assert await answered(rig, "Sì, grazie") == "approved"
