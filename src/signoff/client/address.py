"""Where the gateway is that a program here means, and with which token it speaks to it."""

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
    """Finds the personal token to send: `token`, else that of SIGNOFF_TOKEN; "" for none.

    Raises `ConfigError` for what can be no token.
    """
    found = (os.environ.get(TOKEN_VARIABLE, "") if token is None else token).strip()
    # Refused here: the HTTP library's error about a header repeats what stands in it.
    if not found.isascii() or not found.isprintable():
        raise ConfigError(
            f"what {TOKEN_VARIABLE} holds is no token; make one with `signoff token create`", field=TOKEN_VARIABLE
        )
    return found


def find_gateway(url: str | None = None, *, token: str = "") -> str:
    """Finds the address of the gateway: `url`, else that of the settings, else of the `signoff dev` that runs here.

    Settings are `SIGNOFF_PUBLIC_URL`, `SIGNOFF_HOST` and `SIGNOFF_PORT`, or the same in `signoff.toml`. Raises
    `ConfigError` for a misspelt variable, for what is no address, for one at which `token` could be read on the
    way, and for another machine's that `signoff.toml` alone names for a `token`.
    """
    refuse_misspelt_variables()
    found = _read_given(url) or _of_settings(token)
    if token and not found.startswith("https:") and not is_loopback(found):
        message = f"`{found}` is not https: anybody on the way could read the token in {TOKEN_VARIABLE}"
        raise ConfigError(message, field="url")
    return found


def meant_installation(url: str | None = None, *, token: str = "") -> str:
    """Return the installation whose gateway a program here means; "" where an address or a token names the gateway."""
    named = any(os.environ.get(ENV_PREFIX + name) for name in ("PUBLIC_URL", "HOST", "PORT"))
    if url or token or named or _setting("public_url", _settings_file()):
        return ""
    return installation_name(find_state_dir())


def installation_name(state_dir: Path) -> str:
    """Return the name of the installation that keeps its state in this directory, without the path itself."""
    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:32]


def find_state_dir() -> Path:
    """Finds the folder of state that the settings name. Raises `ConfigError` for settings that cannot be read."""
    return Path(_setting("state_dir", _settings_file()) or DEFAULT_STATE_DIR)


def _read_given(url: str | None) -> str:
    try:
        return web_address(url) if url else ""
    except ValueError as error:
        raise ConfigError(f"the gateway's address is `{url}`: {error}", field="url") from None


def _of_settings(token: str) -> str:
    file = _settings_file()
    if public := _setting("public_url", file):
        found = _read_given(public)
        # Not with a token either, else whoever has somebody work in a folder of theirs is sent it.
        if token and not os.environ.get(f"{ENV_PREFIX}PUBLIC_URL") and not is_loopback(found):
            message = f"`{SETTINGS_FILE}` names `{found}`, and no file of a folder says where a token is sent"
            raise ConfigError(f"{message}: set {ENV_PREFIX}PUBLIC_URL, or give the address", file=SETTINGS_FILE)
        return found
    host, port = _setting("host", file), _setting("port", file)
    if not (host or port or token):
        # Not with a token: a file in a folder that somebody else made must not say where it is sent.
        # Only here: `signoff hook` runs before each call of a coding agent, and shapes take longest to load.
        from signoff.client.dev_process import read_running  # noqa: PLC0415

        running = read_running(find_state_dir())
        if running is not None:
            return _read_given(running.url)
    return _read_given(address_of(host or DEFAULT_HOST, port or DEFAULT_PORT))


def _setting(name: str, file: Mapping[str, Any]) -> str:
    # Compose files and CI pass unset variables on as empty ones: those count as not given.
    return os.environ.get(ENV_PREFIX + name.upper(), "") or str(file.get(name, ""))


def _settings_file() -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(SETTINGS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"`{SETTINGS_FILE}` cannot be read: {error}", file=SETTINGS_FILE) from None
