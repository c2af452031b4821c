from datetime import UTC, datetime

import pytest
from attack_site import AttackSite, approval_id, passed, payee

pytestmark = pytest.mark.timeout(300)


async def answered_without_worker(site: AttackSite, way: str) -> tuple[int, str]:
    """Answer in time while no worker runs, wait past the deadline, and start the worker."""
    bo, ana = await site.browser("bo"), site.person("ana")
    for _ in range(5):
        to = payee()
        key = await site.person("rui").ask([("brief", {"amount": 9, "to": to})])
        shown = await ana.waiting(approval_id(key))
        _, fields = await bo.open(approval_id(key))
        due = datetime.fromisoformat(shown.view["expires_at"])
        async with site.without("worker"):
            answer = await bo.send(approval_id(key), fields) if way == "page" else await ana.decide(shown)
            in_time = datetime.now(UTC) < due
            await passed(due)
        # A busy machine may need longer than the deadline. Then nothing was answered in time: repeat.
        if in_time:
            break
    assert in_time
    result = await site.person("rui").result(key)
    assert result["calls"][0]["code"] == "ok", result["calls"][0]
    return answer.status_code, to


@pytest.mark.parametrize("way", ["page", "api"])
async def test_answer_in_time_counts_without_a_worker(way: str, site: AttackSite) -> None:
    # The call runs once the worker is back, although its deadline has passed. Without the searches for answers in time
    # in `workflows/approval_flow.py`, `_those_before` and `_take_stored`, the call was denied as late; either alone
    # sufficed.
    status, to = await answered_without_worker(site, way)
    assert (status < 400, site.amounts(to)) == (True, [9])


async def test_card_is_shown_without_a_worker(site: AttackSite) -> None:
    # Without a worker a request is still shown and can be answered for the first time. With the turn queried first in
    # `Conversations.loaded` API and page answered 503.
    to, bo, ana = payee(), await site.browser("bo"), site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": 9, "to": to})])
    await ana.waiting(approval_id(key))
    async with site.without("worker"):
        seen = await ana.see(approval_id(key))
        shown, fields = await bo.open(approval_id(key))
        sent = await bo.send(approval_id(key), fields) if fields else None
    assert (seen.status, shown.status, f"Pay 9 EUR to {to}" in shown.words) == (200, 200, True)
    assert sent is not None
    assert sent.status_code < 400
    await site.person("rui").result(key)
    assert site.amounts(to) == [9]
