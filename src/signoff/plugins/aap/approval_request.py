"""Derives the state of an approval request from its call. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from signoff.calls import MOVING, AskedQuestion, CallUse
from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.responses import CallAnswer

ApprovalStatus: TypeAlias = Literal["pending", "approved", "denied", "expired", "cancelled"]
_ENDINGS: Final[Mapping[str, ApprovalStatus]] = {"timeout": "expired", "cancelled": "cancelled"}
_USABLE: Final = ("permitted", "used", "ended")
_OUTCOMES: Final[Mapping[str, str]] = {"ok": "succeeded", "execution_failed": "failed"}
_SHOWN_CHARS: Final = 4_000


@dataclass(frozen=True)
class GivenRequest:
    """An adapter's request with its promised times, which never change."""

    id: str
    body: dict[str, Any]
    created_at: datetime
    deadline_at: datetime
    usable_until: datetime
    """Only for a call that needs no approval."""
    call: str

    def dump(self) -> str:
        times = [each.isoformat() for each in (self.created_at, self.deadline_at, self.usable_until)]
        return json.dumps([self.body, *times, self.call], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def load(cls, request_id: str, given: str) -> "GivenRequest":
        body, *times, call = json.loads(given)
        created, deadline, usable = map(datetime.fromisoformat, times)
        return cls(request_id, body, created, deadline, usable, call)


class ApprovedCall(NamedTuple):
    """The approval of a call: start, end, arguments and note."""

    at: datetime
    until: datetime
    args: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True)
class ApprovalRequestView:
    """The present state of an approval request for its adapter."""

    given: GivenRequest
    answer: CallAnswer
    asked: AskedQuestion | None
    """`None` if there was no question to approvers."""
    ticket: CallUse | None
    """`None` if the permit was not used."""

    @property
    def approval(self) -> ApprovedCall | None:
        """`None` without an approval. Later events never remove one."""
        if self.answer.state == "waiting":
            # The store may have the approval before the turn has processed it: it could not be used yet.
            return None
        if self.asked is not None:
            request = self.asked.request
            at = request.decided_at
            if request.state not in ("approved", "happened") or at is None or self._is_late:
                return None
            return ApprovedCall(at, at + timedelta(seconds=request.grant_ttl), self.asked.args, request.reason)
        # No approval was needed: a rule passes the call, now or before its use or timeout.
        if self.answer.state in _USABLE or self.answer.source == "timeout":
            given = self.given
            return ApprovedCall(given.created_at, given.usable_until, given.body["arguments"])
        return None

    @property
    def is_as_proposed(self) -> bool:
        """Whether the approved arguments are the requested ones."""
        return self.approval is not None and same_arguments(self.approval.args, self.given.body["arguments"])

    @property
    def status(self) -> ApprovalStatus:
        """An approval with other arguments is a denial, because an adapter runs its own."""
        if self.approval is not None:
            return "approved" if self.is_as_proposed else "denied"
        if self._is_late:
            return "expired"
        if self.answer.state in MOVING:
            return "pending"
        return _ENDINGS.get(self.answer.source, "denied")

    @property
    def usable_until(self) -> datetime | None:
        """The latest start of an approved call."""
        return self.approval.until if self.approval is not None and self.is_as_proposed else None

    def as_json(self) -> dict[str, Any]:
        status, given = self.status, self.given
        times = {"created_at": _stamp(given.created_at), "deadline_at": _stamp(given.deadline_at)}
        facts = {**given.body, "id": given.id, "status": status, **times}
        if status == "pending":
            return facts
        decided = self._decided_at()
        decision = {"status": status, "decided_at": _stamp(decided)}
        if note := self._note(status):
            decision["note"] = note
        if status != "approved" or self.approval is None:
            return {**facts, "decision": decision}
        # At least a microsecond after the decision: the protocol requires a later time.
        until = max(self.approval.until, decided + timedelta(microseconds=1))
        decision["expires_at"] = _stamp(until)
        used = self._consumption(decided)
        return {**facts, "decision": decision, **({"consumption": used} if used else {})}

    @property
    def _is_late(self) -> bool:
        # The deadline of a question counts from its arrival in the store, a moment after the proposal.
        decided = None if self.asked is None else self.asked.request.decided_at
        return decided is not None and decided > self.given.deadline_at

    def _decided_at(self) -> datetime:
        # An approval older than this request was decided, for the request, at its creation.
        begun = self.given.created_at
        if self._is_late:
            return self.given.deadline_at
        if self.approval is not None:
            return max(self.approval.at, begun)
        asked = None if self.asked is None else self.asked.request.decided_at
        return begun if asked is None else max(asked, begun)

    def _note(self, status: ApprovalStatus) -> str:
        if self.approval is not None and status == "denied":
            args = json.dumps(dict(self.approval.args), ensure_ascii=False)[:_SHOWN_CHARS]
            return f"Approved with other arguments alone. Call it with exactly these, which run without asking: {args}"
        if self.approval is not None:
            return self.approval.note
        return self.answer.reason if status == "denied" else ""

    def _consumption(self, decided: datetime) -> dict[str, Any] | None:
        ticket = self.ticket
        if ticket is None:
            return None
        # Two clocks may differ: a use must not appear before its approval.
        used = max(ticket.claimed_at, decided)
        facts: dict[str, Any] = {"consumed_at": _stamp(used)}
        status = _OUTCOMES.get(self.answer.code if self.answer.state == "ended" else "")
        if status is not None and ticket.finished_at is not None:
            outcome = {"status": status, "reported_at": _stamp(max(ticket.finished_at, used))}
            if isinstance(self.answer.result, str) and self.answer.result:
                outcome["note"] = self.answer.result
            facts["outcome"] = outcome
        return facts


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
