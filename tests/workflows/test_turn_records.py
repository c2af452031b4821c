import asyncio

import pytest
from failures import Failure
from session_rig import model, talk
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, no, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.timeline import timeline
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.errors import ModelRefused
from signoff.contracts.ids import TurnKey
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
AUTO = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


async def written(store: Store, key: TurnKey) -> list[Record]:
    return await AuditLog(store).stream(key.workflow_id)


async def test_first_audit_entry_of_a_turn_names_the_requester(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger(), AUTO)], [calls(PAY), respond("x")]) as turns:
        key = await turns.start(channel="api")
        await turns.signoff.result(key)
    records = await written(turn_rig.store, key)
    assert [record.kind for record in records] == ["turn", "proposal", "auto", "execution", "outcome"]
    assert records[0].subject == ""
    assert records[0].facts == {
        "actor": "desk",
        "channel": "api",
        "unsigned": True,
        "by": "turn",
        "claimed_subject": "guest",
    }
    assert timeline(records)[0].what == "the turn reports: asked desk over api"


async def test_cancelled_turn_records_its_requests_and_its_end(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], [calls(PAY), respond("x")]) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="guest"))
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
    records = await written(turn_rig.store, key)
    assert [record.kind for record in records] == ["turn", "proposal", "request", "attempt", "ending", "turn"]
    attempt, ending, end = (record.facts for record in records[3:])
    assert (attempt["status"], attempt["receipt"]) == ("refused", "not_allowed")
    assert ending["state"] == "cancelled"
    assert end == {"ended": "cancelled", "by": "turn"}
    assert timeline(records)[-1].what == "the turn reports: ended cancelled"


@pytest.mark.usefixtures("quick_heartbeats")
async def test_turn_cancelled_during_a_completion_records_its_end(turn_rig: TurnRig) -> None:
    asked = asyncio.Event()

    class Slow:
        async def complete(self, request: CompletionRequest) -> Completion:
            asked.set()
            await asyncio.Event().wait()
            return respond("never")

    async with turn_rig.running([pay_tool(Ledger())], Slow()) as turns:
        key = await turns.start()
        await asked.wait()
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
    assert [record.facts.get("ended", "") for record in await written(turn_rig.store, key)] == ["", "cancelled"]


@pytest.mark.failure("error, model_refused")
async def test_failed_turn_records_its_error_code(turn_rig: TurnRig, failure: Failure) -> None:
    keys = ["not good"]

    def refuses(request: CompletionRequest) -> Completion:
        if "not good" in keys:
            raise ModelRefused("the key is not good")
        return respond("done")

    async with turn_rig.running([pay_tool(Ledger())], ScriptedModel(refuses)) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        records = await written(turn_rig.store, key)
        failure.assert_seen(timeline(records)[-1].what)
        failure.follow("The turn's last sentence", "correct it, ask again")
        keys[:] = ["good"]
        again = await turns.signoff.result(await turns.start())
    assert result.error is not None
    assert (result.state, result.error.message) == ("error", "the key is not good")
    assert [record.facts for record in records][-1] == {"ended": "error", "error": "model_refused", "by": "turn"}
    assert again.state == "complete"


async def test_turns_of_a_session_record_their_start(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger(), AUTO)], model()) as turns:
        session = talk(turns)
        for name in ("a", "b"):
            await session.say("pay", name)
            await session.answer(name)
        found = [(await written(turn_rig.store, session.turn_key(name)))[0] for name in ("a", "b")]
    assert [(record.kind, record.facts["claimed_subject"], record.facts["in_session"]) for record in found] == [
        ("turn", "guest", True)
    ] * 2


async def test_denied_request_is_recorded_from_proposal_to_end(turn_rig: TurnRig) -> None:
    script = [calls(PAY), respond("x")]
    async with turn_rig.running([pay_tool(Ledger())], script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key))
        await turns.signoff.result(key)
    assert [record.kind for record in await written(turn_rig.store, key)] == [
        "turn",
        "proposal",
        "request",
        "attempt",
        "ending",
    ]
