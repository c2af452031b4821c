from pathlib import Path

import pytest
from served_stack import MANIFEST

from signoff.activities.models import drivers
from signoff.contracts.completion import Driver
from signoff.registry.installation import load_installation
from signoff.settings import load_settings
from signoff.store.store import Store
from signoff.worker import prepared_deps


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
    installation = load_installation(load_settings(manifest=MANIFEST, state_dir=tmp_path / "state"))
    deps = await prepared_deps(installation, store, "worker here")
    assert built == list(deps.drivers) == ["scripted:cli_project_tools:model"]
