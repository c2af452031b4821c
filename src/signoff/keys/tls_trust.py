"""Selects the trusted certificate authorities for TLS connections to external servers."""

import functools
import os
import ssl

import httpx2

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def load_trust() -> ssl.SSLContext:
    """Read the authorities of the environment or certifi once for all clients.

    Reading blocks everything for 20 ms, and a client may be created for each call.
    """
    return _load(*(os.environ.get(name, "") for name in _VARIABLES))


@functools.lru_cache(maxsize=4)
def _load(_file: str, _folder: str) -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=True)
