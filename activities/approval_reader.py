"""Reads a call's approval from the store, to run the call or look it up."""

import asyncio
from collections.abc import Sequence

from signoff.activities.permit_check import voter_set
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.approval import ApprovalRequest, Question, Terms
from signoff.contracts.call import CallContext, Permit
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.people.voter_set import VoterSet
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import RequestLists, TurnRows


class ApprovalReader:
    """Reads questions and answers by the call that a permit names. Ignores the permit's other claims."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._lists = RequestLists(deps.store)

    async def of(self, permit: Permit) -> ApprovalRows | None:
        """Return all rows of a call's approval, or `None` without a question. Raises `StoreUnavailable`."""
        return await self._rows.read(approval_id_of(permit))

    async def of_turn(self, ctx: CallContext) -> Sequence[ApprovalRequest]:
        """Return a turn's requests with their present revisions, oldest first. Raises `StoreUnavailable`."""
        return (await self.rows_of_turn(ctx)).requests

    async def rows_of_turn(self, ctx: CallContext) -> TurnRows:
        """Read a turn's requests and tickets, and its tenant's freeze.

        Raises `StoreUnavailable`. Waits while a denial can be undone: the turn would act on an answer that may be
        retracted.
        """
        turn = TurnKey(ctx.tenant, ctx.session, ctx.turn)
        while True:
            rows = await self._lists.of_turn(turn)
            if rows.undo_seconds <= 0:
                return rows
            await asyncio.sleep(rows.undo_seconds)

    async def voters(
        self,
        permit: Permit,
        tool: str,
        terms: Terms,
        decisions: Sequence[Decision],
        questions: Sequence[Question] = (),
    ) -> VoterSet:
        """Raises `StoreUnavailable`."""
        # Without answers, skip the lookup. Otherwise include the requester, who may be an approver under another
        # account.
        user_ids = [permit.ctx.user.user, *(each.subject for each in decisions)] if decisions else []
        people = await self._deps.directory_for(permit.ctx.tenant, *user_ids)
        return voter_set(self._deps.catalog, people, permit.ctx, tool, terms, self._deps.clock(), questions)


def doubts_of(rows: ApprovalRows | None) -> tuple[Question, ...]:
    return () if rows is None else tuple(each for each in rows.questions if each.kind == "in_doubt")


def approval_id_of(permit: Permit) -> str:
    return ApprovalKey(TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn), permit.call).id
