"""Builds the audit entries of calls: proposed, judged, run and ended.

Pure. As in `audit_events`, no entry contains arguments or results, except those of specialists, and keys depend only on
the event. An entry contains a tool's `meta`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from signoff.approvals.audit_events import (
    SHORT,
    SHOWN_CHARS,
    UNWRITABLE,
    drop_empty,
    fingerprint,
    rule_fact,
    turn_stream,
)
from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.call import CallContext, CallOutcome, LateReport, Permit
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey, TurnKey


def proposed_entry(ctx: CallContext, call: str, tool: str, at: datetime, *, model: str = "") -> AuditEntry:
    """Recorded before any gate judges the call. `model` is `offline` or empty."""
    # The model chose the tool's name, which may have any length.
    name = tool[:SHOWN_CHARS]
    return _of_turn(ctx, "proposal", f"proposed/{call}", at, call=call, tool=name, actor=ctx.actor, model=model)


def trace_entry(
    ctx: CallContext, call: str, name: str, resolution: Mapping[str, Any], line: str, at: datetime
) -> AuditEntry:
    """Record the tool behind a call's name, with winning and losing levels. `line` states it as text."""
    return _of_turn(
        ctx,
        "trace",
        f"trace/{call}/{sha256_hex(resolution)[:SHORT]}",
        at,
        call=call,
        tool=name[:SHOWN_CHARS],
        actor=ctx.actor,
        resolution=dict(resolution),
        line=line,
    )


def settled_entry(
    ctx: CallContext, tool: str, gate_decision: GateDecision, outcome: CallOutcome, at: datetime
) -> AuditEntry:
    """Record that the gates ended a call without asking approvers."""
    denied = outcome.denied
    return _of_turn(
        ctx,
        "verdict",
        f"verdict/{outcome.call}/{outcome.code}/{gate_decision.digest[:SHORT]}",
        at,
        call=outcome.call,
        tool=tool,
        code=outcome.code,
        type=outcome.type,
        gate=outcome.gate,
        source=denied.source if denied is not None else "",
        rule=rule_fact(gate_decision.rule or outcome.rule),
        grant=gate_decision.grant,
    )


def allowed_entry(permit: Permit, tool: str, definition: str, engines: str, at: datetime) -> AuditEntry:
    """Record that a rule or a grant allows a call without asking approvers."""
    return _of_turn(
        permit.ctx,
        "grant" if permit.grant else "auto",
        f"allowed/{permit.call}/{permit.digest[:SHORT]}",
        at,
        call=permit.call,
        tool=tool,
        digest=permit.digest,
        definition=definition,
        rule=rule_fact(permit.rule),
        policy_hash=permit.policy_hash,
        engines=engines,
        grant=permit.grant,
    )


def started_entry(
    permit: Permit,
    tool: str,
    ticket: str,
    at: datetime,
    note: str = "",
    facts: Mapping[str, Any] | None = None,
    attempt: str = "",
) -> AuditEntry:
    """Recorded before the handler is called, with its verified permit.

    `ticket` is empty for a read that needs none. `attempt` distinguishes the runs of such a read. `note` describes
    changed arguments or accepted deviations.
    """
    return _of_turn(
        permit.ctx,
        "execution",
        f"execution/{permit.call}/{ticket or permit.digest}{attempt}",
        at,
        call=permit.call,
        tool=tool,
        ticket=ticket,
        permit=permit.kind,
        digest=permit.digest,
        revision=permit.revision,
        rule=rule_fact(permit.rule),
        policy_hash=permit.policy_hash,
        grant=permit.grant,
        decisions=[_decision_facts(decision) for decision in permit.decisions],
        doubts=[_decision_facts(decision) for decision in permit.doubts],
        note=note,
        **(facts or {}),
    )


def finished_entry(
    permit: Permit,
    outcome: CallOutcome,
    ticket: str,
    at: datetime,
    facts: Mapping[str, Any] | None = None,
    attempt: str = "",
) -> AuditEntry:
    """Includes a call that was refused when it should have run.

    `attempt` distinguishes the runs of a call without a ticket.
    """
    kind: AuditKind = "in_doubt" if outcome.code == "in_doubt" else "outcome"
    what = f"{ticket or permit.digest}{attempt}/{outcome.code}"
    return _of_turn(
        permit.ctx,
        kind,
        f"outcome/{permit.call}/{what}",
        at,
        call=outcome.call,
        tool=outcome.tool,
        code=outcome.code,
        type=outcome.type,
        gate=outcome.gate,
        ticket=ticket,
        value=_digest(outcome.value),
        structured="" if outcome.structured is None else _digest(outcome.structured),
        cost=outcome.cost,
        duration_ms=outcome.duration_ms,
        truncated=outcome.truncated,
        updates=[] if outcome.updates is None else list(outcome.updates.names),
        next_step="" if outcome.place is None else outcome.place.step,
        **_meta_facts(outcome.meta),
        **(facts or {}),
    )


def untaken_entry(ctx: CallContext, call: str, tool: str, names: Sequence[str], why: str, at: datetime) -> AuditEntry:
    """Record that a call's context updates were ignored.

    Contains names, never values.

    `why` is `given` if the caller set the same names, `full` if it set too much.
    """
    return _of_turn(ctx, "outcome", f"untaken/{call}", at, call=call, tool=tool, untaken=why, updates=list(names))


def probe_entry(permit: Permit, tool: str, ticket: str, answer: str, at: datetime) -> AuditEntry:
    """`answer` is `happened`, `did_not_happen` or `unknown`."""
    return _of_turn(
        permit.ctx,
        "in_doubt",
        f"probe/{permit.call}/{ticket}/{answer}",
        at,
        call=permit.call,
        tool=tool,
        ticket=ticket,
        probe=answer,
        digest=permit.digest,
    )


def late_report_entry(permit: Permit, ticket: str, report: LateReport, tool: str, at: datetime) -> AuditEntry:
    """The report arrived after the outcome was settled differently."""
    return _of_turn(
        permit.ctx,
        "in_doubt",
        f"late/{permit.call}/{ticket}",
        at,
        call=permit.call,
        tool=tool,
        ticket=ticket,
        reported=report.code,
        value=fingerprint(report.text),
        digest=permit.digest,
    )


def refused_run_entry(permit: Permit, tool: str, why: str, at: datetime) -> AuditEntry:
    """Recorded once for each call and reason. Names no approver: the caller wrote them into the permit, unverified."""
    return _of_turn(
        permit.ctx,
        "execution",
        f"refused/{permit.call}/{fingerprint(why)[:SHORT]}",
        at,
        call=permit.call,
        tool=tool,
        refused=why,
        permit=permit.kind,
        digest=permit.digest,
    )


def _digest(content: Content) -> str:
    return content.blob.sha256 if content.blob is not None else fingerprint(content.inline)


def _meta_facts(meta: Content | None) -> dict[str, Any]:
    if meta is None:
        return {}
    if meta.blob is not None:
        return {"meta_kept": {"sha256": meta.blob.sha256, "size": meta.blob.size}}
    # A number that RFC 8785 cannot encode must not keep the rest of the entry out of the audit log.
    return {"meta": UNWRITABLE if fingerprint(meta.inline) == UNWRITABLE else meta.inline}


def _decision_facts(decision: Decision) -> Mapping[str, Any]:
    return {
        "subject": decision.subject,
        "revision": decision.revision or 1,
        "delivery_id": decision.delivery_id,
        "key_id": decision.key_id,
    }


def _of_turn(ctx: CallContext, kind: AuditKind, key: str, at: datetime, *, call: str, **facts: Any) -> AuditEntry:
    approval = ApprovalKey(TurnKey(ctx.tenant, ctx.session, ctx.turn), call).id
    return AuditEntry(
        stream=turn_stream(ctx),
        key=key,
        kind=kind,
        at=at,
        tenant=ctx.tenant,
        subject=ctx.user.user,
        data=drop_empty({"approval": approval, "call": call, "person_id": ctx.user.person_id, **facts}),
    )
