"""Compiles the languages into a wheel; hatchling runs it. An editable install compiles them when they are needed."""

from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledLanguages(BuildHookInterface[BuilderConfig]):
    """Puts a `.mo` in the place of each `.po`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = TemporaryDirectory()
        if version == "editable":
            return
        folder = Path(self.root, "src/signoff/languages")
        # Signoff itself cannot be imported here: what it needs is not installed where it is built.
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
