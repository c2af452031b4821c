"""Keeps events of a session that are not recorded yet: its next turn records them, as a session runs no activity."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

from signoff.approvals.audit_events import fingerprint
from signoff.contracts.limits import SESSION_EVENTS_KEPT
from signoff.contracts.session_messages import SessionReceipt
from signoff.contracts.turn import SessionEvent
from signoff.formats.replace import replace

_CHARS: Final = 200
"""Characters of what somebody wrote without anybody having checked it."""


class SessionLog:
    """Keeps a bounded number of events: when it is full, the last one counts those that came after."""

    def __init__(self, kept: Sequence[SessionEvent]) -> None:
        self.kept = tuple(kept)

    def record_reply(
        self,
        what: Literal["message", "result", "report"],
        envelopes: Sequence[Any],
        receipt: SessionReceipt,
        at: datetime,
    ) -> SessionReceipt:
        """Keeps what was sent, and returns its receipt. Of an accepted message its own turn has a record."""
        if receipt.status == "refused" or (what == "result" and not receipt.code):
            body = envelopes[0] if len(envelopes) == 1 and isinstance(envelopes[0], dict) else {}
            self._keep(
                SessionEvent(
                    at=at,
                    what=what,
                    id=_text(body.get("turn" if what == "report" else "id")),
                    subject=_author(body),
                    status="refused" if receipt.status == "refused" else "accepted",
                    code=receipt.code,
                    # Nobody has checked what it says: the record can prove what came, and repeats none of it.
                    body=fingerprint(list(envelopes)),
                )
            )
        return receipt

    def record_lost_turn(self, turn: str, code: str, at: datetime) -> None:
        """Records that a turn ended without a report, or never began: it cannot record that itself."""
        self._keep(SessionEvent(at=at, what="turn", id=turn, status="refused", code=code))

    def take(self) -> tuple[SessionEvent, ...]:
        """Returns all events, for a turn that begins."""
        taken, self.kept = self.kept, ()
        return taken

    def give_back(self, taken: Sequence[SessionEvent]) -> None:
        """Takes the events back, as that turn did not begin."""
        self.kept = (*taken, *self.kept)

    def _keep(self, event: SessionEvent) -> None:
        if len(self.kept) < SESSION_EVENTS_KEPT:
            self.kept = (*self.kept, event)
        else:
            last = self.kept[-1]
            self.kept = (*self.kept[:-1], replace(last, more=last.more + 1))


def _author(body: dict[Any, Any]) -> str:
    principals = body.get("principals")
    first = principals[0] if isinstance(principals, list) and principals else None
    return _text(first.get("user")) if isinstance(first, dict) else ""


def _text(found: Any) -> str:
    # Half a character of UTF-16 could not be written into a history.
    return found[:_CHARS].encode(errors="replace").decode() if isinstance(found, str) else ""
