"""Writes questions and answers to a store as gates and gateway do."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from signoff.activities.hooks.previews import preview_call
from signoff.activities.hooks.tool_hooks import judge_call, judge_past_call
from signoff.activities.question_writer import QuestionWriter, Subject
from signoff.activities.run_rules import digest_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.digest import doubt_digest
from signoff.approvals.machine import count_vote, vote_of
from signoff.contracts.activity_messages import Authority, GateTask
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.clock import system_clock
from signoff.contracts.content import Content, Words
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.gateway.grant_rows import write_agreed_grant
from signoff.registry.hooks import override_hash
from signoff.registry.tool import Tool
from signoff.store.content_store import load
from signoff.store.questions.answers import add_answer
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.store import Store


async def ask(
    deps: WorkerDeps,
    ctx: CallContext,
    tool: Tool,
    args: Mapping[str, Any],
    *,
    call: str = "c1.1",
    notes: tuple[Words, ...] = (),
    override: str | None = None,
    doubt: int = 0,
    edit: Decision | None = None,
) -> ApprovalRequest:
    """Ask about a call as the gates of `deps` do, independent of its policy.

    `doubt` is the ticket number of an attempt whose outcome is unknown: the question is then about that attempt. `edit`
    is the answer that wrote these arguments. `override` replaces the hash of the objection of the tool's permission
    check. Raises ValueError if the gates would refuse the edit.
    """
    part = CallPart(call=call, tool=tool.name, args=Content(inline=dict(args)))
    digest = digest_of(ctx, call, tool, args)
    if doubt:
        found = await judge_past_call(deps.catalog, ctx, part, args, deps.clock())
    else:
        found = await judge_call(deps.catalog, ctx, part, args, deps.kinds, at=deps.clock())
    shown = override_hash(found.objection) if override is None else override
    bound = doubt_digest(digest, doubt) if doubt else digest
    preview = None if doubt else await preview_call(deps.catalog, deps.store, ctx, tool, args)
    about = Subject(part, args, tool, found.verdict, bound, notes, shown, found.at, preview=preview)
    writer = QuestionWriter(deps)
    if edit is not None and not edit.signature:
        await keep(deps.store, edit)
    number = 0 if edit is None else await number_of(deps.store, edit)
    task = GateTask(ctx=ctx, calls=(part,), doubt=doubt, edit=number)
    change = None if edit is None else await writer.edit(task, tool)
    if isinstance(change, str):
        raise ValueError(change)
    if change is None:
        return await writer.ask(task, about)
    asked = await writer.ask_changed(task, about, change)
    if isinstance(asked, str):
        raise ValueError(asked)
    return asked


async def number_of(store: Store, decision: Decision) -> int:
    """Return the number of a stored answer within its approval, or -1 for an answer that is not stored."""
    rows = await Questions(store).read(decision.approval_id)
    named = (decision.revision or 1, decision.delivery_id)
    answers = () if rows is None else rows.answers
    return next((each.number for each in answers if (each.revision, each.vote.decision.delivery_id) == named), -1)


async def keep(store: Store, decision: Decision) -> None:
    """Skip an answer that is already stored or has no question."""
    rows = await Questions(store).read(decision.approval_id)
    stored = [] if rows is None else [(each.revision, each.vote.decision.delivery_id) for each in rows.answers]
    if rows is not None and (decision.revision or 1, decision.delivery_id) not in stored:
        await answer(store, decision)


async def answer(
    store: Store, decision: Decision, *, at: datetime | None = None, authority: Authority | None = None
) -> None:
    """Insert an accepted answer as the gateway does, with the grant that it asks for. Checks nothing.

    The answer counts at its time of receipt, else at `at` or now. `authority` is the author's rights as the gateway
    found them. By default it is the decision's subject, with their own vote. Raises LookupError without a question.
    """
    found = authority or Authority(allowed=True, subject=decision.subject, assurance=decision.assurance)
    vote = vote_of(decision, found, decision.received_at or at or system_clock())

    asked = await Questions(store).read(decision.approval_id)
    args: Mapping[str, Any] = {} if asked is None else await load(store, asked.latest.args)

    def insert(connection: Connection, rows: ApprovalRows | None) -> None:
        if rows is None:
            raise LookupError(f"nobody was asked about {decision.approval_id}")
        after = count_vote(rows.request(rows.latest, vote.at), vote)
        add_answer(connection, rows, vote, settles=decision.edited_args is None and after.state != "pending")
        if decision.edited_args is None:
            write_agreed_grant(connection, after, args, vote.at)

    await Questions(store).run_locked(decision.approval_id, insert)
