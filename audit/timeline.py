"""Writes a stream for people: one line a record."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from signoff.audit.record import Record
from signoff.contracts.errors import Refused

_SHORT: Final = 8


class TimelineEntry(NamedTuple):
    """One record in words."""

    at: str
    """When it happened: ISO 8601 in UTC, to the second."""
    who: str
    """Who did it."""
    what: str
    """What happened."""


def timeline(records: list[Record]) -> list[TimelineEntry]:
    """Converts the records, in their order, to words. Never raises: a changed record is shown as changed."""
    return [TimelineEntry(record.at[:19].replace("T", " "), record.subject, _words(record)) for record in records]


def _words(record: Record) -> str:
    try:
        facts = record.facts
    except Refused as error:
        return error.message
    tell = _KINDS.get(record.kind)
    told = tell(facts) if tell is not None else record.kind
    reason = facts.get("reason")
    return f"{told}: {reason}" if reason else told


def _turn(facts: Mapping[str, Any]) -> str:
    if "heard" in facts:
        return f"turn {facts.get('id')} of the session is gone: {facts.get('code')}"
    if "stop" in facts:
        return f"wanted to stop it: {facts['stop']}"
    if "ended" in facts:
        return f"ended {facts['ended']}{f', {error}' if (error := facts.get('error')) else ''}"
    return f"asked {facts.get('actor', 'for a turn')} over {facts.get('channel', 'an unknown channel')}"


def _request(facts: Mapping[str, Any]) -> str:
    approvers = ", ".join(facts.get("approvers", ())) or "nobody"
    more = f", {facts['quorum']} of them" if facts.get("quorum", 1) > 1 else ""
    return f"{_call(facts)} needs people ({_rule(facts)}): asked {approvers}{more}, code {facts.get('code', '?')}"


def _revision(facts: Mapping[str, Any]) -> str:
    changed = ", ".join(facts.get("changed", ())) or "what is hidden"
    why = f"changed {changed}" if facts.get("edited_by") else facts.get("note", "asked again")
    return f"{_call(facts)} is asked as revision {facts.get('revision')}: {why}"


def _attempt(facts: Mapping[str, Any]) -> str:
    if "heard" in facts:
        return _heard(facts)
    proof = "unsigned" if facts.get("unsigned", True) else f"signed by key {facts.get('key_id', '?')}"
    proof = f"as the {facts['witness']} knows them" if "witness" in facts else proof
    seat = f" for {facts['on_behalf']}" if "on_behalf" in facts else ""
    how = f"over {facts.get('channel', '?')}, {facts.get('assurance', 'nobody known')}, {proof}"
    became = f"{facts.get('status')}{' ' + facts['receipt'] if 'receipt' in facts else ''}"
    return f"answered {facts.get('verdict', 'something unreadable')}{seat} ({how}): {became}"


def _heard(facts: Mapping[str, Any]) -> str:
    what = f"a {facts['heard']} {facts.get('id', '')}".strip()
    more = f", and {facts['more']} more" if "more" in facts else ""
    return f"sent the session {what}: {facts.get('status')}{' ' + facts['code'] if 'code' in facts else ''}{more}"


def _allowed(facts: Mapping[str, Any]) -> str:
    if "act" in facts:
        return _act(facts)
    by = f"grant {facts['grant']}" if "grant" in facts else _rule(facts)
    return f"{_call(facts)} may run without asking anybody, by {by}"


def _settled(facts: Mapping[str, Any]) -> str:
    code = str(facts.get("code")).replace("_", " ")
    return f"{_call(facts)} is {code} at gate {facts.get('gate', '?')} ({_rule(facts)})"


def _execution(facts: Mapping[str, Any]) -> str:
    if "refused" in facts:
        return f"{_call(facts)} was not run: {facts['refused']}"
    people = ", ".join(each["subject"] for each in facts.get("decisions", ())) or _rule(facts)
    event = ", as a private event" if facts.get("private") else ""
    return f"{_call(facts)} begins, {facts.get('permit')} by {people}{event}"


def _outcome(facts: Mapping[str, Any]) -> str:
    return f"{_call(facts)} ends {facts.get('code')} after {facts.get('duration_ms', 0)} ms"


def _doubt(facts: Mapping[str, Any]) -> str:
    asked = f": asked {', '.join(facts['approvers'])}" if "approvers" in facts else ""
    return f"nobody knows whether {_call(facts)} happened{asked}"


def _ending(facts: Mapping[str, Any]) -> str:
    return f"the request for {_call(facts)} is {str(facts.get('state')).replace('_', ' ')}"


def _delivery(facts: Mapping[str, Any]) -> str:
    told = f"{facts.get('event', 'delivered')} {facts.get('approval', '')}".strip()
    if "person" in facts:
        told += f": the card of {facts['person']} on {facts.get('channel', '?')}"
    return told + (f" ({facts['code']})" if facts.get("code") else "")


def _retired(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('records', 'the')} records were retired, signed by key {facts.get('key_id', '?')}"


def _act(facts: Mapping[str, Any]) -> str:
    more = ", ".join(f"{name} {value}" for name, value in facts.items() if name not in ("act", "reason"))
    return f"{facts.get('act', 'did something')}{f' ({more})' if more else ''}"


def _standing(facts: Mapping[str, Any]) -> str:
    names = ("added", "removed", "changed")
    differs = "; ".join(f"{name} {', '.join(facts[name])}" for name in names if name in facts)
    told = (
        f"{facts.get('act')} at {facts.get('where')}: {facts.get('count')} by hash {str(facts.get('after'))[:_SHORT]}"
    )
    return f"{told} ({differs})" if differs else told


def _call(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('tool', 'a tool')} {facts.get('call', '')}".strip()


def _rule(facts: Mapping[str, Any]) -> str:
    policy = str(facts.get("policy_hash", ""))[:_SHORT]
    return f"rule {facts.get('rule', 'none')}{f' of policy {policy}' if policy else ''}"


_KINDS: Final = {
    "turn": _turn,
    "request": _request,
    "revision": _revision,
    "attempt": _attempt,
    "auto": _allowed,
    "grant": _allowed,
    "verdict": _settled,
    "execution": _execution,
    "outcome": _outcome,
    "in_doubt": _doubt,
    "ending": _ending,
    "delivery": _delivery,
    "admin": _act,
    "policy": _standing,
    "people": _standing,
    "retired": _retired,
}
