from pathlib import Path

import pytest
from served_stack import MANIFEST
from tables import table

from signoff.activities.models import drivers
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.completion import Driver
from signoff.registry.installation import load_installation
from signoff.settings import load_settings
from signoff.store.store import Store
from signoff.worker import prepared_deps

ACTORS = """
version: 1
actors:
  desk: {model: "scripted:chars_model:m"}
  reader: {model: "scripted:chars_model:m", result_chars: 200}
"""


async def prepared(store: Store, manifest: Path, folder: Path) -> WorkerDeps:
    installation = load_installation(load_settings(manifest=manifest, state_dir=folder / "state"))
    return await prepared_deps(installation, store, "worker here")


@pytest.mark.row("E10")
@table(("setting", "total"), (None, 80_000), ("9000", 9_000))
async def test_worker_divides_the_total_of_setting_and_actor(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, store: Store, setting: str | None, total: int
) -> None:
    (tmp_path / "chars_model.py").write_text("from signoff.testing.scripted_model import steps\n\nm = steps([])\n")
    (tmp_path / "signoff.yaml").write_text(ACTORS)
    if setting is not None:
        clean_env.setenv("SIGNOFF_RESULT_CHARS", setting)
    deps = await prepared(store, tmp_path / "signoff.yaml", tmp_path)
    assert (deps.result_budget("desk", 3), deps.result_budget("reader", 3)) == (total // 3, 66)


@table(("setting", "waiting"), (None, (None, None)), ("waiting=7; acme: waiting=9", (7, 9)))
async def test_worker_respects_the_limits_of_the_settings(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, store: Store, setting: str | None, waiting: tuple[int | None, ...]
) -> None:
    (tmp_path / "signoff.yaml").write_text("version: 1\n")
    if setting is not None:
        clean_env.setenv("SIGNOFF_TENANT_LIMITS", setting)
    deps = await prepared(store, tmp_path / "signoff.yaml", tmp_path)
    assert tuple(deps.tenant_limits.of(each).waiting for each in ("main", "acme")) == waiting


async def test_start_of_a_worker_builds_each_driver_once(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, store: Store
) -> None:
    built: list[str] = []
    build = drivers.build_driver

    def counted(model: str) -> Driver:
        built.append(model)
        return build(model)

    clean_env.setattr(drivers, "build_driver", counted)
    clean_env.syspath_prepend(str(MANIFEST.parent))
    deps = await prepared(store, MANIFEST, tmp_path)
    assert built == list(deps.drivers) == ["scripted:cli_project_tools:model"]
