from pathlib import Path

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog
from signoff.registry.catalog_diff import catalog_diff
from signoff.registry.manifest.loader import load_manifest


def load(folder: Path, written: str = "") -> Catalog:
    path = folder / "signoff.yaml"
    path.write_text(f"version: 1\n{written}")
    return load_manifest(path)


@table(
    ("written", "by_person"),
    ("", False),
    ("insights: {}", False),
    ("insights: {by_person: false}", False),
    ("insights: {byPerson: true}", True),
)
def test_figures_of_other_people_need_the_setting(written: str, by_person: bool, tmp_path: Path) -> None:
    assert load(tmp_path, written).insights_by_person is by_person


def test_changed_setting_is_a_difference_without_another_hash(tmp_path: Path) -> None:
    before, after = load(tmp_path), load(tmp_path, "insights: {by_person: true}")
    found = catalog_diff(before, after)
    assert [(each.kind, each.name) for each in found.changes] == [("setting", "insights")]
    assert found.old == found.new


@table(
    ("written", "words"),
    ("insights: {by_persons: true}", "did you mean `by_person`?"),
    ("insights: {by_person: maybe}", "by_person"),
)
def test_wrong_setting_is_refused_with_its_line(written: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"signoff\.yaml:2") as caught:
        load(tmp_path, written)
    assert words in caught.value.message
