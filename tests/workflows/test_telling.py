"""What people are told on their channels of a turn's requests: all of it, once, beside everything else."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from desk_fixtures import ApprovalPolicy, Bench, Ledger, bench, catalog_of, no, pay_tool, withdrawn, yes
from temporalio.client import Client

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.registry.catalog import Catalog
from signoff.registry.manifest_channels import ChannelDeclared, RoutingRules
from signoff.registry.people import development_directory
from signoff.registry.tool import Tool
from signoff.store.notices import NoticeRow, Notices
from signoff.store.store import Store
from signoff.testing.scripted import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]
CHAT = [ChannelDeclared("chat", "slack")]
RULES = RoutingRules(("chat",))
PEOPLE = development_directory([Person(id=name, roles=("approvers",)) for name in ("ana", "bo")])


def reaching(*tools: Tool) -> Catalog:
    """A catalog whose requests are told by `chat` where nothing else is said."""
    return catalog_of(tools, channels=CHAT, routing=RULES)


async def told(store: Store, *, count: int = 0) -> list[NoticeRow]:
    """The notices in the store; waits for `count` of them."""
    rows: list[NoticeRow] = []
    while not rows or len(rows) < count:
        rows += await Notices(store).claim(99)
        await asyncio.sleep(0.02)
    return rows


def words(rows: list[NoticeRow]) -> list[str]:
    """The notices by event and revision."""
    return sorted(f"{row.event} {row.request.revision}" for row in rows)


async def test_a_turn_whose_people_are_told_costs_two_events_more(
    client: Client, store: Store, task_queue: str
) -> None:
    """36 and one for each notice, opened and closed: at most 45."""
    costs: list[int] = []
    async with bench(client, store, task_queue, reaching(pay_tool(Ledger())), SCRIPT) as desk:
        while len(costs) < 4 and min(costs, default=39) > 38:
            key = await desk.start()
            await desk.waiting(key)
            await desk.signoff.decide(yes(key))
            await desk.signoff.result(key)
            costs.append(len(await desk.events(key)))
        await desk.replays(key)
    assert max(costs) <= 45, costs
    assert min(costs) == 38, costs


async def test_nobody_is_told_where_the_policy_says_so(client: Client, store: Store, task_queue: str) -> None:
    """An empty `notify` is the inbox alone, whatever the default; a list of its own goes before it."""
    tools = [
        pay_tool(Ledger(), ApprovalPolicy(notify=())),
        pay_tool(Ledger(), ApprovalPolicy(notify=("chat",)), name="buy"),
    ]
    script = [calls(PAY, ("buy", PAY[1])), respond("done")]
    async with bench(client, store, task_queue, catalog_of(tools, channels=CHAT), script) as desk:
        key = await desk.start()
        await desk.waiting(key, 2)
        for call in ("c1.1", "c1.2"):
            await desk.signoff.decide(no(key, call))
        await desk.signoff.result(key)
    rows = await told(store)
    assert words(rows) == ["closed 1", "opened 1"]
    assert {row.request.tool for row in rows} == {"buy"}


async def approved(desk: Bench, key: TurnKey) -> None:
    """Somebody says yes."""
    await desk.signoff.decide(yes(key))


async def denied(desk: Bench, key: TurnKey) -> None:
    """Somebody says no."""
    await desk.signoff.decide(no(key))


async def withdrew(desk: Bench, key: TurnKey) -> None:
    """Who asked takes it back."""
    await desk.signoff.withdraw(withdrawn(key))


async def cancelled(desk: Bench, key: TurnKey) -> None:
    """The whole turn is stopped."""
    await desk.signoff.cancel_turn(key)


async def silent(desk: Bench, key: TurnKey) -> None:
    """Nobody answers."""


async def changed(desk: Bench, key: TurnKey) -> None:
    """Somebody approves other arguments."""
    await desk.signoff.decide(yes(key, edited_args={"amount": 10, "to": "Ana"}))


ENDINGS = [
    (approved, {}, "approved"),
    (denied, {}, "denied"),
    (withdrew, {}, "cancelled"),
    (cancelled, {}, "cancelled"),
    (silent, {"timeout": 1.0}, "timed_out"),
    (changed, {}, "approved"),
]


@pytest.mark.parametrize(("end", "policy", "state"), ENDINGS, ids=lambda each: getattr(each, "__name__", None))
async def test_each_ending_is_told_once(
    end: Callable[[Bench, TurnKey], Awaitable[None]],
    policy: dict[str, float],
    state: str,
    client: Client,
    store: Store,
    task_queue: str,
) -> None:
    """Opened and closed, and the notice of the end says how it ended; the turn ends only once it is written."""
    catalog = reaching(pay_tool(Ledger(), ApprovalPolicy(**policy)))
    async with bench(client, store, task_queue, catalog, SCRIPT) as desk:
        key = await desk.start()
        if not policy:
            await desk.waiting(key)
        await end(desk, key)
        await desk.signoff.result(key)
        rows = await told(store)
        await desk.replays(key)
    assert words(rows) == ["closed 1", "opened 1"]
    closed = next(row.request for row in rows if row.event == "closed")
    assert (closed.state, closed.args.inline) == (state, PAY[1])
    assert next(row.request for row in rows if row.event == "opened").expires_at is not None


async def test_every_revision_is_opened_and_closed(client: Client, store: Store, task_queue: str) -> None:
    """With a quorum of two an edit is asked anew: who had the first card sees it closed, and has another."""
    catalog = reaching(pay_tool(Ledger(), ApprovalPolicy(quorum=2)))
    async with bench(client, store, task_queue, catalog, SCRIPT, people=PEOPLE) as desk:
        key = await desk.start()
        await desk.waiting(key)
        await desk.signoff.decide(yes(key, subject="ana", edited_args={"amount": 10, "to": "Ana"}))
        await desk.signoff.decide(yes(key, subject="bo", revision=2))
        await desk.signoff.result(key)
        rows = await told(store)
        await desk.replays(key)
    assert words(rows) == ["closed 1", "closed 2", "opened 1", "opened 2"]
    closings = {row.request.revision: row.request for row in rows if row.event == "closed"}
    assert (closings[1].state, closings[1].decided_by, closings[2].state) == ("cancelled", "ana", "approved")


async def test_a_tool_that_changed_is_asked_again_and_told_again(client: Client, store: Store, task_queue: str) -> None:
    """The approval of the first revision closed its cards; the second one has its own."""
    tool = pay_tool(Ledger())
    async with bench(client, store, task_queue, reaching(tool), SCRIPT) as desk:
        key = await desk.start()
        await desk.waiting(key)
    async with bench(client, store, task_queue, reaching(replace(tool, version="2")), SCRIPT) as desk:
        await desk.signoff.decide(yes(key))
        await desk.until(key, lambda view: view.calls[0].approval is not None and view.calls[0].approval.revision == 2)
        await desk.signoff.decide(no(key, revision=2))
        await desk.signoff.result(key)
        await desk.replays(key)
    assert words(await told(store)) == ["closed 1", "closed 2", "opened 1", "opened 2"]


async def test_time_is_told_too(client: Client, store: Store, task_queue: str) -> None:
    """Reminded, escalated, put off and over, each once, with who may decide by then."""
    policy = ApprovalPolicy(
        timeout=3.0, remind_after=1.0, escalate_after=2.0, escalate_to=("role:cfo",), on_timeout="escalate"
    )
    async with bench(client, store, task_queue, reaching(pay_tool(Ledger(), policy)), SCRIPT) as desk:
        key = await desk.start()
        await desk.signoff.result(key)
        rows = await told(store)
        await desk.replays(key)
    assert words(rows) == ["closed 1", "escalated 1", "escalated 1", "opened 1", "reminded 1"]
    escalated = [row.request for row in rows if row.event == "escalated"]
    assert all("role:cfo" in request.approvers for request in escalated)
    assert next(row.request for row in rows if row.event == "closed").state == "timed_out"


async def test_parallel_calls_are_told_each(client: Client, store: Store, task_queue: str) -> None:
    """Two requests of one completion: two openings, two ends, of which one comes while the other waits."""
    tools = [pay_tool(Ledger()), pay_tool(Ledger(), name="buy")]
    script = [calls(PAY, ("buy", PAY[1])), respond("done")]
    async with bench(client, store, task_queue, reaching(*tools), script) as desk:
        key = await desk.start()
        await desk.waiting(key, 2)
        await desk.signoff.decide(no(key, "c1.2"))
        early = await told(store, count=3)
        await desk.signoff.decide(yes(key))
        await desk.signoff.result(key)
        late = await told(store)
        await desk.replays(key)
    assert Counter((row.request.call, row.event) for row in early) == Counter(
        [("c1.1", "opened"), ("c1.2", "opened"), ("c1.2", "closed")]
    )
    assert [(row.request.call, row.event) for row in late] == [("c1.1", "closed")]


async def test_a_notice_that_cannot_be_written_holds_nothing_up(client: Client, store: Store, task_queue: str) -> None:
    """It is given up, and the turn goes on to its end as if nobody were to be told."""
    await store.run(lambda connection: connection.exec_driver_sql("DROP TABLE notices").close())
    ledger = Ledger()
    async with bench(client, store, task_queue, reaching(pay_tool(ledger)), SCRIPT) as desk:
        key = await desk.start()
        await desk.waiting(key)
        receipt = await desk.signoff.decide(yes(key))
        result = await desk.signoff.result(key)
        await desk.replays(key)
    assert (receipt.status, result.state, len(ledger.rows)) == ("accepted", "complete", 1)
