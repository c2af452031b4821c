"""Connects a turn with its session, and keeps a session's events until its next turn records them.

A session runs no activities and cannot record its own events. Without a session, this module adds no history event.
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
"""Maximum length, in characters, of unchecked input."""


class SessionLink:
    """Receives the late results of a turn's session, and reports the turn's progress to it."""

    def __init__(self, turn: TurnInput) -> None:
        self._turn = turn
        self._session = SessionKey(turn.tenant_id, turn.session_id)
        self._key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        self._letters: dict[str, LateResult] = {}
        self._taken: list[str] = []
        self._aside: asyncio.Task[None] | None = None

    def receive(self, envelopes: Sequence[Any]) -> None:
        """Accept a late result, once per id. The model gets it with the next completion."""
        # A result ignored here is missing from the report's `taken`, so the session starts another turn for it.
        if not self._turn.in_session or envelope_problem(envelopes) or len(self._letters) >= SESSION_MAILBOX:
            return
        letter = read_envelope(envelopes[0], LateResult)
        if isinstance(letter, LateResult):
            self._letters.setdefault(letter.id, letter)

    @property
    def has_messages(self) -> bool:
        return len(self._letters) > len(self._taken)

    def take_messages(self) -> tuple[Message, ...]:
        new = [letter for letter in self._letters.values() if letter.id not in self._taken]
        self._taken += [letter.id for letter in new]
        return tuple(replace(letter.message, late=True) for letter in new)

    def report_waiting(self) -> None:
        """Notify the session, once, that the next message need not wait for this turn."""
        if self._turn.in_session and self._aside is None:
            report = TurnReport(turn=self._turn.turn_id, state="waiting")
            # Send it in the background: a slow session must not delay the approvers.
            self._aside = asyncio.create_task(self._tell(names.TURN_WAITS, report))

    async def report_end(
        self, result: TurnResult, denied: Sequence[Denial], updates: Updates, place: Place | None, left_open: int
    ) -> None:
        """Report the turn's end to the session. Returns once the session knows it or no longer exists."""
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
        """Report the outcome of a call that was open at the turn's end. Returns once the session knows it."""
        approval_id = ApprovalKey(self._key, call).id
        # Derive the id from the call, so that a second report, for example after a reset, is a duplicate.
        letter = LateResult(id=sha256_hex(approval_id)[:40], turn=self._turn.turn_id, message=message, outcome_of=call)
        await self._finish(asyncio.create_task(self._tell(names.INJECT, letter)))

    async def report_failed_start(self, error: TurnError) -> None:
        await self._end(TurnReport(turn=self._turn.turn_id, state="error", error=error))

    async def _end(self, report: TurnReport) -> None:
        if not self._turn.in_session:
            return
        for telling in filter(None, (self._aside, asyncio.create_task(self._tell(names.TURN_ENDED, report)))):
            await self._finish(telling)

    async def _finish(self, telling: asyncio.Task[None]) -> None:
        while not telling.done():
            # A cancellation after the end must not stop the report to the session.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(telling)

    async def _tell(self, signal: str, report: TurnReport | LateResult) -> None:
        # A closed session needs no report.
        with contextlib.suppress(FailureError):
            handle = workflow.get_external_workflow_handle(self._session.workflow_id)
            await handle.signal(signal, report.model_dump(mode="json"))


class SessionLog:
    """Keeps a limited number of events. Once it is full, the last event counts the later ones."""

    def __init__(self, kept: Sequence[SessionEvent]) -> None:
        self.kept = tuple(kept)

    def record_reply(
        self,
        what: Literal["message", "result", "report"],
        envelopes: Sequence[Any],
        receipt: SessionReceipt,
        at: datetime,
    ) -> SessionReceipt:
        """Keep the event and return `receipt`. Skips accepted messages, because their own turns record them."""
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
                    # The content is unchecked: the audit log keeps a fingerprint as proof, and never the content.
                    body=fingerprint(list(envelopes)),
                )
            )
        return receipt

    def record_lost_turn(self, turn: str, code: str, at: datetime) -> None:
        """Record a turn that ended without a report, or never started."""
        self._keep(SessionEvent(at=at, what="turn", id=turn, status="refused", code=code))

    def take(self) -> tuple[SessionEvent, ...]:
        taken, self.kept = self.kept, ()
        return taken

    def give_back(self, taken: Sequence[SessionEvent]) -> None:
        """Put the events back, because that turn did not start."""
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
    # Replace lone surrogates: a history cannot hold them.
    return found[:_CHARS].encode(errors="replace").decode() if isinstance(found, str) else ""
