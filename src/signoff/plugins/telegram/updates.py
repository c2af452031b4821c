"""Parses Telegram's updates: button presses, and people's messages to the bot. Only their sender is trusted."""

from collections.abc import Mapping
from typing import Any, Final

from signoff.channels import InboundAction, InboundBatch, InboundRequest, Malformed, read_object, time_from_seconds
from signoff.formats.replace import replace
from signoff.plugins.telegram.cards import read_button, read_room_button

ALLOWED: Final = ("message", "edited_message", "callback_query")
"""The requested kinds of update."""
_ELSEWHERE: Final = "elsewhere"
_CONTENT: Final = (
    *("text", "animation", "audio", "contact", "dice", "document", "game", "location", "photo", "poll", "sticker"),
    *("story", "venue", "video", "video_note", "voice"),
)
"""People's content. All other messages are Telegram's own, such as on a pinned message."""
_ENTITIES: Final = 100
"""Telegram's limit for one message."""
_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "strikethrough": ("~", "~"),
    "blockquote": ("> ", ""),
    "expandable_blockquote": ("> ", ""),
    "spoiler": ("||", "||"),
    "code": ("`", "`"),
    "pre": ("`", "`"),
    "custom_emoji": ("[", "]"),
}
"""The marks around each in text. A custom emoji may show anything."""


def read_update(raw: InboundRequest) -> InboundBatch:
    """Leave out unknown contents. Raises `Malformed`."""
    if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Malformed("the content type is not JSON")
    update = read_object(raw.body)
    if isinstance(update.get("callback_query"), dict):
        return _press(update["callback_query"])
    if isinstance(update.get("edited_message"), dict):
        return _parse_edit(update["edited_message"])
    return _parse_message(update["message"]) if isinstance(update.get("message"), dict) else InboundBatch()


def vendor_id(chat: int, message: int) -> str:
    """Telegram numbers messages separately in each chat."""
    return f"{chat}:{message}"


def _press(query: Mapping[str, Any]) -> InboundBatch:
    """A press counts for the person who pressed, with any chat or message that it names."""
    data, name = query.get("data"), query.get("id")
    button = read_button(data) if isinstance(data, str) else None
    room = read_room_button(data) if isinstance(data, str) else None
    if button is None and room is None:
        return InboundBatch()
    if not isinstance(name, str) or not name:
        raise Malformed("a press has no name")
    who = _number(_map(query, "from"), "id")
    verdict, token = button or (None, "")
    act, token = room or (None, token)
    # Reply in the chat with the person who pressed: others may read the chat that has the card.
    where = {"query": name, "chat": who}
    return _one(
        InboundAction(key=f"press:{name}", identity=str(who), token=token, verdict=verdict, room=act, where=where)
    )


def _parse_message(message: Mapping[str, Any]) -> InboundBatch:
    """Words in a group or forwarded words address others, so read only private messages."""
    private = _map(message, "chat").get("type") == "private"
    content = next((kind for kind in _CONTENT if kind in message), "")
    if not content or not private or _map(message, "from").get("is_bot") is True:
        return InboundBatch()
    # Others wrote a message that is forwarded or sent via a bot. A picture or voice message may have a condition.
    foreign = any(name in message for name in ("forward_origin", "forward_date", "via_bot"))
    written = message.get("text")
    whole = isinstance(written, str) and not foreign
    words = written if isinstance(written, str) and whole else ""
    who, chat = _number(_map(message, "from"), "id"), _number(_map(message, "chat"), "id")
    number = _number(message, "message_id")
    return _one(
        InboundAction(
            # Use the message's number: an update's number is random after a quiet week.
            key=f"message:{vendor_id(chat, number)}",
            identity=str(who),
            vendor_ids=_about(message, chat),
            # Ignore commands: a touch sends them from any text, even from a model's.
            text="" if words.startswith("/") else _mark(words, message.get("entities")),
            unclear="" if whole else "attachment",
            said_at=time_from_seconds(message.get("date")),
            where={"chat": chat, "message": number},
        )
    )


def _parse_edit(message: Mapping[str, Any]) -> InboundBatch:
    """Telegram reports no deletions to bots."""
    actions = _parse_message(message).actions
    edited = message.get("edit_date")
    changes = [
        replace(
            action,
            key=f"edit:{action.key}:{edited}",
            changes=action.key,
            unclear="edited",
            said_at=time_from_seconds(edited),
        )
        for action in actions
    ]
    return InboundBatch(actions=tuple(changes))


def _about(message: Mapping[str, Any], chat: int) -> tuple[str, ...]:
    if "external_reply" in message:
        # A reply to a message in another chat, which is not our card.
        return (_ELSEWHERE,)
    about = _map(message, "reply_to_message")
    return (vendor_id(chat, _number(about, "message_id")),) if about else ()


def _mark(words: str, entities: Any) -> str:
    """Mark struck-out, quoted or hidden text, which Telegram reports in separate entities."""
    # Offsets count units of UTF-16.
    units = words.encode("utf-16-le", "surrogatepass")
    spans = [each for each in entities if isinstance(each, dict)] if isinstance(entities, list) else []
    inserts: dict[int, str] = {}
    for each in spans[:_ENTITIES]:
        opening, closing = _MARKS.get(str(each.get("type")), ("", ""))
        start, length = each.get("offset"), each.get("length")
        if opening and isinstance(start, int) and isinstance(length, int):
            inserts[start] = opening + inserts.get(start, "")
            inserts[start + length] = inserts.get(start + length, "") + closing
    pieces: list[str] = []
    at = 0
    for place in sorted(inserts):
        pieces += [units[2 * at : 2 * place].decode("utf-16-le", "replace"), inserts[place]]
        at = max(at, place)
    # An entity beyond the limit may strike text out.
    more = "~" if len(spans) > _ENTITIES else ""
    return "".join(pieces) + units[2 * at :].decode("utf-16-le", "replace") + more


def _one(action: InboundAction) -> InboundBatch:
    return InboundBatch(actions=(action,))


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _number(of: Mapping[str, Any], name: str) -> int:
    value = of.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"it has no `{name}`")
    return value
