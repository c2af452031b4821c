from datetime import UTC, datetime
from typing import Any

import pytest
from gateway_login import as_person, browser, hidden, words
from gateway_rig import GatewayRig
from tables import table

from signoff.contracts.responses import WaitingCard
from signoff.gateway.pages.lists import waiting_list
from signoff.gateway.pages.lists.waiting_list import InboxRow, WaitingFilter, filter_in, group_rows, passes, sum_words
from signoff.texts.formatter import Formatter

ENGLISH = Formatter("en", UTC, datetime(2026, 11, 21, 17, 0, tzinfo=UTC))


def card(number: int = 0, **more: Any) -> WaitingCard:
    own: dict[str, Any] = {"tool": "refund", "requester": "rui", "amount": "40", "currency": "EUR"}
    return WaitingCard(id=f"main.s.t.c{number}", code="ABCDEF", **(own | more))


def row(number: int, *, together: bool = True, answered: bool = False, **more: Any) -> InboxRow:
    shown = card(number, **more)
    return InboxRow(shown, shown.requester.title(), "", None, "", soon=False, together=together, answered=answered)


@table(
    ("query", "expected"),
    ({}, True),
    ({"tool": "refund", "requester": "rui"}, True),
    ({"tool": "pay"}, False),
    ({"requester": "ana"}, False),
    ({"least": "40", "most": "40"}, True),
    ({"least": "40.01"}, False),
    ({"most": "39.99"}, False),
    ({"least": "much", "most": "NaN"}, True),
)
def test_filter_compares_tool_requester_and_amount(query: dict[str, str], expected: bool) -> None:
    assert passes(card(), filter_in(query)) is expected


def test_filter_by_amount_leaves_out_requests_without_one() -> None:
    assert not passes(card(amount=""), WaitingFilter(least="0"))
    assert passes(card(amount=""), WaitingFilter())


def test_rows_of_one_tool_and_requester_are_grouped_with_their_sums() -> None:
    rows = [*(row(n) for n in range(5)), row(5, requester="ana"), row(6, tool="pay"), row(7, tool="pay", amount="")]
    refunds, payments = group_rows(rows, {"refund": "Refund"}, ENGLISH, 20)
    assert (refunds.tool, refunds.requester, refunds.count, refunds.sums) == ("Refund", "Rui", 5, "200.00 EUR")
    assert refunds.address == "/batch?" + "&".join(f"pick=main.s.t.c{n}" for n in range(5))
    assert (payments.tool, payments.count, payments.sums) == ("pay", 2, "")


def test_group_leaves_out_single_and_answered_requests() -> None:
    assert group_rows([row(1), row(2, together=False), row(3, answered=True)], {}, ENGLISH, 20) == ()
    (group,) = group_rows([row(n) for n in range(30)], {}, ENGLISH, 20)
    assert (group.count, group.sums) == (20, "800.00 EUR")


def test_currencies_are_summed_apart() -> None:
    assert sum_words([("1.10", "EUR"), ("2", "USD"), ("0.2", "EUR")], ENGLISH) == "1.30 EUR, 2.00 USD"


async def test_list_shows_amounts_and_batch_shows_count_and_sum(rig: GatewayRig) -> None:
    asked = [await rig.asked("pay") for _ in range(3)]
    async with browser(rig) as page:
        assert "420.00 EUR" in words((await page.get("/")).text)
        chooser = (await page.get("/?choose=1")).text
        assert "Pay for Guest : 3 requests, 1,260.00 EUR" in words(chooser)
        link = chooser.split('class="together"')[1].split('href="')[1].split('"')[0].replace("&amp;", "&")
        shown = await page.get(link)
        assert "Pay for Guest 3 requests, 1,260.00 EUR" in words(shown.text)
        form = {**hidden(shown.text, "/batch"), "verdict": "approved", "shown": asked, "pick": asked[:2]}
        assert (await page.post("/batch", data=form)).status_code == 200
    states = [(await rig.request(each)).state for each in asked]
    assert states == ["approved", "approved", "pending"]


async def test_request_with_a_preview_or_a_stronger_sign_in_is_in_no_batch(rig: GatewayRig) -> None:
    asked = [await rig.asked(word) for word in ("shown", "both", "pay")]
    async with browser(rig) as page:
        assert f'name="pick" value="{asked[0]}"' not in (await page.get("/?choose=1")).text
        shown = await page.get("/batch", params={"pick": asked})
        text = words(shown.text)
        assert "Decide this one separately: the preview of its effect must be read" in text
        assert "Decide this one separately: you cannot decide it" in text
        form = {**hidden(shown.text, "/batch"), "verdict": "approved", "shown": asked, "pick": asked}
        done = await page.post("/batch", data=form)
        assert words(done.text).count("Refused") == 2
        await as_person(page, "ana")
    states = [(await rig.request(each)).state for each in asked]
    assert states == ["pending", "pending", "approved"]


async def test_filter_finds_requests_after_the_listed_ones(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_list, "LISTED", 2)
    for word in ("pay", "pay", "pay", "shown"):
        await rig.asked(word)
    async with browser(rig) as page:
        every, one = (await page.get("/?all=1")).text, (await page.get("/?tool=shown")).text
        dear = words((await page.get("/?least=9999")).text)
    assert (every.count("data-key"), one.count("data-key")) == (2, 1)
    assert "Only the amounts of the first 2 requests were compared." in dear
