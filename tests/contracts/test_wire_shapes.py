import json
from typing import Any

from pydantic import BaseModel
from tables import table
from temporalio.contrib.pydantic import PydanticPayloadConverter
from wire_shapes import FILE, messages, text

from signoff.contracts.activity_messages import ModelTask, ToolReply
from signoff.contracts.call import CallContext, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.frozen_model import ActivityMessage
from signoff.contracts.message import CallPart, Message, ResultPart, user_message
from signoff.contracts.person import Principal
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnResult, TurnView
from signoff.temporal.converter import DATA_CONVERTER

CTX = CallContext(actor="desk", session="s", turn="t", tenant="main", user=Principal(user="guest"))


def written(value: Any) -> Any:
    (payload,) = DATA_CONVERTER.payload_converter.to_payloads([value])
    return json.loads(payload.data)


def read(value: Any, shape: type[Any]) -> Any:
    payloads = DATA_CONVERTER.payload_converter.to_payloads([value])
    return DATA_CONVERTER.payload_converter.from_payloads(payloads, [shape])[0]


def test_wire_file_lists_every_record_with_its_defaults() -> None:
    """A changed default or a removed field changes the meaning of histories: omitted defaults are part of the wire
    format. `python tests/contracts/wire_shapes.py` rewrites the file. From the first release on only new fields are
    added.
    """
    assert FILE.read_text() == text()


def test_default_values_are_omitted_at_every_depth() -> None:
    task = ModelTask(ctx=CTX, completion=1, messages=(user_message("go"),))
    assert written(task) == {
        "ctx": {"actor": "desk", "session": "s", "turn": "t", "user": {"user": "guest"}},
        "completion": 1,
        "messages": [{"role": "user", "parts": [{"kind": "text", "text": {"inline": "go"}}]}],
    }


def test_omitted_defaults_are_read_back_unchanged() -> None:
    parts = (
        CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 0, "to": ""})),
        ResultPart(call="c1.1", tool="pay", code="ok", value=Content(inline=None)),
    )
    task = ModelTask(ctx=CTX, completion=1, messages=(user_message(""), Message(role="tool", parts=parts)))
    assert read(task, ModelTask) == task
    for value in ("", None, False, 0, [], {}):
        reply = ToolReply(outcome=CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline=value)))
        found = read(reply, ToolReply)
        assert found == reply
        assert found.outcome.value.inline == value
        assert type(found.outcome.value.inline) is type(value)


@table("shape", Receipt, TurnView, CallOutcome)
def test_receipts_and_views_are_written_in_full(shape: type[BaseModel]) -> None:
    assert not issubclass(shape, ActivityMessage)
    receipt = Receipt(status="accepted")
    ours, sdks = DATA_CONVERTER.payload_converter, PydanticPayloadConverter()
    assert ours.to_payloads([receipt]) == sdks.to_payloads([receipt])


def test_turn_result_omits_its_defaults() -> None:
    outcome = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="paid"))
    result = TurnResult(state="complete", calls=(outcome,))
    told = {"call": "c1.1", "tool": "pay", "code": "ok", "value": {"inline": "paid"}}
    assert written(result) == {"state": "complete", "calls": [told]}
    assert read(result, TurnResult) == result


def test_every_activity_message_is_an_activity_message_subclass() -> None:
    """A message of another class would be written in full, unnoticed."""
    assert {each.__name__ for each in messages()} >= {"ModelTask", "ModelReply", "GateTask", "GateReply", "RunTask"}
