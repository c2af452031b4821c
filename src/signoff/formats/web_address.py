"""Web addresses in settings: validated, or built from a host and a port."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def web_address(text: str) -> str:
    """Raise `ValueError` for text that is no base address for paths."""
    parts = urlsplit(text)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # An invalid port raises only when it is read.
        good = False
    if not good:
        raise ValueError("a web address looks like https://approvals.example.com")
    # Paths are appended to it, and links with `//` in them are other addresses.
    return text.rstrip("/")


def address_of(host: str, port: object) -> str:
    """Return the address of a server, as reached from this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    # `0.0.0.0` and `::` are for listening, not for links.
    if address.is_unspecified:
        host = "127.0.0.1"
    # RFC 3986: an IPv6 address is in brackets, because its colons would start the port.
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback_host(host: str) -> bool:
    """`host` is a listener or a peer."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_loopback(address: str) -> bool:
    """Return whether an address leads to this machine, without anyone in between."""
    return urlsplit(address).hostname in LOOPBACK
