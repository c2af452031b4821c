"""Whose certificates are trusted where a server of others is called over TLS."""

import functools
import os
import ssl

import httpx2

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def load_trust() -> ssl.SSLContext:
    """Returns the context of all TLS clients, by the authorities that the environment names, else by those of certifi.

    They are read once: reading them holds up everybody for 20 ms, and a client may be made for each call.
    """
    return _load(*(os.environ.get(name, "") for name in _VARIABLES))


@functools.lru_cache(maxsize=4)
def _load(_file: str, _folder: str) -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=True)
