"""Calls the Bot Framework's connector. Sends the bot's token to listed services alone."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlsplit

from signoff.channels import NotDelivered, VendorAnswer, VendorErrors, VendorHttp
from signoff.contracts.clock import Clock

EARLY: Final = timedelta(minutes=5)
"""A token is replaced this long before its end."""
_LONGEST_SECONDS: Final = 86_400
"""Longer lives of a token are not believed."""
_UNAUTHORIZED: Final = 401
_PRECONDITION: Final = 412
_CONFLICT: Final = "PreconditionFailed"
_CODE_CHARS: Final = 80
_TOKEN_CHARS: Final = 16_384
_REJECTED: Final = "Unauthorized"
_LEAST_MEMBERS: Final = 50
"""Teams has no shorter pages."""
GONE: Final = frozenset(("BotNotInConversationRoster", "ConversationNotFound"))
"""The codes of a conversation without the bot."""


def _login_code(answer: VendorAnswer) -> str | None:
    error = answer.body.get("error")
    return error[:_CODE_CHARS] if isinstance(error, str) and not answer.succeeded else None


def _code(answer: VendorAnswer) -> str | None:
    if answer.succeeded:
        return None
    error = answer.body.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code:
        return code[:_CODE_CHARS]
    # Some refusals have no code.
    return {_UNAUTHORIZED: _REJECTED, _PRECONDITION: _CONFLICT}.get(answer.status)


LOGIN_ERRORS: Final = VendorErrors(
    "Microsoft's sign-in",
    _login_code,
    meanings={
        "invalid_client": "the secret is wrong or has expired; check `app_secret`",
        "unauthorized_client": "the tenant does not know the bot; check `app_id` and `tenant_id`",
        "invalid_request": "the request is refused; check `app_id` and `tenant_id`",
    },
    passing=frozenset({"temporarily_unavailable", "server_error"}),
)
ERRORS: Final = VendorErrors(
    "Teams",
    _code,
    meanings={
        "BotDisabledByAdmin": "an administrator has disabled the bot",
        "BotNotInConversationRoster": "the person has removed the bot, and must install it again",
        "BotNotRegistered": "there is no such bot; check `app_id`",
        "ConversationBlockedByUser": "the person has blocked the bot",
        "ConversationNotFound": "the conversation no longer exists; the person must write to the bot",
        "MessageSizeTooBig": "the card is too large",
    },
    pauses={"Throttled": 1.0},
    # Two of our own messages in one conversation, at the same time.
    passing=frozenset({_CONFLICT}),
)


@dataclass
class Connector:
    """One bot of one tenant. `services` are the origins that may get its token, such as `https://smba.example`."""

    app_id: str
    app_secret: str = field(repr=False)
    login_url: str
    scope: str
    """The scope of the bot's token."""
    services: frozenset[str]
    clock: Clock
    _http: VendorHttp = field(default_factory=lambda: VendorHttp(ERRORS), init=False)
    _login: VendorHttp = field(default_factory=lambda: VendorHttp(LOGIN_ERRORS), init=False)
    _token: str = field(default="", init=False, repr=False)
    _until: datetime | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def trusts(self, service: str) -> bool:
        """Return whether the bot's token may be sent to the service at this address."""
        try:
            parts = urlsplit(service)
        except ValueError:
            return False
        # `netloc` contains a port and a user, so that neither can hide another host.
        return f"{parts.scheme}://{parts.netloc}" in self.services and not (parts.query or parts.fragment)

    async def post(self, place: Mapping[str, Any], activity: Mapping[str, Any]) -> str:
        """Return the id of the new activity. Raises `NotDelivered`."""
        answer = await self._call("POST", place, "activities", activity)
        return str(answer.get("id") or "")

    async def update(self, place: Mapping[str, Any], name: str, activity: Mapping[str, Any]) -> None:
        """Raises `NotDelivered`."""
        await self._call("PUT", place, f"activities/{quote(name, safe='')}", {**activity, "id": name})

    async def read_roster(self, place: Mapping[str, Any]) -> None:
        """Only a bot in the conversation may read its members. Raises `NotDelivered`."""
        await self._call("GET", place, f"pagedmembers?pageSize={_LEAST_MEMBERS}")

    async def sign_in(self) -> str:
        """Return a token for the connector. Raises `NotDelivered`."""
        async with self._lock:
            if self._until is None or self.clock() >= self._until:
                self._token, self._until = await self._new_token()
            return self._token

    async def close(self) -> None:
        await self._http.close()
        await self._login.close()

    async def _call(
        self, method: str, place: Mapping[str, Any], path: str, activity: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        service, conversation = str(place["service"]), str(place["conversation"])
        # Check the place again: the list may have changed since it was stored.
        if not self.trusts(service):
            why = "its service is not on the list; see the option `service_urls`"
            raise NotDelivered(f"the bot's token is not sent to this conversation: {why}", code="service", again=False)
        url = f"{service.rstrip('/')}/v3/conversations/{quote(conversation, safe='')}/{path}"
        token = await self.sign_in()
        try:
            return await self._send(method, url, activity, token)
        except NotDelivered as error:
            if error.code != _REJECTED:
                raise
        # The token was revoked before its end.
        if token == self._token:
            self._until = None
        return await self._send(method, url, activity, await self.sign_in())

    async def _send(self, method: str, url: str, activity: Mapping[str, Any] | None, token: str) -> Mapping[str, Any]:
        return await self._http.call(method, url, body=activity, headers={"authorization": f"Bearer {token}"})

    async def _new_token(self) -> tuple[str, datetime]:
        form = {
            "grant_type": "client_credentials",
            "client_id": self.app_id,
            "client_secret": self.app_secret,
            "scope": self.scope,
        }
        now = self.clock()
        answer = await self._login.call("POST", self.login_url, form=form)
        token, seconds = answer.get("access_token"), answer.get("expires_in")
        good = isinstance(token, str) and token.isascii() and token.isprintable() and 0 < len(token) <= _TOKEN_CHARS
        if not good or not isinstance(seconds, int) or seconds <= 0:
            raise NotDelivered("Microsoft's sign-in returned no token", code="no_token", again=True)
        lasts = timedelta(seconds=min(seconds, _LONGEST_SECONDS))
        return str(token), now + max(lasts - EARLY, lasts / 2)
