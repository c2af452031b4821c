"""Says how the task of an access request stands, by how its call does. Pure."""

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
"""How long what a rule lets pass is said to be approved."""
_ENDINGS: Final[dict[str, TaskStatus]] = {"timeout": "expired", "cancelled": "cancelled"}
_USABLE: Final = ("permitted", "used", "ended")
_SHOWN_CHARS: Final = 2_000


@dataclass(frozen=True)
class CallApproval:
    """The approval of a call: until when it can be used, and with which arguments."""

    until: datetime
    args: dict[str, Any]
    at: datetime | None = None


def find_approval(
    answer: CallAnswer, asked: AskedQuestion | None, proposed: dict[str, Any], now: datetime
) -> CallApproval | None:
    """Returns the approval of a call; None where it has none. One that was given is there whatever comes later."""
    if asked is not None:
        request = asked.request
        if request.state not in ("approved", "happened") or request.decided_at is None:
            return None
        until = request.decided_at + timedelta(seconds=request.grant_ttl)
        return CallApproval(until, dict(asked.args), request.decided_at)
    # Nobody was asked: a rule lets it pass, or did and it was used or not in time.
    if answer.state == "permitted":
        return CallApproval(now + timedelta(seconds=AUTO_SECONDS), proposed)
    if answer.state in _USABLE or answer.source == "timeout":
        return CallApproval(now, proposed)
    return None


@dataclass(frozen=True)
class AccessTaskView:
    """The task of an access request, as its agent may see it now."""

    agent: str
    """The agent whose call it is."""
    answer: CallAnswer
    """How its call stands."""
    proposed: dict[str, Any]
    """The arguments that were proposed."""
    approval: CallApproval | None

    @property
    def is_as_proposed(self) -> bool:
        """Whether what was approved is what was proposed."""
        # By their canonical form: in Python 1 is 1.0, and True as well.
        return self.approval is not None and sha256_hex(self.approval.args) == sha256_hex(self.proposed)

    @property
    def status(self) -> TaskStatus:
        """The status; what was approved with other arguments is denied, as an enforcement point runs its own."""
        if self.approval is not None:
            return "approved" if self.is_as_proposed else "denied"
        if self.answer.state in MOVING:
            return "pending"
        return _ENDINGS.get(self.answer.source, "denied")

    def as_json(self, sealer: Sealer, endpoint: str) -> dict[str, Any]:
        """Returns the task and, of an approved one, its result; `endpoint` is where access is requested."""
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
        """Returns the reference by which the call is evaluated anew; its id alone lets nothing pass."""
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
            words = f"approved with other arguments alone; ask anew with these: {args}"
            return {"title": "Approved with changes", "description": words}
        pending = self.status == "pending"
        words = self.answer.code if pending else self.answer.reason
        return {
            "title": "Waiting for approval" if pending else "Not approved",
            **({"description": words} if words else {}),
        }
