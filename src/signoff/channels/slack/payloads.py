"""Parses Slack's payloads (docs.slack.dev, Interactivity and Events API). Only their sender is trusted."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from signoff.channels.channel_errors import Malformed
from signoff.channels.envelopes import InboundAction, InboundBatch, InboundRequest
from signoff.channels.json_body import read_object
from signoff.channels.slack.blocks import APPROVE, ASK, DENY, REASON, ROOM_ACTS
from signoff.channels.vendor_time import time_from_seconds

_ESCAPES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
"""The order matters: otherwise `&lt;` in a person's text would become another sign."""
_PICTURES: Final[Mapping[str, str]] = {
    "+1": "👍",
    "thumbsup": "👍",
    "-1": "👎",
    "thumbsdown": "👎",
    "white_check_mark": "✅",
    "heavy_check_mark": "✔",
    "ballot_box_with_check": "☑",
    "ok": "🆗",
    "ok_hand": "👌",
    "pray": "🙏",
    "slightly_smiling_face": "🙂",
    "blush": "😊",
    "smile": "😄",
    "grinning": "😀",
    "smiley": "😃",
    "grin": "😁",
    "tada": "🎉",
    "100": "💯",
    "raised_hands": "🙌",
    "clap": "👏",
    "handshake": "🤝",
    "heart": "❤",
    "x": "❌",
    "no_entry": "⛔",
    "no_entry_sign": "🚫",
    "octagonal_sign": "🛑",
    "no_good": "🙅",
}
_SHORTCODE: Final = re.compile(r":([a-z0-9_+-]{1,40}):(?::skin-tone-[2-6]:)?")
_DEEPEST: Final = 20

_FORM: Final = "application/x-www-form-urlencoded"
_TOKEN_CHARS: Final = 32
_WRITTEN: Final = ("", "file_share", "me_message", "thread_broadcast")
"""The subtypes of messages that a person writes."""
_CHANGES: Final = ("message_changed", "message_deleted")
"""The subtypes of events about an earlier message."""
_TO_US: Final = ("im", "mpim")
"""The types of conversations with the app: with one person, or with several."""


def read_payload(raw: InboundRequest) -> InboundBatch:
    """Parse a verified message, without unknown contents. Raises `Malformed`."""
    kind = raw.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _FORM:
        return interaction(read_object(_field(raw.body)))
    if kind == "application/json":
        return event(read_object(raw.body))
    raise Malformed("the content type is neither a form nor JSON")


def interaction(payload: Mapping[str, Any]) -> InboundBatch:
    if payload.get("type") == "block_actions":
        actions = [_parse_press(payload, each) for each in _list(payload, "actions")]
        return InboundBatch(actions=tuple(each for each in actions if each is not None))
    if payload.get("type") == "view_submission":
        return _parse_submission(payload)
    return InboundBatch()


def event(body: Mapping[str, Any]) -> InboundBatch:
    """Only people's messages to the app, their edits and deletions count."""
    if body.get("type") == "url_verification":
        return InboundBatch(body=_text(body, "challenge").encode())
    inner = _map(body, "event")
    if body.get("type") == "event_callback" and _text(inner, "subtype") in _CHANGES:
        return _parse_change(body, inner)
    # Slack also reports the app's own messages. Skip them, or we would answer ourselves.
    ours = "bot_id" in inner or _text(inner, "subtype") not in _WRITTEN or inner.get("channel_type") not in _TO_US
    if body.get("type") != "event_callback" or inner.get("type") != "message" or ours:
        return InboundBatch()
    channel, thread = _text(inner, "channel"), _text(inner, "thread_ts")
    # A picture or forwarded message may contain a condition. In a group, the words also address others.
    group = inner.get("channel_type") != "im"
    unclear = "group" if group else "attachment" if inner.get("files") or inner.get("attachments") else ""
    # Without a thread, only the writer sees the reply.
    where = {"channel": channel, "user": _text(inner, "user")}
    where |= {} if group else {"thread": thread or _text(inner, "ts")}
    return InboundBatch(
        actions=(
            InboundAction(
                # Slack sends an event up to four times if it gets no response within 3 s.
                key=f"{channel}:{_text(inner, 'ts')}",
                # Prefer the writer's workspace to the app's: a guest of Slack Connect has another one.
                identity=_who(inner.get("team") or body.get("team_id"), inner.get("user")),
                vendor_ids=(f"{channel}:{thread}",) if thread else (),
                text=_written_text(inner),
                said_at=time_from_seconds(inner.get("ts")),
                unclear=unclear,
                where=where,
            ),
        )
    )


def _parse_change(body: Mapping[str, Any], inner: Mapping[str, Any]) -> InboundBatch:
    message, earlier = _map(inner, "message"), _map(inner, "previous_message")
    deleted = _text(inner, "subtype") == "message_deleted" or _text(message, "subtype") == "tombstone"
    stamp = _text(inner, "deleted_ts") or _text(earlier, "ts") or _text(message, "ts")
    edited = _text(_map(message, "edited"), "ts")
    # Slack also changes messages without the person, such as to add a link's preview.
    by_slack = not deleted and edited == _text(_map(earlier, "edited"), "ts")
    if by_slack or "bot_id" in earlier or inner.get("channel_type") not in _TO_US or not _text(earlier, "user"):
        return InboundBatch()
    channel, thread = _text(inner, "channel"), _text(earlier, "thread_ts")
    thread = thread or ("" if deleted else stamp)
    where = {"channel": channel, "user": _text(earlier, "user")}
    action = InboundAction(
        key=f"{channel}:{stamp}:{'deleted' if deleted else edited}",
        identity=_who(earlier.get("team") or body.get("team_id"), earlier.get("user")),
        changes=f"{channel}:{stamp}",
        unclear="deleted" if deleted else "edited",
        text=_written_text(message) if not deleted else "",
        said_at=time_from_seconds(inner.get("event_ts") or inner.get("ts")),
        where=where | ({"thread": thread} if thread and inner.get("channel_type") == "im" else {}),
    )
    return InboundBatch(actions=(action,))


def _parse_press(payload: Mapping[str, Any], action: Any) -> InboundAction | None:
    """None for other buttons: the browser opens the links.

    A press of Deny or of the question opens a dialog. A press in a dialog is in no channel, and is answered there.
    """
    name = _text(action, "action_id") if isinstance(action, Mapping) else ""
    if name not in (APPROVE, DENY, ASK, *ROOM_ACTS):
        return None
    container, user, view = _map(payload, "container"), _map(payload, "user"), _text(_map(payload, "view"), "id")
    channel = _text(container, "channel_id") or _text(_map(payload, "channel"), "id")
    stamp = _text(container, "message_ts") or _text(_map(payload, "message"), "ts") or view
    token = _text(action, "value")[:_TOKEN_CHARS]
    where = {"response_url": _text(payload, "response_url"), "channel": channel, "user": _text(user, "id")}
    where |= {"view": view} if view else {}
    room = ROOM_ACTS.get(name)
    if name in (DENY, ASK) or room == "show":
        where |= {"trigger_id": _text(payload, "trigger_id"), "token": token, "button": name}
    return InboundAction(
        # Slack gives a press no id. Build one from the person, the button and the time.
        key=":".join((_team(payload), channel, stamp, where["user"], _text(action, "action_ts"))),
        identity=_who(_team(payload), user.get("id")),
        token=token,
        # A denial counts only when its dialog is submitted. Until then the person may cancel.
        verdict="approved" if name == APPROVE else None,
        room=room,
        where=where,
    )


def _parse_submission(payload: Mapping[str, Any]) -> InboundBatch:
    view, user = _map(payload, "view"), _map(payload, "user")
    name = view.get("callback_id")
    if name not in (DENY, ASK):
        return InboundBatch()
    opened = read_object(_text(view, "private_metadata").encode())
    field = _map(_map(_map(_map(view, "state"), "values"), REASON), REASON)
    action = InboundAction(
        key=":".join((_team(payload), _text(view, "id"), _text(user, "id"))),
        identity=_who(_team(payload), user.get("id")),
        token=_text(opened, "token")[:_TOKEN_CHARS],
        verdict="denied" if name == DENY else None,
        **{"reason" if name == DENY else "question": _unescape(_text(field, "value")).strip()},
        where={name: _text(opened, name) for name in ("channel", "view") if _text(opened, name)}
        | {"user": _text(user, "id")},
    )
    return InboundBatch(actions=(action,))


def _team(payload: Mapping[str, Any]) -> str:
    """Return the actor's workspace. A guest has another workspace's id, and therefore matches no person of ours."""
    return _text(_map(payload, "user"), "team_id") or _text(_map(payload, "team"), "id")


def _who(team: object, user: object) -> str:
    if not isinstance(team, str) or not isinstance(user, str) or not team or not user:
        raise Malformed("it does not name the person")
    return f"{team}:{user}"


def _field(body: bytes) -> bytes:
    try:
        values = parse_qs(body.decode(), strict_parsing=True, max_num_fields=5).get("payload", [])
    except ValueError:
        raise Malformed("the form cannot be read") from None
    # Reject two: one parser takes the first and another the last.
    if len(values) != 1:
        raise Malformed("the form has not one `payload`")
    return values[0].encode()


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _list(of: Mapping[str, Any], name: str) -> list[Any]:
    value = of.get(name)
    return value if isinstance(value, list) else []


def _text(of: Mapping[str, Any], name: str) -> str:
    value = of.get(name)
    return value if isinstance(value, str) else ""


def _unescape(text: str) -> str:
    for escaped, plain in _ESCAPES:
        text = text.replace(escaped, plain)
    return text


def _written_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message.

    A client may show only in `blocks` that text is struck out or quoted. The marks for that are then added here.
    """
    written = message.get("text")
    text = _unescape(written) if isinstance(written, str) else ""
    # An unlisted emoji keeps its name, which is not an answer's word.
    text = _SHORTCODE.sub(lambda code: _PICTURES.get(code[1], code[0]), text)
    marks = set(_marks(message.get("blocks"), 0))
    for mark in sorted(marks):
        if mark not in text:
            text = f"{mark}{text}"
    return text


def _marks(part: Any, depth: int) -> Iterator[str]:
    """Yield the marks of a rich text: `~` for struck-out text, `>` for quotes, `` ` `` for code."""
    if depth > _DEEPEST:
        yield "~"
    elif isinstance(part, list):
        for each in part:
            yield from _marks(each, depth + 1)
    elif isinstance(part, dict):
        style = part.get("style")
        if isinstance(style, dict) and style.get("strike"):
            yield "~"
        if isinstance(style, dict) and style.get("code"):
            yield "`"
        kind = part.get("type")
        yield from {"rich_text_quote": ">", "rich_text_preformatted": "`"}.get(str(kind), "")
        yield from _marks(part.get("elements"), depth + 1)
