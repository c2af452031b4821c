import re
from pathlib import Path
from typing import get_args

import pytest
from tables import table
from temporalio.api.common.v1 import Payload

from signoff.contracts.activity_messages import ToolReply
from signoff.contracts.call import RESULT_TYPES, CallCode, CallOutcome, ResultType, ToolDenied, type_from_code
from signoff.contracts.content import Content
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.message import ResultPart
from signoff.contracts.turn import TurnResult
from signoff.temporal.converter import DATA_CONVERTER

RESULTS = Path(__file__).parents[2] / "docs" / "results.md"


def test_every_code_has_its_own_type() -> None:
    assert set(RESULT_TYPES) == set(get_args(CallCode))
    assert sorted(RESULT_TYPES.values()) == sorted(get_args(ResultType))


def test_documented_table_matches_the_code() -> None:
    rows = re.findall(r"^\| `(Tool\w+)` \| `(\w+)` \|", RESULTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(each, code) for code, each in RESULT_TYPES.items()]


@pytest.mark.row("N32", "X12")
def test_denial_states_its_type_and_code() -> None:
    denied = ToolDenied(source="human", tool="pay", call_id="c1.1")
    value = denied.model_dump(mode="json")
    assert list(value.items())[:2] == [("type", "ToolDenied"), ("code", "denied")]
    outcome = CallOutcome(call="c1.1", tool="pay", code="denied", value=Content(inline=value), denied=denied)
    part = ResultPart(call="c1.1", tool="pay", code="denied", value=outcome.value)
    assert (outcome.model_dump()["type"], part.model_dump()["type"]) == ("ToolDenied", "ToolDenied")


def test_claimed_type_is_replaced_by_the_type_of_the_code() -> None:
    claimed = CallOutcome.model_validate({"call": "c", "tool": "pay", "code": "denied", "type": "ToolResult"})
    assert claimed.type == "ToolDenied"
    assert type_from_code("of_tomorrow") == "ToolFailed"


@table("place", "activity", "result", "part")
def test_history_holds_no_type_next_to_its_code(place: str) -> None:
    outcome = CallOutcome(call="c1.1", tool="pay", code="ok", value=Content(inline="paid"))
    part = ResultPart(call="c1.1", tool="pay", code="ok", value=outcome.value)
    written: dict[str, FrozenModel] = {
        "activity": ToolReply(outcome=outcome),
        "result": TurnResult(state="complete", calls=(outcome,)),
        "part": part,
    }
    found: Payload = DATA_CONVERTER.payload_converter.to_payloads([written[place]])[0]
    assert b"paid" in found.data
    assert b"ToolResult" not in found.data
    [read] = DATA_CONVERTER.payload_converter.from_payloads([found], [type(written[place])])
    assert read == written[place]
    assert "ToolResult" in read.model_dump_json()
