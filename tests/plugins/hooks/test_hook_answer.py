"""Each host gets its own answer shape, verified with Claude Code 2.1.332 and Codex 0.171.0."""

from typing import Any

from tables import table

from signoff.contracts.responses import CallAnswer
from signoff.plugins.hooks.plugin import HookBody, HookHost, allow, can_edit, defer, deny, refusal_words, wait_words

ARGS = {"command": "rm -rf build"}
EDITED = {"command": "rm -r build"}
GATE = HookBody(hook_event_name="PreToolUse", tool_name="Bash", tool_input=ARGS)
PERMISSION = HookBody(hook_event_name="PermissionRequest", tool_name="Bash", tool_input=ARGS)


def call(state: Any, **fields: Any) -> CallAnswer:
    return CallAnswer(id="c", state=state, tool="Bash", **fields)


def output(event: HookBody, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event.hook_event_name, **fields}}


@table(
    ("host", "event", "args", "answer"),
    ("claude-code", GATE, ARGS, output(GATE, permissionDecision="allow")),
    ("codex", GATE, ARGS, {}),
    ("claude-code", PERMISSION, ARGS, output(PERMISSION, decision={"behavior": "allow"})),
    ("codex", PERMISSION, ARGS, output(PERMISSION, decision={"behavior": "allow"})),
    (
        "claude-code",
        PERMISSION,
        EDITED,
        output(PERMISSION, decision={"behavior": "allow", "updatedInput": EDITED}),
    ),
)
def test_permitted_call_is_allowed_in_the_hosts_shape(
    host: HookHost, event: HookBody, args: dict[str, Any], answer: dict[str, Any]
) -> None:
    assert allow(host, event, call("used", args=args)) == answer


@table("host", "claude-code", "codex")
def test_edited_arguments_replace_the_proposed_ones(host: HookHost) -> None:
    found = allow(host, GATE, call("used", args=EDITED, edited_by="Ana"))["hookSpecificOutput"]
    assert (found["permissionDecision"], found["updatedInput"]) == ("allow", EDITED)
    assert found["additionalContext"].startswith("Ana edited the arguments")


@table(("proposed", "approved"), (True, 1), (False, 0), ([True], [1]))
def test_approved_number_replaces_a_proposed_boolean(proposed: Any, approved: Any) -> None:
    event = HookBody(hook_event_name="PreToolUse", tool_name="Bash", tool_input={"force": proposed})
    found = allow("claude-code", event, call("used", args={"force": approved}))["hookSpecificOutput"]
    assert type(found["updatedInput"]["force"]) is type(approved)
    assert found["updatedInput"] == {"force": approved}


@table("host", "claude-code", "codex")
def test_approvers_remark_is_context_for_the_model(host: HookHost) -> None:
    found = allow(host, GATE, call("used", args=ARGS, note="tell the customer first"))["hookSpecificOutput"]
    assert (found["permissionDecision"], found["additionalContext"]) == ("allow", "tell the customer first")
    changed = allow(host, GATE, call("used", args=EDITED, edited_by="Ana", note="tell the customer first"))
    words = changed["hookSpecificOutput"]["additionalContext"]
    assert "Ana edited" in words
    assert words.endswith("tell the customer first")


def test_codex_cannot_edit_arguments_in_a_permission_request() -> None:
    """Codex would ignore such an answer and ask at the terminal."""
    assert [can_edit(host, each) for host in ("codex", "claude-code") for each in (GATE, PERMISSION)] == [
        True,
        False,
        True,
        True,
    ]


@table("reason", "too dear", "", "  ")
def test_denial_always_has_a_reason(reason: str) -> None:
    """Without a reason Codex would count the hook as failed and run the call."""
    words = reason.strip() or "not allowed"
    assert deny(GATE, reason) == output(GATE, permissionDecision="deny", permissionDecisionReason=words)
    assert deny(PERMISSION, reason) == output(PERMISSION, decision={"behavior": "deny", "message": words})


def test_waiting_answer_has_the_code_and_the_next_step() -> None:
    waiting = call("waiting", code="K7Q-2FM", page="https://signoff.example.com/turns/x")
    words = wait_words(waiting)
    assert "K7Q-2FM (https://signoff.example.com/turns/x)" in words
    assert "again with the same arguments" in words
    assert defer(GATE, waiting) == output(GATE, permissionDecision="defer", permissionDecisionReason=words)


@table(
    ("answer", "words"),
    (call("denied", source="human", reason="not on a Friday", by="Ana"), "Denied by Ana: not on a Friday"),
    (call("denied", source="policy", reason="`deny_if` is true"), "Denied: `deny_if` is true"),
    (call("denied", source="timeout"), "Denied: timeout"),
    (call("used"), "used before"),
    (call("ended", code="ok", result="paid"), "ok: paid"),
    (call("running"), "run by Signoff itself"),
)
def test_refused_call_has_its_reason(answer: CallAnswer, words: str) -> None:
    assert words in refusal_words(answer)
