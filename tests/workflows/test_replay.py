import base64
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import temporalio.workflow
from broken_turn import Hesitant
from histories.record import SCENARIOS
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from turn_fixtures import catalog_of

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.turn import LiveState
from signoff.people.directory import development_directory
from signoff.store.store import Store
from signoff.temporal.converter import DATA_CONVERTER
from signoff.worker import PASSED_THROUGH, SignoffPlugin

FOLDER = Path(__file__).parent.parent / "histories"
RECORDED = sorted(FOLDER.glob("*/*.json"))
CLOSED = {
    "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED": "complete",
    "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED": "failed",
    "EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED": "cancelled",
    "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW": "continued",
}
"""The end states of workflows."""
CALLS = {"proposed", "permitted", "used", "reported", "unreported", "withdrawn", "lapsed"}
"""The states of an external call."""
_PLACE = re.compile("/(?:home|root|Users|work)/|site-packages")
HEAVY = ("jsonschema", "yaml", "celpy", "cel_expr_python", "sqlalchemy", "httpx2", "fastapi", "pydantic_ai")


def _history(path: Path) -> WorkflowHistory:
    recorded = json.loads(path.read_text())
    return WorkflowHistory.from_json(
        recorded["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"], recorded
    )


def _plugin(store: Store) -> SignoffPlugin:
    deps = WorkerDeps(
        catalog=catalog_of([]), store=store, people=development_directory(), drivers={}, mark_key=b"replay" * 8
    )
    return SignoffPlugin(deps)


def _store_id(path: Path) -> str:
    given = _started(json.loads(path.read_text())["events"]).get("input")
    asker = next(map(_decoded, _fields(given, "data")), {}).get("principal") or {}
    return str(asker.get("store_id", ""))


def _started(events: list[dict[str, Any]]) -> dict[str, Any]:
    started: dict[str, Any] = events[0]["workflowExecutionStartedEventAttributes"]
    return started


def _state(events: list[dict[str, Any]]) -> str:
    last = events[-1]
    results = list(_fields(last.get("workflowExecutionCompletedEventAttributes", {}), "data"))
    if results and isinstance(_decoded(results[0]), dict):
        return str(_decoded(results[0])["state"])
    if last["eventType"] in CLOSED:
        return CLOSED[last["eventType"]]
    upserts = [each.get("upsertWorkflowSearchAttributesEventAttributes", {}) for each in events]
    shown = [each for upsert in upserts for each in _fields(upsert, names.SA_STATE)]
    return "suspended" if shown and _decoded(shown[-1].get("data")) == "suspended" else "running"


def _decoded(data: str | None) -> Any:
    return json.loads(base64.b64decode(data)) if data else None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_recorded_history_replays(path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "id", _store_id(path) or store.id)
    replayer = Replayer(workflows=[], plugins=[_plugin(store)])
    result = await replayer.replay_workflow(_history(path), raise_on_replay_failure=False)
    assert result.replay_failure is None


def test_every_engine_version_has_every_scenario_recorded() -> None:
    recorded = {(path.parent.name, path.stem) for path in RECORDED}
    for engine in range(1, names.ENGINE + 1):
        assert {name for folder, name in recorded if folder == str(engine)} >= {*SCENARIOS}


def test_every_workflow_is_recorded_in_each_state(store: Store) -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in RECORDED:
        events = json.loads(path.read_text())["events"]
        found[_started(events)["workflowType"]["name"]].add(_state(events))
    run_by_workers = {temporalio.workflow._Definition.must_from_class(each).name for each in _plugin(store).workflows}
    assert found.keys() == run_by_workers
    assert found[names.ACTOR_TURN] == {*get_args(LiveState)}
    assert found[names.SESSION] == {"running", "continued", "cancelled"}
    assert found[names.HANDLER_RUN] == {"running", "complete", "failed"}


def test_external_calls_and_server_tasks_are_recorded_in_each_state() -> None:
    recorded = {path.stem for path in RECORDED}
    assert {f"call_{state}" for state in CALLS} <= recorded
    assert {f"task_{state}" for state in ("running", "complete", "failed", "cancelled", "lost")} <= recorded


@pytest.mark.parametrize("name", ["waiting", "auto"])
async def test_broken_workflow_fails_replay(name: str) -> None:
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH, "broken_turn")
    )
    replayer = Replayer(workflows=[Hesitant], workflow_runner=runner, data_converter=DATA_CONVERTER)
    history = _history(FOLDER / "1" / f"{name}.json")
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    assert result.replay_failure is not None
    assert "Nondeterminism" in str(result.replay_failure)


def test_recorded_histories_name_no_machine() -> None:
    for path in RECORDED:
        recorded = json.loads(path.read_text())
        texts = list(_texts(recorded))
        assert not [text for text in texts if _PLACE.search(text)], path
        # The server itself sends signals between workflows.
        assert set(_fields(recorded, "identity")) <= {"recorder", "history-service"}, path


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("data"), str):
            yield base64.b64decode(value["data"]).decode(errors="replace")
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _fields(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (each for key, each in value.items() if key == name)
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _fields(each, name)


def test_workflow_module_imports_no_heavy_package() -> None:
    code = "import sys, signoff.workflows.actor_turn; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "signoff.workflows.actor_turn" in loaded
    assert [name for name in HEAVY if name in loaded] == []
