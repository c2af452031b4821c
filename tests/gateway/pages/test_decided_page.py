from datetime import UTC, datetime
from functools import partial

import pytest
from gateway_login import answered, as_person, browser, words
from gateway_rig import GatewayRig

from signoff.formats.replace import replace
from signoff.gateway.history.request_indexer import RequestIndexer, past_row
from signoff.gateway.pages.decided import decided
from signoff.store.history.past_requests import put_past


async def settle(rig: GatewayRig) -> None:
    while await RequestIndexer(rig.deps).step():
        pass


async def test_decided_request_is_listed_searched_and_exported(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    request = await rig.request(approval)
    async with browser(rig) as page:
        assert "No decided requests yet" in words((await page.get("/decided")).text)
        await as_person(page, "approver")
        await answered(page, approval, verdict="approved")
        await settle(rig)
        shown = (await page.get("/decided")).text
        assert f'href="/approvals/{approval}"' in shown
        assert f"{request.card.effect} desk for Guest · decided by Approver, in the inbox" in words(shown)
        assert "1 request · Export as CSV" in words(shown)
        assert 'href="/decided" aria-current="page"' in shown
        for query, found in (
            ("text=pay", True), ("text=nothing", False), ("scope=mine", True), ("state=denied", False),
            ("tool=pay&person=approver&since=2020-01-01", True), ("until=2020-01-01", False), ("since=soon", True),
        ):  # fmt: skip
            assert (f"/approvals/{approval}" in (await page.get(f"/decided?{query}")).text) is found, query
        for form in ("csv", "jsonl"):
            export = await page.get(f"/decided/export?format={form}&text=pay")
            assert approval in export.text
            assert export.headers["content-disposition"] == f'attachment; filename="decisions.{form}"'


async def test_recipient_is_marked_until_a_request_is_approved(rig: GatewayRig) -> None:
    first, second = [await rig.asked("alike") for _ in range(2)]
    async with browser(rig) as page:
        await as_person(page, "approver")
        for approval in (first, second):
            assert "Ana New here: you see no earlier approval" in words((await page.get(f"/approvals/{approval}")).text)
        batch = words((await page.get("/batch", params={"pick": [first, second]})).text)
        assert batch.count("New here: you see no earlier approval") == 2
        await answered(page, first, verdict="approved")
        await settle(rig)
        for approval in (first, second):
            shown = words((await page.get(f"/approvals/{approval}")).text)
            assert "Payee Ana" in shown
            assert "New here" not in shown


async def test_last_day_ends_by_the_visitors_clock(rig: GatewayRig) -> None:
    request = (await rig.deps.requests.load(await rig.asked("pay"))).request
    # The clocks of Berlin went back that day. It is 23:30 there.
    ended = replace(request, state="approved", decided_at=datetime(2025, 10, 26, 22, 30, tzinfo=UTC))
    await rig.deps.store.run(partial(put_past, row=past_row(ended)))
    async with browser(rig) as page:
        page.cookies.set("signoff_zone", "Europe/Berlin")
        for query, found in (
            ("until=2025-10-26", True), ("until=2025-10-25", False), ("since=2025-10-26", True),
            ("since=2025-10-27", False), ("until=9999-12-31", True), ("since=0001-01-01", True),
        ):  # fmt: skip
            assert (f"/approvals/{request.id}" in (await page.get(f"/decided?{query}")).text) is found, query


async def test_hostile_search_is_escaped_and_keeps_its_text(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        for hostile in ('"><script>alert(1)</script>', "' OR 1=1 --", '" OR "*', "x" * 10_000):
            answer = await page.get("/decided", params={"text": hostile})
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert "No requests match these filters" in words(answer.text)
        many = await page.get("/decided", params={"text": " ".join(map(str, range(40)))})
        assert many.status_code == 422
        assert "a search has at most 20 words" in words(many.text)


async def test_older_requests_are_on_the_next_page(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [await rig.asked("pay") for _ in range(3)]
    for name in names:
        await rig.decide(name, verdict="denied", revision=1)
    await settle(rig)
    monkeypatch.setattr(decided, "LISTED", 2)
    async with browser(rig) as page:
        first = (await page.get("/decided?tool=pay")).text
        assert [name in first for name in names] == [False, True, True]
        link = first[first.index('href="/decided?tool=pay') :].split('"')[1].replace("&amp;", "&")
        assert [name in (await page.get(link)).text for name in names] == [True, False, False]


async def test_card_compares_with_own_approvals_and_names_differences_first(rig: GatewayRig) -> None:
    for _ in range(2):
        await rig.decide(await rig.asked("pay"), verdict="approved", revision=1)
    await settle(rig)
    other = await rig.asked("long")
    async with browser(rig) as page:
        await as_person(page, "approver")
        shown = words((await page.get(f"/approvals/{other}")).text)
        assert "Different from your earlier approvals: memo" in shown.replace("Memo", "memo")
        assert "2 similar requests approved by you, last just now. Amount 420.00 EUR." in shown
        assert shown.index("Different from your earlier approvals") < shown.index("2 similar requests")
        await as_person(page, "ana")
        assert "similar request" not in words((await page.get(f"/approvals/{other}")).text)
