"""HTTP to a gateway: JSON in, models out, and every failure as a Signoff error."""

import ssl
from collections.abc import AsyncGenerator
from typing import Any, Final, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from signoff.contracts.errors import Conflict, NotFound, Refused, ServerUnavailable
from signoff.contracts.names import INSTALLATION_HEADER, TOKEN_VARIABLE
from signoff.contracts.receipt import Receipt
from signoff.formats.web_address import is_loopback

ANSWER_SECONDS: Final = 60.0
"""Longer than a gateway waits for a worker, and than the silence of its streams."""

T = TypeVar("T", bound=BaseModel)


class Transport:
    """Sends requests to the gateway at `url`, with a personal token if there is one.

    `installation` is the only one whose gateway may answer; "" accepts any. All methods raise `ServerUnavailable` if no
    gateway answers, and `NotFound`, `Conflict` or `Refused` with the gateway's message.
    """

    def __init__(self, url: str, token: str, agent: str, *, installation: str = "") -> None:
        self.url = url
        # Programs and terminals get English.
        headers = {"accept-language": "en", "user-agent": agent} | (
            {"authorization": f"Bearer {token}"} if token else {}
        )
        if installation:
            headers[INSTALLATION_HEADER] = installation
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=ANSWER_SECONDS,
            # A proxy cannot reach this machine's own loopback address.
            trust_env=not is_loopback(url),
            # Loading the trusted certificates takes 20 ms of every command. Plain HTTP uses a context without any.
            verify=httpx2.URL(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, shape: type[T], method: str, path: str, **content: Any) -> T:
        """`content` is httpx2's, such as `params` and `json`."""
        return self.read(shape, self._json(await self._send(method, path, **content)))

    async def list_rows(self, shape: type[T], name: str, **params: Any) -> list[T]:
        """Omit parameters that are `None`, False or empty."""
        present = {key: value for key, value in params.items() if value}
        body = self._json(await self._send("GET", f"/v1/{name}", params=present))
        rows = body.get(name) if isinstance(body, dict) else None
        if not isinstance(rows, list):
            raise self._stranger()
        return [self.read(shape, row) for row in rows]

    async def receipt(self, path: str, body: dict[str, Any], person: str) -> Receipt:
        """A refused decision's receipt names the decider and the time."""
        reply = await self._reply("POST", path, json=body, params={"as": person} if person else {})
        content = self._json(reply)
        if isinstance(content, dict) and "approval_id" in content:
            return self.read(Receipt, content)
        raise self._refusal(reply)

    async def events(self, path: str) -> AsyncGenerator[tuple[str, Any]]:
        try:
            async with self._http.stream("GET", path) as reply:
                if not reply.is_success:
                    await reply.aread()
                    raise self._refusal(reply)
                name = ""
                async for line in reply.aiter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data":
                        yield name, self._parse(value)
        except httpx2.HTTPError as error:
            raise self._silent(error) from None

    async def _send(self, method: str, path: str, **content: Any) -> httpx2.Response:
        reply = await self._reply(method, path, **content)
        if reply.is_success:
            return reply
        raise self._refusal(reply)

    async def _reply(self, method: str, path: str, **content: Any) -> httpx2.Response:
        try:
            return await self._http.request(method, path, **content)
        except httpx2.HTTPError as error:
            raise self._silent(error) from None

    def _refusal(self, reply: httpx2.Response) -> Refused | ServerUnavailable:
        body = self._json(reply)
        message = body.get("message") if isinstance(body, dict) else None
        if not isinstance(message, str):
            return self._stranger()
        code = str(body.get("code", "refused"))
        if reply.status_code == httpx2.codes.UNAUTHORIZED:
            return Refused(f"{message}; put one of yours in {TOKEN_VARIABLE}", code="sign_in")
        if reply.status_code == httpx2.codes.NOT_FOUND:
            return NotFound(message)
        if reply.status_code == httpx2.codes.CONFLICT and code == "conflict":
            return Conflict(message)
        if reply.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
            return ServerUnavailable(message)
        return Refused(message, code=code)

    def _json(self, reply: httpx2.Response) -> Any:
        return self._parse(reply.content)

    def _parse(self, text: str | bytes) -> Any:
        try:
            return from_json(text)
        except ValueError:
            raise self._stranger() from None

    def read(self, shape: type[T], data: Any) -> T:
        try:
            return shape.model_validate(data)
        except ValidationError:
            raise self._stranger() from None

    def _silent(self, error: httpx2.HTTPError) -> ServerUnavailable:
        if isinstance(error, httpx2.ConnectError):
            remedy = "`signoff dev` or `signoff gateway` starts one"
            return ServerUnavailable(f"no gateway answers at {self.url}: {remedy}")
        return ServerUnavailable(f"the gateway at {self.url} did not answer ({type(error).__name__})")

    def _stranger(self) -> ServerUnavailable:
        return ServerUnavailable(f"the server at {self.url} is not a gateway of this version: check the address")
