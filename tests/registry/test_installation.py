from pathlib import Path

import pytest

from signoff.people.directory import FixedDirectory
from signoff.registry.installation import load_installation
from signoff.settings import load_settings


class FilledLater(FixedDirectory):
    """A directory with a length, still empty."""

    def __len__(self) -> int:
        return 0


def test_empty_directory_object_is_still_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_env: pytest.MonkeyPatch
) -> None:
    # A custom directory is never replaced by other people, not even by the built-in ones. When its truth value
    # was tested instead of `None`, the manifest's people replaced it.
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text("version: 1\nactors: {clerk: {model: 'scripted:nowhere:model'}}\n")
    own = FilledLater(())
    assert load_installation(load_settings(manifest=Path("m.yaml")), own).people is own
    assert load_installation(load_settings(manifest=Path("m.yaml"))).people.find("approver") is not None
