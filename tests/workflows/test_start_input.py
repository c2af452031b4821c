from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, pay_tool

from signoff.contracts.content import Content
from signoff.contracts.errors import Refused
from signoff.contracts.limits import MAX_DEPTH, MAX_NESTING
from signoff.contracts.message import CallPart, Message, user_message
from signoff.testing.scripted_model import respond


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _said(levels: int) -> tuple[Message, ...]:
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={"a": _nested(levels)}))
    return user_message("go"), Message(role="assistant", parts=(call,)), user_message("on")


@pytest.mark.parametrize(
    "fields",
    [
        {"context": {"a": _nested(MAX_DEPTH)}},
        {"context": {"a": _nested(250)}},
        {"context": {"a": 2**53}},
        {"messages": _said(MAX_NESTING)},
        {"messages": _said(190)},
    ],
)
async def test_too_deeply_nested_input_is_refused(turn_rig: TurnRig, fields: dict[str, Any]) -> None:
    """If started, the turn would fail every workflow task forever."""
    async with turn_rig.running([pay_tool(Ledger())], [respond("done")]) as turns:
        with pytest.raises(Refused) as refusal:
            await turns.start(**fields)
    assert refusal.value.code == "malformed"


async def test_input_at_the_nesting_limit_runs(turn_rig: TurnRig) -> None:
    deep = {"context": {"a": _nested(MAX_DEPTH - 2)}, "messages": _said(MAX_NESTING - 10)}
    async with turn_rig.running([pay_tool(Ledger())], [respond("done")]) as turns:
        result = await turns.signoff.result(await turns.start(**deep))
    assert result.state == "complete"
