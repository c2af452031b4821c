"""Notices that hang while people answer: the turn goes on, and its history reads the same on another worker."""

import asyncpg
import pytest
from desk_fixtures import ApprovalPolicy, Ledger, bench, catalog_of, no, pay_tool, yes
from temporalio.client import Client

from signoff.contracts import names
from signoff.contracts.person import Person
from signoff.registry.manifest_channels import ChannelDeclared, RoutingRules
from signoff.registry.people import development_directory
from signoff.store.notices import Notices
from signoff.store.store import open_store
from signoff.testing.scripted import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
PEOPLE = development_directory([Person(id=name, roles=("approvers",)) for name in ("ana", "bo")])


@pytest.mark.postgres
async def test_answers_are_taken_while_notices_hang(client: Client, postgres_url: str, task_queue: str) -> None:
    """What is under way ends in any order beside gates, answers and tools, and nothing follows from it."""
    tools = [pay_tool(Ledger(), ApprovalPolicy(quorum=2)), pay_tool(Ledger(), name="buy")]
    catalog = catalog_of(tools, channels=[ChannelDeclared("chat", "slack")], routing=RoutingRules(("chat",)))
    script = [calls(PAY, ("buy", PAY[1])), respond("done")]
    async with (
        open_store(postgres_url) as store,
        bench(client, store, task_queue, catalog, script, people=PEOPLE) as desk,
    ):
        other = await asyncpg.connect(postgres_url)
        holding = other.transaction()
        await holding.start()
        await other.execute("LOCK TABLE notices IN ACCESS EXCLUSIVE MODE")
        key = await desk.start()
        await desk.waiting(key, 2)
        changed = yes(key, subject="ana", edited_args={"amount": 10, "to": "Ana"})
        first = await desk.signoff.decide(changed)
        second = await desk.signoff.decide(no(key, "c1.2", subject="bo"))
        await holding.rollback()
        await other.close()
        last = await desk.signoff.decide(yes(key, subject="bo", revision=2))
        result = await desk.signoff.result(key)
        await desk.replays(key)
        kept = {row.key.partition(":")[2] for row in await Notices(store).claim(99)}
    assert [receipt.status for receipt in (first, second, last)] == ["counted", "accepted", "accepted"]
    assert [outcome.code for outcome in result.calls] == ["ok", "denied"]
    assert "2:closed:1" in kept


@pytest.mark.postgres
@pytest.mark.parametrize("door", ["update", "signal"])
async def test_an_author_who_cannot_be_looked_up_in_time_does_not_end_the_turn(
    door: str, client: Client, postgres_url: str, task_queue: str
) -> None:
    """Whoever answers while the store hangs is told so; the request waits on, and the next answer counts."""
    async with (
        open_store(postgres_url) as store,
        bench(client, store, task_queue, catalog_of([pay_tool(Ledger())]), [calls(PAY), respond("done")]) as desk,
    ):
        key = await desk.start()
        await desk.waiting(key)
        other = await asyncpg.connect(postgres_url)
        holding = other.transaction()
        await holding.start()
        await other.execute("LOCK TABLE people IN ACCESS EXCLUSIVE MODE")
        stranger = yes(key, subject="vouched")
        if door == "update":
            receipt = await desk.signoff.decide(stranger)
            assert (receipt.status, receipt.code) == ("refused", "unavailable")
        else:
            handle = client.get_workflow_handle(key.workflow_id)
            await handle.signal(names.APPROVAL_RESPONSE, stranger.model_dump(mode="json", exclude_none=True))
            await desk.until(key, lambda view: view.refusals == 1)
        await holding.rollback()
        await other.close()
        assert (await desk.signoff.decide(yes(key))).status == "accepted"
        result = await desk.signoff.result(key)
        await desk.replays(key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
