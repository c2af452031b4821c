import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from documents import ROOT, blocks
from polling import pauses
from served_stack import gateway_alone, worker_alone

from signoff.client.client import Client
from signoff.client.turn_handle import TurnHandle
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import text_of
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import Conflict, NotFound, Refused
from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import ApprovalRequestPart
from signoff.formats.replace import replace
from signoff.temporal.embedded_server import ServerHandle


@pytest.fixture
async def client(clean_env: pytest.MonkeyPatch, server: ServerHandle, task_queue: str) -> AsyncIterator[Client]:
    async with (
        gateway_alone(clean_env, server, task_queue),
        worker_alone(server, task_queue),
        await Client.connect() as connected,
    ):
        yield connected


async def asked(client: Client, text: str, **more: str) -> ApprovalRequest:
    turn = await client.start(text, **more)
    return await anext(aiter(turn.pending()))


async def test_program_starts_decides_and_reads_the_result(client: Client) -> None:
    turn = await client.start("pay 420", actor="clerk", user="rui")
    receipts: list[Receipt] = []
    async for request in turn.pending():
        assert (request.card.effect, request.requester.user) == ("Pay 420 EUR to Ana", "rui")
        receipts.append(await client.approve(request, by="ana", reason="agreed by phone"))
    assert [(each.status, each.decided_by) for each in receipts] == [("accepted", "ana")]
    result = await turn.result()
    assert (result.state, text_of(result.parts[0].content)) == ("complete", "ok paid 420 to Ana")


async def test_waiting_requests_are_listed_by_person_and_role(client: Client) -> None:
    request = await asked(client, "pay 430", user="rui")
    for approver in ("ana", "role:approvers", ""):
        assert request.id in [card.id for card in await client.inbox(approver)]
    assert await client.inbox("role:nobody") == []
    assert await client.inbox("rui") == []
    whole = {each.id: each async for each in client.pending("role:approvers")}
    assert whole[request.id].question_hash == request.question_hash
    assert (await client.request(request.code)).id == request.id


async def test_answer_counts_only_for_the_read_question(client: Client) -> None:
    request = await asked(client, "pay 440", user="rui")
    stale = replace(request, question_hash="0" * 64)
    assert (await client.approve(stale, by="ana")).code == "stale"
    receipt = await client.deny(request.code, by="ana", reason="too much")
    assert (receipt.status, receipt.verdict) == ("accepted", "denied")
    late = await client.approve(request, by="approver")
    assert (late.status, late.code, late.decided_by) == ("refused", "already_decided", "ana")


@pytest.mark.row("B68")
async def test_request_part_is_answered_with_a_response_part(client: Client) -> None:
    request = await asked(client, "pay 490", user="rui")
    view = await client.view(request.turn)
    part = ApprovalRequestPart.model_validate(view.parts[0].content.inline)
    assert part.approval_id == request.id
    receipt = await client.respond(part, "denied", by="ana", reason="too much")
    assert (receipt.status, (await client.request(request.id)).state) == ("accepted", "denied")
    assert (await client.respond(part, "approved", by="ana")).status == "refused"


async def test_repeated_delivery_is_one_answer(client: Client) -> None:
    request = await asked(client, "pay 450", user="rui")
    first = await client.approve(request, by="ana", delivery="d1")
    again = await client.approve(request, by="ana", delivery="d1")
    assert (first.status, again.status, again.decided_by) == ("accepted", "accepted", "ana")


async def test_edited_arguments_are_previewed_and_run(client: Client) -> None:
    request = await asked(client, "pay 460", user="rui")
    tried = await client.preview(request, {"amount": "300"})
    assert (tried.args, tried.changed) == ({"amount": 300, "to": "Ana", "pin": "hidden, 16 characters"}, True)
    assert tried.card.effect == "Pay 300 EUR to Ana"
    same = await client.preview(request, text='{"amount": 460, "to": "Ana", "pin": "hidden, 16 characters"}')
    assert same.changed is False
    with pytest.raises(Refused, match="`amount` must be a whole number"):
        await client.preview(request, {"amount": "much"})
    with pytest.raises(NotFound, match="did you mean `amount`"):
        await client.preview(request, {"amuont": "5"})
    assert (await client.request(request.id)).revision == 1
    changed = await client.approve(request, by="ana", edited_args=tried.args)
    assert changed.status == "accepted", changed
    result = await (await client.turn(request.turn)).result()
    assert text_of(result.parts[0].content) == "ok paid 300 to Ana"


async def test_edited_secret_is_sent_unmasked(client: Client) -> None:
    request = await asked(client, "pay 470", user="rui")
    tried = await client.preview(request, {"pin": "0815"})
    assert (tried.args["pin"], tried.changed) == ("0815", True)


async def found(client: Client, name: str) -> TurnHandle:
    async with asyncio.timeout(60):
        for pause in pauses():
            with contextlib.suppress(NotFound):
                return await client.turn(name)
            await asyncio.sleep(pause)
    raise AssertionError(name)


async def test_turn_is_found_watched_and_cancelled(client: Client) -> None:
    started = await client.start("pay 480", user="rui")
    turn = await found(client, started.key.turn[:-1])
    assert turn.key == started.key
    assert (await client.view(turn.key.workflow_id)).turn == turn.key.turn
    await anext(aiter(turn.pending()))
    assert await turn.cancel() == "cancelling"
    states = [view.state async for view in turn.watch()]
    assert states[-1] == "cancelled"
    assert await turn.cancel() == "cancelled"
    with pytest.raises(NotFound, match="there is no turn"):
        await client.turn("nowhere")
    for name in ("", " ", ".", ".."):
        with pytest.raises(NotFound, match="there is nothing with the name"):
            await client.turn(name)


async def test_same_turn_with_another_message_is_a_conflict(client: Client) -> None:
    first = await client.start("look", turn="same")
    assert (await client.start("look", turn="same")).key == first.key
    with pytest.raises(Conflict):
        await client.start("pay 5", turn="same")


async def test_message_in_a_session_completes_its_turn(client: Client) -> None:
    reply = await client.say("pay 5", session="talk", user="rui")
    # The turn starts after the message is accepted.
    async with asyncio.timeout(60):
        while not (view := await client.session(reply.id)).turns or view.turns[0].state == "working":
            await asyncio.sleep(0.05)
    assert [(turn.turn, turn.state) for turn in view.turns] == [(reply.turn, "complete")]
    assert (await (await client.turn(f"{reply.id}.{reply.turn}")).result()).state == "complete"
    assert reply.session in [row.session for row in await client.sessions()]
    assert reply.turn in [row.turn for row in await client.turns(state="complete")]


async def test_turn_started_in_a_session_joins_it(client: Client) -> None:
    first = await client.start("pay 5", session="joined", user="rui", turn="one")
    assert (await first.result()).state == "complete"
    second = await client.start("look", session="joined", user="rui")
    assert (await second.result()).state == "complete"
    view = await client.session("joined")
    assert [turn.turn for turn in view.turns] == ["one", second.key.turn]
    assert len((await second.view()).messages) > len((await first.view()).messages)


async def test_message_without_a_session_starts_one(client: Client) -> None:
    one, two = await client.say("pay 5", user="rui"), await client.say("pay 5", user="rui")
    assert one.session != two.session


async def test_session_keeps_the_route_of_a_message(client: Client) -> None:
    # For an actor without routes they are plain values for rules.
    for route, step in (("till", "pay"), ("", "")):
        turn = await client.start("pay 5", session="routed", user="rui", route=route, step=step)
        await turn.result()
    view = await client.session("routed")
    assert (view.route, view.step) == ("till", "pay")
    assert [(each.route, each.step) for each in view.turns] == [("till", "pay")] * 2


async def test_late_result_of_an_event_counts_once(client: Client) -> None:
    said = await client.say("look", session="late", user="rui", id="first")
    event = f"{said.id}.first.c1.1"
    async with asyncio.timeout(60):
        while not (await client.session("late")).turns:
            await asyncio.sleep(0.05)
    replies = [await client.add_result(event, "it is done") for _ in range(2)]
    assert [each.code for each in replies] == ["", "duplicate"]
    assert (await client.add_result(f"{said.id}.first", "and this")).status == "accepted"
    with pytest.raises(NotFound, match="is not the id of an event or a turn"):
        await client.add_result("first", "it is done")


async def test_answer_is_remembered_and_a_tenant_is_frozen(client: Client) -> None:
    request = await asked(client, "pay 490", user="rui")
    await client.approve(request, by="ana", remember=GrantRequest(where="args.amount <= 490", uses=3))
    (grant,) = [each for each in await client.grants() if each.approval_id == request.id]
    assert (await client.revoke(grant.id, by="ana")).revoked_by == "ana"
    frozen = await client.freeze("drill", tenant="main", by="approver")
    try:
        assert [each.reason for each in await client.freezes()] == [frozen.freeze.reason] == ["drill"]
        with pytest.raises(Refused, match="is frozen: drill"):
            await client.start("look")
    finally:
        await client.unfreeze("main", by="approver")
    assert await client.freezes() == []


async def test_too_long_reason_is_refused_by_the_client(client: Client) -> None:
    request = await asked(client, "pay 500", user="rui")
    with pytest.raises(Refused, match="`reason`"):
        await client.deny(request, by="ana", reason="x" * 3_000)


async def test_program_reads_events_as_documented(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [each for each in blocks(ROOT / "docs" / "events.md", "python") if not each.file]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example.text, "events.md", "exec"), names)
    turn = await client.start("pay 460", actor="clerk", user="rui")
    async for request in turn.pending():
        await client.approve(request, by="ana")
    last, reached = 0, 0
    while last == 0 or reached < last:
        reached = await names["report_payments"](client, reached)
        last = (await client.events(limit=1)).newest
    (line,) = [line for line in capsys.readouterr().out.splitlines() if turn.key.turn in line]
    assert "actor:clerk pays" in line
    first = await anext(client.follow_events(after=0, turn=turn.id))
    assert first.subject.startswith(turn.id)
