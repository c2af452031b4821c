"""Sends cards by Slack as an app's messages.

People answer by buttons, by a dialog for the reason, or in words. Slack posts people's actions to `/channels/<name>`.
With an `app_token`, the channel fetches them by Socket Mode instead, which needs no address that Slack can reach.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from signoff.channels.base import Channel, ChannelContext, ChannelOptions, Receive
from signoff.channels.card_text import card_words
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import (
    ChannelReply,
    CheckFinding,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    OutboundNotice,
    RoomCard,
    SentCard,
)
from signoff.channels.json_body import read_object
from signoff.channels.signature_check import HmacSignature
from signoff.channels.slack.blocks import (
    ASK,
    LIMITS,
    card_blocks,
    card_view,
    closed_blocks,
    escape,
    question_view,
    reason_view,
    room_blocks,
    words_view,
)
from signoff.channels.slack.payloads import event, interaction, read_payload
from signoff.channels.vendor_http import VendorAnswer, VendorErrors, VendorHttp
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.formats.json_reader import NotJson, read_json

_CODE_CHARS: Final = 80

_STAMP, _SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
_SECONDS: Final = 10.0
_log = logging.getLogger(__name__)


class SlackOptions(ChannelOptions):
    """One app in one workspace. Either `signing_secret` (Slack calls us) or `app_token` (Socket Mode), or both."""

    token: str = Field(description="The bot token, env:NAME; its value begins with xoxb-.")
    signing_secret: str = Field("", description="The app's signing secret, env:NAME, where Slack calls this gateway.")
    app_token: str = Field("", description="The app-level token, env:NAME, for Socket Mode; it begins with xapp-.")
    api_url: str = Field("https://slack.com/api", description="Where Slack's API is.")


class Slack(Channel):
    """See the module."""

    kind: ClassVar[str] = "slack"
    identity: ClassVar[str] = "slack"
    options: ClassVar[type[ChannelOptions]] = SlackOptions
    # Slack accepts about one message a second in one conversation.
    per_second: ClassVar[float] = 1.0
    rooms: ClassVar[bool] = True
    views: ClassVar[bool] = True

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._options = SlackOptions.model_validate(context.options)
        if not (self._options.signing_secret or self._options.app_token):
            raise ConfigError("it needs a `signing_secret`, or an `app_token` for Socket Mode", field="signing_secret")
        self._http = self.attach(VendorHttp(_ERRORS))
        self._signature = HmacSignature(
            _SIGNATURE, (self._options.signing_secret.encode(),), "v0=", time_header=_STAMP, before="v0:{time}:"
        )

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        words, blocks = card_blocks(card, self.formatter(card.person), self.context.public_url)
        # Slack's response has the id of the conversation with the person. Editing a message needs that id.
        message: dict[str, Any] = {"channel": _user(card.address), "text": words, "blocks": blocks}
        if before is not None:
            message |= {"channel": before.handle["channel"], "thread_ts": before.handle["ts"]}
        answer = await self._call("chat.postMessage", message)
        if before is not None:
            return before
        channel, stamp = str(answer.get("channel")), str(answer.get("ts"))
        return SentCard(vendor_id=f"{channel}:{stamp}", handle={"channel": channel, "ts": stamp})

    def draws_whole(self, card: OutboundCard) -> bool:
        formatter = self.formatter(card.person)
        return card_words(card, formatter, how="buttons", limits=LIMITS).whole

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        words, blocks = closed_blocks(closed, self.formatter(closed.person))
        if "ts" not in sent.handle:
            # Slack never acknowledged the card. Without its `ts` it cannot be edited, so send a new message.
            await self._call("chat.postMessage", {"channel": _user(closed.address), "text": words, "blocks": blocks})
            return
        where = {"channel": sent.handle["channel"], "ts": sent.handle["ts"]}
        await self._call("chat.update", {**where, "text": words, "blocks": blocks})

    async def deliver_room(self, card: RoomCard, before: SentCard | None) -> SentCard:
        """The app must be a member of the channel."""
        words, blocks = room_blocks(card)
        message = {"text": words, "blocks": blocks}
        if before is not None and "ts" in before.handle:
            where = {"channel": before.handle["channel"], "ts": before.handle["ts"]}
            await self._call("chat.update", {**where, **message})
            return before
        answer = await self._call("chat.postMessage", {"channel": card.address, **message})
        channel, stamp = str(answer.get("channel")), str(answer.get("ts"))
        return SentCard(vendor_id=f"{channel}:{stamp}", handle={"channel": channel, "ts": stamp})

    async def notify(self, notice: OutboundNotice) -> SentCard:
        # Slack returns the conversation. A reply below this message names both.
        content = {"text": escape(notice.text), "mrkdwn": False, "unfurl_links": False}
        answer = await self._call("chat.postMessage", {"channel": _user(notice.address), **content})
        return SentCard(vendor_id=f"{answer.get('channel')}:{answer.get('ts')}")

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        """A press of Deny or of the question opens a dialog, which Slack allows within 3 seconds.

        A press in a channel to see a card opens the card in a dialog, which only that person sees.
        """
        if where.get("trigger_id") and reply.receipt is None and await self._has_opened(where, reply):
            return None
        content = {"text": escape(reply.text), "mrkdwn": False}
        if where.get("view") and await self._replace_view(str(where["view"]), reply):
            return None
        if await self._respond(str(where.get("response_url", "")), content):
            return None
        if not where.get("channel"):
            # A press in a dialog is in no channel.
            await self._call("chat.postMessage", {"channel": where["user"], **content})
            return None
        message = {"channel": where["channel"], **content}
        if where.get("thread"):
            await self._call("chat.postMessage", {**message, "thread_ts": where["thread"]})
            # An answer below our reply names the thread.
            return SentCard(vendor_id=f"{where['channel']}:{where['thread']}")
        await self._call("chat.postEphemeral", {**message, "user": where["user"]})
        return None

    def verify(self, raw: InboundRequest) -> None:
        """The signature is Slack's `v0`."""
        self._signature.check(raw, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        return _open_envelope(raw.body) if self.is_fetched(raw) else read_payload(raw)

    async def listen(self, take: Receive) -> None:
        """Uses Socket Mode if there is an `app_token`."""
        while self._options.app_token:
            try:
                opened = await self._call("apps.connections.open", {}, token=self._options.app_token)
                async with connect(str(opened.get("url")), open_timeout=_SECONDS) as socket:
                    await self._hear(socket, take)
            except (OSError, WebSocketException, TimeoutError) as error:
                raise NotDelivered(f"the socket broke: {type(error).__name__}", code="socket", again=True) from None

    async def check(self) -> list[CheckFinding]:
        try:
            answer = await self._call("auth.test", {})
        except NotDelivered as error:
            return [CheckFinding(False, f"Slack refuses the token: {error.code}", "check `token` and the app's scopes")]
        findings = [CheckFinding(True, f"the app is `{answer.get('user')}` of `{answer.get('team')}`")]
        if self._options.app_token:
            try:
                await self._call("apps.connections.open", {}, token=self._options.app_token)
                findings.append(CheckFinding(True, "Socket Mode can be opened"))
            except NotDelivered as error:
                findings.append(
                    CheckFinding(
                        False, f"Socket Mode cannot be opened: {error.code}", "check `app_token` and its scope"
                    )
                )
        else:
            address = f"{self.context.public_url}/channels/{self.name}"
            findings.append(CheckFinding(True, f"Slack is to call {address} (Interactivity and Event Subscriptions)"))
        return findings

    async def check_room(self, room: str) -> CheckFinding:
        try:
            # Slack reads no JSON here.
            answer = await self._http.call(
                "POST",
                f"{self._options.api_url}/conversations.info",
                form={"channel": room},
                headers={"authorization": f"Bearer {self._options.token}"},
            )
        except NotDelivered as error:
            if error.code == "missing_scope":
                remedy = "give the app the scopes `channels:read` and `groups:read`"
                return CheckFinding(False, f"room {room}: the app may not look at channels", remedy)
            if error.code != "channel_not_found":
                return CheckFinding(False, f"room {room}: {error.message}", "try again" if error.again else "")
            what = f"room {room}: Slack knows no such channel, or it is private without the app"
            return CheckFinding(False, what, f"check the id, or {await self._invitation()}")
        channel = answer.get("channel")
        found: Mapping[str, Any] = channel if isinstance(channel, dict) else {}
        if found.get("is_archived") is True:
            return CheckFinding(False, f"room {room}: the channel is archived", "name another channel in `rooms`")
        if found.get("is_member") is not True:
            return CheckFinding(False, f"room {room}: the app is no member", await self._invitation())
        return CheckFinding(True, f"room {room}: the app is a member")

    async def _invitation(self) -> str:
        try:
            name = (await self._call("auth.test", {})).get("user")
        except NotDelivered:
            name = None
        return f"invite the app there: /invite @{name or 'APP'}"

    async def _hear(self, socket: ClientConnection, take: Receive) -> None:
        async for frame in socket:
            try:
                envelope = read_json(frame)
            except NotJson:
                continue
            # Slack ends a socket now and then with a `disconnect`; `listen` then opens a new one at once.
            if not isinstance(envelope, dict) or envelope.get("type") == "disconnect":
                return
            name = envelope.get("envelope_id")
            if not isinstance(name, str):
                continue
            try:
                await take(self.mark_fetched(json.dumps(envelope).encode()))
            except StoreUnavailable:
                # Do not acknowledge it, so that Slack sends it again.
                _log.warning("a message on the socket of `%s` could not be stored", self.name)
                continue
            except (Forged, Malformed) as error:
                _log.warning("a message on the socket of `%s` cannot be read: %r", self.name, error.message)
            # Acknowledge an unreadable message, too: a repeat would be just as unreadable.
            await socket.send(json.dumps({"envelope_id": name}))

    async def _respond(self, url: str, message: Mapping[str, Any]) -> bool:
        """Post to a press's response address, which works a few times for a short time. Returns whether it worked."""
        if not self._is_slacks(url):
            return False
        try:
            body = {**message, "response_type": "ephemeral", "replace_original": False}
            await self._http.call("POST", url, body=body, worded=True)
        except NotDelivered as error:
            # Slack as a whole is unavailable, so the other way would fail, too.
            if error.again:
                raise
            return False
        return True

    async def _has_opened(self, where: Mapping[str, Any], reply: ChannelReply) -> bool:
        """Return whether the dialog opened. If it is too late, the reply in words has to do."""
        if reply.card is not None:
            view = card_view(reply.card, self.formatter(reply.card.person), self.context.public_url)
        else:
            opened_for = {name: where[name] for name in ("channel", "view") if where.get(name)}
            token, language = str(where["token"]), reply.language
            if where.get("button") == ASK:
                view = question_view(token, opened_for, language)
            else:
                view = reason_view(token, opened_for, language, required=reply.reason_required)
        # Above a dialog, Slack only allows another one on top of it.
        method = "views.push" if where.get("view") else "views.open"
        try:
            await self._call(method, {"trigger_id": where["trigger_id"], "view": view})
        except NotDelivered as error:
            _log.info("a dialog did not open on `%s`: %s", self.name, error.code)
            return False
        return True

    async def _replace_view(self, view: str, reply: ChannelReply) -> bool:
        """Return whether the dialog is still open and shows the reply."""
        try:
            await self._call("views.update", {"view_id": view, "view": words_view(reply.text, reply.language)})
        except NotDelivered as error:
            if error.again:
                raise
            return False
        return True

    async def _call(self, method: str, body: Mapping[str, Any], *, token: str = "") -> Mapping[str, Any]:
        """Raises `NotDelivered` with Slack's own code."""
        headers = {"authorization": f"Bearer {token or self._options.token}"}
        return await self._http.call("POST", f"{self._options.api_url}/{method}", body=body, headers=headers)

    def _is_slacks(self, url: str) -> bool:
        # The address comes from a message: do not let an attacker make us call their own host or our network.
        parts, api = urlsplit(url), urlsplit(self._options.api_url)
        host = parts.hostname or ""
        return parts[:2] == api[:2] or (parts.scheme == "https" and host.endswith(".slack.com"))


def _open_envelope(body: bytes) -> InboundBatch:
    """An envelope of Socket Mode contains the body that Slack would have sent over HTTP."""
    envelope = read_object(body)
    payload = envelope.get("payload")
    if not isinstance(payload, dict):
        return InboundBatch()
    if envelope.get("type") == "interactive":
        return interaction(payload)
    return event(payload) if envelope.get("type") == "events_api" else InboundBatch()


def _user(address: str) -> str:
    return address.rpartition(":")[2]


def _code(answer: VendorAnswer) -> str | None:
    # Slack also returns 200 for a refusal. A response address returns the word `ok`.
    if not answer.succeeded or not answer.readable or answer.body.get("ok") is True:
        return None
    return str(answer.body.get("error") or "no_answer")[:_CODE_CHARS]


_ERRORS: Final = VendorErrors(
    "Slack",
    _code,
    pauses={"ratelimited": 1.0, "rate_limited": 1.0},
    passing=frozenset(("internal_error", "fatal_error", "service_unavailable", "request_timeout")),
    words=lambda answer: f"Slack says `{_code(answer)}`",
)


CHANNEL = Slack
