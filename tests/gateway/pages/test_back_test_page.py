import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from call_rig import call_rig, refund_tool
from gateway_login import browser, hidden, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig
from polling import pauses
from temporalio.client import Client

from signoff.audit.call_history import PastCall
from signoff.audit.log import AuditLog
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.person import Person
from signoff.contracts.responses import TurnRow
from signoff.engine import turn_list
from signoff.engine.policy_simulation import SimulatedCall, Would
from signoff.formats.replace import replace
from signoff.gateway.insights import back_test
from signoff.gateway.insights.back_test import BackTest, BackTests, ToolVerdicts, count_verdicts
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog, build_catalog
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store

STRICT = ApprovalPolicy(auto_approve_if="args.euro < 10.0", deny_if="args.euro > 30.0", approvers=("role:approvers",))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs longer."""
    monkeypatch.setattr(back_test, "_TURN_SECONDS", 60.0)
    monkeypatch.setattr(back_test, "BACK_TEST_SECONDS", 60.0)


def back_tests_of(
    rig: GatewayRig, catalog: Catalog | None = None, clock: Callable[[], datetime] | None = None
) -> BackTests:
    deps = rig.deps
    return BackTests(deps.client.temporal, deps.store, catalog or deps.catalog, clock or deps.clock)


async def list_own(rig: GatewayRig, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests share the server."""
    every = turn_list.turns

    async def own(*given: Any, wanted: Callable[[TurnRow], bool], **fields: Any) -> list[TurnRow]:
        streams = set(await AuditLog(rig.deps.store).streams())
        return await every(*given, wanted=lambda row: wanted(row) and row.workflow_id in streams, **fields)

    monkeypatch.setattr(turn_list, "turns", own)
    client, requests = rig.deps.client.temporal, RequestLists(rig.deps.store)
    for pause in pauses():
        if len(await own(client, requests, tenant="main", wanted=lambda _: True, limit=number)) == number:
            return
        await asyncio.sleep(pause)


async def start(page: httpx2.AsyncClient, *, days: str = "30") -> httpx2.Response:
    form = hidden((await page.get(f"/insights?days={days}")).text, "/insights/back-test")
    return await page.post("/insights/back-test", data=form, follow_redirects=True)


def past(tool: str, would: Would) -> SimulatedCall:
    call = PastCall(stream="turn/main/s/t", call="c1.1", tool=tool, at="", digest="", definition="")
    return SimulatedCall(call, would, "")


def test_verdicts_are_counted_by_tool_with_the_most_calls_first() -> None:
    tried = [past("pay", "ask"), past("refund", "run"), past("refund", "deny"), past("refund", "unknown")]
    assert count_verdicts(tried) == (
        ToolVerdicts("refund", ask=0, run=1, deny=1, unknown=1),
        ToolVerdicts("pay", ask=1, run=0, deny=0, unknown=0),
    )


async def test_calls_of_external_agents_are_judged_by_the_present_rules(
    client: Client, store: Store, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_rig(client, store, task_queue) as agent:
        for euro in (5, 20, 40):
            proposed = await agent.propose(euro)
            assert (await agent.use(proposed.json()["id"])).status_code == 200
        await list_own(agent.rig, 3, monkeypatch)
        lenient = await back_tests_of(agent.rig).run("main")
        assert lenient.tools == (ToolVerdicts("refund", ask=0, run=3, deny=0, unknown=0),)
        assert (lenient.turns, lenient.cut) == (3, False)
        actors = [agent.rig.deps.catalog.actors["coder"]]
        stricter = build_catalog(tools=[refund_tool(STRICT)], actors=actors, people=agent.rig.deps.people)
        strict = await back_tests_of(agent.rig, stricter).run("main")
        assert strict.tools == (ToolVerdicts("refund", ask=1, run=1, deny=1, unknown=0),)
        monkeypatch.setattr(back_test, "BACK_TEST_TURNS", 2)
        newest = await back_tests_of(agent.rig, stricter).run("main")
        assert newest.tools == (ToolVerdicts("refund", ask=1, run=0, deny=1, unknown=0),)
        assert (newest.turns, newest.cut) == (2, True)
        assert (await back_tests_of(agent.rig).run("other")).turns == 0


async def test_result_is_kept_for_ten_minutes(rig: GatewayRig) -> None:
    later = timedelta()
    kept = back_tests_of(rig, clock=lambda: rig.deps.clock() + later)
    assert kept.recent("main") is None
    first = await kept.run("main")
    assert kept.recent("main") is await kept.run("main") is first
    assert kept.recent("other") is None
    later = timedelta(minutes=11)
    assert kept.recent("main") is None


async def three_turns(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for _ in range(3):
        await rig.asked("pay")
    await list_own(rig, 3, monkeypatch)
    return sorted(await AuditLog(rig.deps.store).streams())


def judge_by(monkeypatch: pytest.MonkeyPatch, judge: Callable[[str], Awaitable[Any]]) -> None:
    async def judged(_client: Any, _store: Any, _catalog: Any, stream: str, calls: list[PastCall]) -> Any:
        await judge(stream)
        return [SimulatedCall(call, "ask", "") for call in calls]

    monkeypatch.setattr(back_test, "simulate_turn", judged)


async def test_slow_history_is_not_judged_and_delays_no_other(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = (await three_turns(rig, monkeypatch))[0]
    monkeypatch.setattr(back_test, "_TURN_SECONDS", 0.2)
    monkeypatch.setattr(back_test, "_AT_ONCE", 1)

    async def judge(stream: str) -> None:
        if stream == slow:
            await asyncio.Event().wait()

    judge_by(monkeypatch, judge)
    found = await back_tests_of(rig).run("main")
    assert found.tools == (ToolVerdicts("pay", ask=2, run=0, deny=0, unknown=1),)
    assert (found.turns, found.cut, found.finished) == (3, False, True)


async def test_result_of_a_back_test_without_more_time_is_partial_and_not_kept(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three_turns(rig, monkeypatch)
    judged, most = list[str](), 2

    async def judge(stream: str) -> None:
        if len(judged) == most:
            await asyncio.Event().wait()
        judged.append(stream)

    judge_by(monkeypatch, judge)
    monkeypatch.setattr(back_test, "_AT_ONCE", 1)
    judge_all = BackTests._judge_all

    async def soon(self: BackTests, calls: Any, _ends: float) -> Any:
        return await judge_all(self, calls, asyncio.get_running_loop().time() + 0.5)

    monkeypatch.setattr(BackTests, "_judge_all", soon)
    back_tests = back_tests_of(rig)
    found = await back_tests.run("main")
    assert found.tools == (ToolVerdicts("pay", ask=2, run=0, deny=0, unknown=0),)
    assert (found.turns, found.cut, found.finished) == (2, True, False)
    assert back_tests.recent("main") is None
    most = 9
    assert (await back_tests.run("main")).finished
    assert back_tests.recent("main") is not None


async def test_failed_server_ends_the_back_test_with_its_results(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three_turns(rig, monkeypatch)
    begun, ended = list[str](), list[str]()

    async def judge(stream: str) -> None:
        begun.append(stream)
        if len(begun) == 2:
            raise ServerUnavailable("the Temporal server did not answer")
        await asyncio.sleep(0.05)
        ended.append(stream)

    judge_by(monkeypatch, judge)
    monkeypatch.setattr(back_test, "_AT_ONCE", 2)
    back_tests = back_tests_of(rig)
    found = await back_tests.run("main")
    assert found.tools == (ToolVerdicts("pay", ask=1, run=0, deny=0, unknown=0),)
    assert (found.turns, found.finished, back_tests.recent("main")) == (1, False, None)
    # No turn is still being judged, and no further one was begun.
    assert (len(begun), len(ended)) == (2, 1)


async def test_time_of_a_waiting_back_test_begins_with_its_own_work(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = list[float]()

    async def run(_self: BackTests, _tenant: str, until: float) -> BackTest:
        ends.append(until)
        await asyncio.sleep(0.05)
        return BackTest(rig.deps.clock(), (), 0, cut=False, finished=True)

    monkeypatch.setattr(BackTests, "_run", run)
    back_tests = back_tests_of(rig)
    await asyncio.gather(back_tests.run("a"), back_tests.run("b"))
    assert ends[1] - ends[0] >= 0.05


async def test_reset_turn_is_judged_once(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await three_turns(rig, monkeypatch)
    own = turn_list.turns

    async def with_runs(*given: Any, wanted: Callable[[TurnRow], bool], limit: int, **fields: Any) -> list[TurnRow]:
        rows = await own(*given, wanted=lambda _: True, limit=limit, **fields)
        runs = [replace(row, run_id=f"{row.run_id}{run}") for row in rows for run in range(2)]
        return [row for row in runs if wanted(row)][:limit]

    monkeypatch.setattr(turn_list, "turns", with_runs)
    monkeypatch.setattr(back_test, "BACK_TEST_TURNS", 3)
    found = await back_tests_of(rig).run("main")
    assert found.tools == (ToolVerdicts("pay", ask=3, run=0, deny=0, unknown=0),)
    assert (found.turns, found.cut) == (3, False)


async def test_unreadable_history_is_not_judged_and_hides_no_other(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.asked("pay")
    await list_own(rig, 1, monkeypatch)

    async def broken(*_: Any) -> list[SimulatedCall]:
        raise RuntimeError("no such type")

    monkeypatch.setattr(back_test, "simulate_turn", broken)
    assert [(each.tool, each.unknown) for each in (await back_tests_of(rig).run("main")).tools] == [("pay", 1)]


async def test_auditor_sees_the_verdicts_and_no_argument(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.asked("pay")
    await list_own(rig, 1, monkeypatch)
    locked = locked_rig(rig, people=(Person(id="olga", roles=("auditor",)), Person(id="eve", roles=("approvers",))))
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "olga", "read"))
        assert "Start the back-test" in words((await page.get("/insights")).text)
        answer = await start(page, days="7")
        assert answer.url.query == b"days=7"
        part = answer.text[answer.text.index('id="back-test"') :]
        part = part[: part.index("</section>")]
        assert 'data-column="Would ask">1</td>' in part
        assert "Newest conversations: 1." in words(part)
        assert "420" not in part
        # Everyone with the right sees the kept result.
        assert "Would ask" in words((await page.get("/insights")).text)
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "eve", "read"))
        assert "Would ask" not in words((await page.get("/insights")).text)
        assert (await page.post("/insights/back-test")).status_code == 404


async def test_only_the_form_of_the_page_starts_a_back_test(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[str]()

    async def run(_self: BackTests, tenant: str) -> BackTest:
        started.append(tenant)
        return BackTest(rig.deps.clock(), (), 0, cut=False, finished=True)

    monkeypatch.setattr(BackTests, "run", run)
    async with browser(rig) as page:
        for method in ("GET", "HEAD"):
            assert (await page.request(method, "/insights?back_test=run")).status_code == 200
            assert (await page.request(method, "/insights/back-test")).status_code == 405
        stale = await page.post("/insights/back-test", data={"days": "7", "token": "0" * 64})
        assert stale.status_code == 403
        assert started == []
        assert (await start(page, days="7")).status_code == 200
        assert started == ["main"]


async def test_page_says_that_a_back_test_failed(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> list[Any]:
        raise ServerUnavailable("the Temporal server could not list turns")

    monkeypatch.setattr(turn_list, "turns", away)
    async with browser(rig) as page:
        answer = await start(page)
        assert answer.status_code == 503
        assert "The back-test did not finish." in words(answer.text)
        assert "Start the back-test" in words(answer.text)


async def test_unfinished_back_test_is_marked_on_the_page(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    async def run(_self: BackTests, _tenant: str) -> BackTest:
        tools = (ToolVerdicts("pay", ask=turns, run=0, deny=0, unknown=0),) if turns else ()
        return BackTest(rig.deps.clock(), tools, turns, cut=True, finished=False)

    monkeypatch.setattr(BackTests, "run", run)
    async with browser(rig) as page:
        shown = words((await start(page)).text)
        assert "The back-test did not finish." in shown
        assert "No recorded calls" not in shown
        turns = 2
        shown = words((await start(page)).text)
        assert "The back-test did not finish." in shown
        assert "Newest conversations: 2." in shown
        assert "Start the back-test" in shown
