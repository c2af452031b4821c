import itertools
from datetime import timedelta

import pytest
from sqlalchemy import update
from test_processor import Rig

from signoff.channels.inbound.message_time import hold_seconds
from signoff.languages import catalogue
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store
from signoff.store.tables import ARRIVALS

KEYS = itertools.count()


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)


async def queue(rig: Rig, *texts: str, identity: str = "bo-1") -> None:
    for text in texts:
        key = f"later-{next(KEYS)}"
        await rig.receiver.take("chat", rig.channel.raw(key=key, identity=identity, text=text))


@pytest.mark.parametrize(
    ("second", "state"),
    [
        ("no, deny it", "denied"),
        ("no", "denied"),
        ("but only below 200", "pending"),
        ("wait", "pending"),
        ("is this the new supplier?", "pending"),
        ("approve", "approved"),
    ],
)
async def test_approval_is_read_together_with_the_next_message_of_its_author(rig: Rig, second: str, state: str) -> None:
    request = await rig.ask()
    await queue(rig, "yes", second)
    await rig.processor.step()
    assert rig.decisions.request(request.id).state == state
    assert len(rig.channel.replies) == 2
    if state != "approved":
        assert not [draft for draft, _ in rig.decisions.answers if draft.verdict == "approved"]
        assert "you wrote again" in rig.channel.replies[0][1].text


@pytest.mark.parametrize("is_read_first", [True, False], ids=["read first", "read together"])
@pytest.mark.parametrize("words", ["but only below 200", "no, deny it"])
async def test_later_written_words_cancel_an_approval_even_if_delivered_first(
    rig: Rig, is_read_first: bool, words: str
) -> None:
    request = await rig.ask()
    written = rig.now()
    for seconds, text in ((0.5, words), (1, "yes")):
        said = (written - timedelta(seconds=seconds)).isoformat()
        raw = rig.channel.raw(key=f"later-{next(KEYS)}", identity="bo-1", text=text, said_at=said)
        await rig.receiver.take("chat", raw)
        if is_read_first:
            await rig.processor.step()
    await rig.processor.step()
    assert rig.decisions.request(request.id).state != "approved"


async def test_later_words_of_another_person_leave_an_approval_unchanged(rig: Rig) -> None:
    request = await rig.ask()
    await queue(rig, "yes")
    await queue(rig, "no", identity="cy-1")
    await rig.processor.step()
    assert rig.decisions.request(request.id).state == "approved"


async def test_later_denial_of_another_request_leaves_an_approval_unchanged(rig: Rig) -> None:
    first, second = await rig.ask(1), await rig.ask(2)
    await queue(rig, f"approve {first.code}", f"deny {second.code}")
    await rig.processor.step()
    assert rig.decisions.request(first.id).state == "approved"
    assert rig.decisions.request(second.id).state == "denied"


async def test_held_approval_explains_how_to_stop_it_and_a_denial_in_time_counts(rig: Rig) -> None:
    rig.processor = rig.another(hold=5.0)
    request = await rig.ask()
    reply = await rig.heard(text="yes")
    assert "takes effect in 5 s" in reply.text
    assert rig.decisions.request(request.id).state == "pending"
    await rig.hear(text="no")
    assert rig.decisions.request(request.id).state == "denied"
    await rig.go_on()
    assert [draft.verdict for draft, _ in rig.decisions.answers] == ["denied", "approved"]
    assert rig.decisions.request(request.id).state == "denied"


async def test_held_approval_does_not_count_after_an_unclear_message(rig: Rig) -> None:
    rig.processor = rig.another(hold=5.0)
    request = await rig.ask()
    await rig.hear(text="yes")
    await rig.hear(text="but only below 200")
    await rig.go_on()
    assert rig.decisions.request(request.id).state == "pending"
    assert rig.decisions.answers == []


async def test_held_approval_counts_once_after_its_hold(rig: Rig) -> None:
    rig.processor = rig.another(hold=5.0)
    request = await rig.ask()
    await rig.hear(text="yes")
    await rig.go_on()
    assert rig.decisions.request(request.id).state == "approved"
    assert len(rig.decisions.answers) == 1


async def test_button_and_denial_are_never_held(rig: Rig) -> None:
    rig.processor = rig.another(hold=5.0)
    first, second = await rig.ask(1), await rig.ask(2)
    token = await rig.token(first)
    await rig.hear(token=token, verdict="approved")
    await rig.hear(text=f"deny {second.code}")
    assert rig.decisions.request(first.id).state == "approved"
    assert rig.decisions.request(second.id).state == "denied"


@pytest.mark.parametrize(("left", "held"), [(60.0, 5.0), (4.0, 3.0), (1.0, 0.0), (0.5, 0.0)])
async def test_hold_ends_a_second_before_the_deadline(rig: Rig, left: float, held: float) -> None:
    request = rig.opened()
    assert request.expires_at is not None
    now = request.expires_at - timedelta(seconds=left)
    assert hold_seconds(5.0, request, now) == pytest.approx(held)


@pytest.mark.parametrize("change", ["edited", "deleted"])
async def test_changed_message_cancels_its_held_approval(rig: Rig, change: str) -> None:
    rig.processor = rig.another(hold=5.0)
    request = await rig.ask()
    await rig.hear(key="first", text="yes")
    reply = await rig.heard(key="second", changes="first", unclear=change, text="yes")
    assert reply.text == catalogue.text("reply.changed", "en")
    await rig.go_on()
    assert rig.decisions.answers == []
    assert rig.decisions.request(request.id).state == "pending"


async def test_change_in_the_same_batch_cancels_the_approval(rig: Rig) -> None:
    await rig.ask()
    await rig.receiver.take("chat", rig.channel.raw(key="first", identity="bo-1", text="yes"))
    await rig.receiver.take("chat", rig.channel.raw(key="second", identity="bo-1", changes="first", unclear="edited"))
    await rig.processor.step()
    assert rig.decisions.answers == []


@pytest.mark.parametrize("change", ["edited", "deleted"])
@pytest.mark.parametrize("words", ["yes", "no"])
async def test_change_after_the_decision_has_no_effect_and_is_answered_so(rig: Rig, words: str, change: str) -> None:
    request = await rig.ask()
    await rig.hear(key="first", text=words)
    decided = rig.decisions.request(request.id)
    reply = await rig.heard(key="second", changes="first", unclear=change, text="no" if words == "yes" else "yes")
    assert reply.text == catalogue.text("reply.changed_late", "en")
    assert rig.decisions.request(request.id) == decided


async def test_edit_of_an_undecided_message_is_asked_back(rig: Rig) -> None:
    request = await rig.ask()
    await rig.hear(key="first", text="hm")
    reply = await rig.heard(key="second", changes="first", unclear="edited", text="yes")
    assert reply.text == catalogue.text("reply.changed", "en")
    assert await rig.hear(key="third", changes="first", unclear="deleted") is None
    assert rig.decisions.request(request.id).state == "pending"


@pytest.mark.parametrize("is_read_first", [True, False], ids=["read first", "read together"])
async def test_unreadable_later_message_leaves_the_approval_undecided(rig: Rig, is_read_first: bool) -> None:
    rig.processor = rig.another(hold=5.0 if is_read_first else 0.0)
    request = await rig.ask()
    await queue(rig, "yes")
    if is_read_first:
        await rig.processor.step()
    await rig.receiver.take("chat", rig.channel.raw(key="broken", identity="bo-1", text="no"))
    broken = update(ARRIVALS).where(ARRIVALS.c.key == "chat:broken").values(body="{}")
    await rig.store.run(lambda connection: connection.execute(broken).rowcount)
    await rig.processor.step()
    assert await InboundQueue(rig.store).read("chat", "action", "broken") is not None
    await rig.go_on()
    assert rig.decisions.answers == []
    assert rig.decisions.request(request.id).state == "pending"
