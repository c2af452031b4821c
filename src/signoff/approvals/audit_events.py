"""Builds the audit entries of questions, answers, turns and acts of administration. Pure.

No entry holds an argument or a result, but for those of specialists: they are bound by digest. Keys are made of the
event alone, so that a retry, a replay or a second report of the same event adds nothing. `call_events` builds the
entries of calls.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from signoff.approvals.audit_buffer import KnownFacts
from signoff.approvals.edit_diff import row_changes
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.call import CallContext, Permit, RuleReference, type_from_code
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
"""Ends by which the call's result is a denial; of one that was withdrawn it may be that it was never begun."""
SHOWN_CHARS: Final = 200
"""Characters of what somebody wrote without anybody having checked it."""
SHORT: Final = 16
"""Hex digits of a digest in a key."""


def admin_stream(tenant: str) -> str:
    """Returns the stream of acts that belong to no turn."""
    return f"admin/{tenant}"


def turn_stream(ctx: CallContext) -> str:
    """Returns the stream of a turn: its workflow id."""
    return TurnKey(ctx.tenant, ctx.session, ctx.turn).workflow_id


def question_entry(request: ApprovalRequest, at: datetime) -> AuditEntry:
    """Records that people are asked, for the first time or anew; of an edit, who made it and which arguments
    changed.
    """
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
    )


def attempt_entry(
    decision: Decision,
    receipt: Receipt,
    at: datetime,
    authority: Authority | None = None,
    *,
    reporter: str = "",
    stored: bool = False,
) -> AuditEntry:
    """Records an attempt to decide and its receipt. `authority` is who its author turned out to be.

    `stored`: the answer lies in the store, and its text and proof in the entry that was written with it.
    `reporter` is `gateway` where that reports it: it knows its people itself, and checks no signature. The same
    delivery with the same answer is one attempt, whoever reports it.
    """
    who = authority or Authority(allowed=False)
    decision = _bound(decision)
    # Raw messages have no delivery id: two that say the same are told apart by their time alone.
    delivery = decision.delivery_id or f"{at.isoformat()}/{fingerprint(decision.model_dump(mode='json'))[:SHORT]}"
    answer = f"{receipt.status}/{receipt.code}" if receipt.code else receipt.status
    # Its turn is the stream's.
    named = parse_approval_id(decision.approval_id)
    about = decision.approval_id if named is None else named.call
    if stored:
        decision = replace(decision, question_hash="", reason="", signature="", key_id="", received_at=None)
    return _of_approval(
        decision.approval_id,
        "attempt",
        f"attempt/{delivery}/{about}/{decision.revision or 1}/{answer}",
        at,
        who.subject or decision.subject,
        verdict=decision.verdict,
        revision=decision.revision or 1,
        question_hash=decision.question_hash,
        # None is left out of an entry; False would be written down of every answer.
        edited=decision.edited_args is not None or None,
        remember=None if decision.remember is None else fingerprint(decision.remember.model_dump(mode="json")),
        reason=decision.reason,
        channel=decision.channel,
        assurance="" if stored else who.assurance if authority else decision.assurance,
        person_id="" if who.person_id == who.subject else who.person_id,
        on_behalf=who.on_behalf,
        reporter=reporter,
        unsigned=None if reporter or stored else who.unsigned if authority else not decision.signature,
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
    """Records input that was no decision at all, or named nothing; binds its `body` by hash."""
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


def ended_entry(request: ApprovalRequest, at: datetime) -> AuditEntry:
    """Records the end of a request: approved, denied, happened, timed out, cancelled or lapsed.

    Whose answers counted stands in the entries of their attempts, and in that of what ran on them.
    """
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


def deadline_entry(request: ApprovalRequest, what: str, at: datetime) -> AuditEntry:
    """Records a reminder, an escalation, or a deadline that was put off."""
    # By their count, not by when: turn and gateway both see them, each at a moment of its own.
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
    """Records an event of the card that one person was sent on a channel: `sent`, `failed`, `closed` and the like.

    `card` is its token; each event of it is recorded once, but for those that `facts` number by an `attempt`.
    """
    key = f"{event}/{card}/{facts.get('attempt', 1)}"
    return _of_request(request, "delivery", key, at, "", event=event, **facts)


def link_entry(approval_id: str, subject: str, channel: str, at: datetime, *, link: str) -> AuditEntry:
    """Records that a link was opened, by whom or what ever; once for each link."""
    key = f"opened/{approval_id}/{link}"
    return _of_approval(approval_id, "delivery", key, at, subject, event="opened", channel=channel, link=link)


def turn_entry(tenant: str, session: str, turn: str, at: datetime, *, subject: str, **facts: Any) -> AuditEntry:
    """Records that a turn was asked for."""
    return _of_life(tenant, session, turn, "begun", at, subject, facts)


def move_entry(ctx: CallContext, step: str, completion: int, at: datetime) -> AuditEntry:
    """Records that the turn of `ctx` moved to another step of its route, before this completion."""
    what = f"moved/{completion}/{ctx.step}/{step}"
    facts = {"moved": step, "route": ctx.route, "from": ctx.step, "completion": completion}
    return _of_life(ctx.tenant, ctx.session, ctx.turn, what, at, ctx.user.user, facts)


def facts_of_begin(ctx: CallContext) -> KnownFacts:
    """Collects the facts of the entry of a turn's begin that `ctx` holds."""
    user = ctx.user
    about = {"actor": ctx.actor, "channel": ctx.channel, "unsigned": not user.signature, "key_id": user.key_id}
    return KnownFacts("turn/begun", drop_empty(about))


def facts_of_end(permit: Permit) -> KnownFacts:
    """Collects the facts of the entries of ended questions that `permit` holds."""
    return KnownFacts(f"ending/{permit.call}/", {"digest": permit.digest})


def session_entry(tenant: str, session: str, turn: str, event: SessionEvent) -> AuditEntry:
    """Records an event of a turn's session before the turn began. Nobody has checked the `subject` that it names."""
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
    """Records that somebody asked the gateway to stop a turn; whether they may, the gateway knows itself."""
    facts = {"stop": "refused" if refused else "asked", "channel": "gateway"}
    return _of_life(*key, f"stop/{at.isoformat()}", at, subject, facts)


def turn_end_entry(
    tenant: str, session: str, turn: str, at: datetime, *, state: str, error: str = "", run: str = ""
) -> AuditEntry:
    """Records that a turn has ended; `error` is the code of the error that ended it.

    `run` is the run that has, where whoever else saw it says so: a turn that was reset ends once more.
    """
    return _of_life(tenant, session, turn, f"ended/{run}" if run else "ended", at, "", {"ended": state, "error": error})


def admin_entry(
    tenant: str, name: str, subject: str, at: datetime, *, kind: AuditKind = "admin", key: str = "", **facts: Any
) -> AuditEntry:
    """Records an act that belongs to no turn: a freeze, a revoked grant, changed people or policies."""
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
    """Computes the sha-256 of any JSON value; `UNWRITABLE` for other values, as nothing of them could be compared."""
    try:
        return sha256_hex(value)
    except NotCanonical:
        return UNWRITABLE


def rule_fact(rule: RuleReference | None) -> dict[str, Any] | None:
    """Returns a rule as plain data."""
    return None if rule is None else rule.model_dump(mode="json")


def _remark_facts(remarks: Sequence[Words]) -> list[Any]:
    return [each if isinstance(each, str) else each.model_dump(mode="json") for each in remarks]


def _bound(decision: Decision) -> Decision:
    """Cuts the unchecked texts of a decision; its reason has a limit of its own."""
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
    """Cuts a long `name` to its beginning and its hash: of two that differ at their end neither hides the other.

    A cut name is longer than all others, so nobody can write one that looks like it.
    """
    if len(name) <= SHOWN_CHARS:
        return name
    return f"{name[:SHOWN_CHARS]}~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


def _of_request(
    request: ApprovalRequest, kind: AuditKind, key: str, at: datetime, subject: str, **facts: Any
) -> AuditEntry:
    return AuditEntry(
        stream=TurnKey(request.tenant, request.session, request.turn).workflow_id,
        key=key,
        kind=kind,
        at=at,
        tenant=request.tenant,
        subject=subject,
        data=drop_empty(
            {"approval": request.id, "revision": request.revision, "call": request.call, "tool": request.tool, **facts}
        ),
    )


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
    """Makes an entry in the stream of the turn that the id names; in the tenant's own when it names none."""
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
    """Returns the facts that are not empty."""
    return {name: value for name, value in facts.items() if value not in ("", None, [], ())}
