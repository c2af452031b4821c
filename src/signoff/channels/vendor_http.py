"""The HTTP client of channels: one call of a vendor's API, and what a refusal means by the vendor's own codes.

A vendor is a table of its codes (`VendorErrors`) and where they stand in its answers. Timeouts, broken connections,
`429`, `5xx`, answers without end and answers that are none are the same for all of them, and are told here.
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
    """What a vendor answered."""

    status: int
    """The status of HTTP."""
    body: Mapping[str, Any]
    """The JSON object of its body; empty where the body is none."""
    after: float = 0.0
    """Seconds to leave the vendor alone, as `Retry-After` says; 0 where it says nothing."""
    readable: bool = True
    """Whether the body is a JSON object."""

    @property
    def succeeded(self) -> bool:
        """Whether the status says so."""
        return 200 <= self.status < 300


def no_code(answer: VendorAnswer) -> Code | None:
    """Finds no code: of a vendor that tells by the status of HTTP alone."""
    return None


@dataclass(frozen=True)
class VendorErrors:
    """What a vendor's refusals mean, as data."""

    vendor: str
    """Its name, as people read it."""
    code_of: Callable[[VendorAnswer], Code | None] = no_code
    """Finds the vendor's own code in an answer; None where it refuses nothing, or has none."""
    meanings: Mapping[Code, str] = field(default_factory=dict)
    """Codes that are final, and what each means or what is to be done; `again` is false for them."""
    pauses: Mapping[Code, float] = field(default_factory=dict)
    """Codes by which it takes no more for now, and the seconds for which it is left alone at least."""
    passing: frozenset[Code] = frozenset()
    """Codes of faults that pass by themselves."""
    words: Callable[[VendorAnswer], str] | None = None
    """Finds the vendor's own words, where its codes alone do not say enough."""
    after_of: Callable[[VendorAnswer], float] = lambda answer: answer.after
    """Finds the seconds for which it wants to be left alone, where it says them in another way than `Retry-After`."""

    def refusal(self, answer: VendorAnswer) -> NotDelivered | None:
        """Returns the error that an answer refuses with, None where it refuses nothing.

        A success that is no JSON object is no answer of the vendor's, but of something in between: it is tried again.
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
        """Returns a code in words, and what to do where something can be done."""
        if code in self.meanings:
            return self.meanings[code]
        return self._enough() if code in self.pauses else f"{self.vendor} refuses it with code {code}"

    def _by_code(self, code: Code, answer: VendorAnswer) -> NotDelivered:
        # What is known to be final stays so, whatever the status says.
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
        # Never 0 where there was too much: by a pause the whole channel is left alone, and not this one card.
        return max(self.after_of(answer), 1.0) if answer.status == _TOO_MANY else self.after_of(answer)

    def _enough(self) -> str:
        return f"{self.vendor} takes no more for now"


class VendorHttp:
    """Calls one vendor's API over connections that it keeps; `Channel.attach` closes it with its channel."""

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
        """Returns the JSON object that the vendor answers to `body` (JSON) or `form`; redirects are not followed.

        `waits` are seconds for which the vendor may hold its answer back. `target` is the path that is asked for on the
        wire, where `url` must not hold the secret in it. `worded`: a success may be no JSON. Raises `NotDelivered`.
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
            # The timeouts of httpx2 are for each step: a server that sends a byte now and then would never be late.
            async with asyncio.timeout(self._seconds + waits):
                answer = await self._answer(request)
        except (httpx2.HTTPError, TimeoutError) as error:
            # By its class alone: the words may hold the address, and that a token.
            why = f"{self._errors.vendor} cannot be reached: {type(error).__name__}"
            raise NotDelivered(why, code="connection", again=True) from None
        refusal = self._errors.refusal(answer)
        if refusal is None or (worded and answer.succeeded and not answer.readable):
            return answer.body
        raise refusal

    async def close(self) -> None:
        """Closes the connections; a later call opens new ones."""
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
    """Returns the seconds of a `Retry-After` header that says a number of them; 0 for anything else."""
    # `isdigit` is true of `²` too, on which `float` fails. For a date, which RFC 9110 allows, our own pause is taken.
    return float(written) if written.isascii() and written.isdigit() and len(written) < 8 else 0.0


async def _body(response: httpx2.Response) -> bytes:
    body = bytearray()
    # Counted as it comes and unpacked: a small body may unpack to gigabytes, and its stated length proves nothing.
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
