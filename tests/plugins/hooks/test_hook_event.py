import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tables import table

from signoff.contracts.canonical_json import json_bytes
from signoff.contracts.ids import is_id
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.plugins.hooks.plugin import HookBody, run_key

RECORDED = Path(__file__).parent / "recorded"


def event(host: str, name: str, **fields: Any) -> HookBody:
    sent = json.loads((RECORDED / f"{host}.json").read_text(encoding="utf-8"))[name]
    return HookBody.model_validate(sent | fields)


@table("host", "claude-code", "codex")
def test_recorded_call_is_a_proposal(host: str) -> None:
    body = event(host, "PreToolUse")
    proposal = body.proposal("coder", None)
    assert (proposal.tool, proposal.args["command"], proposal.agent) == ("Bash", "rm -rf build", "coder")
    assert (proposal.session, proposal.says) == (body.session_id, "in /tmp/shop")
    assert body.outcome is None
    assert body.key is not None
    assert event(host, "PostToolUse", tool_use_id=body.tool_use_id).key == body.key


def test_permission_request_has_no_key() -> None:
    assert event("claude-code", "PermissionRequest").key is None


@table(
    ("host", "name", "fields", "code", "result"),
    ("codex", "PostToolUse", {}, "ok", "hi\n"),
    ("claude-code", "PostToolUse", {"tool_response": None}, "ok", None),
    ("claude-code", "PostToolUseFailure", {}, "execution_failed", "Exit code 3\noops"),
    ("claude-code", "PostToolUseFailure", {"is_interrupt": True}, "in_doubt", "Exit code 3\noops"),
)
def test_post_tool_event_is_an_outcome_report(host: str, name: str, fields: Any, code: str, result: Any) -> None:
    outcome = event(host, name, **fields).outcome
    assert outcome is not None
    assert (outcome.code, outcome.result) == (code, result)


@table("response", {"stdout": "ä" * 100_000}, '"\\' * 100_000, {"half": "\ud800"}, "\ud800" * 50_000)
def test_oversized_result_is_cut(response: Any) -> None:
    body = HookBody(hook_event_name="PostToolUse", tool_response=response)
    outcome = body.outcome
    assert outcome is not None
    assert len(json_bytes(outcome.result)) <= ARGUMENTS_BYTES


def test_cut_result_shows_its_size_and_digest() -> None:
    answered = {"stdout": "ä" * 100_000}
    outcome = HookBody(hook_event_name="PostToolUse", tool_response=answered).outcome
    assert outcome is not None
    digest = hashlib.sha256(json_bytes(answered)).hexdigest()
    assert outcome.result.endswith(f" (cut: 200013 bytes of JSON, sha-256 {digest})")
    assert outcome.result.startswith('{"stdout": "\\u00e4')


@table("session", "a b", "../x", "x" * 49, "ä")
def test_session_of_any_name_is_one_session(session: str) -> None:
    found = HookBody(hook_event_name="PreToolUse", session_id=session).session
    assert found is not None
    assert is_id(found)
    assert found == HookBody(hook_event_name="PostToolUse", session_id=session).session
    assert found != HookBody(hook_event_name="PreToolUse", session_id=f"{session}.").session


@table("fields", {"tool_name": ""}, {"tool_name": "x" * 65}, {"tool_input": None}, {"tool_input": [1]})
def test_event_without_a_valid_call_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"tool|args"):
        event("codex", "PreToolUse", **fields).proposal(None, None)


def test_run_key_depends_on_tool_and_arguments() -> None:
    assert run_key("Bash", {"a": 1, "b": 2}) == run_key("Bash", {"b": 2, "a": 1})
    assert len({run_key("Bash", {}), run_key("Edit", {}), run_key("Bash", {"a": 1})}) == 3
