"""Copies past requests into the history, for searches.

Each gateway does all of it: a row that two of them write is the same.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Final

from sqlalchemy import Connection

from signoff.approvals.deadlines import last_moment
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import TurnKey
from signoff.contracts.responses import PastRequest
from signoff.formats.replace import replace
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.seen_values import value_marks
from signoff.gateway.read_access import of_request
from signoff.gateway.vendors.channel_tasks import keep_running
from signoff.store.history.past_requests import PastRow, hold_due, list_due, put_past, remove_past, settle_due
from signoff.store.history.search_words import mark, marks, words_of
from signoff.store.questions.approval_rows import lock_approval, read_rows
from signoff.store.request_reader import LoadedRequest

LOOK_SECONDS: Final = 1.0
PIECE: Final = 100
"""Requests in one step."""
RETRIED: Final = timedelta(minutes=10)
"""Pause before another look at a request that cannot be read."""
_log = logging.getLogger(__name__)


class RequestIndexer:
    """Keeps the history. All methods raise `StoreUnavailable`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

    async def run(self) -> None:
        while True:
            if await self.step() < PIECE:
                await asyncio.sleep(LOOK_SECONDS)

    async def step(self) -> int:
        """Return the number of requests looked at."""
        due = await self._deps.store.read(partial(list_due, limit=PIECE))
        for each in due:
            try:
                await self._deps.store.run(partial(_keep, approval=each, loaded=await self._load(each)))
            except Exception as error:
                # A row that cannot be read must not stop the others. If the store is away, this fails as well.
                again = self._deps.clock() + RETRIED
                await self._deps.store.run(partial(settle_due, approval=each, again=again))
                _log.warning("the request %r is not in the history: %s", each, type(error).__name__)
        return len(due)

    async def _load(self, approval: str) -> LoadedRequest | None:
        try:
            return await self._deps.requests.load(approval)
        except NotFound:
            return None


@asynccontextmanager
async def keep_history(deps: GatewayDeps) -> AsyncIterator[None]:
    """Keep the history until the block ends."""
    async with keep_running("the history of requests", RequestIndexer(deps).run):
        yield


def past_row(request: ApprovalRequest, values: Collection[str] = ()) -> PastRow:
    """`request` has its card. Only text of the card becomes words, so that no search finds a secret.

    `values` are the marks of its values.
    """
    over_at = request.decided_at or request.expires_at or request.opened_at
    if over_at is None:
        raise ValueError(f"{request.id} has no time")
    card, about, turn = request.card, of_request(request), TurnKey(request.tenant, request.session, request.turn)
    answered_by = tuple(dict.fromkeys(vote.subject for vote in request.votes))
    body = PastRequest(
        id=request.id,
        code=request.code,
        revision=request.revision,
        kind=request.kind,
        tool=request.tool,
        tool_title=card.tool_title,
        actor=request.actor,
        rule="" if request.rule is None else request.rule.label,
        effect=card.effect,
        rows=card.rows,
        requester=request.requester.user,
        state=request.state,
        decided_by=request.decided_by,
        decided_name=request.decided_name,
        answered_by=answered_by,
        over_at=over_at,
        opened_at=request.opened_at,
        channel=request.decided_channel,
        reason=request.reason,
    )
    shown = (card.effect, card.agent_says, card.tool_title, request.tool, request.code)
    texts = (text for row in card.rows for text in (row.label, row.value))
    approved = request.kind == "approval" and request.state == "approved"
    return PastRow(
        approval=request.id,
        tenant=request.tenant,
        stream=turn.workflow_id,
        over_at=over_at,
        body=body.model_dump_json(),
        readers=json.dumps({"askers": sorted(about.askers), "asked": sorted(about.asked)}),
        words=(*words_of(" ".join((*shown, *texts))), *_marks(body, request), *(sorted(values) if approved else ())),
    )


def _marks(past: PastRequest, request: ApprovalRequest) -> list[str]:
    about, tenant = of_request(request), request.tenant
    people = {past.requester, past.decided_by, *past.answered_by} - {""}
    given = {mark(tenant, "answer", vote.subject, vote.verdict) for vote in request.votes}
    given |= {mark(tenant, "answer", vote.subject) for vote in request.votes}
    one = {
        mark(tenant, "tenant"),
        mark(tenant, "kind", past.kind),
        mark(tenant, "tool", past.tool),
        mark(tenant, "actor", past.actor),
        mark(tenant, "state", past.state),
        mark(tenant, "channel", past.channel),
    }
    readers = marks(tenant, "reader", about.asked) | marks(tenant, "asker", about.askers)
    return sorted(one | given | readers | marks(tenant, "person", people))


def _keep(connection: Connection, approval: str, loaded: LoadedRequest | None) -> None:
    lock_approval(connection, approval)
    # Read only after this: an end of a question takes no lock, but makes it due again.
    if not hold_due(connection, approval):
        return
    rows = read_rows(connection, approval)
    if rows is None or loaded is None:
        remove_past(connection, approval)
        settle_due(connection, approval, None)
        return
    if rows.latest.revision != loaded.request.revision:
        # It was asked again after it was drawn, and stays due.
        return
    request = replace(rows.request(rows.latest), card=loaded.request.card)
    if rows.undo_seconds:
        settle_due(connection, approval, rows.now + timedelta(seconds=rows.undo_seconds))
    elif request.state == "pending":
        remove_past(connection, approval)
        settle_due(connection, approval, last_moment(request))
    else:
        put_past(connection, past_row(request, value_marks(loaded)))
        settle_due(connection, approval, None)
