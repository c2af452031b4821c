"""Lists from visibility alone, where far more waits than fits one page."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from signoff.contracts import names
from signoff.contracts.ids import ApprovalKey, TurnKey, short_code
from signoff.listing import count_waiting, waiting
from signoff.workflows import shown

NOW = datetime.now(UTC)


async def _suspend(client: Client, tenant: str, number: int, due: datetime) -> str:
    """A turn that visibility shows as waiting; no worker ever takes it up."""
    key = TurnKey(tenant, "s", f"t{number}")
    approval = ApprovalKey(key, "c1.1").id
    code = short_code(approval)
    approvers = ["role:approvers"] if number % 10 else ["user:boss"]
    card = {"id": approval, "code": code, "approvers": approvers, "expires_at": due.isoformat()}
    await client.start_workflow(
        names.ACTOR_TURN,
        id=key.workflow_id,
        task_queue="nobody",
        memo={names.MEMO_CARDS: [card]},
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(shown.STATE, "suspended"),
                SearchAttributePair(shown.TENANT, tenant),
                SearchAttributePair(shown.CODES, [code]),
                SearchAttributePair(shown.APPROVERS, approvers),
                SearchAttributePair(shown.DUE_AT, due),
            ]
        ),
    )
    return approval


async def _seen(client: Client, tenant: str, many: int) -> None:
    while await count_waiting(client, tenant=tenant) < many:
        await asyncio.sleep(0.05)


async def test_the_first_page_has_the_nearest_deadlines(client: Client) -> None:
    """Of 240 that wait, in one window of deadlines and out of order, the first 20 are the 20 most urgent."""
    tenant = f"crowd{uuid.uuid4().hex[:8]}"
    due = {number: NOW + timedelta(hours=9, minutes=(number * 7919) % 240) for number in range(240)}
    started = [asyncio.create_task(_suspend(client, tenant, number, moment)) for number, moment in due.items()]
    approvals = [await task for task in started]
    await _seen(client, tenant, 240)
    page = await waiting(client, tenant=tenant, limit=20)
    assert [card.id for card in page] == [approvals[n] for n in sorted(due, key=lambda n: due[n])[:20]]
    mine = await waiting(client, tenant=tenant, approvers=("user:boss",), limit=20)
    tenth = sorted((n for n in due if n % 10 == 0), key=lambda n: due[n])
    assert [card.id for card in mine] == [approvals[n] for n in tenth[:20]]


async def test_equal_deadlines_do_not_make_it_search_for_ever(client: Client) -> None:
    """Sixty that are due at the same instant, one of them overdue by a day: the overdue one leads a page of ten."""
    tenant = f"same{uuid.uuid4().hex[:8]}"
    moments = [NOW - timedelta(days=1)] + [NOW + timedelta(hours=2)] * 59
    approvals = await asyncio.gather(*(_suspend(client, tenant, n, moment) for n, moment in enumerate(moments)))
    await _seen(client, tenant, 60)
    page = await waiting(client, tenant=tenant, limit=10)
    assert len(page) == 10
    assert page[0].id == approvals[0]
