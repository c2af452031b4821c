"""Sends the requests of an exchange, with or without an event loop."""

import asyncio
import json
import ssl
import time
from typing import Any, Final, TypeVar, cast

import httpx2

from signoff_client.exchange import Exchange
from signoff_client.messages import Failure, Pause, Reply, Request

T = TypeVar("T")

_ANSWER_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 10.0
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Transport:
    """Holds the gateway's address and token.

    Each exchange has its own connections: a gate needs no closing, and belongs to no event loop or thread.
    """

    def __init__(self, url: str, token: str, agent: str) -> None:
        """Raise `ValueError` for an invalid address or token, and for a token on plain HTTP."""
        self._url = _check_address(url, token)
        if not token.isascii() or not token.isprintable() or " " in token:
            # The HTTP library's error about a header would repeat the token.
            raise ValueError("this is not a valid token; make one with `signoff token create <agent> --scope call`")
        self._headers = {"accept-language": "en", "content-type": "application/json", "user-agent": agent}
        self._headers |= {"authorization": f"Bearer {token}"} if token else {}
        # Loading the trusted certificates is slow, so do it once. Plain HTTP uses a context without any.
        is_tls = self._url.startswith("https:")
        self._trusted = httpx2.create_ssl_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def run(self, exchange: Exchange[T]) -> T:
        reply: Reply | Failure | None = None
        async with httpx2.AsyncClient(**self._options()) as http:
            while True:
                try:
                    step = exchange.send(reply)
                except StopIteration as end:
                    return cast(T, end.value)
                reply = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    continue
                try:
                    reply = _read(await http.request(step.method, step.path, **_content(step)))
                except httpx2.HTTPError as error:
                    reply = _failure(error)

    def run_blocking(self, exchange: Exchange[T]) -> T:
        reply: Reply | Failure | None = None
        with httpx2.Client(**self._options()) as http:
            while True:
                try:
                    step = exchange.send(reply)
                except StopIteration as end:
                    return cast(T, end.value)
                reply = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    continue
                try:
                    reply = _read(http.request(step.method, step.path, **_content(step)))
                except httpx2.HTTPError as error:
                    reply = _failure(error)

    def _options(self) -> dict[str, Any]:
        # A proxy cannot reach this machine's own loopback address.
        is_local = httpx2.URL(self._url).host in _LOCAL
        return {"base_url": self._url, "headers": self._headers, "verify": self._trusted, "trust_env": not is_local}


def _check_address(url: str, token: str) -> str:
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, TypeError):
        raise ValueError(f"the gateway's address `{url}` is invalid: write it as https://signoff.example.com") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise ValueError(f"the gateway's address `{url}` is invalid: write it as https://signoff.example.com")
    if token and parsed.scheme != "https" and parsed.host not in _LOCAL:
        raise ValueError(f"`{url}` is not https, so the network could read the token; give its https address")
    return url.rstrip("/")


def _content(request: Request) -> dict[str, Any]:
    timeout = httpx2.Timeout(_ANSWER_SECONDS + request.hold, connect=_CONNECT_SECONDS)
    headers = {"idempotency-key": request.key} if request.key else {}
    return {"content": request.body or None, "headers": headers, "timeout": timeout}


def _read(response: httpx2.Response) -> Reply:
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    try:
        after = float(response.headers.get("retry-after", ""))
    except ValueError:
        # A date. The pauses between retries are long enough for servers that send one.
        after = 0.0
    return Reply(response.status_code, body if isinstance(body, dict) else None, after if 0 < after < 1e6 else 0.0)


def _failure(error: httpx2.HTTPError) -> Failure:
    # The error's own message may contain parts of the address.
    is_unconnected = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return Failure(
        "no gateway answers at its address" if is_unconnected else f"its answer was lost: {type(error).__name__}"
    )
