from datetime import timedelta
from typing import Any

import pytest
from test_processor import ANA, BO, CY, Rig

from signoff.approvals.request_thread import QUESTIONS
from signoff.channels.asked_revision import AskedRevision, note_of, read_note, revision_shown
from signoff.channels.envelopes import ChannelReply
from signoff.contracts.approval import ApprovalRequest, RequestMessage
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import show_code
from signoff.formats.replace import replace
from signoff.languages.catalogue import text
from signoff.store.delivery_queue import NewDelivery
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store
from signoff.testing import a_request

WHY = "Why this amount?"


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)


async def ask(rig: Rig, request: ApprovalRequest, identity: str = "bo-1", **fields: Any) -> ChannelReply:
    return await rig.heard(identity, **{"text": f"ask: {WHY}", "token": await rig.token(request)} | fields)


def asked(rig: Rig, request: ApprovalRequest) -> list[tuple[str, str]]:
    return [(each.subject, each.text) for each in rig.decisions.request(request.id).messages if each.by == "approver"]


def answer(rig: Rig, request: ApprovalRequest, words: str = "It is due.") -> ApprovalRequest:
    number = len(rig.decisions.request(request.id).messages) + 1
    said = RequestMessage(number=number, by="agent", text=words, revision=request.revision)
    return rig.decisions.tell(request.id, said)


async def replaced(rig: Rig, request: ApprovalRequest) -> str:
    await rig.cards.replace_old(request, {"bo", "cy"})
    token = await rig.token(request)
    await rig.cards.record_try([token])
    await rig.cards.record_sent(token, f"v-{token}", {})
    return token


async def test_reply_to_a_card_asks_the_agent_and_decides_nothing(rig: Rig) -> None:
    request = await rig.ask()
    reply = await ask(rig, request)
    assert reply.text == f"{show_code(request.code)}: {text('receipt.accepted.pending', 'en')}"
    assert asked(rig, request) == [("bo", WHY)]
    assert rig.decisions.answers == []
    assert rig.decisions.request(request.id).state == "pending"
    assert (await rig.result())["what"] == "question"


async def test_code_asks_about_its_request_in_the_persons_language(rig: Rig) -> None:
    first, second = await rig.ask(1, BO, CY), await rig.ask(2, BO, CY)
    reply = await rig.heard("cy-1", text=f"Frage {second.code} Welche Rechnung?", said_at=rig.now().isoformat())
    assert text("receipt.accepted.pending", "de") in reply.text
    assert (asked(rig, first), asked(rig, second)) == ([], [("cy", "Welche Rechnung?")])


async def test_question_without_card_or_code_names_the_waiting_requests(rig: Rig) -> None:
    requests = [await rig.ask(1), await rig.ask(2)]
    reply = await rig.heard(text=f"ask: {WHY}", said_at=rig.now().isoformat())
    assert all(show_code(each.code) in reply.text for each in requests)
    assert text("card.how.ask", "en", ask="ask", code="CODE") in reply.text
    assert [asked(rig, each) for each in requests] == [[], []]


async def test_unclear_question_gets_the_words_that_ask(rig: Rig) -> None:
    request = await rig.ask()
    reply = await rig.heard(text="Why this amount?", token=await rig.token(request))
    assert f"ask {show_code(request.code)}" in reply.text
    assert asked(rig, request) == []


@pytest.mark.parametrize("identity", ["ana-1", "gone-1", "stranger"])
async def test_requester_and_strangers_cannot_ask(rig: Rig, identity: str) -> None:
    request = await rig.ask(1, BO)
    token = await rig.token(request)
    for fields in ({"token": token, "text": f"ask: {WHY}"}, {"text": f"ask {request.code} {WHY}"}):
        reply = await rig.hear(identity, said_at=rig.now().isoformat(), **fields)
        assert reply is None or request.card.effect not in reply.text
    assert asked(rig, request) == []
    assert ANA.id == request.requester.user


async def test_colleague_asks_below_anothers_card_with_its_code_alone(rig: Rig) -> None:
    request = await rig.ask(1, BO, CY)
    token = next(row.token for row in await rig.cards.of_request(request.id) if row.person == "bo")
    await rig.hear("cy-1", text=f"ask: {WHY}", vendor_ids=[f"v-{token}"])
    assert asked(rig, request) in ([], [("cy", WHY)])
    await rig.hear("cy-1", text=f"ask {request.code} {WHY}", said_at=rig.now().isoformat())
    assert asked(rig, request) == [("cy", WHY)]


async def test_question_after_the_end_is_refused(rig: Rig) -> None:
    request = await rig.ask()
    await rig.hear(token=await rig.token(request), verdict="denied")
    reply = await ask(rig, request)
    assert reply.receipt is not None
    assert (reply.receipt.status, reply.receipt.code) == ("refused", "already_decided")
    assert asked(rig, request) == []


async def test_question_before_the_answer_and_the_fourth_are_refused(rig: Rig) -> None:
    request = await rig.ask()
    for number in range(QUESTIONS):
        await ask(rig, request, text=f"ask: Why {number}?")
        early = await ask(rig, request, text="ask: And now?")
        assert text("why.asked", "en") in early.text
        request = answer(rig, request)
    assert text("why.questions", "en") in (await ask(rig, request, text="ask: Once more?")).text
    assert len(asked(rig, request)) == QUESTIONS


async def test_question_on_the_card_of_an_earlier_revision_is_refused(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    rig.decisions.open(replace(request, revision=2, question_hash="other"))
    reply = await rig.heard(text=f"ask: {WHY}", token=token)
    assert (reply.receipt and reply.receipt.code) == "stale"
    assert asked(rig, request) == []


async def test_edited_question_asks_nothing(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    await rig.hear(text=f"ask: {WHY}", token=token, unclear="edited", changes="k0")
    assert asked(rig, request) == []


async def test_question_of_a_lost_result_is_asked_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await rig.ask()

    async def away(*args: Any, **more: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(InboundQueue, "finish", away)
        await ask(rig, request)
    answer(rig, request)
    await rig.go_on()
    assert asked(rig, request) == [("bo", WHY)]
    assert (await rig.result())["status"] == "accepted"


async def test_question_cancels_the_held_approval_of_its_author(rig: Rig) -> None:
    request = await rig.ask()
    held = rig.another(hold=60.0)
    token = await rig.token(request)
    await rig.receiver.take("chat", rig.channel.raw(key="yes", identity="bo-1", text="yes", token=token))
    await held.step()
    assert rig.decisions.answers == []
    await rig.receiver.take("chat", rig.channel.raw(key="why", identity="bo-1", text=f"ask: {WHY}", token=token))
    await held.step()
    await (await rig.hurried()).another(hold=60.0).step()
    assert (rig.decisions.answers, asked(rig, request)) == ([], [("bo", WHY)])
    assert (await rig.result("yes"))["what"] == "taken back"


async def test_old_card_approves_nothing_after_a_question(rig: Rig) -> None:
    request = await rig.ask()
    old = await rig.token(request)
    await ask(rig, request)
    assert (await rig.receipt(token=old, verdict="approved")).why == "thread"
    new = await replaced(rig, answer(rig, request))
    assert new != old
    ways: tuple[dict[str, Any], ...] = (
        {"token": old, "verdict": "approved"},
        {"token": old, "text": "yes"},
        {"vendor_ids": [f"v-{old}"], "text": "yes"},
    )
    for way in ways:
        assert (await rig.receipt(**way)).why == "thread"
    # Written before the new card, delivered after it.
    late = await rig.hear(text=f"approve {request.code}", said_at=(rig.now() - timedelta(minutes=1)).isoformat())
    assert late is None or late.receipt is None or late.receipt.status == "refused"
    assert rig.decisions.request(request.id).state == "pending"
    assert (await rig.receipt(token=new, verdict="approved")).status == "accepted"


async def test_approval_by_code_after_the_new_card_counts(rig: Rig) -> None:
    request = await rig.ask()
    await ask(rig, request)
    await replaced(rig, answer(rig, request))
    rig.ahead = timedelta(seconds=5)
    reply = await rig.receipt(text=f"approve {request.code}", said_at=rig.now().isoformat())
    assert (reply.status, reply.state) == ("accepted", "approved")


async def test_denial_on_the_old_card_counts(rig: Rig) -> None:
    request = await rig.ask()
    old = await rig.token(request)
    await ask(rig, request)
    await replaced(rig, answer(rig, request))
    assert (await rig.receipt(token=old, verdict="denied")).state == "denied"


async def unsent(rig: Rig, **fields: Any) -> ApprovalRequest:
    """Replace a card, but do not send the new one yet."""
    request = await rig.ask(**fields)
    old = await rig.token(request)
    await rig.cards.record_try([old])
    await ask(rig, request)
    await rig.cards.replace_old(answer(rig, request), {"bo"})
    await rig.cards.record_closed(old)
    rig.ahead = timedelta(seconds=5)
    return request


@pytest.mark.parametrize("words", ["no", "deny {code}"])
async def test_denial_between_two_cards_counts(rig: Rig, words: str) -> None:
    request = await unsent(rig, revision=2)
    receipt = await rig.receipt(text=words.format(code=request.code), said_at=rig.now().isoformat())
    assert (receipt.status, receipt.state) == ("accepted", "denied")


@pytest.mark.parametrize("words", ["yes", "approve {code}"])
async def test_approval_between_two_cards_is_stale(rig: Rig, words: str) -> None:
    request = await unsent(rig, revision=2)
    receipt = await rig.receipt(text=words.format(code=request.code), said_at=rig.now().isoformat())
    assert (receipt.code, receipt.why) == ("stale", "thread")
    assert rig.decisions.request(request.id).votes == ()


async def test_denial_by_code_on_another_channel_counts_between_two_cards(rig: Rig) -> None:
    request = rig.opened(revision=2)
    await rig.cards.plan([NewDelivery(request=request, person="bo", channel="mail", address="bo@example.com")])
    old = await rig.token(request)
    await rig.cards.record_try([old])
    await rig.cards.record_sent(old, "m-1", {})
    rig.decisions.tell(request.id, RequestMessage(number=1, by="approver", text=WHY, revision=2))
    await rig.cards.replace_old(answer(rig, request), {"bo"})
    rig.ahead = timedelta(seconds=5)
    receipt = await rig.receipt(text=f"deny {request.code}", said_at=rig.now().isoformat())
    assert (receipt.status, receipt.state) == ("accepted", "denied")


async def test_plain_answer_between_two_cards_is_asked_back_if_another_request_waits(rig: Rig) -> None:
    request = await unsent(rig)
    rig.ahead = timedelta()
    other = await rig.ask(2)
    rig.ahead = timedelta(seconds=5)
    reply = await rig.heard(text="no", said_at=rig.now().isoformat())
    assert reply.receipt is None
    assert all(show_code(each.code) in reply.text for each in (request, other))


async def test_same_words_again_are_a_new_question(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # Their first try fails before it asks.
    request = await rig.ask()
    await ask(rig, request)
    answer(rig, request)
    real = rig.decisions.ask

    async def away(*args: Any, **more: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(rig.decisions, "ask", away)
    await rig.hear(text=f"ask: {WHY}", token=await rig.token(request))
    monkeypatch.setattr(rig.decisions, "ask", real)
    await rig.go_on()
    assert asked(rig, request) == [("bo", WHY)] * 2


@pytest.mark.parametrize(("about", "approved"), [(0, False), (1, True)])
async def test_question_about_another_request_keeps_a_held_approval(rig: Rig, about: int, approved: bool) -> None:
    requests = [await rig.ask(1), await rig.ask(2)]
    held, tokens = rig.another(hold=60.0), [await rig.token(each) for each in requests]
    await rig.receiver.take("chat", rig.channel.raw(key="yes", identity="bo-1", text="yes", token=tokens[0]))
    await held.step()
    await rig.receiver.take(
        "chat", rig.channel.raw(key="why", identity="bo-1", text=f"ask: {WHY}", token=tokens[about])
    )
    await held.step()
    await (await rig.hurried()).another(hold=60.0).step()
    assert asked(rig, requests[about]) == [("bo", WHY)]
    assert (rig.decisions.request(requests[0].id).state == "approved") is approved


async def test_ended_card_claims_no_message_that_it_did_not_show(rig: Rig) -> None:
    request = await rig.ask()
    await ask(rig, request)
    told = answer(rig, request)
    await rig.cards.end(request.id, 1, replace(told, state="denied"))
    [row] = await rig.cards.of_request(request.id)
    assert revision_shown(row).thread == ""


def test_note_of_before_the_messages_is_read() -> None:
    note = note_of(AskedRevision(a_request(), 1, "hash", thread="t"))
    del note["thread"]
    assert read_note(note) == AskedRevision(a_request(), 1, "hash")
