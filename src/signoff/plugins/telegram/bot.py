"""Calls Telegram's Bot API. The bot's token is in every address, and in nothing else."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from signoff.channels import VendorAnswer, VendorErrors, VendorHttp
from signoff.formats.visible_text import one_line

SECONDS: Final = 10.0
"""How long one call may take, without the time for which the server holds back an answer."""
CONFLICT: Final = 409
"""Somebody else fetches, or a webhook stands: it passes once the other one ends."""
_STRANGE: Final = 200
"""A success without `ok` is nothing that Telegram says."""
_TOO_MANY: Final = 429
_SHOWN_CHARS: Final = 200


def _code(answer: VendorAnswer) -> int | None:
    if answer.succeeded:
        return None if answer.body.get("ok") is True or not answer.readable else _STRANGE
    return answer.status


def _words(answer: VendorAnswer) -> str:
    return f"Telegram says: {one_line(str(answer.body.get('description') or answer.status), _SHOWN_CHARS).text}"


def _after(answer: VendorAnswer) -> float:
    parameters = answer.body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return float(wait) if isinstance(wait, int) and wait > 0 else answer.after


# Telegram has no codes of its own: all that it refuses, it refuses by the status of HTTP and in words.
ERRORS: Final = VendorErrors(
    "Telegram",
    _code,
    pauses={_TOO_MANY: 1.0},
    passing=frozenset((CONFLICT, _STRANGE)),
    words=_words,
    after_of=_after,
)


class TelegramBot:
    """One bot at one server of the Bot API."""

    def __init__(self, token: str, api_url: str, seconds: float = SECONDS) -> None:
        self._token = token
        self._api_url = api_url.rstrip("/")
        self._http = VendorHttp(ERRORS, seconds=seconds)

    async def call(self, method: str, body: Mapping[str, Any], *, waits: float = 0.0) -> Any:
        """Returns the `result` of a method, which the server may hold back for `waits` seconds.

        Raises `NotDelivered` with Telegram's own code.
        """
        # What is asked for on the wire is told apart from the address, which ends up in logs and errors.
        target = f"{urlsplit(self._api_url).path}/bot{self._token}/{method}"
        answer = await self._http.call("POST", f"{self._api_url}/{method}", body=body, waits=waits, target=target)
        return answer.get("result")

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.close()
