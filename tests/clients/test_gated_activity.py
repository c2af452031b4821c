import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from gated_workflows import refund
from tables import table
from temporalio.client import Client
from temporalio.converter import PayloadConverter
from temporalio.worker import Worker

from signoff_client import Gate
from signoff_client.temporal import Gated, GatedActivity
from signoff_client.temporal.gated_activity import CallReader, ToolCall, argument_names, from_json, to_json

CONVERTER = PayloadConverter.default
NAMED = CallReader(GatedActivity(refund), ("order", "euro"))
FIELDS = CallReader(GatedActivity("refund_order"))
NESTED = CallReader(GatedActivity("call_tool", tool_at="name", args_at="call.args", tools=("refund",)))
LISTED = CallReader(GatedActivity("node", tool="refund", args_at="args.0"))


@dataclass
class Money:
    order: str
    euro: float


@table(
    ("reader", "values", "call"),
    (NAMED, ["A7", 20], ToolCall("refund", {"order": "A7", "euro": 20})),
    (NAMED, ["A7"], ToolCall("refund", {"order": "A7"})),
    (NAMED, [{"order": "A7"}], ToolCall("refund", {"order": "A7"})),
    (FIELDS, [{"order": "A7", "euro": 20}], ToolCall("refund_order", {"order": "A7", "euro": 20})),
    (FIELDS, [], ToolCall("refund_order", {})),
    (NESTED, [{"name": "refund", "call": {"args": {"order": "A7"}}}, None], ToolCall("refund", {"order": "A7"})),
    (NESTED, [{"name": "look", "call": {"args": {"order": "A7"}}}, None], None),
    (LISTED, [{"args": [{"order": "A7"}], "config": {}}], ToolCall("refund", {"order": "A7"})),
)
def test_call_is_read_from_an_input(reader: CallReader, values: list[Any], call: ToolCall | None) -> None:
    assert reader.read(values) == call
    if call is not None and call.args:
        changed = {**call.args, "order": "B2"}
        written = reader.write(values, changed)
        again = reader.read(written)
        assert again is not None
        assert again.args == changed
        assert reader.read(values) == call


@table(
    ("reader", "values", "words"),
    (FIELDS, ["A7", 20], "have no names to show to approvers"),
    (NAMED, ["A7", 20, True], "have no names to show to approvers"),
    (NESTED, [{"call": {"args": {}}}], "has no `name`"),
    (NESTED, [{"name": "refund", "call": {}}], "has no `call.args`"),
    (NESTED, [], "has no `name`"),
    (NESTED, [{"name": "refund", "call": {"args": "x"}}], "holds no tool"),
    (LISTED, [{"args": []}], "has no `args.0`"),
)
def test_input_without_a_call_is_an_error(reader: CallReader, values: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reader.read(values)


@table("args", {"euro": 20}, {"order": "A7", "euro": 20, "memo": "x"})
def test_arguments_that_do_not_fit_the_activity_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be run with just"):
        NAMED.write(["A7", 20], args)


def test_values_are_converted_by_the_payload_converter() -> None:
    plain = to_json(CONVERTER, Money("A7", 20))
    assert plain == {"order": "A7", "euro": 20}
    assert from_json(CONVERTER, {**plain, "euro": 15}, Money("A7", 20), Money) == Money("A7", 15)
    assert from_json(CONVERTER, "B2", None, None) == "B2"
    assert to_json(CONVERTER, None) is None
    with pytest.raises(ValueError, match="`bytes` is not JSON"):
        to_json(CONVERTER, b"A7")


def test_argument_names_come_from_the_function() -> None:
    class Bank:
        def pay(self, order: str) -> None:
            """Pays."""

    assert argument_names(refund) == ("order", "euro")
    assert argument_names(Bank.pay) == argument_names(Bank().pay) == ("order",)


def test_mistake_is_reported_when_the_plugin_is_created() -> None:
    gate = Gate("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="is not a named activity"):
        Gated(gate, [argument_names])
    with pytest.raises(ValueError, match="`refund` is named twice"):
        Gated(gate, [refund, "refund"])


async def test_mistyped_name_ends_the_worker_at_start(client: Client) -> None:
    """The intended activity would have no gate."""
    gated = Gated(Gate("http://127.0.0.1:1"), ["refnd"])
    worker = Worker(client, task_queue="mistyped", activities=[refund], plugins=[gated])
    with pytest.raises(ValueError, match="has no activity `refnd`; did you mean `refund`"):
        await worker.run()


async def test_activity_of_another_worker_is_not_treated_as_mistyped(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    gated = Gated(Gate("http://127.0.0.1:1"), ["book_flight"])
    worker = Worker(client, task_queue="elsewhere", activities=[refund], plugins=[gated])
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while not worker.is_running:
            await asyncio.sleep(0.01)
    await worker.shutdown()
    await running
    assert "this worker has no activity `book_flight`" in caplog.text
