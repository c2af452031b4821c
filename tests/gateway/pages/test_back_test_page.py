import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from call_rig import call_rig, refund_tool
from gateway_login import browser, locked_rig, sign_in, token_of, words
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
from signoff.gateway.insights import back_test
from signoff.gateway.insights.back_test import BackTests, ToolVerdicts, count_verdicts
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog, build_catalog
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store

STRICT = ApprovalPolicy(auto_approve_if="args.euro < 10.0", deny_if="args.euro > 30.0", approvers=("role:approvers",))


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


async def test_slow_histories_end_the_back_test_with_what_is_known(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.asked("pay")
    await list_own(rig, 1, monkeypatch)

    async def expired(*_: Any) -> list[SimulatedCall]:
        raise TimeoutError

    monkeypatch.setattr(BackTests, "_judge", expired)
    found = await back_tests_of(rig).run("main")
    assert (found.tools, found.turns, found.cut) == ((), 0, True)


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
        answer = await page.get("/insights?days=7&back_test=run")
        part = answer.text[answer.text.index('id="back-test"') :]
        part = part[: part.index("</section>")]
        assert 'data-column="Would ask">1</td>' in part
        assert "Newest conversations: 1." in words(part)
        assert "420" not in part
        # Everyone with the right sees the kept result.
        assert "Would ask" in words((await page.get("/insights")).text)
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "eve", "read"))
        assert "Would ask" not in words((await page.get("/insights?back_test=run")).text)


async def test_page_says_that_a_back_test_failed(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> list[Any]:
        raise ServerUnavailable("the Temporal server could not list turns")

    monkeypatch.setattr(turn_list, "turns", away)
    async with browser(rig) as page:
        answer = await page.get("/insights?back_test=run")
        assert answer.status_code == 200
        assert "The back-test did not finish." in words(answer.text)
        assert "Start the back-test" in words(answer.text)
