"""Web addresses as settings hold them: checked, and made of a host and a port."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def web_address(text: str) -> str:
    """Returns `text` as an address under which paths are put. Raises `ValueError` for what is no web address."""
    parts = urlsplit(text)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # A port that is no number, which is read only here.
        good = False
    if not good:
        raise ValueError("a web address looks like https://approvals.example.com")
    # Paths are put behind it, and links with `//` in them are other addresses.
    return text.rstrip("/")


def address_of(host: str, port: object) -> str:
    """Returns the address at which a server on `host` and `port` is reached from this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    # `0.0.0.0` and `::` are for listening, and no address to give to people.
    if address.is_unspecified:
        host = "127.0.0.1"
    # RFC 3986: an IPv6 address stands in brackets, as its colons would begin the port.
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback_host(host: str) -> bool:
    """Return whether only this machine reaches a server that listens at `host`, or whether `host` is a peer on it."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_loopback(address: str) -> bool:
    """Returns whether an address leads to this machine itself, so that nobody is on the way."""
    return urlsplit(address).hostname in LOOPBACK
