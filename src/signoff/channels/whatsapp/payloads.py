"""What Meta brings: presses, words, and what became of our messages. Several of each may come at once.

Only messages to our own number are looked at. Nothing in them is believed but what Meta itself vouches for.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from signoff.channels.channel_errors import Malformed
from signoff.channels.envelopes import DeliveryStatus, InboundAction, InboundBatch, InboundRequest
from signoff.channels.json_body import read_object
from signoff.channels.vendor_time import time_from_seconds
from signoff.channels.whatsapp.errors import ERRORS, OUTSIDE
from signoff.channels.whatsapp.messages import read_button
from signoff.channels.whatsapp.window import ServiceWindow
from signoff.contracts.decision import Verdict
from signoff.formats.visible_text import one_line

_WORDLESS: Final = frozenset(
    ("audio", "contacts", "document", "image", "location", "order", "sticker", "unsupported", "video")
)
"""The types of messages in which nothing can be read: their author is asked back."""
_CHANGES: Final = {"edit": "edited", "revoke": "deleted"}
"""Meta tells of these only for a number that a WhatsApp Business app uses, too."""
_GROUP: Final = "group"
_REACTION: Final = "reaction"
_STATES: Final[Mapping[str, Literal["sent", "delivered", "read", "failed"]]] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "failed": "failed",
}
_CODE_CHARS: Final = 80
_log = logging.getLogger(__name__)


def read_payload(raw: InboundRequest, number: str, window: ServiceWindow) -> InboundBatch:
    """Reads a verified message for the number with the id `number`; who wrote is remembered in `window`.

    Raises `Malformed`; what is new to us becomes an unknown status, and no more.
    """
    if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Malformed("the content type is not application/json")
    body = read_object(raw.body)
    actions: list[InboundAction] = []
    statuses: list[DeliveryStatus] = []
    for value in _values(body, number):
        for error in _maps(value, "errors"):
            _log.warning("WhatsApp reports an error: %s", ERRORS.meaning(_number(error, "code")))
        messages, contacts = _maps(value, "messages"), _maps(value, "contacts")
        # Of several with one number the first.
        # A table, as a body may be of 3 MB: to search the contacts for each message would take time in its square.
        by_number = {_text(each, "wa_id"): each for each in reversed(contacts)}
        lone = contacts[0] if len(messages) == len(contacts) == 1 else {}
        for message in messages:
            made = _message(message, _sender(message, by_number, lone), window)
            actions += [made] if isinstance(made, InboundAction) else []
            statuses += [made] if isinstance(made, DeliveryStatus) else []
        statuses += [status for each in _maps(value, "statuses") if (status := _status(each, window)) is not None]
    return InboundBatch(actions=tuple(actions), statuses=tuple(statuses))


def _values(body: Mapping[str, Any], number: str) -> Iterator[Mapping[str, Any]]:
    if body.get("object") != "whatsapp_business_account":
        return
    for entry in _maps(body, "entry"):
        for change in _maps(entry, "changes"):
            value = _map(change, "value")
            # An app may have several numbers, of which Meta tells all at one address.
            if change.get("field") == "messages" and _text(_map(value, "metadata"), "phone_number_id") == number:
                yield value


def _message(
    message: Mapping[str, Any], sender: tuple[str, str], window: ServiceWindow
) -> InboundAction | DeliveryStatus | None:
    """Returns one message: something said, or something that is only written down."""
    key, kind, (scoped, phone) = _text(message, "id"), _text(message, "type"), sender
    # The scoped id first: a number may be hidden, and one that was given up becomes somebody else's.
    identity = scoped or phone
    if not key or not identity:
        return None
    # Whatever they sent opens the window, also what says nothing to us.
    for name in filter(None, sender):
        window.note_message(name, float(_number(message, "timestamp")))
    original = _text(_map(message, kind), "original_message_id") if kind in _CHANGES else ""
    if original:
        return InboundAction(
            key=key,
            identity=identity,
            changes=original,
            unclear=_CHANGES[kind],
            text=_text(_map(_map(_map(message, kind), "message"), "text"), "body"),
            said_at=time_from_seconds(message.get("timestamp")),
            where={"to": phone or scoped},
        )
    content = _parse_content(message, kind)
    if content is None:
        return DeliveryStatus(key=key, vendor_id=key, state="unknown", code=_unknown_code(message, kind))
    verdict, token, text = content
    context = _map(message, "context")
    about = _text(context, "id")
    unclear, where = "", {"to": phone or scoped, "message": key}
    if context.get("forwarded") or context.get("frequently_forwarded"):
        # Somebody else's words or button, passed on, are nobody's answer.
        verdict, token, text = None, "", ""
    if kind == _REACTION:
        unclear, about = _REACTION, _text(_map(message, _REACTION), "message_id")
    if "group_id" in message:
        # In a group the words are said to others too. The reply goes to their author alone.
        verdict, token, unclear, where = None, "", _GROUP, {"to": phone or scoped}
    return InboundAction(
        key=key,
        identity=identity,
        token=token,
        vendor_ids=(about,) if about else (),
        verdict=verdict,
        text=text,
        unclear=unclear,
        said_at=time_from_seconds(message.get("timestamp")),
        where=where,
    )


def _parse_content(message: Mapping[str, Any], kind: str) -> tuple[Verdict | None, str, str] | None:
    """Returns the verdict, the token and the words of a message; None for what says nothing to us."""
    if kind == "text":
        return None, "", _text(_map(message, "text"), "body")
    if kind in _WORDLESS:
        return None, "", ""
    if kind == _REACTION:
        emoji = _text(_map(message, _REACTION), "emoji")
        # Without one, a reaction was taken away.
        return (None, "", emoji) if emoji else None
    payload = ""
    if kind == "interactive":
        payload = _text(_map(_map(message, "interactive"), "button_reply"), "id")
    elif kind == "button":
        payload = _text(_map(message, "button"), "payload")
    else:
        return None
    # A button or a form of another program says nothing to us.
    return (*(read_button(payload) or (None, "")), "")


def _unknown_code(message: Mapping[str, Any], kind: str) -> str:
    """Returns the code to be recorded of a message new to us, such as `system user_id_update` or `reaction`."""
    more = _text(_map(message, "system"), "type")
    return one_line(f"{kind or 'message'} {more}".strip(), _CODE_CHARS).text


def _sender(
    message: Mapping[str, Any], contacts: Mapping[str, Mapping[str, Any]], lone: Mapping[str, Any]
) -> tuple[str, str]:
    """Returns the business-scoped id and the number of who sent it; either may be missing.

    `contacts` are by their numbers; the only one beside the only message is its sender unless they name two.
    """
    phone = _text(message, "from")
    fits = not phone or not _text(lone, "wa_id")
    contact = (contacts.get(phone) if phone else None) or (lone if fits else {})
    return _text(message, "from_user_id") or _text(contact, "user_id"), phone or _text(contact, "wa_id")


def _status(report: Mapping[str, Any], window: ServiceWindow) -> DeliveryStatus | None:
    name, state = _text(report, "id"), _text(report, "status")
    if not name:
        return None
    errors = [_number(each, "code") for each in _maps(report, "errors")]
    if OUTSIDE in errors:
        for to in ("recipient_id", "recipient_user_id"):
            window.shut(_text(report, to))
    known = _STATES.get(state)
    new = one_line(state, _CODE_CHARS).text
    return DeliveryStatus(
        # Meta repeats these for up to 7 days, and not in their order.
        key=f"{name}:{new}",
        vendor_id=name,
        state=known or "unknown",
        code=str(errors[0]) if errors else "" if known else new,
        message=ERRORS.meaning(errors[0]) if errors else "",
    )


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _maps(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = of.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _text(of: Mapping[str, Any], name: str) -> str:
    """Returns a string, in which half a character is none."""
    found = of.get(name)
    return found.encode("utf-8", "replace").decode() if isinstance(found, str) else ""


def _number(of: Mapping[str, Any], name: str) -> int:
    """Returns a whole number, also as digits; 0 for anything else."""
    found = of.get(name)
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 12:
        return int(found)
    return found if isinstance(found, int) and abs(found) < 10**12 else 0
