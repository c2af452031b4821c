import sys
import textwrap
from pathlib import Path

import pytest
from gateway_fixtures import agent, gateway
from plugin_code import Install, code

from signoff.plugins.loader import GROUP

__all__ = ["agent", "gateway"]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.syspath_prepend(tmp_path)

    def installed(owner: str, text: str | None = None, *, name: str = "beeper", lines: str = "") -> str:
        module = f"{owner.replace('-', '_')}_code"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code() if text is None else text), encoding="utf-8")
        monkeypatch.delitem(sys.modules, module, raising=False)
        metadata = tmp_path / f"{owner.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {module}:Made\n{lines}")
        return f"{owner}:{name}"

    return installed
