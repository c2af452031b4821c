"""The limits of tenants that the settings name, in what a worker's activities share."""

from pathlib import Path

import pytest

from signoff.registry.installation import load_installation
from signoff.settings import load_settings
from signoff.store.store import Store
from signoff.worker import prepared_deps


@pytest.mark.parametrize(("setting", "waiting"), [(None, (None, None)), ("waiting=7; acme: waiting=9", (7, 9))])
async def test_a_worker_asks_within_the_limits_of_the_settings(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, store: Store, setting: str | None, waiting: tuple[int | None, ...]
) -> None:
    (tmp_path / "signoff.yaml").write_text("version: 1\n")
    if setting is not None:
        clean_env.setenv("SIGNOFF_TENANT_LIMITS", setting)
    installation = load_installation(load_settings(manifest=tmp_path / "signoff.yaml", state_dir=tmp_path / "state"))
    deps = await prepared_deps(installation, store, "worker here")
    assert tuple(deps.tenant_limits.of(each).waiting for each in ("main", "acme")) == waiting
