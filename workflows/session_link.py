"""Connects a turn with the session that began it, and keeps a session's events until its next turn records them.

A turn without a session costs no event here. A session runs no activity, so it cannot record events itself.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

from temporalio import workflow
from temporalio.exceptions import FailureError

from signoff.approvals.approval_book import envelope_problem
from signoff.approvals.audit_events import fingerprint
from signoff.contracts import names
from signoff.contracts.call import Place
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.limits import SESSION_EVENTS_KEPT, SESSION_MAILBOX
from signoff.contracts.message import Message
from signoff.contracts.session_messages import LateResult, SessionReceipt, TurnReport
from signoff.contracts.turn import Denial, SessionEvent, TurnError, TurnInput, TurnResult
from signoff.contracts.updates import Updates
from signoff.formats.replace import replace
from signoff.workflows.envelope_reader import read_envelope

_CHARS: Final = 200
"""Characters of what somebody wrote without anybody having checked it."""


class SessionLink:
    """Takes in what a turn's session sends it, and tells the session how the turn goes."""

    def __init__(self, turn: TurnInput) -> None:
        self._turn = turn
        self._session = SessionKey(turn.tenant_id, turn.session_id)
        self._key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        self._letters: dict[str, LateResult] = {}
        self._taken: list[str] = []
        self._aside: asyncio.Task[None] | None = None

    def receive(self, envelopes: Sequence[Any]) -> None:
        """Takes in a late result, once for each id; the model is told of it with the next completion."""
        # What is not taken here is not among `taken` either: the session begins a turn of its own for it.
        if not self._turn.in_session or envelope_problem(envelopes) or len(self._letters) >= SESSION_MAILBOX:
            return
        letter = read_envelope(envelopes[0], LateResult)
        if isinstance(letter, LateResult):
            self._letters.setdefault(letter.id, letter)

    @property
    def has_messages(self) -> bool:
        """Whether a late result is to be told."""
        return len(self._letters) > len(self._taken)

    def take_messages(self) -> tuple[Message, ...]:
        """Returns the late results since the last time, as messages."""
        new = [letter for letter in self._letters.values() if letter.id not in self._taken]
        self._taken += [letter.id for letter in new]
        return tuple(replace(letter.message, late=True) for letter in new)

    def report_waiting(self) -> None:
        """Tells the session, once, that the next message need not wait for this turn."""
        if self._turn.in_session and self._aside is None:
            report = TurnReport(turn=self._turn.turn_id, state="waiting")
            # Beside the turn: a session that is slow to hear must not hold up those who are asked.
            self._aside = asyncio.create_task(self._tell(names.TURN_WAITS, report))

    async def report_end(
        self, result: TurnResult, denied: Sequence[Denial], updates: Updates, place: Place | None, left_open: int
    ) -> None:
        """Tells the session how the turn ended. Returns when it knows, or is there no more."""
        report = TurnReport(
            turn=self._turn.turn_id,
            state=result.state,
            parts=result.parts,
            error=result.error,
            pass_to=result.pass_to,
            denied=tuple(denied),
            taken=tuple(self._taken),
            updates=updates,
            left_open=left_open,
            place=place,
        )
        await self._end(report)

    async def report_outcome(self, call: str, message: Message) -> None:
        """Tells the session what became of a call over which the turn ended. Returns when it knows."""
        approval_id = ApprovalKey(self._key, call).id
        # By its call: told again, as after a reset, it is the same outcome.
        letter = LateResult(id=sha256_hex(approval_id)[:40], turn=self._turn.turn_id, message=message, outcome_of=call)
        await self._finish(asyncio.create_task(self._tell(names.INJECT, letter)))

    async def report_failed_start(self, error: TurnError) -> None:
        """Tells the session that the turn could not even begin."""
        await self._end(TurnReport(turn=self._turn.turn_id, state="error", error=error))

    async def _end(self, report: TurnReport) -> None:
        if not self._turn.in_session:
            return
        for telling in filter(None, (self._aside, asyncio.create_task(self._tell(names.TURN_ENDED, report)))):
            await self._finish(telling)

    async def _finish(self, telling: asyncio.Task[None]) -> None:
        while not telling.done():
            # A cancel that comes after the end must not keep the session from hearing of it.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(telling)

    async def _tell(self, signal: str, report: TurnReport | LateResult) -> None:
        # A session that was closed meanwhile needs no word.
        with contextlib.suppress(FailureError):
            handle = workflow.get_external_workflow_handle(self._session.workflow_id)
            await handle.signal(signal, report.model_dump(mode="json"))


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
