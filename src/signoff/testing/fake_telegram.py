"""Fakes Telegram with messages in memory: checks the token, shapes and sizes as the Bot API does.

Refusals have Telegram's own codes and sentences. Telegram signs nothing: it sends the webhook's secret.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels.envelopes import InboundRequest, RoomAct
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import HTTP_TROUBLES, Trouble, Vendor, VendorCard
from signoff.testing.vendor_server import serve_vendor

TOKEN: Final = "123456789:AAfake-Token_of-a-bot"
WEBHOOK_SECRET: Final = "a_word_of_our-own"
ROOM: Final = "-100777"
"""A group that has the bot as a member."""
BUSY_SECONDS: Final = 30
HELD_SECONDS: Final = 0.2
"""The longest time that it holds back an answer, so that the end of a test does not wait for it."""
HEADER: Final = "x-telegram-bot-api-secret-token"
_BOT: Final = {"id": 123456789, "is_bot": True, "first_name": "Signoff", "username": "signoff_bot"}
_TEXT, _ALERT, _DATA = 4_096, 200, 64
_TOKEN_IN: Final = re.compile(r"/link/([a-z0-9]+)")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}\Z")
_ASKS: Final = ("Answer with the buttons.", "Sign in to answer: http")
Body: TypeAlias = Mapping[str, Any]


class BotRefusal(Exception):
    """A refusal of the Bot API: its code and description."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


@dataclass
class TelegramMessage:
    """One message of the bot in a chat: its text, and the data of its buttons."""

    chat: int
    number: int
    text: str
    buttons: Sequence[Body] = ()
    about: int = 0

    @property
    def text_shown(self) -> str:
        return "\n".join((self.text, *(f"[{button['text']}]" for button in self.buttons)))

    @property
    def token(self) -> str:
        """From the buttons or the link."""
        found = _TOKEN_IN.search(self.text)
        return next((str(each["callback_data"])[2:] for each in self.buttons), found[1] if found else "")


@dataclass
class FakeTelegram(Vendor):
    """One bot. Everyone in `identities` has written to it before."""

    kind: ClassVar[str] = "telegram"
    identities: ClassVar[tuple[str, str, str, str]] = ("1001", "1002", "1003", "9999999999")
    troubles: ClassVar[Sequence[Trouble]] = HTTP_TROUBLES
    room: ClassVar[str] = ROOM

    url: str = ""
    polled: bool = False
    """Whether the channel has no webhook and polls."""
    messages: list[TelegramMessage] = field(default_factory=list)
    alerts: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of person and text, above the chat."""
    calls: list[tuple[str, Body]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    """People who have blocked the bot."""
    queries: dict[str, str] = field(default_factory=dict)
    """Maps presses that wait for an answer to the person."""
    webhook: dict[str, Any] = field(default_factory=dict)
    clinging: bool = False
    """Whether a webhook cannot be deleted."""
    group: dict[str, Any] = field(default_factory=dict)
    """Overrides fields of the room's chat. `upgraded` is whether it became a supergroup."""
    standing: dict[str, Any] = field(default_factory=dict)
    """Overrides fields of the bot's membership in the room."""
    updates: list[Body] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = iter(range(1, 1_000_000))
        self._cards: list[VendorCard] = []
        self._arrived = asyncio.Event()

    @property
    def options(self) -> Mapping[str, Any]:
        given = {"token": "env:TELEGRAM_TOKEN", "api_url": self.url}
        return given if self.polled else {**given, "webhook_secret": "env:TELEGRAM_WEBHOOK_SECRET"}

    @property
    def environment(self) -> Mapping[str, str]:
        return {"TELEGRAM_TOKEN": TOKEN, "TELEGRAM_WEBHOOK_SECRET": WEBHOOK_SECRET}

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/bot{token}/{method}", self._api, methods=["POST"])])

    # What people see.

    def cards(self) -> Sequence[VendorCard]:
        """Return the cards as they were sent."""
        return list(self._cards)

    def reads(self, identity: str) -> Sequence[str]:
        """Include the alerts above the chat."""
        mine = [each.text_shown for each in self.messages if str(each.chat) == identity]
        return mine + [words for who, words in self.alerts if who == identity]

    def message_of(self, card: VendorCard) -> TelegramMessage:
        """The first message with the card's token."""
        mine = [each for each in self.messages if str(each.chat) == card.to]
        return next(each for each in mine if each.token == card.token)

    # What people do.

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Reply with text if there is a reason."""
        if reason:
            return self.reply(card, identity, f"{'approve' if verdict == 'approved' else 'deny'}\n{reason}")
        return self.update_request(self.press_update(card, identity, "a" if verdict == "approved" else "d"))

    def press_update(self, card: VendorCard, identity: str, does: str, **more: Any) -> dict[str, Any]:
        """The client names the button. `more` overrides the fields of the query."""
        name = str(7_000_000_000 + next(self._numbers))
        self.queries[name] = identity
        message = self.message_of(card)
        query = {
            "id": name,
            "from": _person(identity),
            "message": {
                "message_id": message.number,
                "from": _BOT,
                "chat": {"id": message.chat, "type": "private"},
                "date": self._now(),
                "text": message.text,
            },
            "chat_instance": "-1",
            "data": f"{does}:{card.token}",
        }
        return {"callback_query": query | more}

    def room_cards(self) -> Sequence[VendorCard]:
        mine = [each for each in self.messages if each.chat == int(ROOM)]
        return [VendorCard(ROOM, each.token, each.text_shown) for each in mine]

    def press_room(self, card: VendorCard, identity: str, act: RoomAct) -> InboundRequest:
        message = next(each for each in self.messages if (each.chat, each.token) == (int(ROOM), card.token))
        data = {each["callback_data"][0]: each["callback_data"] for each in message.buttons}[act[0]]
        name = str(7_000_000_000 + next(self._numbers))
        self.queries[name] = identity
        chat = {"id": int(ROOM), "type": "supergroup", "title": "Finance"}
        about = {"message_id": message.number, "from": _BOT, "chat": chat, "date": self._now(), "text": message.text}
        query = {"id": name, "from": _person(identity), "message": about, "chat_instance": "-1", "data": data}
        return self.update_request({"callback_query": query})

    def write(self, identity: str, words: str) -> InboundRequest:
        return self.update_request({"message": self.message_update(identity, text=words)})

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        return self._reply_to(self.message_of(card), identity, words)

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest:
        """An entity strikes out the end of the text."""
        entity = {"type": "strikethrough", "offset": len(words) + 1, "length": len(struck)}
        return self._reply_to(self.message_of(card), identity, f"{words} {struck}", entities=[entity])

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        newest = next(each for each in reversed(self.messages) if str(each.chat) == identity)
        return self._reply_to(newest, identity, words)

    def _reply_to(self, message: TelegramMessage, identity: str, words: str, **more: Any) -> InboundRequest:
        about = {"message_id": message.number, "from": _BOT, "date": self._now(), "text": message.text}
        about["chat"] = {"id": message.chat, "type": "private"}
        update = self.message_update(identity, text=words, reply_to_message=about, **more)
        return self.update_request({"message": update})

    def message_update(self, identity: str, **content: Any) -> dict[str, Any]:
        """By default, the message is in the person's chat with the bot."""
        who = _person(identity)
        chat = {"id": int(identity), "type": "private", "first_name": who["first_name"]}
        return {
            "message_id": next(self._numbers),
            "from": who,
            "chat": chat,
            "date": int(self.now_said.timestamp()),
            **content,
        }

    def update_request(self, update: Body) -> InboundRequest:
        """Return an update as the webhook receives it."""
        return self.sign(json.dumps({"update_id": next(self._numbers), **update}).encode())

    def queue_update(self, update: Body) -> None:
        self.updates.append({"update_id": next(self._numbers), **update})
        self._arrived.set()

    def sign(self, body: bytes) -> InboundRequest:
        """Telegram does not sign, and sends the secret."""
        return InboundRequest(body, {"content-type": "application/json", HEADER: WEBHOOK_SECRET}, at=self.clock())

    def forgeries(self, raw: InboundRequest) -> Sequence[InboundRequest]:
        """Return requests with a wrong secret, and with a forged mark of polling."""
        others = ("", WEBHOOK_SECRET[:-1], WEBHOOK_SECRET.upper(), WEBHOOK_SECRET + " ", "a_word", "é")
        shown = [replace(raw, headers={**raw.headers, HEADER: other}) for other in others]
        fetched = [replace(raw, headers={**raw.headers, "x-signoff-fetched": other}) for other in ("0" * 64, "é")]
        return [replace(raw, headers={}), *shown, *fetched]

    def unknown(self) -> Sequence[InboundRequest]:
        bo = self.identities[1]
        card = next(each for each in reversed(self._cards) if each.to == bo)
        group = {"id": -100, "type": "supergroup", "title": "Finance"}
        bot = {**_person(bo), "is_bot": True}
        updates: list[Body] = [
            {"edited_message": self.message_update(bo, text="yes", edit_date=self._now())},
            {"channel_post": self.message_update(bo, text="yes", chat={"id": -200, "type": "channel"})},
            {"message": self.message_update(bo, text="yes", chat=group)},
            {
                "message": self.message_update(
                    bo, text="yes", forward_origin={"type": "user", "sender_user": _person(bo)}
                )
            },
            {"message": self.message_update(bo, text="yes", **{"from": bot})},
            {"message": self.message_update(bo, text="/yes")},
            {"message": self.message_update(bo, photo=[], caption="yes")},
            {"message_reaction": {"user": _person(bo), "new_reaction": [{"type": "emoji", "emoji": "👍"}]}},
            {"my_chat_member": {"from": _person(bo), "new_chat_member": {"status": "kicked"}}},
            {"something": "new"},
            {"callback_query": "nonsense"},
            {"message": 3},
            self.press_update(card, bo, "e"),
            self.press_update(card, bo, "a", data="a:"),
            self.press_update(card, bo, "a", data=f"a:{card.token}:more"),
            self.press_update(card, bo, "a", data=None),
        ]
        return [self.update_request(each) for each in updates]

    # The Bot API.

    async def _api(self, request: Request) -> Response:
        if self.trouble == "down":
            return Response("<html>Bad Gateway</html>", status_code=502, media_type="text/html")
        try:
            if request.path_params["token"] != TOKEN:
                raise BotRefusal(401, "Unauthorized")
            if self.trouble:
                raise BotRefusal(429, f"Too Many Requests: retry after {BUSY_SECONDS}")
            method, body = request.path_params["method"], json.loads(await request.body() or b"{}")
            self.calls.append((method, body))
            if method == "getUpdates":
                result = await self._fetch(body)
            else:
                result = self._method(method)(body)
        except BotRefusal as refusal:
            self.refused.append(refusal.words)
            answer = {"ok": False, "error_code": refusal.code, "description": refusal.words}
            if refusal.code == 429:
                answer["parameters"] = {"retry_after": BUSY_SECONDS}
            return JSONResponse(answer, refusal.code)
        return JSONResponse({"ok": True, "result": result})

    def _method(self, name: str) -> Callable[[Body], Any]:
        known: dict[str, Callable[[Body], Any]] = {
            "sendMessage": self._send,
            "editMessageText": self._edit,
            "answerCallbackQuery": self._answer,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": lambda _: {"url": "", "pending_update_count": len(self.updates)} | self.webhook,
            "getMe": lambda _: _BOT,
            "getChat": self._chat,
            "getChatAdministrators": self._administrators,
            "getChatMember": self._member,
        }
        if name not in known:
            raise BotRefusal(404, "Not Found")
        return known[name]

    def _send(self, body: Body) -> Body:
        chat = body.get("chat_id")
        if str(chat) not in (*self.identities, ROOM) or not isinstance(chat, int):
            raise BotRefusal(400, "Bad Request: chat not found")
        if str(chat) == ROOM and not self._chat(body)["permissions"]["can_send_messages"]:
            raise BotRefusal(400, "Bad Request: not enough rights to send text messages to the chat")
        if chat in self.blocked:
            raise BotRefusal(403, "Forbidden: bot was blocked by the user")
        about = body.get("reply_parameters", {})
        replied = any((each.chat, each.number) == (chat, about.get("message_id")) for each in self.messages)
        if about and not replied and not about.get("allow_sending_without_reply"):
            raise BotRefusal(400, "Bad Request: message to be replied not found")
        number = next(self._numbers)
        message = TelegramMessage(chat, number, _text_of(body), _buttons_of(body), about.get("message_id", 0))
        self.messages.append(message)
        if str(chat) != ROOM and (message.buttons or any(words in message.text for words in _ASKS)):
            self._cards.append(VendorCard(str(chat), message.token, message.text_shown))
        return {"message_id": number, "from": _BOT, "chat": {"id": chat, "type": "private"}, "text": message.text}

    def _chat(self, body: Body) -> Body:
        if body.get("chat_id") != int(ROOM):
            raise BotRefusal(400, "Bad Request: chat not found")
        chat = {"id": int(ROOM), "type": "supergroup", "title": "Finance"} | self.group
        status, kind = self.standing.get("status", "member"), chat["type"]
        # A bot reads a public group without being a member, and a basic group as a former member.
        if kind != "group" and (status == "kicked" or (status == "left" and "username" not in chat)):
            what = "was kicked from" if status == "kicked" else "is not a member of"
            raise BotRefusal(403, f"Forbidden: bot {what} the {kind} chat")
        return {"permissions": {"can_send_messages": True}} | chat

    def _administrators(self, body: Body) -> list[Body]:
        if self._chat(body).get("upgraded"):
            raise BotRefusal(400, "Bad Request: group chat was upgraded to a supergroup chat")
        return []

    def _member(self, body: Body) -> Body:
        self._chat(body)
        if body.get("user_id") != _BOT["id"]:
            raise BotRefusal(400, "Bad Request: invalid user_id specified")
        return {"user": _BOT, "status": "member"} | self.standing

    def _edit(self, body: Body) -> Body:
        where = (body.get("chat_id"), body.get("message_id"))
        message = next((each for each in self.messages if (each.chat, each.number) == where), None)
        if message is None:
            raise BotRefusal(400, "Bad Request: message to edit not found")
        words, buttons = _text_of(body), _buttons_of(body)
        if (message.text, list(message.buttons)) == (words, list(buttons)):
            raise BotRefusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly "
                "the same as a current content and reply markup of the message",
            )
        message.text, message.buttons = words, buttons
        return {"message_id": message.number, "text": words}

    def _answer(self, body: Body) -> bool:
        words = body.get("text", "")
        if body.get("callback_query_id") not in self.queries:
            raise BotRefusal(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        if _units(words) > _ALERT:
            raise BotRefusal(400, "Bad Request: MESSAGE_TOO_LONG")
        who = self.queries.pop(body["callback_query_id"])
        if body.get("show_alert") is True and words:
            self.alerts.append((who, words))
        return True

    def _set_webhook(self, body: Body) -> bool:
        if not str(body.get("url", "")).startswith("https://"):
            raise BotRefusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
        if not _SECRET.match(body.get("secret_token", "_")):
            raise BotRefusal(400, "Bad Request: secret token contains unallowed characters")
        self.webhook = {"url": body["url"], "allowed_updates": body.get("allowed_updates", [])}
        return True

    def _delete_webhook(self, body: Body) -> bool:
        if not self.clinging:
            self.webhook = {}
        return True

    async def _fetch(self, body: Body) -> list[Body]:
        if self.webhook:
            raise BotRefusal(
                409, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete it"
            )
        # `offset` confirms earlier updates; unconfirmed ones are sent again.
        self.updates = [each for each in self.updates if each["update_id"] >= body.get("offset", 0)]
        if not self.updates:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), min(body.get("timeout", 0), HELD_SECONDS))
        return self.updates[:100]

    def _now(self) -> int:
        return int(self.clock().timestamp())


@asynccontextmanager
async def fake_telegram(*, polled: bool = False) -> AsyncIterator[FakeTelegram]:
    telegram = FakeTelegram(polled=polled)
    async with serve_vendor(telegram.app(), vendor=telegram) as url:
        telegram.url = url
        yield telegram


def _text_of(body: Body) -> str:
    words = body.get("text")
    if not isinstance(words, str) or not words.strip():
        raise BotRefusal(400, "Bad Request: message text is empty")
    if _units(words) > _TEXT:
        raise BotRefusal(400, "Bad Request: message is too long")
    return words


def _buttons_of(body: Body) -> list[Body]:
    rows = body.get("reply_markup", {}).get("inline_keyboard", [])
    buttons = [button for row in rows for button in row]
    for button in buttons:
        data = button.get("callback_data", "")
        if not button.get("text") or set(button) != {"text", "callback_data"}:
            raise BotRefusal(400, "Bad Request: can't parse inline keyboard button")
        # In bytes, unlike the limits of texts.
        if not 1 <= len(data.encode()) <= _DATA:
            raise BotRefusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return buttons


def _units(words: str) -> int:
    return len(words.encode("utf-16-le")) // 2


def _person(identity: str) -> dict[str, Any]:
    return {"id": int(identity), "is_bot": False, "first_name": f"Person {identity}"}
