"""Converts audit records to events for external programs.

Pure. An event contains the facts of its type and no others: neither results nor people's texts. Arguments are included
in the dispatch of a call, with the secret ones already masked.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from signoff.approvals.audit_events import admin_stream
from signoff.audit.record import TOO_LONG, Record
from signoff.contracts.audit import BY, BY_TURN, CLAIMED_SUBJECT, DISPATCH, CloudEvent
from signoff.contracts.decision import ASSIGNING
from signoff.contracts.ids import TurnKey, parse_workflow_id

SCHEMA_VERSION: Final = 1
"""Increased if a type loses a fact or a fact changes its meaning.

Additional facts do not increase it.
"""
_TEXT: Final = MappingProxyType({"type": "string"})
_NUMBER: Final = MappingProxyType({"type": "number"})
_COUNT: Final = MappingProxyType({"type": "integer"})
_FLAG: Final = MappingProxyType({"type": "boolean"})
_TEXTS: Final = MappingProxyType({"type": "array", "items": {"type": "string"}})
_OBJECT: Final = MappingProxyType({"type": "object"})
_OBJECTS: Final = MappingProxyType({"type": "array", "items": {"type": "object"}})
_FACTS: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = MappingProxyType(
    {
        "person": (_TEXT, "The acting person, or the requester."),
        "actor": (_TEXT, "The actor."),
        "channel": (_TEXT, "The channel."),
        "ended": (_TEXT, "The turn's end state."),
        "error": (_TEXT, "The code of the error that ended it."),
        "approval": (_TEXT, "The id of the call, which is also the id of its request."),
        "call": (_TEXT, "The call's id in its turn."),
        "tool": (_TEXT, "The tool's name."),
        "revision": (_COUNT, "The revision of the request, from 1."),
        "code": (_TEXT, "For a request, its short code; for a call, the code of its outcome."),
        "type": (_TEXT, "The type of the call's result, such as `ToolDenied`."),
        "digest": (_TEXT, "Binds the arguments."),
        "rule": (_OBJECT, "The rule that decided: its `kind`, and `name`, `handler` and `answer` if it has them."),
        "policy_hash": (_TEXT, "The hash of the policy."),
        "approvers": (_TEXTS, "The approver entries."),
        "quorum": (_COUNT, "The number of approvals needed."),
        "groups": (_OBJECTS, "The number of approvals needed from each group."),
        "min_assurance": (_TEXT, "The minimum assurance of approvers."),
        "requester": (_TEXT, "The requester."),
        "edited_by": (_TEXT, "The person who edited the arguments."),
        "changed": (_TEXTS, "The names of the changed parts."),
        "verdict": (_TEXT, "The verdict."),
        "to": (_TEXT, "The new approver: by a hand-on, or besides the others."),
        "assurance": (_TEXT, "The assurance of the decision's author."),
        "on_behalf": (_TEXT, "The person for whom a delegate answered."),
        "votes": (_COUNT, "The number of votes."),
        "needed": (_COUNT, "The number of votes needed."),
        "state": (_TEXT, "The request's end state."),
        "expires_at": (_TEXT, "The deadline."),
        "gate": (_TEXT, "The gate that ended the call."),
        "source": (_TEXT, "The source of the denial."),
        "grant": (_TEXT, "The id of the remembered answer."),
        "permit": (_TEXT, "Whether the call runs by rule or by approval."),
        "scope": (_TEXT, "Whether the tool is a generalist or a specialist."),
        "routing": (_TEXT, "How the tool's calls are dispatched."),
        "tags": (_TEXTS, "The tool's tags."),
        "duration_ms": (_NUMBER, "The call's duration."),
        "cost": (_NUMBER, "The call's cost."),
        "value": (_TEXT, "Binds the result."),
        "truncated": (_FLAG, "Whether the model reads only a part of the result."),
        "updates": (_TEXTS, "The names of the context's fields that the call changed."),
        "arguments": (_OBJECT, "The arguments, with masked secrets."),
        "arguments_kept": (_OBJECT, "The hash and size of arguments that are too long for the event."),
        "probe": (_TEXT, "The result of the tool's probe."),
        "people": (_TEXTS, "The authors of the remembered answer."),
        "session": (_TEXT, "The session of the remembered answer; none for all."),
        "uses": (_COUNT, "The number of permitted uses."),
        "seconds": (_NUMBER, "The lifetime in seconds."),
        "kind": (_TEXT, "The kind of the revoked answer."),
        "reason": (_TEXT, "The reason of the freeze."),
        "where": (_TEXT, "The process that uses it."),
        "before": (_TEXT, "The hash before."),
        "after": (_TEXT, "The hash now."),
        "count": (_COUNT, "The number of its parts."),
        "added": (_TEXTS, "The names of the new parts."),
        "removed": (_TEXTS, "The names of the removed parts."),
    }
)
"""Each fact in any event: its JSON Schema and description."""
_CALL: Final = ("approval", "call", "tool")
_ASKED: Final = (
    *_CALL, "person", "actor", "revision", "code", "digest", "rule", "policy_hash", "approvers", "quorum", "groups",
    "min_assurance", "requester", "edited_by", "changed",
)  # fmt: skip
_ANSWERED: Final = (
    *_CALL, "person", "revision", "verdict", "to", "channel", "assurance", "on_behalf", "votes", "needed",
)  # fmt: skip
_OVER: Final = (*_CALL, "person", "revision", "digest", "state", "type", "channel")
_TIMED: Final = (*_CALL, "revision", "approvers", "expires_at")
_RAN: Final = (
    *_CALL, "person", "actor", "code", "type", "gate", "scope", "routing", "tags", "duration_ms", "cost", "value",
    "truncated", "updates", "arguments", "arguments_kept",
)  # fmt: skip


class EventType(NamedTuple):
    """One type of events."""

    summary: str
    """The cause of such an event."""
    facts: tuple[str, ...]


EVENT_TYPES: Final[Mapping[str, EventType]] = MappingProxyType(
    {
        "turn.started": EventType("A turn began.", ("person", "actor", "channel")),
        "turn.stop_requested": EventType("A person asked a turn to stop.", ("person", "channel")),
        "turn.ended": EventType("A turn ended.", ("ended", "error")),
        "tool_call.proposed": EventType(
            "A model proposed a call, before any gate judged it.", (*_CALL, "person", "actor")
        ),
        "tool_call.settled": EventType(
            "The gates ended a proposed call without approvers.",
            (*_CALL, "person", "code", "type", "gate", "source", "rule", "grant"),
        ),
        "tool_call.allowed": EventType(
            "A rule or a remembered answer lets a proposed call run.",
            (*_CALL, "person", "digest", "rule", "policy_hash", "grant"),
        ),
        "tool_call": EventType(
            "A call was dispatched: the type is `tool_call:` and the tool's name, the source is `actor:` and the name "
            "of the actor that called.",
            (
                *_CALL,
                "person",
                "permit",
                "digest",
                "revision",
                "rule",
                "policy_hash",
                "grant",
                "arguments",
                "arguments_kept",
            ),
        ),
        "tool_call.executed": EventType("A call ran.", _RAN),
        "tool_call.answered": EventType("A person answered in place of a call, which did not run.", _RAN),
        "tool_call.failed": EventType("A call did not run as planned, or failed.", _RAN),
        "tool_call.refused": EventType(
            "A turn tried to run a call without a valid permit.", (*_CALL, "person", "permit", "digest")
        ),
        "tool_call.in_doubt": EventType("The outcome of a call is unknown.", _RAN),
        "tool_call.probed": EventType(
            "A tool's probe looked up the outcome of such a call.", (*_CALL, "probe", "digest")
        ),
        "approval.requested": EventType("Approvers are asked about a call, for the first time or again.", _ASKED),
        "approval.edited": EventType("A person edited the arguments, and approvers are asked about them.", _ASKED),
        "approval.answered": EventType("A decision counted, and more are needed.", _ANSWERED),
        "approval.decided": EventType("A decision settled the request.", _ANSWERED),
        "approval.reminded": EventType("Approvers are reminded.", _TIMED),
        "approval.escalated": EventType("More approvers are asked, because the earlier ones did not decide.", _TIMED),
        "approval.postponed": EventType("The deadline passed and was extended.", _TIMED),
        "approval.expired": EventType("The deadline passed, and the call does not run.", _OVER),
        "approval.withdrawn": EventType("A request was withdrawn, or its turn stopped.", _OVER),
        "approval.lapsed": EventType("An approval was not used: too late, or the tool changed.", _OVER),
        "grant.created": EventType(
            "An answer is remembered.",
            ("person", "grant", "verdict", "people", "approval", "tool", "session", "uses", "seconds"),
        ),
        "grant.revoked": EventType("A remembered answer was revoked.", ("person", "grant", "kind", "channel")),
        "freeze.started": EventType("Everything of a tenant is denied.", ("person", "reason", "channel")),
        "freeze.lifted": EventType("A freeze was lifted.", ("person", "channel")),
        "catalog.deployed": EventType(
            "Tools, policies or actors changed.", ("where", "before", "after", "count", "added", "removed", "changed")
        ),
    }
)
"""All types by name. A dispatched call has the name of its schema, `tool_call`."""
_PRIVATE_SCOPE: Final = "specialist"
_DUE: Final = {"remind": "approval.reminded", "escalate": "approval.escalated", "deadline": "approval.postponed"}
_ENDINGS: Final = {
    "timed_out": "approval.expired", "cancelled": "approval.withdrawn", "lapsed": "approval.lapsed"
}  # fmt: skip
_ANSWERS: Final = {"accepted": "approval.decided", "counted": "approval.answered"}
_REPEATED: Final = "duplicate"
_GRANTS: Final = {"remember": "grant.created", "revoke": "grant.revoked"}
_ACTS: Final = {"freeze": "freeze.started", "unfreeze": "freeze.lifted"}


def event_from_record(record: Record, more: Mapping[str, Any] | None = None) -> CloudEvent | None:
    """Return `None` if such records have no event.

    `more` contains facts that are not in the record. `private` and `actor` come from the record itself. Raises
    `Refused`, and any error caused by malformed facts: they are the unverified claims of their writer.
    """
    turn = parse_workflow_id(record.stream)
    tenant = tenant_of_stream(record.stream)
    facts = record.facts
    # A record that was too long does not show its call's outcome or whether it belongs to a specialist.
    kind = "" if TOO_LONG in facts else _type_of(record.kind, facts)
    if not kind or not tenant:
        return None
    subject = str(facts.get("approval") or facts.get("grant") or (tenant if turn is None else ".".join(turn)))
    return CloudEvent(
        id=f"{record.stream}/{record.seq}",
        source=_source(kind, facts, turn, tenant),
        type=kind,
        subject=subject,
        time=record.at,
        data=_data(kind, {**facts, **(more or {})}, record.subject or _claimed_person(facts)),
        tenant=tenant,
        actor=_actor(kind, facts),
        private=bool(facts.get("private")) or facts.get("scope") == _PRIVATE_SCOPE,
        claimed=_is_claimed(facts),
    )


def tenant_of_stream(stream: str) -> str:
    turn = parse_workflow_id(stream)
    if turn is not None:
        return turn.tenant
    tenant = stream.partition("/")[2]
    return tenant if stream == admin_stream(tenant) else ""


def schema_name(kind: str) -> str:
    return "tool_call" if kind.startswith(DISPATCH) else kind


def schema_of_type(name: str) -> dict[str, Any]:
    event_type = EVENT_TYPES[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "description": event_type.summary,
        "type": "object",
        "properties": {fact: {**_FACTS[fact][0], "description": _FACTS[fact][1]} for fact in event_type.facts},
    }


def _actor(kind: str, facts: Mapping[str, Any]) -> str:
    """Return the actor of the call as observed. A turn's own claim does not count."""
    if "call" not in facts or _is_claimed(facts):
        return ""
    return str(facts["source"]).removeprefix("actor:") if kind.startswith(DISPATCH) else str(facts.get("actor", ""))


def _source(kind: str, facts: Mapping[str, Any], turn: TurnKey | None, tenant: str) -> str:
    if kind.startswith(DISPATCH):
        return str(facts["source"])
    return f"tenant:{tenant}" if turn is None else f"turn:{'.'.join(turn)}"


def _data(kind: str, facts: Mapping[str, Any], person: str) -> dict[str, Any]:
    all_facts = {**facts, "person": person} if person else facts
    # List the facts to include, not those to exclude: a fact added to records later must not leak by mistake.
    return {name: all_facts[name] for name in EVENT_TYPES[schema_name(kind)].facts if name in all_facts}


def _type_of(kind: str, facts: Mapping[str, Any]) -> str:
    find = _TYPES.get(kind)
    return "" if find is None else find(facts)


def _turn(facts: Mapping[str, Any]) -> str:
    if "session_event" in facts:
        return ""
    if "stop" in facts:
        return "turn.stop_requested" if facts["stop"] == "asked" else ""
    return "turn.ended" if "ended" in facts else "turn.started"


def _attempt(facts: Mapping[str, Any]) -> str:
    if facts.get("receipt") == _REPEATED:
        # The same decision, delivered again. Its event was sent when it was accepted.
        return ""
    if facts.get("verdict") in ASSIGNING:
        return "approval.answered" if facts.get("status") == "accepted" else ""
    if facts.get("verdict", "withdrawn") != "withdrawn":
        return _ANSWERS.get(facts.get("status", ""), "")
    # A turn's own report of it is its end, which also covers a turn that stopped.
    accepted = "verdict" in facts and facts.get("status") == "accepted" and not _is_claimed(facts)
    return "approval.withdrawn" if accepted else ""


def _delivery(facts: Mapping[str, Any]) -> str:
    # A turn reports this with its next step, perhaps days later. The gateway sees it in the store when it happens.
    return "" if _is_claimed(facts) else _DUE.get(facts.get("event", ""), "")


def _ending(facts: Mapping[str, Any]) -> str:
    kind = _ENDINGS.get(facts.get("state", ""), "")
    return "" if kind == "approval.expired" and _is_claimed(facts) else kind


def _is_claimed(facts: Mapping[str, Any]) -> bool:
    return facts.get(BY) == BY_TURN


def _claimed_person(facts: Mapping[str, Any]) -> str:
    # Such an event is marked as claimed. An event observed by an activity names no person who is only claimed.
    return str(facts.get(CLAIMED_SUBJECT, "")) if _is_claimed(facts) else ""


def _grant(facts: Mapping[str, Any]) -> str:
    return _GRANTS.get(facts["act"], "") if "act" in facts else "tool_call.allowed"


def _execution(facts: Mapping[str, Any]) -> str:
    if "refused" in facts:
        return "tool_call.refused"
    event = str(facts.get("event", ""))
    return event if event.startswith(DISPATCH) and "source" in facts else ""


def _outcome(facts: Mapping[str, Any]) -> str:
    if "untaken" in facts:
        return ""
    code = facts.get("code")
    if code == "answered":
        return "tool_call.answered"
    return "tool_call.executed" if code == "ok" else "tool_call.failed"


def _doubt(facts: Mapping[str, Any]) -> str:
    if "approvers" in facts:
        return "approval.requested"
    if "reported" in facts:
        return ""
    return "tool_call.probed" if "probe" in facts else "tool_call.in_doubt"


_TYPES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "turn": _turn,
    "proposal": lambda facts: "tool_call.proposed",
    "request": lambda facts: "approval.requested",
    "revision": lambda facts: "approval.edited" if facts.get("edited_by") else "approval.requested",
    "attempt": _attempt,
    "verdict": lambda facts: "tool_call.settled",
    "auto": lambda facts: "tool_call.allowed",
    "grant": _grant,
    "execution": _execution,
    "outcome": _outcome,
    "in_doubt": _doubt,
    "ending": _ending,
    "delivery": _delivery,
    "admin": lambda facts: _ACTS.get(facts.get("act", ""), ""),
    "policy": lambda facts: "catalog.deployed",
}
