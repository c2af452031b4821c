"""The command that an empty inbox and `signoff dev` suggest."""

from pathlib import Path

import pytest

from signoff.activities.models.first_words import ask_command
from signoff.cli.local.init import MANIFEST
from signoff.registry.manifest.loader import load_manifest

EXTERNAL = """
version: 1
actors:
  coder: {external: {acts_for: ["user:guest"]}}
tools:
  refund:
    description: Pay back
    scope: generalist
    runs: external
    input_schema: {type: object}
    requires_approval: true
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in MANIFEST.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_suggested_command_is_an_example_of_the_script(project: Path) -> None:
    assert ask_command(load_manifest(project / "signoff.yaml")) == "signoff ask 'give Ana 50 % off'"


def test_suggested_command_for_a_real_model_names_a_tool_with_approval(project: Path) -> None:
    catalog = load_manifest(project / "signoff.yaml")
    assert ask_command(catalog, "openai:gpt-5") == "signoff ask give_discount"


def test_catalog_of_external_actors_suggests_no_command(tmp_path: Path) -> None:
    (tmp_path / "signoff.yaml").write_text(EXTERNAL, encoding="utf-8")
    assert ask_command(load_manifest(tmp_path / "signoff.yaml")) == ""
