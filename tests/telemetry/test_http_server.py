import socket

import pytest

from signoff.contracts.errors import ServerUnavailable
from signoff.telemetry.http_server import open_listener

SETTINGS = {"host_setting": "SIGNOFF_HOST", "port_setting": "SIGNOFF_PORT"}


def test_port_in_use_names_its_setting() -> None:
    with open_listener("127.0.0.1", 0, **SETTINGS) as first:
        port = first.getsockname()[1]
        remedy = "pass --port or set SIGNOFF_PORT"
        with pytest.raises(ServerUnavailable, match=rf"port {port} of `127.0.0.1` is in use: .* {remedy}$"):
            open_listener("127.0.0.1", port, **SETTINGS)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as asking:
            assert asking.getpeername()[1] == port


def test_foreign_address_names_both_settings() -> None:
    with pytest.raises(ServerUnavailable, match=r"`192.0.2.1` port 0 .*: correct SIGNOFF_HOST or SIGNOFF_PORT$"):
        open_listener("192.0.2.1", 0, **SETTINGS)
