import os
from pathlib import Path

import pytest

from signoff.client.address import find_gateway, find_token
from signoff.client.dev_process import DevProcess
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import SETTING_NAMES
from signoff.settings import Settings


def leave_word(folder: Path, pid: int) -> None:
    folder.mkdir(exist_ok=True)
    running = DevProcess(
        pid=pid, address="h:1", namespace="default", task_queue="q", manifest="m.yaml", url="http://127.0.0.1:9000"
    )
    (folder / "running.json").write_text(running.model_dump_json(), encoding="utf-8")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, "http://127.0.0.1:8300"),
        ({"SIGNOFF_PORT": "8301"}, "http://127.0.0.1:8301"),
        ({"SIGNOFF_HOST": "0.0.0.0"}, "http://127.0.0.1:8300"),
        ({"SIGNOFF_PUBLIC_URL": "https://a.example/x/", "SIGNOFF_PORT": "1"}, "https://a.example/x"),
        ({"SIGNOFF_PUBLIC_URL": ""}, "http://127.0.0.1:8300"),
    ],
)
def test_settings_name_the_gateway(clean_env: pytest.MonkeyPatch, variables: dict[str, str], found: str) -> None:
    for name, value in variables.items():
        clean_env.setenv(name, value)
    assert find_gateway() == found


@pytest.mark.parametrize(
    ("variable", "meant"), [("SIGNOFF_PUBLC_URL", "SIGNOFF_PUBLIC_URL"), ("SIGNOFF_TOKN", "SIGNOFF_TOKEN")]
)
def test_misspelt_variable_is_an_error_with_a_suggestion(
    clean_env: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    clean_env.setenv("SIGNOFF_REQUIRE_ALL", "1")
    assert find_gateway() == "http://127.0.0.1:8300"
    clean_env.setenv(variable, "x")
    with pytest.raises(ConfigError, match=f"`{variable}` is not known: did you mean `{meant}`"):
        find_gateway("http://127.0.0.1:9000")


def test_every_setting_is_known_without_loading_settings() -> None:
    assert set(SETTING_NAMES) == set(Settings.model_fields)
    assert len(SETTING_NAMES) == len(Settings.model_fields)


def test_settings_file_counts_below_variables(clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "signoff.toml").write_text('public_url = "https://a.example"\n', encoding="utf-8")
    assert find_gateway() == "https://a.example"
    clean_env.setenv("SIGNOFF_PUBLIC_URL", "https://b.example")
    assert find_gateway() == "https://b.example"
    (tmp_path / "signoff.toml").write_text("public_url", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"`signoff\.toml` cannot be read"):
        find_gateway()


def test_running_dev_process_of_the_directory_is_found(clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_word(tmp_path / ".signoff", os.getpid())
    assert find_gateway() == "http://127.0.0.1:9000"
    clean_env.setenv("SIGNOFF_PORT", "8301")
    assert find_gateway() == "http://127.0.0.1:8301"
    clean_env.delenv("SIGNOFF_PORT")
    leave_word(tmp_path / ".signoff", 2**22 + 1)
    assert find_gateway() == "http://127.0.0.1:8300"


def test_file_in_a_directory_cannot_choose_the_gateway_of_a_token(
    clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leave_word(tmp_path / ".signoff", os.getpid())
    assert find_gateway(token="sgf_x") == "http://127.0.0.1:8300"
    settings = tmp_path / "signoff.toml"
    settings.write_text('public_url = "https://approvals.example.com"', encoding="utf-8")
    with pytest.raises(ConfigError, match="a file in a directory must not choose where a token is sent") as refused:
        find_gateway(token="sgf_x")
    assert "sgf_x" not in refused.value.message
    assert find_gateway() == "https://approvals.example.com"
    clean_env.setenv("SIGNOFF_PUBLIC_URL", "https://approvals.example.com")
    assert find_gateway(token="sgf_x") == "https://approvals.example.com"
    clean_env.delenv("SIGNOFF_PUBLIC_URL")
    settings.write_text('public_url = "http://localhost:8400"', encoding="utf-8")
    assert find_gateway(token="sgf_x") == "http://localhost:8400"


def test_token_is_sent_over_https_or_to_localhost_only(clean_env: pytest.MonkeyPatch) -> None:
    assert find_gateway("http://localhost:8300", token="sgf_x") == "http://localhost:8300"
    with pytest.raises(ConfigError, match="is not https") as refused:
        find_gateway("http://approvals.example.com", token="sgf_x")
    assert "sgf_x" not in refused.value.message


@pytest.mark.parametrize("url", ["approvals", "ftp://a.example", "http://a.example:many", "http://"])
def test_invalid_gateway_address_is_refused(clean_env: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(ConfigError, match=r"looks like https://"):
        find_gateway(url)


def test_token_is_read_from_the_environment(clean_env: pytest.MonkeyPatch) -> None:
    assert find_token() == ""
    clean_env.setenv("SIGNOFF_TOKEN", " sgf_a\n")
    assert (find_token(), find_token("sgf_b"), find_token("")) == ("sgf_a", "sgf_b", "")
    with pytest.raises(ConfigError, match="does not hold a valid token") as refused:
        find_token("sgf_é")
    assert "é" not in refused.value.message
