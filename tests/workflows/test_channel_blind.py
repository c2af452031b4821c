import dataclasses
from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.keys.signature_form import unsigned_principal
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import calls, respond

_OF_THE_TURN = {"session_id", "turn_id", "idempotency_key"}


@pytest.mark.row("B82")
async def test_tool_context_contains_no_channel(turn_rig: TurnRig) -> None:
    seen: list[ToolContext] = []

    async def handler(args: dict[str, Any], ctx: ToolContext) -> str:
        seen.append(ctx)
        return "paid"

    catalog = catalog_of([pay_tool(Ledger(), handler=handler)])
    script = [calls(("pay", {"amount": 20})), respond("done")]
    doors = (("api", "inbox"), ("chat", "mail"))
    async with turn_rig.running(catalog, script) as turns:
        for asked, answered in doors:
            key = await turns.start_waiting(channel=asked)
            result = await turns.result_after(yes(key, channel=answered, reason="fine"))
            assert [outcome.code for outcome in result.calls] == ["ok"]
    first, second = (
        {
            name: value
            for name, value in (dataclasses.asdict(ctx) | {"user": unsigned_principal(ctx.user)}).items()
            if name not in _OF_THE_TURN
        }
        for ctx in seen
    )
    assert first == second
    assert not {word for pair in doors for word in pair} & {str(value) for value in first.values()}
