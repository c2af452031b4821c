"""The total of results that the settings name, in what a worker's activities share."""

from pathlib import Path

import pytest

from signoff.registry.installation import load_installation
from signoff.settings import load_settings
from signoff.store.store import Store
from signoff.worker import prepared_deps

MANIFEST = """
version: 1
actors:
  desk: {model: "scripted:chars_model:m"}
  reader: {model: "scripted:chars_model:m", result_chars: 200}
"""


@pytest.mark.row("E10")
@pytest.mark.parametrize(("setting", "total"), [(None, 80_000), ("9000", 9_000)])
async def test_a_worker_splits_the_total_that_setting_and_actor_say(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, store: Store, setting: str | None, total: int
) -> None:
    (tmp_path / "chars_model.py").write_text("from signoff.testing.scripted_model import steps\n\nm = steps([])\n")
    (tmp_path / "signoff.yaml").write_text(MANIFEST)
    if setting is not None:
        clean_env.setenv("SIGNOFF_RESULT_CHARS", setting)
    installation = load_installation(load_settings(manifest=tmp_path / "signoff.yaml", state_dir=tmp_path / "state"))
    deps = await prepared_deps(installation, store, "worker here")
    assert (deps.result_budget("desk", 3), deps.result_budget("reader", 3)) == (total // 3, 66)
