"""Slack: cards as messages of an app, answered by buttons, by a window for the reason, or in words.

Over HTTP, Slack brings what people do to `/channels/<name>`. With an `app_token` it is fetched by Socket Mode instead,
which needs no address that Slack can reach.
"""

import hashlib
import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import httpx
from pydantic import Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from signoff.channels.base import Channel, Forged, Malformed, Means, NotDelivered, Options, Take
from signoff.channels.envelopes import Closed, Finding, Notice, Raw, Received, Reply, Sent
from signoff.channels.outbound.card_text import card_words
from signoff.channels.outbound_http import retry_after
from signoff.channels.slack.blocks import LIMITS, card_blocks, closed_blocks, escaped, reason_view
from signoff.channels.slack.payloads import event, interaction, read_payload
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.texts.catalogue import ENGLISH
from signoff.texts.formatter import formatter_for

TOLERANCE: Final = 300
"""Seconds between Slack's clock and ours, as its documentation says."""
_STAMP, _SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
_SOCKET: Final = "x-signoff-socket"
_SECONDS: Final = 10.0
_TOO_MANY: Final = 429
_PASSING: Final = frozenset(
    ("ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")
)
"""Errors of Slack's that pass by themselves."""
_log = logging.getLogger(__name__)


class SlackOptions(Options):
    """One app in one workspace. Either `signing_secret` (Slack calls us) or `app_token` (Socket Mode), or both."""

    token: str = Field(description="The bot token, env:NAME; its value begins with xoxb-.")
    signing_secret: str = Field("", description="The app's signing secret, env:NAME, where Slack calls this gateway.")
    app_token: str = Field("", description="The app-level token, env:NAME, for Socket Mode; it begins with xapp-.")
    api_url: str = Field("https://slack.com/api", description="Where Slack's API is.")


class Slack(Channel):
    """See the module."""

    kind: ClassVar[str] = "slack"
    identity: ClassVar[str] = "slack"
    options: ClassVar[type[Options]] = SlackOptions
    # Slack takes about one message a second in one conversation.
    per_second: ClassVar[float] = 1.0

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._options = SlackOptions.model_validate(means.options)
        if not (self._options.signing_secret or self._options.app_token):
            raise ConfigError("it needs a `signing_secret`, or an `app_token` for Socket Mode", field="signing_secret")
        self._client: httpx.AsyncClient | None = None

    async def deliver(self, notice: Notice, before: Sent | None) -> Sent:
        """See `Channel`."""
        words, blocks = card_blocks(notice, formatter_for(notice.person, self.means.clock()), self.means.public_url)
        # A conversation with a person has a name of its own, which the answer tells, and only that can be edited.
        message: dict[str, Any] = {"channel": _user(notice.address), "text": words, "blocks": blocks}
        if before is not None:
            message |= {"channel": before.handle["channel"], "thread_ts": before.handle["ts"]}
        told = await self._call("chat.postMessage", message)
        if before is not None:
            return before
        channel, stamp = str(told.get("channel")), str(told.get("ts"))
        return Sent(vendor_id=f"{channel}:{stamp}", handle={"channel": channel, "ts": stamp})

    def draws_whole(self, notice: Notice) -> bool:
        """See `Channel`."""
        formatter = formatter_for(notice.person, self.means.clock())
        return card_words(notice, formatter, how="buttons", limits=LIMITS).whole

    async def close(self, sent: Sent, closed: Closed) -> None:
        """See `Channel`."""
        words, blocks = closed_blocks(closed, formatter_for(closed.person, self.means.clock()))
        where = {"channel": sent.handle["channel"], "ts": sent.handle["ts"]}
        await self._call("chat.update", {**where, "text": words, "blocks": blocks})

    async def answer(self, where: Mapping[str, Any], reply: Reply) -> None:
        """See `Channel`. Whoever pressed Deny is asked for the reason, in a window that Slack opens for 3 seconds."""
        if where.get("trigger_id") and reply.receipt is None and await self._asked_why(where):
            return
        told = {"text": escaped(reply.text), "mrkdwn": False}
        if await self._responded(str(where.get("response_url", "")), told):
            return
        message = {"channel": where["channel"], **told}
        if where.get("thread"):
            await self._call("chat.postMessage", {**message, "thread_ts": where["thread"]})
        else:
            await self._call("chat.postEphemeral", {**message, "user": where["user"]})

    def verify(self, raw: Raw) -> None:
        """See `Channel`. The signature is Slack's `v0`; what came by our own socket carries our own."""
        given = raw.headers.get(_SOCKET, "")
        if given:
            # The header says nothing by itself, as the door lets it in too: only the key behind the mark does.
            _same(given, self._own(raw.body))
            return
        stamp, secret = raw.headers.get(_STAMP, ""), self._options.signing_secret
        # With an empty secret anybody could sign. `int` takes blanks and digits of any script, and fails on the rest.
        if not secret or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12):
            raise Forged("it has no signature of Slack's")
        if abs(self.means.clock().timestamp() - int(stamp)) > TOLERANCE:
            raise Forged("its time is not now")
        base = b"v0:" + stamp.encode() + b":" + raw.body
        mark = hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()
        _same(raw.headers.get(_SIGNATURE, ""), f"v0={mark}")

    def parse(self, raw: Raw) -> Received:
        """See `Channel`."""
        if raw.headers.get(_SOCKET):
            return _enveloped(raw.body)
        return read_payload(raw)

    async def listen(self, take: Take) -> None:
        """See `Channel`: by Socket Mode, where there is an `app_token`."""
        while self._options.app_token:
            try:
                opened = await self._call("apps.connections.open", {}, token=self._options.app_token)
                async with connect(str(opened.get("url")), open_timeout=_SECONDS) as socket:
                    await self._hear(socket, take)
            except (OSError, WebSocketException, TimeoutError) as error:
                raise NotDelivered(f"the socket broke: {type(error).__name__}", code="socket", again=True) from None

    async def check(self) -> list[Finding]:
        """See `Channel`."""
        try:
            told = await self._call("auth.test", {})
        except NotDelivered as error:
            return [Finding(False, f"Slack refuses the token: {error.code}", "check `token` and the app's scopes")]
        findings = [Finding(True, f"the app is `{told.get('user')}` of `{told.get('team')}`")]
        if self._options.app_token:
            try:
                await self._call("apps.connections.open", {}, token=self._options.app_token)
                findings.append(Finding(True, "Socket Mode can be opened"))
            except NotDelivered as error:
                findings.append(
                    Finding(False, f"Socket Mode cannot be opened: {error.code}", "check `app_token` and its scope")
                )
        else:
            address = f"{self.means.public_url}/channels/{self.name}"
            findings.append(Finding(True, f"Slack is to call {address} (Interactivity and Event Subscriptions)"))
        return findings

    async def close_down(self) -> None:
        """See `Channel`."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _hear(self, socket: ClientConnection, take: Take) -> None:
        async for frame in socket:
            try:
                envelope = json.loads(frame)
            except ValueError:
                continue
            # Slack ends a socket now and then by a `disconnect`; `listen` asks for a new one at once.
            if not isinstance(envelope, dict) or envelope.get("type") == "disconnect":
                return
            name = envelope.get("envelope_id")
            if not isinstance(name, str):
                continue
            body = json.dumps(envelope).encode()
            try:
                await take(Raw(body, headers={_SOCKET: self._own(body)}, at=self.means.clock()))
            except StoreUnavailable:
                # Not acknowledged, so Slack brings it again.
                _log.warning("what came by the socket of `%s` could not be kept", self.name)
                continue
            except (Forged, Malformed) as error:
                _log.warning("a message on the socket of `%s` cannot be read: %r", self.name, error.message)
            # Acknowledged also where it cannot be read: brought again, it would be as it is.
            await socket.send(json.dumps({"envelope_id": name}))

    async def _responded(self, url: str, told: Mapping[str, Any]) -> bool:
        """Whether it was said at the address that a press brought, which serves a few times and not for long."""
        if not self._is_slacks(url):
            return False
        try:
            await self._sent(url, {**told, "response_type": "ephemeral", "replace_original": False}, {})
        except NotDelivered as error:
            # Slack as a whole is away then, and the other way would fail as well.
            if error.again:
                raise
            return False
        return True

    async def _asked_why(self, where: Mapping[str, Any]) -> bool:
        """Whether the window is open; too late, it is said in words how to deny."""
        opened_for = {"channel": where.get("channel", "")}
        view = reason_view(str(where["token"]), opened_for, ENGLISH)
        try:
            await self._call("views.open", {"trigger_id": where["trigger_id"], "view": view})
        except NotDelivered as error:
            _log.info("the window for a reason did not open on `%s`: %s", self.name, error.code)
            return False
        return True

    async def _call(self, method: str, body: Mapping[str, Any], *, token: str = "") -> Mapping[str, Any]:
        """Slack's answer. Raises `NotDelivered` with Slack's own code."""
        headers = {"authorization": f"Bearer {token or self._options.token}"}
        told = await self._sent(f"{self._options.api_url}/{method}", body, headers)
        # Slack answers 200 to what it refuses, too.
        if told.get("ok") is True:
            return told
        code = str(told.get("error") or "no_answer")[:80]
        raise NotDelivered(f"Slack says `{code}`", code=code, again=code in _PASSING)

    async def _sent(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False)
        try:
            response = await self._client.post(url, json=body, headers=dict(headers))
        except httpx.HTTPError as error:
            why = f"Slack cannot be reached: {type(error).__name__}"
            raise NotDelivered(why, code="connection", again=True) from None
        if response.status_code == _TOO_MANY:
            # Never 0: by a pause the whole channel is left alone, and not this one card.
            after = retry_after(response.headers.get("retry-after", "")) or 1.0
            raise NotDelivered("Slack takes no more for now", code="ratelimited", again=True, after=after)
        if not response.is_success:
            again = response.is_server_error
            raise NotDelivered(f"Slack answered {response.status_code}", code=str(response.status_code), again=again)
        try:
            told = response.json()
        except ValueError:
            # A response address answers `ok`, in words.
            return {}
        return told if isinstance(told, dict) else {}

    def _is_slacks(self, url: str) -> bool:
        """Whether an address to answer at is one of Slack's own."""
        # It comes out of a message: nobody has us call an address of theirs, or one of our own network, by that.
        parts, api = urlsplit(url), urlsplit(self._options.api_url)
        host = parts.hostname or ""
        return parts[:2] == api[:2] or (parts.scheme == "https" and host.endswith(".slack.com"))

    def _own(self, body: bytes) -> str:
        return hmac.new(self.means.secret, body, hashlib.sha256).hexdigest()


def _enveloped(body: bytes) -> Received:
    """What an envelope of Socket Mode holds, which is what Slack would have sent over HTTP."""
    envelope = json.loads(body)
    payload = envelope.get("payload")
    if not isinstance(payload, dict):
        return Received()
    if envelope.get("type") == "interactive":
        return interaction(payload)
    return event(payload) if envelope.get("type") == "events_api" else Received()


def _user(address: str) -> str:
    return address.rpartition(":")[2]


def _same(given: str, right: str) -> None:
    # In bytes: of text beyond ASCII it raises a `TypeError`, and anybody may send such a header.
    if not hmac.compare_digest(given.encode("utf-8", "replace"), right.encode()):
        raise Forged("its signature is not right")


CHANNEL = Slack
