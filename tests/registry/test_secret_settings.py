from pathlib import Path
from typing import Any

import pytest
from registry_kit import an_actor
from tables import table

from signoff.activities.models.drivers import build_drivers
from signoff.activities.models.model_settings import model_settings
from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider
from signoff.registry.catalog import build_catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_text

KEY = "sk-very-secret"


@table(
    ("settings", "name"),
    ({"api_key": KEY}, "api_key"),
    ({"apiKey": KEY}, "apiKey"),
    ({"API-KEY": KEY}, "API-KEY"),
    ({"access_token": KEY}, "access_token"),
    ({"password": 123456}, "password"),
    ({"extra_headers": {"Authorization": f"Bearer {KEY}"}}, "extra_headers.Authorization"),
    ({"extra_body": {"auth": [{"client_secret": KEY}]}}, "extra_body.auth.client_secret"),
    ({"credentials": {"user": KEY}}, "credentials.user"),
    ({"api_key": "env:"}, "api_key"),
    ({"api_key": "env:A KEY"}, "api_key"),
    ({"api_key": f"prefix env:{KEY}"}, "api_key"),
    ({"api_key": f"user:{KEY}"}, "api_key"),
    ({"api_key": "vault:ours"}, "api_key"),
    ({"password": "file:"}, "password"),
    ({"password": "secret: x"}, "password"),
)
def test_literal_secret_is_refused_without_repeating_it(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_catalog(actors=[an_actor(model_settings=settings)])
    error = caught.value
    assert f"`model_settings.{name}`; write `env:NAME`, `file:PATH` or `secret:NAME` there" in error.message
    assert KEY not in f"{error.message} {error.context}"


@table(
    "settings",
    {"max_tokens": 100, "temperature": 0.5, "stop_sequences": ["secret"]},
    {"api_key": "env:OUR_KEY", "extra_headers": {"Authorization": "env:OUR_HEADER", "X-Kind": "plain"}},
    {"api_key": "secret:models/openai", "password": "file:/run/secrets/openai"},
    {"extra_body": {"eos_token": 2, "password": None, "token": ""}},
)
def test_references_and_ordinary_settings_are_accepted(settings: dict[str, Any]) -> None:
    catalog = build_catalog(actors=[an_actor(model_settings=settings)])
    assert catalog.actor("desk").model_settings == settings


def test_literal_secret_in_the_manifest_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "signoff.yaml"
    path.write_text(f"version: 1\nactors:\n  a:\n    model: m\n    modelSettings:\n      api_key: {KEY}\n")
    with pytest.raises(ConfigError, match=r"signoff\.yaml:6: actor `a` has a secret") as caught:
        load_manifest(path)
    assert KEY not in caught.value.message


async def test_secret_value_is_read_only_on_use(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"extra_headers": {"Authorization": "env:OUR_HEADER", "X-Kind": "env:OUR_HEADER"}, "seed": 7}
    monkeypatch.setenv("OUR_HEADER", KEY)
    catalog = build_catalog(actors=[an_actor(model_settings=settings)])
    assert await model_settings(catalog.actor("desk"), SecretProvider()) == {
        "extra_headers": {"Authorization": KEY, "X-Kind": "env:OUR_HEADER"},
        "seed": 7,
    }
    assert KEY not in normal_text(catalog)
    assert "env:OUR_HEADER" in normal_text(catalog)
    monkeypatch.setenv("OUR_HEADER", "another")
    assert build_catalog(actors=[an_actor(model_settings=settings)]).hash == catalog.hash


async def test_unset_secret_variable_is_an_error_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUR_KEY", raising=False)
    catalog = build_catalog(actors=[an_actor(model_settings={"api_key": "env:OUR_KEY"})])
    with pytest.raises(ConfigError, match="actor `desk` need the environment variable `OUR_KEY`, which is not set"):
        await build_drivers(catalog, SecretProvider())
