"""The HTTP client of channels: calls a vendor's API, and interprets refusals by the vendor's own codes
(`VendorErrors`). Handles the cases that are the same for all vendors: timeouts, broken connections, `429`, `5xx`,
and endless or unreadable responses.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import httpx2

from signoff.channels.channel_errors import NotDelivered
from signoff.contracts.limits import MIB
from signoff.formats.json_reader import NotJson, read_json
from signoff.keys.tls_trust import load_trust

SECONDS: Final = 10.0
"""How long one call may take, from the first byte to the last."""
ANSWER_BYTES: Final = 8 * MIB
"""The longest answer that is read; a longer one is none."""
_TOO_MANY: Final = 429

Code: TypeAlias = int | str


@dataclass(frozen=True)
class VendorAnswer:
    """A vendor's response."""

    status: int
    body: Mapping[str, Any]
    """The JSON object of its body. Empty if the body is not one."""
    after: float = 0.0
    """Seconds of `Retry-After`. 0 without it."""
    readable: bool = True
    """Whether the body is a JSON object."""

    @property
    def succeeded(self) -> bool:
        """Return whether the status is 200 to 299."""
        return 200 <= self.status < 300


def no_code(answer: VendorAnswer) -> Code | None:
    """For a vendor that reports errors only by the HTTP status."""
    return None


@dataclass(frozen=True)
class VendorErrors:
    """The meaning of a vendor's refusals, as data."""

    vendor: str
    code_of: Callable[[VendorAnswer], Code | None] = no_code
    """Returns the vendor's own code in a response. None for a success or if there is none."""
    meanings: Mapping[Code, str] = field(default_factory=dict)
    """Final codes with their meaning or remedy. `again` is false for them."""
    pauses: Mapping[Code, float] = field(default_factory=dict)
    """Codes of rate limits, with the least pause in seconds."""
    passing: frozenset[Code] = frozenset()
    """Codes of temporary faults."""
    words: Callable[[VendorAnswer], str] | None = None
    """Returns the vendor's own words, if the codes alone are not clear enough."""
    after_of: Callable[[VendorAnswer], float] = lambda answer: answer.after
    """Returns the pause in seconds, if the vendor states it elsewhere than in `Retry-After`."""

    def refusal(self, answer: VendorAnswer) -> NotDelivered | None:
        """Return the error of a response, None for a success.

        A success without a JSON object comes from a system between us and the vendor: `again` is true for it.
        """
        code = self.code_of(answer)
        if code is not None:
            return self._by_code(code, answer)
        if not answer.succeeded:
            return self._by_status(answer)
        if not answer.readable:
            return NotDelivered(f"{self.vendor} answered nothing that can be read", code="no_answer", again=True)
        return None

    def meaning(self, code: Code) -> str:
        """Return the meaning of a code, with the remedy if there is one."""
        if code in self.meanings:
            return self.meanings[code]
        return self._enough() if code in self.pauses else f"{self.vendor} refuses it with code {code}"

    def _by_code(self, code: Code, answer: VendorAnswer) -> NotDelivered:
        # A final code stays final with any status.
        passes = code in self.pauses or code in self.passing
        again = passes or (code not in self.meanings and _is_passing(answer.status))
        message = self.words(answer) if self.words and code not in self.pauses else self.meaning(code)
        pause = max(self.pauses.get(code, 0.0), self._pause(answer))
        return NotDelivered(message, code=str(code), again=again, after=pause if again else 0.0)

    def _by_status(self, answer: VendorAnswer) -> NotDelivered:
        again = _is_passing(answer.status)
        message = self._enough() if answer.status == _TOO_MANY else f"{self.vendor} answered {answer.status}"
        return NotDelivered(message, code=str(answer.status), again=again, after=self._pause(answer) if again else 0.0)

    def _pause(self, answer: VendorAnswer) -> float:
        # Never 0 for a rate limit: only a pause stops the whole channel, rather than this one card.
        return max(self.after_of(answer), 1.0) if answer.status == _TOO_MANY else self.after_of(answer)

    def _enough(self) -> str:
        return f"{self.vendor} takes no more for now"


class VendorHttp:
    """Calls one vendor's API over persistent connections. `Channel.attach` closes it with its channel."""

    def __init__(
        self,
        errors: VendorErrors,
        *,
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._errors = errors
        self._headers = dict(headers or {})
        self._auth = auth
        self._seconds = seconds
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self,
        method: str,
        url: str,
        *,
        body: Mapping[str, Any] | None = None,
        form: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        waits: float = 0.0,
        target: str = "",
        worded: bool = False,
    ) -> Mapping[str, Any]:
        """Send `body` (JSON) or `form` and return the JSON object of the response.

        Redirects are not followed. The vendor may delay its response by `waits` seconds. `target` is the path on the
        wire, for paths whose secret must not be in `url`. `worded`: a success may have a body other than JSON. Raises
        `NotDelivered`.
        """
        request = self._http().build_request(
            method,
            url,
            json=body,
            data=form,
            params=query or None,
            headers=headers,
            timeout=self._seconds + waits,
            extensions={"target": target.encode("ascii")} if target else None,
        )
        try:
            # The timeouts of httpx2 apply to each step: a server that sends single bytes would never time out.
            async with asyncio.timeout(self._seconds + waits):
                answer = await self._answer(request)
        except (httpx2.HTTPError, TimeoutError) as error:
            # Name only the class: the message may have the address, which may have a token.
            why = f"{self._errors.vendor} cannot be reached: {type(error).__name__}"
            raise NotDelivered(why, code="connection", again=True) from None
        refusal = self._errors.refusal(answer)
        if refusal is None or (worded and answer.succeeded and not answer.readable):
            return answer.body
        raise refusal

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _answer(self, request: httpx2.Request) -> VendorAnswer:
        response = await self._http().send(request, stream=True)
        try:
            read = _object(await _body(response))
        finally:
            await response.aclose()
        after = retry_after(response.headers.get("retry-after", ""))
        return VendorAnswer(response.status_code, read or {}, after, read is not None)

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                auth=self._auth, headers=self._headers, verify=load_trust(), follow_redirects=False
            )
        return self._client


def retry_after(written: str) -> float:
    """Return the seconds of a `Retry-After` header with a number. 0 for anything else."""
    # `isdigit` is also true for `²`, on which `float` fails. For a date, which RFC 9110 allows, use our own pause.
    return float(written) if written.isascii() and written.isdigit() and len(written) < 8 else 0.0


async def _body(response: httpx2.Response) -> bytes:
    body = bytearray()
    # Count the unpacked bytes as they arrive: a small body may unpack to gigabytes, and its stated length may be false.
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > ANSWER_BYTES:
            return b""
    return bytes(body)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        read = read_json(body)
    except NotJson:
        return None
    return read if isinstance(read, dict) else None


def _is_passing(status: int) -> bool:
    return status >= 500 or status == _TOO_MANY
