"""Serves HTTP at an address. Leaves signals to the process, which may have more to stop."""

import contextlib
import errno
import socket
from collections.abc import Generator
from typing import Any, Final

import uvicorn

from signoff.contracts.errors import ServerUnavailable

_BACKLOG: Final = 2_048
_FLAGS: Final = {"SIGNOFF_PORT": "--port", "SIGNOFF_CODEC_PORT": "--port", "SIGNOFF_UI_PORT": "`signoff dev --ui-port`"}


class HttpServer(uvicorn.Server):
    """Serves one application with uvicorn, without a server header or access log.

    `options` are uvicorn's own.
    """

    def __init__(self, app: Any, **options: Any) -> None:
        # Use the process's log: uvicorn's own handlers would print tracebacks.
        fixed: dict[str, Any] = {"log_config": None, "log_level": "warning", "ws": "none"}
        super().__init__(uvicorn.Config(app, access_log=False, server_header=False, **fixed, **options))

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def open_listener(host: str, port: int, *, host_setting: str, port_setting: str) -> socket.socket:
    """Raise `ServerUnavailable` with the settings if it cannot listen."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ServerUnavailable(
                f"port {port} of `{host}` is in use: stop the other process, or {_remedy(port_setting)}"
            ) from None
        raise ServerUnavailable(
            f"nothing can listen at `{host}` port {port} ({error.strerror}): correct {host_setting} or {port_setting}"
        ) from None


def _remedy(setting: str) -> str:
    flag = _FLAGS.get(setting)
    return f"pass {flag} or set {setting}" if flag else f"set {setting}"
