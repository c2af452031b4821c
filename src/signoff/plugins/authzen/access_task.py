"""Derives the state of an access request's task from its call. Pure."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from signoff.calls import MOVING, AskedQuestion, Sealer
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.responses import CallAnswer
from signoff.plugins.authzen.sealed_ids import SealedCall, seal_approval, seal_task

TaskStatus: TypeAlias = Literal["pending", "approved", "denied", "expired", "cancelled"]
AUTO_SECONDS: Final = 60.0
"""How long the approval of a rule is reported to last."""
_ENDINGS: Final[dict[str, TaskStatus]] = {"timeout": "expired", "cancelled": "cancelled"}
_USABLE: Final = ("permitted", "used", "ended")
_SHOWN_CHARS: Final = 2_000


@dataclass(frozen=True)
class CallApproval:
    """The approval of a call: its end and its arguments."""

    until: datetime
    args: dict[str, Any]
    at: datetime | None = None


def find_approval(
    answer: CallAnswer, asked: AskedQuestion | None, proposed: dict[str, Any], now: datetime
) -> CallApproval | None:
    """Return `None` without an approval. Later events never remove one."""
    if asked is not None:
        request = asked.request
        if request.state not in ("approved", "happened") or request.decided_at is None:
            return None
        until = request.decided_at + timedelta(seconds=request.grant_ttl)
        return CallApproval(until, dict(asked.args), request.decided_at)
    # No approval was needed: a rule passes the call, now or before its use or timeout.
    if answer.state == "permitted":
        return CallApproval(now + timedelta(seconds=AUTO_SECONDS), proposed)
    if answer.state in _USABLE or answer.source == "timeout":
        return CallApproval(now, proposed)
    return None


@dataclass(frozen=True)
class AccessTaskView:
    """The present task of an access request, for its agent."""

    agent: str
    answer: CallAnswer
    proposed: dict[str, Any]
    approval: CallApproval | None

    @property
    def is_as_proposed(self) -> bool:
        """Whether the approved arguments are the proposed ones."""
        # Compare canonical forms: in Python 1 equals 1.0 and True.
        return self.approval is not None and sha256_hex(self.approval.args) == sha256_hex(self.proposed)

    @property
    def status(self) -> TaskStatus:
        """An approval with other arguments is a denial, because an enforcement point runs its own."""
        if self.approval is not None:
            return "approved" if self.is_as_proposed else "denied"
        if self.answer.state in MOVING:
            return "pending"
        return _ENDINGS.get(self.answer.source, "denied")

    def as_json(self, sealer: Sealer, endpoint: str) -> dict[str, Any]:
        """`endpoint` is the address of access requests."""
        task_id = seal_task(sealer, SealedCall(self.answer.id, self.agent))
        address = f"{endpoint}/{task_id}"
        links = {"ticket": self.answer.page} if self.answer.page else {}
        task: dict[str, Any] = {"id": task_id, "status": self.status, "status_endpoint": address}
        if self.status == "pending":
            links["cancel"] = f"{address}/cancel"
            if self.answer.expires_at is not None:
                task["expires_at"] = self.answer.expires_at.isoformat()
        task |= {"display": self._display()} | ({"links": links} if links else {})
        if self.status != "approved":
            return {"task": task}
        return {"task": task, "result": {"mode": "reevaluate", "approval": self.approval_json(sealer)}}

    def approval_json(self, sealer: Sealer) -> dict[str, str]:
        """Return the reference for the next evaluation of the call. The id alone permits nothing."""
        if self.approval is None:
            return {}
        at = {} if self.approval.at is None else {"approved_at": self.approval.at.isoformat()}
        return {
            "id": seal_approval(sealer, SealedCall(self.answer.id, self.agent)),
            **at,
            "approved_until": self.approval.until.isoformat(),
        }

    def _display(self) -> dict[str, str]:
        if self.status == "approved":
            return {"title": "Approved", **({"description": self.answer.note} if self.answer.note else {})}
        if self.approval is not None:
            args = json.dumps(self.approval.args, ensure_ascii=False)[:_SHOWN_CHARS]
            words = f"approved only with other arguments; send a new request with these: {args}"
            return {"title": "Approved with changes", "description": words}
        pending = self.status == "pending"
        words = self.answer.code if pending else self.answer.reason
        return {
            "title": "Waiting for approval" if pending else "Not approved",
            **({"description": words} if words else {}),
        }
