from datetime import UTC, datetime
from typing import Any, get_args

from a2a.types.a2a_pb2 import Task
from google.protobuf.json_format import ParseDict
from tables import table

from signoff.contracts.call import CallOutcome, DenialSource, ToolDenied
from signoff.contracts.person import Principal
from signoff.contracts.turn import LiveState, TurnError, TurnResult, TurnView
from signoff.formats.replace import replace
from signoff.plugins.a2a.agent_card import PART, TOOLS
from signoff.plugins.a2a.task_view import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    REJECTED,
    STATES,
    TERMINAL,
    WORKING,
    PeerTask,
    is_told,
    task_of,
    time_text,
)

AT = datetime(2026, 11, 26, 9, 30, 0, 120_000, tzinfo=UTC)
BASE = PeerTask(id="main.peer-a.b", context="peer-a")
URL = "https://signoff.example.com"
WITHHELD = frozenset(("chart", "llm-context"))


def ended(state: Any, *outcomes: CallOutcome, error: TurnError | None = None) -> TurnView:
    result = TurnResult(state=state, calls=outcomes, error=error)
    return TurnView(
        tenant="main",
        session="peer-a",
        turn="b",
        actor="desk",
        state=state,
        requester=Principal(user="partner"),
        result=result,
        started_at=AT,
    )


def outcome(code: Any, source: Any = None, tool: str = "pay") -> CallOutcome:
    denied = None if source is None else ToolDenied(source=source, tool=tool, call_id="c1.1", reason="no")
    return CallOutcome(call="c1.1", tool=tool, code=code, denied=denied)


def seen(view: TurnView) -> PeerTask:
    """A2A's own parser accepts it."""
    task = task_of(BASE, view, {"pay"}, URL, AT)
    ParseDict(task.as_json((), WITHHELD), Task())
    return task


def test_every_turn_state_has_a_task_state() -> None:
    """A waiting approval is `AUTH_REQUIRED` and never `INPUT_REQUIRED`, which a client's agent would answer."""
    assert set(get_args(LiveState)) <= set(STATES)
    assert STATES["suspended"] == AUTH_REQUIRED
    assert "TASK_STATE_INPUT_REQUIRED" not in STATES.values()
    assert TERMINAL.isdisjoint(INTERRUPTED)


@table(
    ("state", "wanted"),
    ("complete", COMPLETED),
    ("clarifying", COMPLETED),
    ("awaiting", WORKING),
    ("delegated", WORKING),
    ("passed", WORKING),
    ("cancelled", CANCELED),
)
def test_ended_turn_gives_its_task_state(state: Any, wanted: str) -> None:
    task = seen(ended(state))
    assert (task.state, task.turn_state, task.at) == (wanted, state, AT)
    assert task.is_over is (wanted != WORKING)


def test_task_shows_the_turns_error() -> None:
    failed = seen(ended("error", error=TurnError(code="time_limit", message="more than 60 s of work")))
    assert (failed.state, failed.words) == (FAILED, "more than 60 s of work")
    denied = seen(ended("error", error=TurnError(code="denial_limit", message="3 calls in a row were denied")))
    assert (denied.state, denied.words) == (REJECTED, "3 calls in a row were denied")


@table("source", *get_args(DenialSource))
def test_denial_from_any_source_rejects_the_task(source: str) -> None:
    task = seen(ended("complete", outcome("denied", source)))
    assert (task.state, task.words) == (REJECTED, f"Denied ({source}): no")
    (call,) = task.as_json((), WITHHELD)["metadata"][TOOLS]["calls"]
    assert call == {"tool": "pay", "type": "ToolDenied", "code": "denied", "source": source, "reason": "no"}


def test_partly_denied_turn_is_complete() -> None:
    task = seen(ended("complete", outcome("ok"), outcome("denied", "human")))
    assert task.state == COMPLETED
    assert [each["code"] for each in task.calls] == ["ok", "denied"]


def test_calls_of_unexposed_tools_are_hidden() -> None:
    task = seen(ended("complete", outcome("not_available", tool="hidden")))
    assert (task.state, task.calls) == (COMPLETED, ())


def test_running_turn_is_a_working_task() -> None:
    view = replace(ended("complete"), state="running", result=None)
    task = seen(view)
    assert (task.state, task.words, task.turn_state, task.calls) == (WORKING, "", "", ())


def test_artifact_has_only_the_parts_that_the_peer_accepts() -> None:
    parts = (("response", "Done."), ("chart", {"a": 1}), ("llm-context", "inside"))
    task = PeerTask(id="x", context="y", state=COMPLETED, parts=parts)
    plain = task.as_json((), WITHHELD)
    assert [each["metadata"]["type"] for each in plain["artifacts"][0]["parts"]] == ["response"]
    assert "extensions" not in plain["artifacts"][0]
    whole = task.as_json(("chart",), WITHHELD)
    assert whole["artifacts"][0]["parts"][1] == {
        "data": {"a": 1},
        "mediaType": "application/json",
        "metadata": {"type": "chart"},
    }
    assert whole["artifacts"][0]["extensions"] == [PART + "chart"]
    assert "artifacts" not in task.as_json((), WITHHELD, artifacts=False)
    assert PeerTask(id="x", context="y", parts=parts[1:]).artifact((), WITHHELD) is None
    ParseDict(whole, Task())


def test_empty_text_adds_no_part_to_the_artifact() -> None:
    parts = (("response", ""), ("domain-data", {"a": 1}))
    artifact = PeerTask(id="x", context="y", state=COMPLETED, parts=parts).artifact((), WITHHELD)
    assert artifact is not None
    assert [each.get("data") for each in artifact["parts"]] == [{"a": 1}]
    assert PeerTask(id="x", context="y", state=COMPLETED, parts=parts[:1]).artifact((), WITHHELD) is None


def test_approval_parts_are_never_sent_to_peers() -> None:
    assert [is_told(kind) for kind in ("response", "approval-request", "approval-response")] == [True, False, False]


def test_times_are_utc_with_milliseconds() -> None:
    """Section 5.6.1 of the specification."""
    assert time_text(AT) == "2026-11-26T09:30:00.120Z"
