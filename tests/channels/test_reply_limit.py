import itertools

import pytest
from test_processor import Rig

from signoff.contracts.limits import REPLIES_A_MINUTE, REPLIES_AN_HOUR
from signoff.store.store import Store

ROUNDS = 60
AWAY = "I am driving right now and will get back to you later."


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)


async def play(rig: Rig, texts: itertools.chain[str], **fields: str) -> int:
    """The phone answers each reply with the next text, for at most `ROUNDS`."""
    for answered, text in enumerate(itertools.islice(texts, ROUNDS)):
        if await rig.hear(text=text, **fields) is None:
            return answered
    return ROUNDS


@pytest.mark.parametrize("requests", [0, 1, 2])
async def test_phone_that_repeats_its_text_gets_one_reply(rig: Rig, requests: int) -> None:
    for number in range(requests):
        await rig.ask(number)
    texts = (AWAY.replace("later", f"at {hour}:15") for hour in itertools.cycle(range(24)))
    assert await play(rig, itertools.chain(texts)) == 1
    assert (await rig.result("k2"))["unanswered"] == "repeated"
    assert [fact["why"] for fact in await rig.recorded("message not answered")] == ["repeated"]


async def test_phone_with_varying_texts_gets_a_limited_number_of_replies_a_minute(rig: Rig) -> None:
    await rig.ask()
    texts = (f"away {word}" for word in map("".join, itertools.permutations("abcdefgh")))
    assert await play(rig, itertools.chain(texts)) == REPLIES_A_MINUTE
    assert [fact["why"] for fact in await rig.recorded("message not answered")] == ["many"]
    assert REPLIES_A_MINUTE < REPLIES_AN_HOUR < ROUNDS


async def test_decision_gets_its_reply_after_the_limit(rig: Rig) -> None:
    request = await rig.ask()
    for number in range(REPLIES_A_MINUTE + 2):
        await rig.hear(text=f"hm{'m' * number}")
    await rig.receipt(text="no, deny it")
    assert rig.decisions.request(request.id).state == "denied"


async def test_same_words_get_a_reply_about_another_request(rig: Rig) -> None:
    await rig.ask(1)
    assert await rig.hear(text="what is this about") is not None
    assert await rig.hear(text="what is this about") is None
    await rig.ask(2)
    assert await rig.hear(text="what is this about") is not None
    assert await rig.hear(identity="cy-1", text="what is this about") is not None


async def test_button_gets_a_reply_after_the_limit(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    await rig.hear(token=token, verdict="approved")
    for _ in range(REPLIES_AN_HOUR + 2):
        assert await rig.hear(token=token, verdict="denied") is not None
