"""Exports a turn's audit log as a trace (schema 2) of `agentack`, a published checker of approval controls.

Every question to approvers is a separate action, `<approval id>/<revision>/<digest>`. A call that ran without one is
`<approval id>`. All actions of one call share an intent. The audit log contains no arguments, so an action's parameters
are the digest that binds them. A request has the digest shown to approvers, an execution the digest of the executed
call. A replaced question counts as denied, because nothing may run on it. Calls that the gates ended without a question
are left out: the format has no refusal without a request.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from signoff.approvals.digest import doubt_digest
from signoff.audit.record import TOO_LONG, Record
from signoff.audit.retention import RETIRED
from signoff.contracts.errors import Refused

SCHEMA: Final = 2
_OPERATION: Final = "call"
_SHORT: Final = 16

Event = dict[str, Any]


def trace(records: Sequence[Record]) -> list[str]:
    """Convert one turn's `records`, in order, to lines of JSON.

    Raises `Refused` for an unreadable record, and if older ones were retired.
    """
    turn = _Turn()
    events = [event for record in records for event in _events(turn, record)]
    if records:
        events.append(_event(records[-1], "session_end", reason="the end of the record"))
    return [json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in events]


def _events(turn: "_Turn", record: Record) -> list[Event]:
    try:
        return list(turn.events(record))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # Anyone who runs under a turn's id writes its entries. A trace that left out one of them would describe another
        # turn.
        why = f"record {record.seq} of `{record.stream}` is no `{record.kind}` that can be read"
        raise Refused(why) from error


@dataclass(frozen=True)
class _Question:
    """A request as shown.

    `action_id` and `action` are the checker's terms.

    An approval of it is valid for `lasts` seconds.
    """

    approval: str
    action_id: str
    action: Mapping[str, Any]
    lasts: float | None

    @property
    def names(self) -> Event:
        return {"action_id": self.action_id, "approval_id": self.action_id, "intent_id": self.approval}


@dataclass
class _Turn:
    """The questions so far.

    These are all by action id, the unanswered ones, and the approved question of each call not yet run.
    """

    asked: dict[str, _Question] = field(default_factory=dict)
    waiting: list[_Question] = field(default_factory=list)
    approved: dict[str, _Question] = field(default_factory=dict)

    def events(self, record: Record) -> Iterator[Event]:
        facts = record.facts
        if record.kind == RETIRED:
            raise Refused(f"the first {record.seq - 1} records of `{record.stream}` were retired")
        if TOO_LONG in facts:
            raise Refused(f"record {record.seq} of `{record.stream}` was too long to be kept whole")
        if record.kind in ("request", "revision") or (record.kind == "in_doubt" and "approvers" in facts):
            yield from self._convert_question(record, facts)
        elif record.kind == "ending":
            yield from self._convert_end(record, facts)
        elif record.kind in ("auto", "grant"):
            names = {"action_id": facts["approval"], "intent_id": facts["approval"]}
            yield _event(record, "action_proposed", **names, action=_action(facts, facts["digest"]))
        elif record.kind == "execution" and "refused" not in facts:
            self.approved.pop(facts["approval"], None)
            yield _event(record, "action_executed", **_convert_execution(facts))
        elif record.kind == "outcome" and facts["approval"] in self.approved:
            # The gates ended the call before it ran: the tool is gone, a rule denies it now, or the tenant is frozen.
            question = self.approved.pop(facts["approval"])
            yield _event(record, "action_blocked", **question.names, reason=facts["code"])

    def _convert_question(self, record: Record, facts: Mapping[str, Any]) -> Iterator[Event]:
        action_id = _action_id(facts["approval"], facts["revision"], facts["digest"])
        question = _Question(facts["approval"], action_id, _action(facts, facts["digest"]), facts.get("grant_ttl"))
        if action_id in self.asked:
            return
        self.asked[action_id] = question
        self.waiting.append(question)
        proposed = {name: value for name, value in question.names.items() if name != "approval_id"}
        yield _event(record, "action_proposed", **proposed, action=question.action)
        yield _event(record, "approval_requested", **question.names, action=question.action)

    def _convert_end(self, record: Record, facts: Mapping[str, Any]) -> Iterator[Event]:
        question = self.asked.get(_action_id(facts["approval"], facts["revision"], facts["digest"]))
        if question is None:
            return
        state = str(facts["state"])
        if state == "lapsed":
            self.approved.pop(question.approval, None)
            yield _event(record, "action_blocked", **question.names, reason=state)
            return
        # This decision replaces all other questions about this call.
        for other in [each for each in self.waiting if each.approval == question.approval and each != question]:
            yield from _convert_denial(record, other, f"replaced by revision {facts['revision']}")
        self.waiting = [each for each in self.waiting if each.approval != question.approval]
        if state == "approved":
            self.approved[question.approval] = question
            expiry = {} if question.lasts is None else {"expires_at": _later(record.at, question.lasts)}
            yield _event(record, "approval_decision", **question.names, decision="allow", **expiry)
        else:
            yield from _convert_denial(record, question, state)


def _convert_denial(record: Record, question: _Question, why: str) -> Iterator[Event]:
    yield _event(record, "approval_decision", **question.names, decision="deny")
    yield _event(record, "action_blocked", **question.names, reason=why)


def _convert_execution(facts: Mapping[str, Any]) -> Event:
    """The question is the call's own, or the one about the outcome of its last attempt."""
    approval, digest, revision = facts["approval"], facts["digest"], facts.get("revision", 1)
    permit = {"action_id": approval, "intent_id": approval}
    # After an unknown outcome, a call runs again on the later of two approvals: the call's own, or the one about its
    # last attempt.
    doubted = max((each["revision"] for each in facts.get("doubts", ())), default=0)
    if doubted > (revision if facts["permit"] == "approved" else 0):
        revision, digest = doubted, doubt_digest(digest, int(str(facts["ticket"]).partition("/")[2]) - 1)
    elif facts["permit"] != "approved":
        return permit | {"action": _action(facts, digest)}
    action_id = _action_id(approval, revision, digest)
    return permit | {"action_id": action_id, "approval_id": action_id, "action": _action(facts, digest)}


def _action_id(approval: str, revision: int, digest: str) -> str:
    """Contains the digest, because two concurrent edits are both revision 2."""
    return f"{approval}/{revision}/{digest[:_SHORT]}"


def _action(facts: Mapping[str, Any], digest: str) -> Event:
    return {"tool": facts["tool"], "operation": _OPERATION, "parameters": {"digest": digest}}


def _event(record: Record, kind: str, **fields: Any) -> Event:
    return {"schema_version": SCHEMA, "type": kind, "timestamp": record.at, "session_id": record.stream, **fields}


def _later(at: str, seconds: float) -> str:
    return (datetime.fromisoformat(at) + timedelta(seconds=seconds)).isoformat(timespec="microseconds")
