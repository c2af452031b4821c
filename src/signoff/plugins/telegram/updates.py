"""Parses what Telegram brings: presses of buttons, and what people write to the bot. Only the sender is believed."""

from collections.abc import Mapping
from typing import Any, Final

from signoff.channels import InboundAction, InboundBatch, InboundRequest, Malformed, read_object, time_from_seconds
from signoff.formats.replace import replace
from signoff.plugins.telegram.cards import read_button

ALLOWED: Final = ("message", "edited_message", "callback_query")
"""The kinds of update that are asked for."""
_ELSEWHERE: Final = "elsewhere"
_CONTENT: Final = (
    *("text", "animation", "audio", "contact", "dice", "document", "game", "location", "photo", "poll", "sticker"),
    *("story", "venue", "video", "video_note", "voice"),
)
"""What people send; all other messages are Telegram's own, such as that one was pinned."""
_ENTITIES: Final = 100
"""Telegram sends at most so many of a message."""
_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "strikethrough": ("~", "~"),
    "blockquote": ("> ", ""),
    "expandable_blockquote": ("> ", ""),
    "spoiler": ("||", "||"),
    "code": ("`", "`"),
    "pre": ("`", "`"),
    "custom_emoji": ("[", "]"),
}
"""What stands around each in text; a picture of somebody's own may show anything."""


def read_update(raw: InboundRequest) -> InboundBatch:
    """Parses a verified update. Raises `Malformed`; unknown contents are left out."""
    if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Malformed("the content type is not JSON")
    update = read_object(raw.body)
    if isinstance(update.get("callback_query"), dict):
        return _press(update["callback_query"])
    if isinstance(update.get("edited_message"), dict):
        return _parse_edit(update["edited_message"])
    return _parse_message(update["message"]) if isinstance(update.get("message"), dict) else InboundBatch()


def vendor_id(chat: int, message: int) -> str:
    """Names a message: Telegram numbers them in each chat."""
    return f"{chat}:{message}"


def _press(query: Mapping[str, Any]) -> InboundBatch:
    """Reads the press of a button, which counts as of who did, whatever chat or message it names."""
    data, name = query.get("data"), query.get("id")
    found = read_button(data) if isinstance(data, str) else None
    if found is None:
        return InboundBatch()
    if not isinstance(name, str) or not name:
        raise Malformed("a press has no name")
    who = _number(_map(query, "from"), "id")
    verdict, token = found
    # The answer goes to the chat with who pressed: where the card stands, others may read.
    where = {"query": name, "chat": who}
    return _one(InboundAction(key=f"press:{name}", identity=str(who), token=token, verdict=verdict, where=where))


def _parse_message(message: Mapping[str, Any]) -> InboundBatch:
    """Reads words to the bot alone: what is said in a group, or passed on, is said to others."""
    private = _map(message, "chat").get("type") == "private"
    content = next((kind for kind in _CONTENT if kind in message), "")
    if not content or not private or _map(message, "from").get("is_bot") is True:
        return InboundBatch()
    # Others wrote what is passed on or comes via a bot. A picture or voice may hold the condition.
    foreign = any(name in message for name in ("forward_origin", "forward_date", "via_bot"))
    found = message.get("text")
    whole = isinstance(found, str) and not foreign
    words = found if isinstance(found, str) and whole else ""
    who, chat = _number(_map(message, "from"), "id"), _number(_map(message, "chat"), "id")
    number = _number(message, "message_id")
    return _one(
        InboundAction(
            # The number of an update is drawn anew after a quiet week; that of a message is not.
            key=f"message:{vendor_id(chat, number)}",
            identity=str(who),
            vendor_ids=_about(message, chat),
            # A command is sent by touching it wherever it stands, also in what a model wrote.
            text="" if words.startswith("/") else _mark(words, message.get("entities")),
            unclear="" if whole else "attachment",
            said_at=time_from_seconds(message.get("date")),
            where={"chat": chat, "message": number},
        )
    )


def _parse_edit(message: Mapping[str, Any]) -> InboundBatch:
    """Reads the new form of an earlier message. Telegram tells no bot of a deletion."""
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
    """Returns the message that this one replies to."""
    if "external_reply" in message:
        # To something in another chat, which is none of our cards.
        return (_ELSEWHERE,)
    about = _map(message, "reply_to_message")
    return (vendor_id(chat, _number(about, "message_id")),) if about else ()


def _mark(words: str, entities: Any) -> str:
    """Marks a text where it is struck out, quoted or hidden: Telegram tells these beside it."""
    # Offsets count units of UTF-16.
    units = words.encode("utf-16-le", "surrogatepass")
    found = [each for each in entities if isinstance(each, dict)] if isinstance(entities, list) else []
    inserts: dict[int, str] = {}
    for each in found[:_ENTITIES]:
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
    # Of more than are looked at any may strike something out.
    more = "~" if len(found) > _ENTITIES else ""
    return "".join(pieces) + units[2 * at :].decode("utf-16-le", "replace") + more


def _one(action: InboundAction) -> InboundBatch:
    return InboundBatch(actions=(action,))


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _number(of: Mapping[str, Any], name: str) -> int:
    found = of.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise Malformed(f"it has no `{name}`")
    return found
