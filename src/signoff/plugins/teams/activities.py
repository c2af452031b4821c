"""Parses the Bot Framework's activities of Teams. Only their sender is trusted.

Counts only conversations between one person and the bot. Words and cards elsewhere address others.
"""

import re
from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import Any, Final

from signoff.channels import Contact, InboundAction, InboundBatch, Malformed, RoomAct, Verdict, time_from_iso
from signoff.formats.replace import replace
from signoff.plugins.teams.cards import OURS, QUESTION, REASON, VERB
from signoff.plugins.teams.message_text import HTML_CHARS, read_html

CHANNEL: Final = "msteams"
"""Teams' name in the Bot Framework. Other channels of it let anyone choose a person's object id."""
INVOKE: Final = "adaptiveCard/action"
_GUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TOKEN: Final = re.compile(r"[a-z0-9]{1,32}\Z")
_VERDICTS: Final[Mapping[str, Verdict]] = {"approved": "approved", "denied": "denied"}
_ROOM: Final = re.compile(r"19:[A-Za-z0-9_.@-]{1,150}\Z")
"""The id of a team's channel."""
ROOM_ACTS: Final[Mapping[str, RoomAct]] = {"take": "take", "release": "release", "show": "show"}
_HTML: Final = "text/html"
_ID_CHARS: Final = 500
_UNKNOWN_INVOKE: Final = 501
"""The Bot Framework's status for an invoke that a bot does not handle."""
_EDITS: Final[Mapping[str, str]] = {"messageUpdate": "edited", "messageDelete": "deleted"}


def tenants_of(activity: Mapping[str, Any]) -> set[str]:
    """Return the tenants that an activity names, in lower case."""
    named = (_map(_map(activity, "channelData"), "tenant").get("id"), _map(activity, "conversation").get("tenantId"))
    return {each.lower() for each in named if isinstance(each, str) and each}


def read_activity(activity: Mapping[str, Any], tenant: str) -> InboundBatch:
    """Leave out unknown contents. Raises `Malformed`."""
    kind = activity.get("type")
    invoke = kind == "invoke"
    unknown = InboundBatch(status=_UNKNOWN_INVOKE if invoke else 200)
    identity = _identity(activity, tenant)
    if room := _room_of(activity):
        return _read_in_room(activity, identity, room, unknown)
    if not identity or not _is_personal(activity):
        return unknown
    contact = Contact(identity=identity, handle=place_of(activity))
    known = with_fields(unknown, contacts=(contact,))
    if kind == "installationUpdate" and str(activity.get("action")).startswith("remove"):
        return with_fields(unknown, contacts=(replace(contact, handle=None),))
    if invoke:
        press = _press(activity, identity, _map(_map(activity, "value"), "action"))
        return known if press is None else with_fields(known, actions=(press,), status=200)
    if kind == "message":
        return with_fields(known, actions=_message(activity, identity))
    if kind in _EDITS:
        return with_fields(known, actions=_change(activity, identity, _EDITS[str(kind)]))
    return known


def room_contact(room: str) -> str:
    """Return the identity of the contact for a team's channel. No identity of a person has this form."""
    return f"room:{room}"


def _room_of(activity: Mapping[str, Any]) -> str:
    """Return the id of a team's channel without that of a thread in it, "" for other conversations."""
    conversation = _map(activity, "conversation")
    room = _text(conversation, "id").partition(";")[0]
    return room if conversation.get("conversationType") == "channel" and _ROOM.match(room) else ""


def _read_in_room(activity: Mapping[str, Any], identity: str, room: str, unknown: InboundBatch) -> InboundBatch:
    """Only buttons of a room's card count. All members may have written or read the rest."""
    place = {"service": _text(activity, "serviceUrl"), "conversation": room, "user": ""}
    removed = activity.get("type") == "installationUpdate" and str(activity.get("action")).startswith("remove")
    known = with_fields(unknown, contacts=(Contact(identity=room_contact(room), handle=None if removed else place),))
    value = _map(activity, "value")
    action = _map(value, "action") if activity.get("type") == "invoke" else {}
    if action and (activity.get("name") != INVOKE or action.get("verb") != VERB):
        return known
    ours = _map(_map(action, "data") if action else value, OURS)
    token, act = _text(ours, "token"), ROOM_ACTS.get(_text(ours, "room"))
    if not identity or act is None or not _TOKEN.match(token):
        return known
    press = InboundAction(
        key=f"press:{_named(activity)}",
        identity=identity,
        token=token,
        room=act,
        said_at=time_from_iso(activity.get("timestamp")),
        # Never reply in the room: its members would read it.
        where={"identity": identity, "locale": _text(activity, "locale")},
    )
    return with_fields(known, actions=(press,), status=200)


def place_of(activity: Mapping[str, Any]) -> dict[str, str]:
    """Return the place of a conversation for a message in it."""
    return {
        "service": _text(activity, "serviceUrl"),
        "conversation": _id(_map(activity, "conversation")),
        "user": _id(_map(activity, "from")),
    }


def vendor_id(conversation: str, activity: str) -> str:
    return f"{conversation}:{activity}"


def _press(activity: Mapping[str, Any], identity: str, action: Mapping[str, Any]) -> InboundAction | None:
    """Return None for an action that is not ours."""
    if activity.get("name") != INVOKE or action.get("verb") != VERB:
        return None
    return _pressed(activity, identity, _map(action, "data"))


def _pressed(activity: Mapping[str, Any], identity: str, data: Mapping[str, Any]) -> InboundAction | None:
    ours = _map(data, OURS)
    token, verdict = _text(ours, "token"), _VERDICTS.get(_text(ours, "verdict"))
    question = _text(data, QUESTION).strip() if ours.get("asks") else ""
    if (verdict is None and not question) or not _TOKEN.match(token):
        return None
    return InboundAction(
        # Each press is another activity, even of the same button.
        key=f"press:{_named(activity)}",
        identity=identity,
        token=token,
        verdict=verdict,
        reason=_text(data, REASON).strip() if verdict == "denied" else "",
        question=question if verdict is None else "",
        said_at=time_from_iso(activity.get("timestamp")),
        where=_where(activity),
    )


def _message(activity: Mapping[str, Any], identity: str) -> tuple[InboundAction, ...]:
    value = activity.get("value")
    if isinstance(value, dict):
        # An older client has sent a button's data as a message.
        press = _pressed(activity, identity, value)
        return () if press is None else (press,)
    conversation = _id(_map(activity, "conversation"))
    attachments = activity.get("attachments")
    attached = [each for each in attachments if isinstance(each, dict)] if isinstance(attachments, list) else []
    rich = [each for each in attached if each.get("contentType") == _HTML and isinstance(each.get("content"), str)]
    content = rich[0]["content"] if rich else ""
    # A picture, a file or a forwarded card may contain a condition.
    whole = len(attached) == len(rich) <= 1 and len(content) <= HTML_CHARS
    read = read_html(content) if whole and rich else None
    return (
        InboundAction(
            key=f"message:{_named(activity)}",
            identity=identity,
            vendor_ids=(vendor_id(conversation, read.about),) if read is not None and read.about else (),
            text="" if not whole else _text(activity, "text") if read is None else read.text,
            unclear="" if whole else "attachment",
            said_at=time_from_iso(activity.get("timestamp")),
            where=_where(activity),
        ),
    )


def _change(activity: Mapping[str, Any], identity: str, how: str) -> tuple[InboundAction, ...]:
    """An edit has the id of its message."""
    return tuple(
        replace(
            action,
            key=f"{how}:{_text(activity, 'timestamp')}:{action.key}",
            changes=action.key,
            unclear=how,
            text="" if how == "deleted" else action.text,
        )
        for action in _message({**activity, "value": None}, identity)
    )


def _where(activity: Mapping[str, Any]) -> dict[str, str]:
    return {**place_of(activity), "locale": _text(activity, "locale")}


def _identity(activity: Mapping[str, Any], tenant: str) -> str:
    """Return `TENANT:OBJECT` of a person, "" for the bot itself and for Teams."""
    person = _text(_map(activity, "from"), "aadObjectId").lower()
    return f"{tenant}:{person}" if _GUID.match(person) else ""


def _is_personal(activity: Mapping[str, Any]) -> bool:
    conversation = _map(activity, "conversation")
    return conversation.get("conversationType") == "personal" and conversation.get("isGroup") is not True


def _named(activity: Mapping[str, Any]) -> str:
    """Activities are numbered within their conversation."""
    return vendor_id(_id(_map(activity, "conversation")), _id(activity))


def _id(of: Mapping[str, Any]) -> str:
    found = _text(of, "id")
    if not 0 < len(found) <= _ID_CHARS:
        raise Malformed("it lacks an id")
    return found


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _text(of: Mapping[str, Any], name: str) -> str:
    value = of.get(name)
    return value if isinstance(value, str) else ""
