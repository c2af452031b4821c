import asyncio
from datetime import UTC, datetime

import pytest
from turn_fixtures import Ledger, TurnRig, pay_tool, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.usage import UsageLimit
from signoff.formats.hours import DAYS
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results

ARGS = {"amount": 20, "to": "Ana"}


def once(request: CompletionRequest) -> Completion:
    return respond("done") if results(request) else calls(("pay", ARGS))


@pytest.mark.row("F18")
async def test_concurrently_approved_turns_cannot_share_the_last_use(turn_rig: TurnRig, ledger: Ledger) -> None:
    pay = pay_tool(ledger, usage_limit=UsageLimit(1, "user", 86_400.0))
    async with turn_rig.running([pay], ScriptedModel(once)) as turns:
        keys = [await turns.start() for _ in range(2)]
        for key in keys:
            await turns.waiting(key)
        await asyncio.gather(*(turns.signoff.decide(yes(key)) for key in keys))
        found = [await turns.signoff.result(key) for key in keys]
        outcomes = sorted((call for result in found for call in result.calls), key=lambda each: each.code)
        assert [(each.code, each.gate) for each in outcomes] == [("not_available", "usage"), ("ok", "execute")]
        assert "it is possible again at" in str(outcomes[0].value.inline)
        assert len(ledger.rows) == 1
        third = await turns.signoff.result(await turns.start())
        assert [(each.code, each.gate) for each in third.calls] == [("not_available", "usage")]
        for key in keys:
            await turns.replays(key)


async def test_tool_outside_its_hours_is_neither_offered_nor_run(turn_rig: TurnRig) -> None:
    ledger, value = Ledger(), []

    def react(request: CompletionRequest) -> Completion:
        value.append([tool.name for tool in request.tools])
        return once(request)

    closed = DAYS[(datetime.now(UTC).weekday() + 3) % 7]
    pay = pay_tool(ledger, False, hours=(f"{closed} 10:00-11:00 UTC",))
    look = pay_tool(ledger, False, name="look", hours=("Mo-Su 00:00-24:00 Europe/Lisbon",))
    async with turn_rig.running([pay, look], ScriptedModel(react)) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        assert [(each.code, each.gate) for each in result.calls] == [("not_available", "available")]
        assert (value, ledger.rows) == ([["look", "respond"]] * 2, [])
        await turns.replays(key)
