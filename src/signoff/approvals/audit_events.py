"""Builds the audit entries of questions, decisions, turns and administration.

Pure. No entry contains arguments or results, except those of specialists: digests bind them. Keys depend only on the
event, so that a retry, a replay or a second report adds nothing.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from signoff.approvals.audit_buffer import KnownFacts
from signoff.approvals.edit_diff import row_changes
from signoff.approvals.notifications import Notice
from signoff.contracts.activity_messages import Authority, RunTask
from signoff.contracts.approval import ApprovalRequest, Question, RequestMessage, TurnQuestion
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.call import CallContext, RuleReference, type_from_code
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.content import Words
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey, parse_approval_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import SessionEvent
from signoff.formats.replace import replace

UNWRITABLE: Final = "unwritable"
_DENIED: Final = type_from_code("denied")
_ALWAYS_DENIED: Final = ("denied", "timed_out")
"""End states with a denial as the call's result.

A withdrawn call may just never have begun.
"""
SHOWN_CHARS: Final = 200
"""The number of characters kept of unchecked text."""
SHORT: Final = 16
"""The number of hex digits of a digest in a key."""


def admin_stream(tenant: str) -> str:
    """Return the stream for acts outside of turns."""
    return f"admin/{tenant}"


def turn_stream(ctx: CallContext) -> str:
    return TurnKey(ctx.tenant, ctx.session, ctx.turn).workflow_id


def question_entry(request: ApprovalRequest, at: datetime) -> AuditEntry:
    """For an edit, includes its author and the edited arguments."""
    revised = request.revision > 1 and request.kind == "approval"
    kind: AuditKind = "in_doubt" if request.kind == "in_doubt" else "revision" if revised else "request"
    return _of_request(
        request,
        kind,
        f"request/{request.id}/{request.revision}/{request.digest[:SHORT]}",
        at,
        request.edited_by or request.requester.user,
        actor=request.actor,
        code=request.code,
        digest=request.digest,
        definition=request.definition,
        card=fingerprint(request.card.model_dump(mode="json")),
        rule=rule_fact(request.rule),
        policy_hash=request.policy_hash,
        approvers=list(request.approvers),
        quorum=request.quorum,
        groups=[group.model_dump(mode="json") for group in request.groups],
        stricter=[term.reason for term in request.applied],
        min_assurance=request.min_assurance,
        grant_ttl=request.grant_ttl,
        requester=request.requester.user,
        person_id=request.requester.person_id,
        note=request.card.note,
        notes=_remark_facts(request.card.notes),
        edited_by=request.edited_by,
        changed=[each.name for each in row_changes(request.before, request.card.rows)] if request.edited_by else [],
        **({} if request.preview is None else {"preview": request.preview.sha256 or request.preview.fault}),
    )


def message_entry(
    question: Question, number: int, message: RequestMessage, at: datetime, moved: datetime | None = None
) -> AuditEntry:
    """For an approver's question to the agent, or the agent's answer. Binds the text by hash.

    `moved` is the deadline after a question that moved it.
    """
    key = f"message/{question.id}/{number}"
    facts: dict[str, Any] = {"number": number, "revision": message.revision, "text": fingerprint(message.text)}
    facts |= {"by": message.by, "channel": message.channel}
    facts |= {} if moved is None else {"expires_at": moved.isoformat()}
    subject = message.subject if message.by == "approver" else question.requester.user
    return _of_approval(question.id, "message", key, at, subject, tenant=question.tenant, **facts)


def attempt_entry(
    decision: Decision,
    receipt: Receipt,
    at: datetime,
    authority: Authority | None = None,
    *,
    reporter: str = "",
) -> AuditEntry:
    """`reporter` is `gateway` if that reports it: it knows its people and checks no signature.

    The same delivery with the same receipt is one attempt, even if two processes report it.
    """
    who = authority or Authority(allowed=False)
    decision = _bound(decision)
    # Raw messages have no delivery id: only their times distinguish two with the same content.
    delivery = decision.delivery_id or f"{at.isoformat()}/{fingerprint(decision.model_dump(mode='json'))[:SHORT]}"
    answer = f"{receipt.status}/{receipt.code}" if receipt.code else receipt.status
    # The stream already identifies the turn.
    named = parse_approval_id(decision.approval_id)
    about = decision.approval_id if named is None else named.call
    return _of_approval(
        decision.approval_id,
        "attempt",
        f"attempt/{delivery}/{about}/{decision.revision or 1}/{answer}",
        at,
        who.subject or decision.subject,
        verdict=decision.verdict,
        to=decision.to[:SHOWN_CHARS],
        revision=decision.revision or 1,
        question_hash=decision.question_hash,
        # None is left out of an entry, but False would be recorded for every decision.
        edited=decision.edited_args is not None or None,
        remember=None if decision.remember is None else fingerprint(decision.remember.model_dump(mode="json")),
        reason=decision.reason,
        channel=decision.channel,
        assurance=who.assurance if authority else decision.assurance,
        person_id="" if who.person_id == who.subject else who.person_id,
        on_behalf=who.on_behalf,
        reporter=reporter,
        unsigned=None if reporter else who.unsigned if authority else not decision.signature,
        key_id=decision.key_id,
        signature=decision.signature,
        received_at=None if decision.received_at is None else decision.received_at.isoformat(),
        status=receipt.status,
        receipt=receipt.code,
        why=receipt.why,
        message=receipt.message,
        remarks=_remark_facts(receipt.remarks),
        votes=receipt.votes,
        needed=receipt.needed,
    )


def rejected_entry(receipt: Receipt, at: datetime, *, subject: str, channel: str, body: Any, tenant: str) -> AuditEntry:
    """Record input that was no decision or named no request. Binds its `body` by hash."""
    seen = fingerprint(body)
    return _of_approval(
        receipt.approval_id,
        "attempt",
        f"turned-away/{at.isoformat()}/{seen[:SHORT]}",
        at,
        subject,
        tenant=tenant,
        body=seen,
        channel=channel,
        status=receipt.status,
        receipt=receipt.code,
        message=receipt.message,
    )


def ended_entry(request: ApprovalRequest | TurnQuestion, at: datetime) -> AuditEntry:
    """The counted decisions are in the entries of their attempts and of the call's execution."""
    return _of_request(
        request,
        "ending",
        f"ending/{request.call}/{request.revision}/{request.state}",
        at,
        request.decided_by,
        state=request.state,
        type=_DENIED if request.kind == "approval" and request.state in _ALWAYS_DENIED else "",
        digest=request.digest,
        channel=request.decided_channel,
        reason=request.reason,
    )


def deadline_entry(request: ApprovalRequest | TurnQuestion, what: str, at: datetime) -> AuditEntry:
    # Use the count instead of the time: turn and gateway see the same event at different times.
    which = request.reminded if what == "remind" else 1
    return _of_request(
        request,
        "delivery",
        f"{what}/{request.id}/{request.revision}/{which}",
        at,
        "",
        event=what,
        approvers=list(request.approvers),
        expires_at=None if request.expires_at is None else request.expires_at.isoformat(),
    )


def delivery_entry(
    request: ApprovalRequest, event: str, card: str, at: datetime, facts: Mapping[str, Any]
) -> AuditEntry:
    """`card` is a token, `event` for example `sent`.

    Each event is recorded once, unless `facts` number it by `attempt`.
    """
    key = f"{event}/{card}/{facts.get('attempt', 1)}"
    return _of_request(request, "delivery", key, at, "", event=event, **facts)


def taken_entry(request: ApprovalRequest, event: str, channel: str, subject: str, at: datetime) -> AuditEntry:
    """`event` is `taken` or `released`. Neither decides."""
    key = f"{event}/{request.id}/{at.isoformat()}"
    return _of_request(request, "delivery", key, at, subject, event=event, channel=channel)


def notice_entry(
    notice: Notice, tenant: str, person: str, event: str, at: datetime, *, channel: str = "", code: str = ""
) -> AuditEntry:
    """`event` is for example `notice sent`. Each is recorded once for a person and channel."""
    key = f"{event}/{notice.topic}/{notice.revision}/{person}/{channel}"
    facts = drop_empty({"event": event, "person": person, "channel": channel, "code": code, "notice": notice.kind})
    if notice.request is not None:
        return _of_request(notice.request, "delivery", key, at, "", **facts)
    stream = admin_stream(tenant)
    return AuditEntry(stream=stream, key=key, kind="delivery", at=at, tenant=tenant, subject=person, data=facts)


def link_entry(approval_id: str, subject: str, channel: str, at: datetime, *, link: str) -> AuditEntry:
    """Recorded once for each link. A program may have opened it."""
    key = f"opened/{approval_id}/{link}"
    return _of_approval(approval_id, "delivery", key, at, subject, event="opened", channel=channel, link=link)


def turn_entry(tenant: str, session: str, turn: str, at: datetime, *, subject: str, **facts: Any) -> AuditEntry:
    return _of_life(tenant, session, turn, "begun", at, subject, facts)


def move_entry(ctx: CallContext, step: str, completion: int, at: datetime) -> AuditEntry:
    what = f"moved/{completion}/{ctx.step}/{step}"
    facts = {"moved": step, "route": ctx.route, "from": ctx.step, "completion": completion}
    return _of_life(ctx.tenant, ctx.session, ctx.turn, what, at, ctx.user.user, facts)


def facts_of_begin(ctx: CallContext) -> KnownFacts:
    user = ctx.user
    about = {"actor": ctx.actor, "channel": ctx.channel, "unsigned": not user.signature, "key_id": user.key_id}
    return KnownFacts("turn/begun", drop_empty(about))


def facts_of_end(run: RunTask) -> KnownFacts:
    return KnownFacts(f"ending/{run.call}/", {"digest": run.digest})


def session_entry(tenant: str, session: str, turn: str, event: SessionEvent) -> AuditEntry:
    """The event precedes the turn. Its `subject` is unverified."""
    moment = f"{event.at.isoformat()}/{event.body[:SHORT]}"
    facts = event.model_dump(include={"id", "status", "code", "body"})
    return AuditEntry(
        stream=TurnKey(tenant, session, turn).workflow_id,
        key=f"session_event/{event.what}/{event.id}/{event.status}/{event.code}/{moment}",
        kind="turn" if event.what == "turn" else "attempt",
        at=event.at,
        tenant=tenant,
        subject=event.subject,
        data=drop_empty({"session": session, "session_event": event.what, **facts, "more": event.more or None}),
    )


def stop_entry(key: TurnKey, subject: str, at: datetime, *, refused: bool = False) -> AuditEntry:
    """The gateway itself checks the permission."""
    facts = {"stop": "refused" if refused else "asked", "channel": "gateway"}
    return _of_life(*key, f"stop/{at.isoformat()}", at, subject, facts)


def turn_end_entry(
    tenant: str, session: str, turn: str, at: datetime, *, state: str, error: str = "", run: str = ""
) -> AuditEntry:
    """`error` is a code. `run` is the ended run, if another process reports it: a turn that was reset ends again."""
    return _of_life(tenant, session, turn, f"ended/{run}" if run else "ended", at, "", {"ended": state, "error": error})


def admin_entry(
    tenant: str, name: str, subject: str, at: datetime, *, kind: AuditKind = "admin", key: str = "", **facts: Any
) -> AuditEntry:
    """Record an act outside of turns: a freeze, a revoked grant, changed people or policies."""
    return AuditEntry(
        stream=admin_stream(tenant),
        key=key or f"{name}/{at.isoformat()}/{fingerprint(facts)[:SHORT]}",
        kind=kind,
        at=at,
        tenant=tenant,
        subject=subject,
        data={"act": name, **drop_empty(facts)},
    )


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of a JSON value, or `UNWRITABLE` for other values.

    Other values cannot be compared.
    """
    try:
        return sha256_hex(value)
    except NotCanonical:
        return UNWRITABLE


def rule_fact(rule: RuleReference | None) -> dict[str, Any] | None:
    return None if rule is None else rule.model_dump(mode="json")


def _remark_facts(remarks: Sequence[Words]) -> list[Any]:
    return [each if isinstance(each, str) else each.model_dump(mode="json") for each in remarks]


def _bound(decision: Decision) -> Decision:
    """Truncate the unchecked texts of a decision. Its reason has its own limit."""
    return replace(
        decision,
        approval_id=_shorten(decision.approval_id),
        question_hash=decision.question_hash[:SHOWN_CHARS],
        subject=decision.subject[:SHOWN_CHARS],
        channel=decision.channel[:SHOWN_CHARS],
        delivery_id=_shorten(decision.delivery_id),
        key_id=decision.key_id[:SHOWN_CHARS],
        signature=decision.signature[:SHOWN_CHARS],
    )


def _shorten(name: str) -> str:
    """Truncate a long `name` and append its hash, so that different names stay different.

    The result is longer than any accepted name and therefore cannot be forged.
    """
    if len(name) <= SHOWN_CHARS:
        return name
    return f"{name[:SHOWN_CHARS]}~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


def _of_request(
    request: ApprovalRequest | TurnQuestion, kind: AuditKind, key: str, at: datetime, subject: str, **facts: Any
) -> AuditEntry:
    about: dict[str, Any] = {"revision": request.revision, "call": request.call, "tool": request.tool}
    return _of_approval(request.id, kind, key, at, subject, **about, **facts)


def _of_life(
    tenant: str, session: str, turn: str, what: str, at: datetime, subject: str, facts: Mapping[str, Any]
) -> AuditEntry:
    return AuditEntry(
        stream=TurnKey(tenant, session, turn).workflow_id,
        key=f"turn/{what}",
        kind="turn",
        at=at,
        tenant=tenant,
        subject=subject,
        data=drop_empty(facts),
    )


def _of_approval(
    approval_id: str,
    kind: AuditKind,
    key: str,
    at: datetime,
    subject: str,
    *,
    tenant: str = DEFAULT_TENANT,
    **facts: Any,
) -> AuditEntry:
    """If the id names no turn, the entry belongs to the tenant's stream."""
    named = parse_approval_id(approval_id)
    return AuditEntry(
        stream=named.turn.workflow_id if named is not None else admin_stream(tenant),
        key=key,
        kind=kind,
        at=at,
        tenant=named.turn.tenant if named is not None else tenant,
        subject=subject,
        data=drop_empty({"approval": approval_id, **facts}),
    )


def drop_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in ("", None, [], ())}
