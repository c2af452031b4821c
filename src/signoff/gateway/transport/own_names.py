"""The host names and origins of a server. They tell its own pages from pages of other sites."""

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class OwnNames:
    """Checks the `Host` and `Origin` of requests.

    An attacker can rebind a host name to the loopback address. The `Host` header still holds that name.
    """

    def __init__(self, host: str, public_url: str, origins: Collection[str] = ()) -> None:
        self._hosts = LOOPBACK_NAMES | _host_names((public_url, f"//{_bracket(host)}"))
        self._public = public_url
        self._origins = frozenset(origins)

    def has_host(self, headers: Headers) -> bool:
        """Any port passes: ports may be forwarded."""
        return _name(f"//{headers.get('host', '')}") in self._hosts

    def is_own_page(self, headers: Headers, *, null_passes: bool = False) -> bool:
        """True for the server's own pages and for programs.

        `null_passes` admits an `Origin: null` unless the browser marked the request as cross-site.
        """
        origin = headers.get("origin")
        if origin in self._origins:
            return True
        # Browsers set `Sec-` headers themselves, and scripts cannot. Programs and old browsers send none. `same-site`
        # is refused too: another host below the same domain is untrusted.
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return False
        if origin is None:
            return True
        if origin == "null":
            return site == "same-origin" or null_passes
        # Behind a proxy the host may differ from the browser's. `has_host` refuses foreign ones first.
        host = headers.get("host", "").lower()
        return origin == self._public or urlsplit(origin).netloc.lower() == host


def _host_names(addresses: Iterable[str]) -> frozenset[str]:
    # The two wildcards are addresses to listen at. No client uses them as a name.
    return frozenset(name for name in map(_name, addresses) if name not in ("", "0.0.0.0", "::"))


def _name(address: str) -> str:
    try:
        # urlsplit raises for half an IPv6 address. An address without a name is never an own one.
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
