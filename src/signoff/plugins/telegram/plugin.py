"""Sends cards by Telegram as a bot's messages. People answer by two buttons or in words.

With a `webhook_secret`, Telegram posts people's actions to `/channels/<name>`, which the channel registers at start.
Without one, the channel fetches them by long polling, which needs no address that Telegram can reach.
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import Field

from signoff.channels import (
    Channel,
    ChannelContext,
    ChannelOptions,
    ChannelReply,
    CheckFinding,
    ClosedCard,
    Forged,
    InboundBatch,
    InboundRequest,
    Malformed,
    NotDelivered,
    OutboundCard,
    OutboundNotice,
    Receive,
    RoomCard,
    SentCard,
    VendorAnswer,
    VendorErrors,
    VendorHttp,
    check_same,
)
from signoff.formats.visible_text import one_line
from signoff.plugins import BasePlugin
from signoff.plugins.telegram.cards import (
    ALERT_UNITS,
    below,
    card_message,
    closed_message,
    cut_words,
    fitting_words,
    room_message,
    text_message,
)
from signoff.plugins.telegram.updates import ALLOWED, read_update, vendor_id

SECONDS: Final = 10.0
"""The time limit of one call, without the time for which the server delays its response."""
CONFLICT: Final = 409
"""Another client is polling, or a webhook is set. Temporary until that ends."""
_STRANGE: Final = 200
"""The code for a success without `ok`, which Telegram does not send."""
_TOO_MANY: Final = 429
_UNSEEN: Final = frozenset(("400", "403"))
"""The codes for a chat that does not exist, or that the bot is not in."""
_WORDS_CHARS: Final = 200
POLL_SECONDS: Final = 50
"""How long Telegram delays its response while there is nothing to fetch."""
_GIVEN: Final = "x-telegram-bot-api-secret-token"
# Telegram uses code 400 for this and for real refusals, so only its words distinguish them.
_SAME: Final = "message is not modified"
# Groups have negative numbers: all members could answer a card there. A person's number is that of the private chat.
_PERSON: Final = re.compile(r"[1-9][0-9]{0,18}\Z")
_GROUP: Final = re.compile(r"-[1-9][0-9]{0,18}\Z")
_SHOWN_CHARS: Final = 120
_log = logging.getLogger(__name__)


def _code(answer: VendorAnswer) -> int | None:
    if answer.succeeded:
        return None if answer.body.get("ok") is True or not answer.readable else _STRANGE
    return answer.status


def _words(answer: VendorAnswer) -> str:
    return f"Telegram says: {one_line(str(answer.body.get('description') or answer.status), _WORDS_CHARS).text}"


def _after(answer: VendorAnswer) -> float:
    parameters = answer.body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return float(wait) if isinstance(wait, int) and wait > 0 else answer.after


# Telegram has no separate codes: it refuses by the HTTP status and in words.
ERRORS: Final = VendorErrors(
    "Telegram",
    _code,
    pauses={_TOO_MANY: 1.0},
    passing=frozenset((CONFLICT, _STRANGE)),
    words=_words,
    after_of=_after,
)


class TelegramBot:
    """One bot at one server of the Bot API. Only the addresses on the wire have its token."""

    def __init__(self, token: str, api_url: str, seconds: float = SECONDS) -> None:
        self._token = token
        self._api_url = api_url.rstrip("/")
        self._http = VendorHttp(ERRORS, seconds=seconds)

    async def call(self, method: str, body: Mapping[str, Any], *, waits: float = 0.0) -> Any:
        """The server may delay the `result` by `waits` seconds. Raises `NotDelivered` with Telegram's own code."""
        # Pass the path with the token separately: the address ends up in logs and errors.
        target = f"{urlsplit(self._api_url).path}/bot{self._token}/{method}"
        answer = await self._http.call("POST", f"{self._api_url}/{method}", body=body, waits=waits, target=target)
        return answer.get("result")

    async def close(self) -> None:
        await self._http.close()


class TelegramOptions(ChannelOptions):
    """One bot. With `webhook_secret` Telegram calls this gateway; without it the gateway asks Telegram."""

    token: str = Field(description="The bot's token, env:NAME.", pattern=r"^[0-9]{1,20}:[A-Za-z0-9_-]{1,100}$")
    webhook_secret: str = Field(
        "",
        description="Your own secret, env:NAME, of letters, digits, - and _, which Telegram sends as proof.",
        pattern=r"^$|^[A-Za-z0-9_-]{16,256}$",
    )
    api_url: str = Field(
        "https://api.telegram.org", description="The address of the Bot API.", pattern=r"^https?://[!-~]+$"
    )


class Telegram(Channel):
    """See the module. A person's identity is Telegram's number of the account."""

    kind: ClassVar[str] = "telegram"
    identity: ClassVar[str] = "telegram"
    options: ClassVar[type[ChannelOptions]] = TelegramOptions
    # Telegram accepts about 30 messages a second from a bot, for all recipients together.
    per_second: ClassVar[float] = 20.0
    rooms: ClassVar[bool] = True

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._options = TelegramOptions.model_validate(context.options)
        self._bot = self.attach(TelegramBot(self._options.token, self._options.api_url))

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        chat = _chat(card.address)
        message = card_message(card, self.formatter(card.person), self.assurance)
        if before is not None:
            message |= below(before.handle["message"])
        return await self._send(chat, message)

    def draws_whole(self, card: OutboundCard) -> bool:
        formatter = self.formatter(card.person)
        return fitting_words(card, formatter, self.assurance).whole

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """Edit the message and remove its buttons."""
        message = closed_message(closed, self.formatter(closed.person))
        if "message" not in sent.handle:
            # Telegram never acknowledged the card. Without its number it cannot be edited, so send a new message.
            return await self._send(int(closed.address), message)
        await self._edit(sent, message)
        return None

    async def deliver_room(self, card: RoomCard, before: SentCard | None) -> SentCard:
        """A room is a group that has the bot as a member."""
        if not _GROUP.match(card.address):
            raise NotDelivered("a group of Telegram has a negative number", code="address", again=False)
        message = room_message(card)
        if before is None or "message" not in before.handle:
            return await self._send(int(card.address), message)
        await self._edit(before, message)
        return before

    async def notify(self, notice: OutboundNotice) -> SentCard:
        return await self._send(_chat(notice.address), text_message(notice.text))

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        """Reply to a press above the chat. Replies that are too long or late go to the chat."""
        if where.get("query") and await self._alert(str(where["query"]), reply.text):
            return None
        message = text_message(reply.text)
        if where.get("message"):
            message |= below(where["message"])
        return await self._send(where["chat"], message)

    def verify(self, raw: InboundRequest) -> None:
        """Telegram sends the registered secret."""
        check_same(raw.headers.get(_GIVEN, ""), self._options.webhook_secret)

    def parse(self, raw: InboundRequest) -> InboundBatch:
        return read_update(raw)

    async def listen(self, take: Receive) -> None:
        if self._options.webhook_secret:
            await self._bot.call("setWebhook", self._webhook())
            return
        # Telegram refuses polling while a webhook is set.
        await self._bot.call("deleteWebhook", {})
        after = 0
        while True:
            # A higher offset lets Telegram delete the earlier updates: all of them are stored here.
            query = {"offset": after, "timeout": POLL_SECONDS, "allowed_updates": ALLOWED}
            updates = await self._bot.call("getUpdates", query, waits=POLL_SECONDS)
            for update in updates if isinstance(updates, list) else ():
                await self._take(update, take)
                number = update.get("update_id") if isinstance(update, dict) else None
                after = max(after, number + 1) if isinstance(number, int) else after

    async def check(self) -> list[CheckFinding]:
        try:
            bot = await self._bot.call("getMe", {})
            webhook = await self._bot.call("getWebhookInfo", {})
        except NotDelivered as error:
            return [CheckFinding(False, f"the bot cannot be asked: {error.message}", "check `token` and `api_url`")]
        name, url, failed = (
            _describe(bot, "username"),
            _describe(webhook, "url"),
            _describe(webhook, "last_error_message"),
        )
        findings = [CheckFinding(True, f"the bot is @{name}; each recipient must write to it first")]
        wanted = self._webhook()["url"] if self._options.webhook_secret else ""
        if wanted and not wanted.startswith("https://"):
            what = f"Telegram calls no address without TLS, such as {wanted}"
            findings.append(
                CheckFinding(False, what, "give the gateway an https address, or leave out `webhook_secret`")
            )
        elif url != wanted:
            what = f"Telegram calls {url or 'nobody'}, and is to call {wanted or 'nobody'}"
            findings.append(CheckFinding(False, what, "start the gateway, which registers it"))
        elif failed:
            what = f"Telegram called {url} last with this: {failed}"
            findings.append(CheckFinding(False, what, "see that the gateway's public address can be reached"))
        else:
            findings.append(CheckFinding(True, f"Telegram calls {url}" if url else "the gateway fetches updates"))
        return findings

    async def check_room(self, room: str) -> CheckFinding:
        where = {"chat_id": int(room)}
        try:
            bot = _object(await self._bot.call("getMe", {}))
            chat = _object(await self._bot.call("getChat", where))
            if chat.get("type") == "group":
                # This call alone fails for a group that became a supergroup: Telegram still finds the old one.
                await self._bot.call("getChatAdministrators", where)
            member = _object(await self._bot.call("getChatMember", {**where, "user_id": bot.get("id")}))
        except NotDelivered as error:
            remedy = "try again" if error.again else ""
            if error.code in _UNSEEN:
                remedy = "add the bot to the group; a group that became a supergroup has a new number"
            return CheckFinding(False, f"room {room}: {error.message}", remedy)
        if member.get("status") in ("left", "kicked"):
            return CheckFinding(False, f"room {room}: the bot is no member", "add the bot to the group")
        if not _may_write(chat, member):
            remedy = "let the bot send messages there, or make it an administrator"
            return CheckFinding(False, f"room {room}: the bot may not write there", remedy)
        return CheckFinding(True, f"room {room}: the bot can write there")

    async def _edit(self, sent: SentCard, message: Mapping[str, Any]) -> None:
        where = {"chat_id": sent.handle["chat"], "message_id": sent.handle["message"]}
        try:
            await self._bot.call("editMessageText", {**where, **message})
        except NotDelivered as error:
            if _SAME not in error.message:
                raise
            # An earlier attempt edited it, but its response got lost.

    async def _send(self, chat: int, message: Mapping[str, Any]) -> SentCard:
        answer = await self._bot.call("sendMessage", {"chat_id": chat, **message})
        number = answer.get("message_id") if isinstance(answer, dict) else None
        return SentCard(vendor_id=vendor_id(chat, number or 0), handle={"chat": chat, "message": number or 0})

    async def _alert(self, query: str, words: str) -> bool:
        """Return whether all of `words` fit. A press accepts a reply only for a short time."""
        shown = cut_words(words, ALERT_UNITS)
        try:
            await self._bot.call("answerCallbackQuery", {"callback_query_id": query, "text": shown, "show_alert": True})
        except NotDelivered as error:
            if error.again:
                raise
            return False
        return shown == words

    async def _take(self, update: Any, take: Receive) -> None:
        """Raises `StoreUnavailable`; the update is then fetched again."""
        try:
            await take(self.mark_fetched(json.dumps(update).encode()))
        except (Forged, Malformed) as error:
            _log.warning("an update of `%s` cannot be read: %r", self.name, error.message)

    def _webhook(self) -> dict[str, Any]:
        return {
            "url": f"{self.context.public_url}/channels/{self.name}",
            "secret_token": self._options.webhook_secret,
            "allowed_updates": ALLOWED,
        }


def _chat(address: str) -> int:
    """Raises `NotDelivered`."""
    if not _PERSON.match(address):
        why = "an identity of Telegram is the number of a person's account, such as 123456789"
        raise NotDelivered(why, code="address", again=False)
    return int(address)


def _may_write(chat: Mapping[str, Any], member: Mapping[str, Any]) -> bool:
    """Administrators need no permission, except in a channel."""
    status = member.get("status")
    if chat.get("type") == "channel":
        return status == "creator" or (status == "administrator" and member.get("can_post_messages") is True)
    if status in ("creator", "administrator"):
        return True
    # The permissions of all members limit a restricted one, too.
    if _object(chat.get("permissions")).get("can_send_messages") is False:
        return False
    restricted = status == "restricted" and member.get("is_member") is True and member.get("can_send_messages") is True
    return status == "member" or restricted


def _object(answer: Any) -> Mapping[str, Any]:
    return answer if isinstance(answer, dict) else {}


def _describe(of: Any, name: str) -> str:
    value = of.get(name) if isinstance(of, dict) else None
    return one_line(value, _SHOWN_CHARS).text if isinstance(value, str) and value else ""


class TelegramPlugin(BasePlugin):
    """Adds the channel `telegram`."""

    name: ClassVar[str] = "telegram"

    def channels(self) -> Mapping[str, type[Channel]]:
        return {Telegram.kind: Telegram}
