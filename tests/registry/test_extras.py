import sys
from pathlib import Path

import pytest
from pydantic_ai.providers import infer_provider_class
from tables import table

from signoff.activities.models.drivers import build_driver
from signoff.channels.channel_loader import known_kinds
from signoff.contracts.errors import ConfigError, ModelNotSetUp
from signoff.plugins.loader import Plugins
from signoff.registry.actor import Actor
from signoff.registry.catalog import build_catalog
from signoff.registry.extras import CHANNEL_EXTRAS, EXTRAS, PROVIDERS, extra_of_model, missing_extra
from signoff.registry.manifest.channel_sections import DeclaredChannel


def without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)


@table(("kind", "extra"), ("email", "mail"), ("slack", "slack"), ("apprise", "apprise"))
def test_channel_without_its_extra_is_refused_with_the_install_command(
    kind: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = [DeclaredChannel("post", kind)]
    build_catalog(channels=declared)
    for module in EXTRAS[extra]:
        with monkeypatch.context() as patch:
            without(patch, module)
            with pytest.raises(ConfigError) as caught:
                build_catalog(channels=declared)
            sentence = f"channel `post` is of kind `{kind}`, which needs an extra of Signoff: "
            assert caught.value.message == sentence + f"pip install 'signoff[{extra}]'"
            build_catalog(channels=[DeclaredChannel("hook", "webhook")])


@table(
    ("model", "kind"),
    ("openai:gpt-5", ModelNotSetUp),
    ("ollama:qwen3", ModelNotSetUp),
    ("opnai:gpt-5", ConfigError),
    ("openai:", ConfigError),
    ("gpt-5", ConfigError),
)
def test_model_without_its_extra_is_refused_with_the_install_command(
    model: str, kind: type[ConfigError], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "pydantic_ai")
    build_catalog(actors=[Actor(name="desk", description="", instructions="", model=model)])
    with pytest.raises(ConfigError) as caught:
        build_driver(model)
    assert caught.value.message == f"the model `{model}` needs an extra of Signoff: pip install 'signoff[openai]'"
    assert type(caught.value) is kind


@table("provider", *sorted(PROVIDERS))
def test_listed_provider_exists_in_the_library(provider: str) -> None:
    try:
        found = infer_provider_class(provider).__name__
    except ImportError as error:
        # It needs a vendor package that the tests do not install.
        found = str(error)
    assert "rovider" in found


@table(
    ("model", "extra"),
    ("openai:gpt-5", "openai"),
    ("openai-responses:gpt-5", "openai"),
    ("anthropic:claude", "anthropic"),
    ("google-gla:gemini", "google"),
    ("bedrock:nova", "bedrock"),
    ("ollama:qwen", "openai"),
    ("scripted:module:model", ""),
    ("offline", ""),
)
def test_model_needs_the_extra_of_its_provider(model: str, extra: str) -> None:
    assert extra_of_model(model) == extra


@table("extra", "mail", "slack", "apprise", "oidc", "mcp", "openai")
def test_test_environment_has_every_extra(extra: str) -> None:
    """Otherwise the tests of missing extras would prove nothing."""
    assert missing_extra(extra) == ""


def test_missing_top_level_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "google")
    monkeypatch.delitem(sys.modules, "google.genai", raising=False)
    assert missing_extra("google") == "needs an extra of Signoff: pip install 'signoff[google]'"


def test_every_extra_is_declared_by_the_distribution() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert [extra for extra in EXTRAS if f"\n{extra} = [" not in project] == []
    assert set(CHANNEL_EXTRAS) <= set(known_kinds(Plugins()))
