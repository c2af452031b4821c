import dataclasses
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from gateway_login import answered, as_person, asked_of, browser, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig

from signoff.contracts.person import Person
from signoff.gateway.history.request_indexer import RequestIndexer
from signoff.gateway.insights import figures, insight_reader
from signoff.gateway.pages.insights.insight_view import Bar, make_bars
from signoff.texts.formatter import Formatter


async def settle(rig: GatewayRig) -> None:
    while await RequestIndexer(rig.deps).step():
        pass


async def test_page_shows_figures_as_tables_with_bars(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        await as_person(page, "approver")
        await answered(page, await rig.asked("pay"), verdict="approved")
        await rig.asked("pay")
        await settle(rig)
        answer = await page.get("/insights")
        shown = words(answer.text)
        assert 'href="/insights" aria-current="page"' in answer.text
        assert "Figures of all requests" in shown
        assert "1 approved, 0 denied, 0 expired" in shown
        assert "Only your own. Figures of other people are off." in shown
        assert "Who can approve" in shown
        assert "Start the back-test" in shown
        assert "It assumes that each tool was available" in shown
        assert '<rect class="good"' in answer.text
        assert len(answer.text) < 100_000
        for days, current in (("7", "7"), ("90", "90"), ("soon", "30")):
            text = (await page.get(f"/insights?days={days}")).text
            assert f'href="/insights?days={current}" aria-current="page"' in text


async def test_chart_shows_each_day_of_the_visitors_zone(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        await as_person(page, "approver")
        assert "Requests by day" not in (await page.get("/insights")).text
        await answered(page, await rig.asked("pay"), verdict="approved")
        assert (await rig.decide(await rig.asked("pay"), verdict="denied", revision=1)).status_code == 200
        await settle(rig)
        for days in (7, 30, 90):
            text = (await page.get(f"/insights?days={days}")).text
            chart = text[text.index('role="img"') : text.index("days-ends")]
            assert chart.count("<title>") == days
            both = [each for each in chart.split("<g>") if 'class="good"' in each and 'class="bad"' in each]
            assert len(both) == 1
            assert len(text) < 100_000
        assert "Time zone: UTC" in words(text)
        assert f"Bars of {days} days. The highest day has 2 requests." in words(text)
        assert "None in the same period 90 days earlier" in words(text)
        page.cookies.set("signoff_zone", "Pacific/Kiritimati")
        text = (await page.get("/insights?days=7")).text
        today = Formatter("en", UTC, datetime.now(UTC)).day(datetime.now(ZoneInfo("Pacific/Kiritimati")))
        assert "Time zone: Pacific/Kiritimati" in words(text)
        assert f"{today}: 1 approved, 1 denied, 0 expired" in text


async def test_page_says_which_figures_leave_out_older_requests(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(rig) as page:
        await as_person(page, "approver")
        for _ in range(2):
            await answered(page, await rig.asked("pay"), verdict="approved")
        await settle(rig)
        assert "count only the newest" not in words((await page.get("/insights")).text)
        monkeypatch.setattr(insight_reader, "FIGURES_PAST", 1)
        shown = words((await page.get("/insights?days=7")).text)
        assert "2 approved, 0 denied, 0 expired" in shown
        assert "Times, warnings and the tables below count only the newest" in shown
        assert "The numbers count only" not in shown
        monkeypatch.setattr(insight_reader, "FIGURES_BY_DAY", 1)
        shown = words((await page.get("/insights?days=90")).text)
        assert "The numbers count only the newest 200,000 requests of each outcome." in shown


async def test_warnings_are_sentences(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FAST_LEAST", 1)
    monkeypatch.setattr(figures, "FAST_SECONDS", 3_600)
    async with browser(rig) as page:
        await as_person(page, "approver")
        await answered(page, await rig.asked("pay"), verdict="approved")
        await settle(rig)
        shown = words((await page.get("/insights")).text)
        assert "100 % of 1 requests for" in shown
        assert "Approver approved 100 % of 1 requests within 3,600 s" in shown


async def test_course_lists_the_steps_of_a_request(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        await as_person(page, "approver")
        assert f'href="/approvals/{approval}/course"' in (await page.get(f"/approvals/{approval}")).text
        await answered(page, approval, verdict="denied")
        shown = words((await page.get(f"/approvals/{approval}/course")).text)
        assert "Requested for Guest" in shown
        assert "Answer of Approver in the inbox: Denied" in shown
        assert shown.index("Requested for Guest") < shown.index("Answer of Approver")
        assert (await page.get("/approvals/main.x.y.c1.1/course")).status_code == 404


async def test_only_readers_of_a_request_see_its_course(rig: GatewayRig) -> None:
    people = (
        Person(id="ana", roles=("approvers",)),
        Person(id="guest"),
        Person(id="olga", roles=("auditor",)),
        Person(id="eve"),
        Person(id="zoe", tenant="acme", roles=("auditor", "approvers")),
    )
    locked = locked_rig(rig, people=people)
    approval = await asked_of(locked)
    found = {}
    for person in people:
        async with browser(locked) as page:
            await sign_in(page, await token_of(locked, person.id, "read", tenant=person.tenant))
            found[person.id] = (await page.get(f"/approvals/{approval}/course")).status_code
    assert found == {"ana": 200, "guest": 200, "olga": 200, "eve": 404, "zoe": 404}


async def test_page_of_a_person_without_a_reading_role_has_their_own_figures(rig: GatewayRig) -> None:
    locked = locked_rig(rig, people=(Person(id="eve"),))
    async with browser(locked) as page:
        assert (await page.get("/insights")).status_code in (302, 303)
        await sign_in(page, await token_of(locked, "eve", "read"))
        shown = words((await page.get("/insights")).text)
    assert "Figures of the requests that you answered or may answer" in shown
    assert "No decisions in this time" in shown
    assert "Who can approve" not in shown


async def test_matrix_marks_tools_without_enough_approvers(rig: GatewayRig) -> None:
    people = (Person(id="olga", roles=("auditor",)), Person(id="fin", roles=("finance",)))
    locked = locked_rig(rig, people=people)
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "olga", "read"))
        answer = await page.get("/insights")
    rows = [words(row) for row in answer.text.split("<tr") if 'scope="row"><code>' in row]
    (both,) = (row for row in rows if " both " in row)
    assert "too few people needs 2 people to approve, but a tenant has at most 1" in both
    assert answer.text.count('class="hole"') == len(rows)


def test_bars_lie_in_a_row_and_keep_a_visible_length() -> None:
    assert make_bars(200, (100, "good"), (1, "bad"), (0, "grey")) == (Bar(0, 50, "good"), Bar(50, 1, "bad"))
    assert make_bars(0, (0, "good")) == ()


async def test_page_names_other_people_if_the_manifest_permits_it(rig: GatewayRig) -> None:
    rig = rig.beside(catalog=dataclasses.replace(rig.deps.catalog, insights_by_person=True))
    async with browser(rig) as page:
        await as_person(page, "approver")
        await answered(page, await rig.asked("pay"), verdict="approved")
        await settle(rig)
        await as_person(page, "guest")
        shown = words((await page.get("/insights")).text)
        assert "Decisions by person Name Approved Denied Expired Approval rate Approver 1 0 0 100 %" in shown
