import json
from typing import Any

import pytest
from aap_rig import Adapter, asking
from tables import table

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.plugins.aap.problems import ApprovalProblem
from signoff.plugins.aap.request_body import CONTEXT_BYTES, CreateBody, OutcomeReport, parse_body

GOOD: dict[str, Any] = {"tool": "refund", "arguments": {"euro": 20}, "timeout": "10m"}


@table(
    ("change", "words"),
    ({"user": "ana"}, "user"),
    ({"delivery": {}}, "`delivery` is not known here"),
    ({"agent_reasoning": None}, "agent_reasoning"),
    ({"context": None}, "context"),
    ({"context": []}, "context"),
    ({"server": ""}, "server"),
    ({"tool": ""}, "tool"),
    ({"tool": 7}, "tool"),
    ({"arguments": []}, "arguments"),
    (
        {"timeout": 600},
        "`timeout`: must be a positive whole number of seconds, minutes or hours, as `30s`, `30m` or `24h`",
    ),
    ({"timeout": "0m"}, "timeout"),
    ({"timeout": "10"}, "timeout"),
    ({"timeout": "1h30m"}, "timeout"),
    ({"timeout": "999999999h"}, "timeout"),
    ({"arguments": {"x": 2**53}}, "integer"),
    ({"arguments": {"x": "x" * 70_000}}, "`arguments` is larger than 64 KiB; split them over several calls"),
    ({"arguments": {"x": [0] * 2_001}}, "more than 2000 values; split them over several calls"),
    ({"context": {"x": "x" * CONTEXT_BYTES}}, "`context` is larger than 16 KiB"),
    ({"agent_reasoning": "x" * (CONTEXT_BYTES + 1)}, "agent_reasoning"),
)
def test_malformed_request_body_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ApprovalProblem) as refused:
        parse_body(CreateBody, json.dumps(GOOD | change).encode())
    assert (refused.value.status, words in refused.value.message) == (400, True), refused.value.message


NO_JSON = "the body is not JSON: "
INEXACT = "the body holds a number of more digits than can be carried; send it as a string"


@table(
    ("sent", "words"),
    (b"", NO_JSON), (b"{", NO_JSON), (b"[]", ""), (b"null", ""), (b"[" * 50_000, "the body is nested too deeply"),
    (b'{"tool": "refund", "arguments": {"x": NaN}, "timeout": "1m"}', "the body holds NaN"),
    (b'{"tool": "refund", "arguments": {"x": 1e999}, "timeout": "1m"}', INEXACT),
    (b'{"tool": "refund", "arguments": {"x": 0.12345678901234567890123}, "timeout": "1m"}', INEXACT),
    (b'{"tool": "refund", "arguments": {"x": 1, "x": 2}, "timeout": "1m"}', "the body has `x` twice in one object"),
    (b'{"tool": "refund", "arguments": {"x": "\\ud800"}, "timeout": "1m"}', ""),
)  # fmt: skip
def test_body_that_cannot_be_repeated_exactly_is_refused(sent: bytes, words: str) -> None:
    with pytest.raises(ApprovalProblem) as refused:
        parse_body(CreateBody, sent)
    assert (refused.value.status, refused.value.code) == (400, "malformed")
    assert refused.value.message.startswith(words)


@table("more", 0, 1)
def test_arguments_up_to_the_size_limit_are_accepted(more: int) -> None:
    sent = {"part": 0.5, "text": ""}
    sent["text"] = "x" * (ARGUMENTS_BYTES - len(canonical_json(sent)) + more)
    body = json.dumps(GOOD | {"arguments": sent}).encode()
    if more:
        with pytest.raises(ApprovalProblem, match="`arguments` is larger than 64 KiB; split them") as refused:
            parse_body(CreateBody, body)
        assert refused.value.code == "too_large"
    else:
        assert parse_body(CreateBody, body).arguments == sent


def test_omitted_fields_stay_omitted() -> None:
    body = parse_body(CreateBody, json.dumps(GOOD | {"context": {}, "agent_reasoning": ""}).encode())
    assert body.as_sent == GOOD | {"context": {}, "agent_reasoning": ""}
    assert parse_body(CreateBody, json.dumps(GOOD).encode()).as_sent == GOOD
    assert body.tool_name == "refund"
    assert parse_body(CreateBody, json.dumps(GOOD | {"server": "bank"}).encode()).tool_name == "mcp__bank__refund"


@table("report", {}, {"status": "ok"}, {"status": "failed", "note": ""}, {"status": "failed", "x": 1})
def test_malformed_outcome_is_refused(report: dict[str, Any]) -> None:
    with pytest.raises(ApprovalProblem):
        parse_body(OutcomeReport, json.dumps(report).encode())


async def test_adapter_gets_an_error_code_it_can_parse(coder: Adapter) -> None:
    assert await coder.send("POST", "", asking(user="ana"), idempotency_key="x") == (400, "malformed")
    asked = await coder.allowed(context={"deep": {"ratio": 0.1, "list": [1, 2.50, True, None]}})
    assert await coder.send("POST", f"/{asked.id}/outcome", {"status": "ok"}) == (400, "malformed")
