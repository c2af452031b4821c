"""How far a call has come reads as a tool's result."""

from tables import table

from signoff.contracts.responses import CallAnswer
from signoff.plugins.mcp.call_result import result_of


@table(
    ("fields", "is_error", "texts"),
    ({"state": "ended", "code": "ok", "result": "paid"}, False, ["paid"]),
    ({"state": "ended", "code": "ok", "result": [1, "é"]}, False, ['[1, "é"]']),
    ({"state": "ended", "code": "ok", "result": "paid", "note": "Bo changed it"}, False, ["Bo changed it", "paid"]),
    ({"state": "ended", "code": "execution_failed", "result": "closed"}, True, ["closed"]),
    ({"state": "ended", "code": "in_doubt", "result": "?", "note": "edited"}, True, ["edited\n?"]),
    ({"state": "denied", "source": "human", "by": "Ana", "reason": "no"}, True, ["Denied by Ana (human): no"]),
    ({"state": "denied", "source": "timeout"}, True, ["Denied (timeout)."]),
    (
        {"state": "waiting", "code": "K7Q-2FM"},
        True,
        [
            "Waiting for approval, K7Q-2FM. Call the same tool with the same arguments later to get its result.",
        ],
    ),
    (
        {"state": "running"},
        True,
        ["Not finished yet. Call the same tool with the same arguments later to get its result."],
    ),
)
def test_a_result_says_what_became_of_the_call(fields: dict[str, object], is_error: bool, texts: list[str]) -> None:
    result = result_of(CallAnswer.model_validate({"id": "main.a.b", "tool": "pay", **fields}))
    assert (result["isError"], [each["text"] for each in result["content"]]) == (is_error, texts)


def test_an_object_is_structured_content_as_well() -> None:
    result = result_of(CallAnswer(id="main.a.b", tool="pay", state="ended", code="ok", result={"paid": 3}))
    assert (result["structuredContent"], result["content"][0]["text"]) == ({"paid": 3}, '{"paid": 3}')
