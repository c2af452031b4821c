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
from signoff.contracts.activity_messages import GateDecision, RunTask
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.call import CallContext, CallOutcome, LateReport, RunRight
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


def allowed_entry(run: RunTask, right: RunRight, definition: str, engines: str, at: datetime) -> AuditEntry:
    """Record that a rule or a grant allows a call without asking approvers."""
    return _of_turn(
        run.ctx,
        "grant" if right.grant else "auto",
        f"allowed/{run.call}/{run.digest[:SHORT]}",
        at,
        call=run.call,
        tool=run.tool,
        digest=run.digest,
        definition=definition,
        rule=rule_fact(right.rule),
        policy_hash=right.policy_hash,
        engines=engines,
        grant=right.grant,
    )


def started_entry(
    run: RunTask,
    right: RunRight,
    ticket: str,
    at: datetime,
    note: str = "",
    facts: Mapping[str, Any] | None = None,
    attempt: str = "",
) -> AuditEntry:
    """Recorded before the handler is called.

    `ticket` is empty for a read that needs none. `attempt` distinguishes the runs of such a read. `note` describes
    changed arguments or accepted deviations.
    """
    return _of_turn(
        run.ctx,
        "execution",
        f"execution/{run.call}/{ticket or run.digest}{attempt}",
        at,
        call=run.call,
        tool=run.tool,
        ticket=ticket,
        permit=_kind(right.revision),
        digest=run.digest,
        revision=right.revision,
        rule=rule_fact(right.rule),
        policy_hash=right.policy_hash,
        grant=right.grant,
        decisions=[_decision_facts(decision) for decision in right.decisions],
        doubts=[_decision_facts(decision) for decision in right.doubts],
        note=note,
        **(facts or {}),
    )


def finished_entry(
    ctx: CallContext,
    outcome: CallOutcome,
    ticket: str,
    at: datetime,
    facts: Mapping[str, Any] | None = None,
    attempt: str = "",
) -> AuditEntry:
    """Includes a call that was refused when it should have run. `attempt` names a run without a `ticket`."""
    kind: AuditKind = "in_doubt" if outcome.code == "in_doubt" else "outcome"
    return _of_turn(
        ctx,
        kind,
        f"outcome/{outcome.call}/{ticket or attempt}/{outcome.code}",
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


def probe_entry(run: RunTask, ticket: str, answer: str, at: datetime) -> AuditEntry:
    """`answer` is `happened`, `did_not_happen` or `unknown`."""
    return _of_turn(
        run.ctx,
        "in_doubt",
        f"probe/{run.call}/{ticket}/{answer}",
        at,
        call=run.call,
        tool=run.tool,
        ticket=ticket,
        probe=answer,
        digest=run.digest,
    )


def late_report_entry(
    ctx: CallContext, call: str, tool: str, ticket: str, digest: str, report: LateReport
) -> AuditEntry:
    """The report arrived after the outcome was settled differently."""
    return _of_turn(
        ctx,
        "in_doubt",
        f"late/{call}/{ticket}",
        report.at,
        call=call,
        tool=tool,
        ticket=ticket,
        reported=report.code,
        value=fingerprint(report.text),
        digest=digest,
    )


def refused_run_entry(run: RunTask, why: str, at: datetime) -> AuditEntry:
    """Recorded once for each call and reason. Names no approver: nothing has proved one."""
    return _of_turn(
        run.ctx,
        "execution",
        f"refused/{run.call}/{fingerprint(why)[:SHORT]}",
        at,
        call=run.call,
        tool=run.tool,
        refused=why,
        permit=_kind(run.revision),
        digest=run.digest,
    )


def _kind(revision: int | None) -> str:
    return "auto" if revision is None else "approved"


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
