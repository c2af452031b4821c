"""Finds the gateway's address and token for a program."""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from signoff.client.environment import refuse_misspelt_variables
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    DEFAULT_STATE_DIR,
    ENV_PREFIX,
    SETTINGS_FILE,
    TOKEN_VARIABLE,
)
from signoff.formats.web_address import address_of, is_loopback, web_address


def find_token(token: str | None = None) -> str:
    """Return `token`, or else SIGNOFF_TOKEN; "" for none. Raises `ConfigError` for an invalid token."""
    secret = (os.environ.get(TOKEN_VARIABLE, "") if token is None else token).strip()
    # Refuse it here: the HTTP library's error about a header would repeat the token.
    if not secret.isascii() or not secret.isprintable():
        raise ConfigError(
            f"{TOKEN_VARIABLE} does not hold a valid token; make one with `signoff token create`", field=TOKEN_VARIABLE
        )
    return secret


def find_gateway(url: str | None = None, *, token: str = "") -> str:
    """Return the gateway's address: `url`, or else the settings, or else the `signoff dev` in this directory.

    The settings are `SIGNOFF_PUBLIC_URL`, `SIGNOFF_HOST` and `SIGNOFF_PORT`, or their entries in `signoff.toml`. Raises
    `ConfigError` for a misspelt variable, an invalid address, an address on which the network could read `token`, and
    another machine that only `signoff.toml` names for a `token`.
    """
    refuse_misspelt_variables()
    address = _read_given(url) or _of_settings(token)
    if token and not address.startswith("https:") and not is_loopback(address):
        message = f"`{address}` is not https, so the network could read the token in {TOKEN_VARIABLE}"
        raise ConfigError(message, field="url")
    return address


def meant_installation(url: str | None = None, *, token: str = "") -> str:
    """Return "" if an address or a token names the gateway."""
    named = any(os.environ.get(ENV_PREFIX + name) for name in ("PUBLIC_URL", "HOST", "PORT"))
    if url or token or named or _setting("public_url", _settings_file()):
        return ""
    return installation_name(find_state_dir())


def installation_name(state_dir: Path) -> str:
    """The name does not reveal the path."""
    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:32]


def find_state_dir() -> Path:
    """Raise `ConfigError` for unreadable settings."""
    return Path(_setting("state_dir", _settings_file()) or DEFAULT_STATE_DIR)


def _read_given(url: str | None) -> str:
    try:
        return web_address(url) if url else ""
    except ValueError as error:
        raise ConfigError(f"the gateway's address is `{url}`: {error}", field="url") from None


def _of_settings(token: str) -> str:
    file = _settings_file()
    if public := _setting("public_url", file):
        address = _read_given(public)
        # Not with a token: otherwise the author of a directory could receive the token of anyone who works in it.
        if token and not os.environ.get(f"{ENV_PREFIX}PUBLIC_URL") and not is_loopback(address):
            message = (
                f"`{SETTINGS_FILE}` names `{address}`, but a file in a directory must not choose where a token is sent"
            )
            raise ConfigError(f"{message}: set {ENV_PREFIX}PUBLIC_URL, or give the address", file=SETTINGS_FILE)
        return address
    host, port = _setting("host", file), _setting("port", file)
    if not (host or port or token):
        # Not with a token: a file in another person's directory must not receive it. Imported here: `signoff hook` runs
        # before each call of a coding agent, and these models load slowest.
        from signoff.client.dev_process import read_running  # noqa: PLC0415

        running = read_running(find_state_dir())
        if running is not None:
            return _read_given(running.url)
    return _read_given(address_of(host or DEFAULT_HOST, port or DEFAULT_PORT))


def _setting(name: str, file: Mapping[str, Any]) -> str:
    # Compose files and CI pass unset variables as empty ones. Treat those as unset.
    return os.environ.get(ENV_PREFIX + name.upper(), "") or str(file.get(name, ""))


def _settings_file() -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(SETTINGS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"`{SETTINGS_FILE}` cannot be read: {error}", file=SETTINGS_FILE) from None
