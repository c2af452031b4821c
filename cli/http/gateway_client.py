"""A gateway's API as the command line uses it: a personal token says who one is, every error is one sentence."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import typer
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from signoff.cli.terminal.changes import Editable
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError, NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import parse_approval_id, parse_workflow_id, read_code
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import SayBody
from signoff.contracts.responses import SessionSaid, TurnStarted
from signoff.contracts.session_messages import SessionReceipt, SessionView
from signoff.contracts.turn import TurnView
from signoff.settings import load_settings

TOKEN: Final = "SIGNOFF_TOKEN"
_ANSWER_SECONDS: Final = 60.0
"""Longer than the gateway waits for a worker, and than its streams are silent."""
_PAUSE_SECONDS: Final = 1.0
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

T = TypeVar("T", bound=BaseModel)


def gateway_url(url: str | None, manifest: Path | None, address: str | None) -> str | None:
    """The gateway to speak to: `url`, or the one of the settings where a token is there; None for none.

    Raises `ConfigError`, and typer's error of a bad invocation for a gateway and a server at once.
    """
    local = manifest is not None or address is not None
    if url is not None and local:
        told = "a gateway knows its own server and manifest; leave --address and --manifest out"
        raise typer.BadParameter(told, param_hint="--url")
    if url is None and (local or not os.environ.get(TOKEN)):
        return None
    found = load_settings(public_url=url).public_url
    parts = urlsplit(found)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK and os.environ.get(TOKEN):
        raise ConfigError(f"`{found}` is not https: anybody on the way could read the token in {TOKEN}", field="url")
    return found


@asynccontextmanager
async def at_gateway(url: str, person: str = "") -> AsyncIterator["Gateway"]:
    """The gateway at `url`, with the token of the environment. `person` is who somebody says they are, or ""."""
    secret = os.environ.get(TOKEN, "").strip()
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    # Refused here: the HTTP library's error about a header repeats what stands in it.
    if not secret.isascii() or not secret.isprintable():
        raise ConfigError(f"what {TOKEN} holds is no token; make one with `signoff token create`", field=TOKEN)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_ANSWER_SECONDS) as http:
        yield Gateway(http, url, person)


class Gateway:
    """The `Desk` of whoever the token belongs to.

    Raises `ServerUnavailable` when the gateway does not answer, `NotFound` and `Refused` with what it says.
    """

    def __init__(self, http: httpx.AsyncClient, url: str, person: str) -> None:
        self._http = http
        self._url = url
        self._person = person

    @property
    def acting(self) -> dict[str, str]:
        """The parameter that names who somebody says they are, if they said so."""
        return {"as": self._person} if self._person else {}

    async def call(self, shape: type[T], method: str, path: str, **content: Any) -> T:
        """What a route answers; `content` is httpx's, such as `params` and `json`."""
        return self._read(shape, self._json(await self._send(method, path, **content)))

    async def listed(self, shape: type[T], name: str, **params: Any) -> list[T]:
        """The list of `/v1/<name>`; parameters that are None or empty are left out."""
        given = {key: value for key, value in params.items() if value not in (None, "")}
        found = self._json(await self._send("GET", f"/v1/{name}", params=given))
        rows = found.get(name) if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise self._stranger()
        return [self._read(shape, row) for row in rows]

    async def waiting(self) -> list[WaitingCard]:
        """See `Desk`."""
        who = self.acting or {"mine": "true"}
        return await self.listed(WaitingCard, "approvals", **who)

    def whom(self) -> str:
        """See `Desk`."""
        return self._person or "you"

    async def asked(self, name: str) -> tuple[str, ApprovalRequest | None]:
        """See `Desk`. What no worker can show is not answered: nobody would know what they sign."""
        request = await self._request(name)
        return request.id, request

    async def arguments(self, request: ApprovalRequest) -> Editable:
        """See `Desk`. Where a secret's mask still stands, the gateway keeps the secret."""
        args = request.args.inline
        if not isinstance(args, dict):
            raise self._stranger()
        return Editable(args)

    async def answer(
        self, answer: Decision, approval_id: str, request: ApprovalRequest | None, confirm: str = "", seen: str = ""
    ) -> Receipt:
        """See `Desk`."""
        # An answer names the hash of what was shown; the gateway could only name that of what is asked now.
        if request is None:
            raise ServerUnavailable("no worker can show what this request says now; nothing was changed, try again")
        said = answer.model_dump(mode="json", include={"verdict", "reason", "edited_args", "remember", "result"})
        body = {name: value for name, value in said.items() if value}
        body |= {"revision": request.revision, "question_hash": request.question_hash}
        body |= {"confirm": confirm} if confirm else {}
        body |= {"seen": seen} if seen else {}
        path = f"/v1/approvals/{quote(approval_id, safe='')}/decide"
        reply = await self._send("POST", path, params=self.acting, json=body, receipt=True)
        return self._read(Receipt, self._json(reply))

    async def withdraw(self, name: str, reason: str) -> tuple[Receipt, str]:
        """See `Desk`."""
        request = await self._request(name)
        body = {"reason": reason}
        path = f"/v1/approvals/{quote(request.id, safe='')}/withdraw"
        reply = await self._send("POST", path, params=self.acting, json=body, receipt=True)
        receipt = self._read(Receipt, self._json(reply))
        return receipt, request.card.effect

    async def found(self, name: str) -> ApprovalRequest | TurnView:
        """See `Desk`."""
        if parse_approval_id(name.strip()) is not None:
            return await self._request(name)
        if read_code(name) is None:
            return await self._view(name)
        try:
            return await self._request(name)
        except NotFound:
            return await self._view(name)

    async def turn(self, name: str) -> str:
        """See `Desk`."""
        view = await self._view(name)
        return ".".join((view.tenant, view.session, view.turn))

    async def cancel(self, turn: str) -> str:
        """See `Desk`."""
        # JSON, though empty: the gateway changes nothing for a request that a form on another site could send.
        said = self._json(await self._send("POST", f"/v1/turns/{quote(turn, safe='')}/cancel", json={}))
        state = said.get("state") if isinstance(said, dict) else None
        if not isinstance(state, str):
            raise self._stranger()
        return state

    async def start(self, body: Mapping[str, Any]) -> TurnStarted:
        """Start a turn as `POST /v1/turns` takes it. When this returns the turn is safe."""
        who = {"user": self._person} if self._person else {}
        return await self.call(TurnStarted, "POST", "/v1/turns", json={**body, **who})

    async def follow(self, turn: str) -> AsyncIterator[TurnView]:
        """See `Desk`. A stream that ends before the turn does is taken up again."""
        while True:
            view: TurnView | None = None
            async for view in self._stream(turn):
                yield view
            if view is None:
                raise ServerUnavailable(f"the gateway at {self._url} no longer tells of `{turn}`; try again")
            if view.result is not None:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def turns(self, *, state: str, actor: str, limit: int) -> list[TurnRow]:
        """See `Desk`."""
        return await self.listed(TurnRow, "turns", state=state, actor=actor, limit=limit)

    async def sessions(self, *, limit: int) -> list[SessionRow]:
        """See `Desk`."""
        return await self.listed(SessionRow, "sessions", limit=limit)

    async def session(self, name: str) -> SessionView:
        """See `Desk`."""
        return await self.call(SessionView, "GET", f"/v1/sessions/{quote(name.strip(), safe='')}")

    async def say(self, name: str, body: SayBody) -> SessionReceipt:
        """See `Desk`."""
        who = {"user": self._person} if self._person else {}
        sent = body.model_dump(mode="json", exclude_unset=True) | who
        said = await self.call(SessionSaid, "POST", f"/v1/sessions/{quote(name.strip(), safe='')}/messages", json=sent)
        return SessionReceipt.model_validate(said.model_dump(include={"status", "code", "turn", "message"}))

    async def _stream(self, turn: str) -> AsyncIterator[TurnView]:
        try:
            async with self._http.stream("GET", f"/v1/turns/{quote(turn, safe='')}/events") as reply:
                if reply.status_code >= httpx.codes.BAD_REQUEST:
                    await reply.aread()
                    raise self._refusal(reply)
                name = ""
                async for line in reply.aiter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data" and name == "turn":
                        yield self._read(TurnView, from_json(value))
                    elif field == "data":
                        raise ServerUnavailable(str(from_json(value).get("message", "the gateway cannot tell more")))
        except httpx.HTTPError as error:
            raise self._silent(error) from None

    async def _request(self, name: str) -> ApprovalRequest:
        return await self.call(ApprovalRequest, "GET", f"/v1/approvals/{quote(name.strip(), safe='')}")

    async def _view(self, name: str) -> TurnView:
        key = parse_workflow_id(name.strip())
        turn = ".".join(key) if key is not None else name.strip()
        return await self.call(TurnView, "GET", f"/v1/turns/{quote(turn, safe='')}")

    async def _send(self, method: str, path: str, *, receipt: bool = False, **content: Any) -> httpx.Response:
        try:
            reply = await self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise self._silent(error) from None
        # A decision that is refused has a receipt, too, which says by whom and when it was decided.
        if reply.is_success or (receipt and self._is_receipt(reply)):
            return reply
        raise self._refusal(reply)

    def _is_receipt(self, reply: httpx.Response) -> bool:
        said = self._json(reply)
        return isinstance(said, dict) and "approval_id" in said

    def _refusal(self, reply: httpx.Response) -> Refused | ServerUnavailable:
        said = self._json(reply)
        message = said.get("message") if isinstance(said, dict) else None
        if not isinstance(message, str):
            return self._stranger()
        if reply.status_code == httpx.codes.UNAUTHORIZED:
            return Refused(f"{message}; put one of yours in {TOKEN}", code="sign_in")
        if reply.status_code == httpx.codes.NOT_FOUND:
            return NotFound(message)
        if reply.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            return ServerUnavailable(message)
        return Refused(message, code=str(said.get("code", "refused")))

    def _json(self, reply: httpx.Response) -> Any:
        try:
            return from_json(reply.content)
        except ValueError:
            raise self._stranger() from None

    def _read(self, shape: type[T], data: Any) -> T:
        try:
            return shape.model_validate(data)
        except ValidationError:
            raise self._stranger() from None

    def _silent(self, error: httpx.HTTPError) -> ServerUnavailable:
        return ServerUnavailable(f"the gateway at {self._url} did not answer ({type(error).__name__})")

    def _stranger(self) -> ServerUnavailable:
        return ServerUnavailable(f"what answers at {self._url} is no gateway of this version: check --url")
