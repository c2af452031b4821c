"""Telegram's Bot API: one call each, and what comes of it. The bot's token is in every address, and in nothing else."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from signoff.channels.base import NotDelivered
from signoff.channels.outbound_http import retry_after
from signoff.formats.visible_text import one_line

SECONDS: Final = 10.0
CONFLICT: Final = 409
"""Somebody else fetches, or a webhook stands."""
_TOO_MANY: Final = 429
_TOLD_CHARS: Final = 200


class Bot:
    """One bot at one server of the Bot API."""

    def __init__(self, token: str, api_url: str) -> None:
        self._token = token
        self._api_url = api_url.rstrip("/")
        self._client: httpx.AsyncClient | None = None

    async def call(self, method: str, body: Mapping[str, Any], *, waits: float = 0.0) -> Any:
        """The `result` of a method, which the server may hold back for `waits` seconds.

        Raises `NotDelivered` with Telegram's own code.
        """
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=SECONDS, follow_redirects=False)
        # What is asked for on the wire is told apart from the address, which ends up in logs and errors.
        target = f"{urlsplit(self._api_url).path}/bot{self._token}/{method}".encode("ascii")
        try:
            response = await self._client.post(
                f"{self._api_url}/{method}", json=body, timeout=SECONDS + waits, extensions={"target": target}
            )
        except httpx.HTTPError as error:
            why = f"Telegram cannot be reached: {type(error).__name__}"
            raise NotDelivered(why, code="connection", again=True) from None
        told = _told(response.content)
        if response.is_success and told.get("ok") is True:
            return told.get("result")
        raise _refused(response, told)

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _told(body: bytes) -> Mapping[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _refused(response: httpx.Response, told: Mapping[str, Any]) -> NotDelivered:
    status = response.status_code
    said = one_line(str(told.get("description") or status), _TOLD_CHARS).text
    parameters = told.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    after = float(wait) if isinstance(wait, int) and wait > 0 else retry_after(response.headers.get("retry-after", ""))
    if status == _TOO_MANY:
        return NotDelivered("Telegram takes no more for now", code=str(status), again=True, after=after or 1.0)
    # A conflict passes once the other one ends. A 200 without `ok` is nothing that Telegram says.
    again = status == CONFLICT or response.is_server_error or response.is_success
    return NotDelivered(f"Telegram says: {said}", code=str(status), again=again, after=after)
