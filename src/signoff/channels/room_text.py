"""Writes a request for a room, whose members may not all know its contents."""

from collections.abc import Iterator
from datetime import datetime

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.channels.envelopes import RoomAct, RoomCard
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import show_code
from signoff.formats.visible_text import one_line
from signoff.texts.endings import closing_words
from signoff.texts.formatter import Formatter


def room_card(
    request: ApprovalRequest,
    token: str,
    address: str,
    formatter: Formatter,
    *,
    ended: bool = False,
    holder: str = "",
    until: datetime | None = None,
) -> RoomCard:
    """Write the card of a request, which `holder` has taken `until` then.

    Use the tool's name, code, requester, deadline and end alone. Effect, title, notes, reasons and the model's words
    may contain arguments.
    """
    tool = one_line(request.tool, NAME_CHARS).text
    key = "room.doubt" if request.kind == "in_doubt" else "room.ask"
    heading = formatter.text(key, tool=tool, code=show_code(request.code))
    if ended:
        return RoomCard(token=token, address=address, heading=heading, lines=(f"{closing_words(request, formatter)}.",))
    lines = tuple(_lines(request, formatter, holder, until))
    acts: tuple[RoomAct, ...] = ("take", "release", "show") if holder else ("take", "show")
    buttons = tuple((act, formatter.text(f"room.{act}")) for act in acts)
    return RoomCard(token=token, address=address, heading=heading, lines=lines, buttons=buttons)


def _lines(request: ApprovalRequest, formatter: Formatter, holder: str, until: datetime | None) -> Iterator[str]:
    who = one_line(request.requester.name or request.requester.user, NAME_CHARS).text
    yield formatter.text("room.requester", who=who)
    if request.expires_at is not None:
        yield formatter.text("room.due", when=formatter.time(request.expires_at))
    if holder and until is not None:
        yield formatter.text("room.taken", who=one_line(holder, NAME_CHARS).text, when=formatter.time(until))
