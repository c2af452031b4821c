"""Hatchling's build hook: compiles the translations into the wheel. An editable install compiles them on first use."""

from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledLanguages(BuildHookInterface[BuilderConfig]):
    """Packs each `.po` file compiled, as `.mo`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = TemporaryDirectory()
        if version == "editable":
            return
        folder = Path(self.root, "src/signoff/languages")
        # Run the file alone: the build environment lacks the dependencies that importing `signoff` needs.
        po = run_path(str(folder / "po.py"))
        for file in sorted(folder.glob("*.po")):
            compiled = Path(self._folder.name, f"{file.stem}.mo")
            try:
                compiled.write_bytes(po["compile_po"](file.read_text(encoding="utf-8"), file.name))
            except po["PoError"] as error:
                self.app.abort(str(error))
            build_data["force_include"][str(compiled)] = f"signoff/languages/{compiled.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()
