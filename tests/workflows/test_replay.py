"""Turns of every version must go on: recorded histories replay, a broken workflow does not, and the module is light."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_turn import Hesitant
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from turn_fixtures import catalog_of

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.people.directory import development_directory
from signoff.store.store import Store
from signoff.temporal.converter import DATA_CONVERTER
from signoff.worker import PASSED_THROUGH, SignoffPlugin

FOLDER = Path(__file__).parent.parent / "histories"
RECORDED = sorted(FOLDER.glob("*/*.json"))
SCENARIOS = {
    "waiting", "approved_by_update", "approved_by_signal", "denied", "timed_out", "cancelled", "auto", "asked_again",
    "lapsed", "in_doubt", "parallel", "happened", "ran_again", "edited", "escalated", "repeated", "session",
    "turn_in_session", "returned_directly", "in_line", "aborted", "stood_in", "overridden", "updated", "notified",
}  # fmt: skip
_PLACE = re.compile("/(?:home|root|Users|work)/|site-packages")
HEAVY = ("jsonschema", "yaml", "celpy", "cel_expr_python", "sqlalchemy", "httpx2", "fastapi", "pydantic_ai")


def _history(path: Path) -> WorkflowHistory:
    recorded = json.loads(path.read_text())
    return WorkflowHistory.from_json(
        recorded["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"], recorded
    )


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_turn_replays(path: Path, store: Store) -> None:
    """What a turn did once it does again, as the workers run it."""
    deps = WorkerDeps(
        catalog=catalog_of([]), store=store, people=development_directory(), drivers={}, mark_key=b"replay" * 8
    )
    replayer = Replayer(workflows=[], plugins=[SignoffPlugin(deps)])
    result = await replayer.replay_workflow(_history(path), raise_on_replay_failure=False)
    assert result.replay_failure is None


def test_every_engine_number_has_every_scenario_recorded() -> None:
    """Nobody raises the engine number without recording what it does."""
    recorded = {(path.parent.name, path.stem) for path in RECORDED}
    for engine in range(1, names.ENGINE + 1):
        assert {name for folder, name in recorded if folder == str(engine)} >= SCENARIOS


@pytest.mark.parametrize("name", ["waiting", "auto"])
async def test_a_broken_workflow_fails_replay(name: str) -> None:
    """The replay tests above can fail: one command more at the start is noticed in every history."""
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH, "broken_turn")
    )
    replayer = Replayer(workflows=[Hesitant], workflow_runner=runner, data_converter=DATA_CONVERTER)
    history = _history(FOLDER / "1" / f"{name}.json")
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    assert result.replay_failure is not None
    assert "Nondeterminism" in str(result.replay_failure)


def test_recorded_histories_name_no_machine() -> None:
    """No path of a machine and no identity of its owner lies in a recorded history, encoded payloads included."""
    for path in RECORDED:
        recorded = json.loads(path.read_text())
        texts = list(_texts(recorded))
        assert not [text for text in texts if _PLACE.search(text)], path
        # The server itself sends what one workflow tells another.
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


def test_the_workflow_module_is_light() -> None:
    """One careless import there costs every suspended turn megabytes."""
    code = "import sys, signoff.workflows.actor_turn; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "signoff.workflows.actor_turn" in loaded
    assert [name for name in HEAVY if name in loaded] == []
