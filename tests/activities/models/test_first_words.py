from pathlib import Path

import pytest
from tables import table

import signoff
from signoff.activities.models.first_words import ask_command
from signoff.cli.local.init import MANIFEST
from signoff.contracts.names import OFFLINE_MODEL
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


def command_of(**policies: dict[str, str]) -> str:
    app = signoff.App(model=OFFLINE_MODEL)
    for name, policy in policies.items():

        @app.tool(name=name, requires_approval=policy)
        def pay(customer: str, amount: float) -> str:
            """Pay an amount."""
            return "paid"

    app.actor("clerk")
    return ask_command(app.build())


@table(
    ("rule", "amount"),
    ("args.amount <= 10.0", "50"),
    ("args.amount <= 100.0", "500"),
    ("args.amount > 10.0", "1"),
    ("args.amount < 10000.0", "50"),
)
def test_suggested_call_needs_approval_if_one_does(rule: str, amount: str) -> None:
    assert command_of(refund={"auto_approve_if": rule}) == f"signoff ask 'refund ana {amount}'"


def test_suggested_tool_needs_approval_if_one_does() -> None:
    free, denied = {"auto_approve_if": "args.amount > 0.0"}, {"deny_if": "args.amount > 0.0"}
    assert command_of(a=free, b=denied, c={"deny_if": "args.amount < 60.0"}) == "signoff ask 'c ana 500'"
