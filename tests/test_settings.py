from pathlib import Path

import pytest

from signoff.contracts.errors import ConfigError
from signoff.settings import Settings, load_settings, login_roles, require_ready


def refusal(**overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(**overrides)
    message = caught.value.message
    assert "\n" not in message
    assert not message.endswith(".")
    return message


def test_defaults_need_no_setting(clean_env: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert settings.profile == "development"
    assert settings.manifest == Path("signoff.yaml")
    assert settings.state_dir == Path(".signoff")
    assert settings.store_url == "sqlite:///.signoff/signoff.db"
    assert settings.task_queue == "signoff"
    assert (settings.host, settings.port, settings.public_url) == ("127.0.0.1", 8300, "http://127.0.0.1:8300")
    assert (settings.temporal_port, settings.ui_port, settings.retention) == (7233, 8233, 90)
    assert settings.people is None
    assert settings.temporal_binary is None
    assert settings.durable is False


def test_argument_precedes_variable_file_and_default(clean_env: pytest.MonkeyPatch) -> None:
    Path("signoff.toml").write_text("port = 1001\nui_port = 1002\ntemporal_port = 1003\n")
    clean_env.setenv("SIGNOFF_PORT", "2001")
    clean_env.setenv("SIGNOFF_UI_PORT", "2002")
    settings = load_settings(port=3001)
    assert (settings.port, settings.ui_port, settings.temporal_port, settings.retention) == (3001, 2002, 1003, 90)


def test_none_and_empty_count_as_missing(clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_PEOPLE", "")
    settings = load_settings(port=None, people=None)
    assert settings.port == 8300
    assert settings.people is None


def test_store_and_address_follow_their_parts(clean_env: pytest.MonkeyPatch) -> None:
    settings = load_settings(state_dir="/var/lib/signoff", host="0.0.0.0", port=9000)
    assert settings.store_url == "sqlite:////var/lib/signoff/signoff.db"
    assert settings.public_url == "http://127.0.0.1:9000"
    assert load_settings(host="::1").public_url == "http://[::1]:8300"
    assert load_settings(host="box.lan", port=80).public_url == "http://box.lan:80"
    assert load_settings(public_url="https://a.example/x/", port=9000).public_url == "https://a.example/x"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SIGNOFF_PORT", "web", ("the variable `SIGNOFF_PORT` is `web`", "integer")),
        ("SIGNOFF_PORT", "70000", ("the variable `SIGNOFF_PORT` is `70000`", "65535")),
        ("SIGNOFF_PROFILE", "prod", ("`SIGNOFF_PROFILE` is `prod`", "'development' or 'production'")),
        ("SIGNOFF_DURABLE", "maybe", ("`SIGNOFF_DURABLE` is `maybe`", "boolean")),
        ("SIGNOFF_PUBLIC_URL", "ftp://x", ("`SIGNOFF_PUBLIC_URL` is `ftp://x`", "https://")),
        ("SIGNOFF_RESULT_CHARS", "0", ("`SIGNOFF_RESULT_CHARS` is `0`", "greater")),
        ("SIGNOFF_RESULT_CHARS", "1048577", ("`SIGNOFF_RESULT_CHARS` is `1048577`", "1048576")),
        ("SIGNOFF_RETENTION", "0", ("`SIGNOFF_RETENTION` is `0`", "greater")),
        (
            "SIGNOFF_TENANT_LIMITS",
            "starts=10",
            ("`SIGNOFF_TENANT_LIMITS` is `starts=10`: `10` is not", "write limits as"),
        ),
        ("SIGNOFF_PROFLE", "production", ("`SIGNOFF_PROFLE` is not known", "did you mean `SIGNOFF_PROFILE`?")),
    ],
)
def test_wrong_variable_is_named(
    clean_env: pytest.MonkeyPatch, variable: str, value: str, words: tuple[str, ...]
) -> None:
    clean_env.setenv(variable, value)
    message = refusal()
    assert all(word in message for word in words), message


def test_foreign_variables_are_ignored(clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_REQUIRE_ALL", "1")
    assert load_settings().profile == "development"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"port = 'web'", ("`port` in `signoff.toml` is `web`", "integer")),
        (b"prot = 1", ("unknown key `prot`", "did you mean `port`?")),
        (b"zzz = 1", ("unknown key `zzz`", "docs/settings.md lists all settings")),
        (b"port = ", ("`signoff.toml` is not TOML", "line 1")),
        (b"store_url = '\xff'", ("`signoff.toml` is not TOML",)),
    ],
)
def test_wrong_file_is_named(clean_env: pytest.MonkeyPatch, text: bytes, words: tuple[str, ...]) -> None:
    Path("signoff.toml").write_bytes(text + b"\n" if text.endswith(b"1") else text + b"\nx = 1")
    message = refusal()
    assert all(word in message for word in words), message


def test_wrong_argument_is_named(clean_env: pytest.MonkeyPatch) -> None:
    assert refusal(prt=1) == "there is no setting `prt`: did you mean `port`?"
    assert "the setting `port` is `0`" in refusal(port=0)


def test_directory_instead_of_the_file_does_not_crash(clean_env: pytest.MonkeyPatch) -> None:
    Path("signoff.toml").mkdir()
    assert load_settings().port == 8300


def test_production_starts_only_with_all_requirements(clean_env: pytest.MonkeyPatch) -> None:
    lacking = {"people": False, "signing_keys": False, "public_keys": False, "login": False}
    require_ready(load_settings(), **lacking)
    production = load_settings(profile="production")
    require_ready(production, **dict.fromkeys(lacking, True))
    with pytest.raises(ConfigError) as caught:
        require_ready(production, **lacking)
    for word in (
        "SIGNOFF_PEOPLE",
        "signoff keys create",
        "signoff keys export",
        "signoff token create",
        "_OIDC_ISSUER",
    ):
        assert word in caught.value.message
    with pytest.raises(ConfigError, match=r"is missing: a login: [^;]*$"):
        require_ready(production, people=True, signing_keys=True, login=False)


def test_login_roles_need_a_provider() -> None:
    mapped = {"money": ("finance", "approvers"), "desk": ("approvers",), "staff": ()}
    assert login_roles(Settings(oidc_issuer="https://login.example.com", oidc_roles=mapped)) == {"finance", "approvers"}
    assert login_roles(Settings(oidc_roles=mapped)) == frozenset()
