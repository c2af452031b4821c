import html
import re
from typing import Any

import httpx2
import pytest
from gateway_login import answered, as_person, browser, hidden, words
from gateway_rig import FLIGHT, PASSWORD, GatewayRig, turn_of
from tables import table

_HIDDEN = re.compile(r'type="hidden" name="([^"]+)" value="([^"]*)"')


def fields(page: str, action: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _HIDDEN.findall(hidden_part(page, action))}


def hidden_part(page: str, action: str) -> str:
    form = page[page.index(f'action="{action}"') :]
    return form[: form.index("</form>")]


async def edited(page: httpx2.AsyncClient, approval: str, *, step: str = "review", **changed: str) -> httpx2.Response:
    """`__` in a name means `/`."""
    path = f"/approvals/{approval}/edit"
    answer = await page.get(path)
    assert answer.status_code == 200, answer.text
    form = fields(answer.text, path)
    form |= {f"args/{name.replace('__', '/')}": value for name, value in changed.items()}
    return await page.post(path, data={**form, "step": step})


async def confirmed(page: httpx2.AsyncClient, approval: str, review: httpx2.Response, **more: str) -> httpx2.Response:
    path = f"/approvals/{approval}/edit"
    form = fields(review.text, path)
    return await page.post(path, data={**form, "step": "approve", **more}, follow_redirects=True)


async def ended(gateway: GatewayRig, approval: str) -> Any:
    return (await gateway.turns.signoff.result(turn_of(approval))).calls[0]


async def test_edit_is_compared_with_the_original_and_then_runs(gateway: GatewayRig) -> None:
    approval = await gateway.asked("book")
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        assert f'href="/approvals/{approval}/edit"' in card
        review = await edited(page, approval, cost="380.50", traveller__name="Bo", extras="")
        assert review.status_code == 200
        text = words(review.text)
        assert "Book TP 531 in business, 380.5 EUR" in text
        assert "Cost 420.00 EUR 380.50 EUR" in text
        assert "Traveller / Name Ana Sousa Bo" in text
        assert PASSWORD not in review.text
        assert (await gateway.turns.signoff.request(approval)).state == "pending"
        done = await confirmed(page, approval, review)
    assert done.status_code == 200
    text = words(done.text)
    assert "Approved by Approver (you)" in text
    assert "Edited by Approver (you)" in text
    assert "420.00 EUR 380.50 EUR" in text
    outcome = await ended(gateway, approval)
    assert (outcome.code, outcome.edited_by) == ("ok", "approver")
    ran = [args for name, args, _ in gateway.ledger.rows if name == "book"][-1]
    assert ran == {**FLIGHT, "cost": 380.5, "traveller": {"name": "Bo"}, "extras": []}


async def test_edit_form_shows_types_choices_and_required_fields(gateway: GatewayRig) -> None:
    approval = await gateway.asked("book")
    async with browser(gateway) as page:
        form = (await page.get(f"/approvals/{approval}/edit")).text
    text = words(form)
    assert "Cost required" in text
    assert "Refundable optional" in text
    assert "Number · at least 0 · at most 1000" in text
    assert "As on the ticket" in text
    assert '<option value="&#34;business&#34;" selected>business</option>' in form
    assert PASSWORD not in form
    assert f"Leave empty to keep it: hidden, {len(PASSWORD)} characters" in text


@table(
    ("changed", "expected"),
    ({"cost": "much"}, "Must be a number, such as 380 or 12.5."),
    ({"cost": "2000"}, "Must be at most 1000."),
    ({"seats": "1.5"}, "Must be a whole number, such as 380."),
    ({"traveller__name": "Bo", "extras": "a\nb\nc\nd"}, "Must have at most 3 items."),
    ({"meta": "{"}, "Is not JSON"),
    ({}, "You changed nothing. Change a value"),
)
async def test_invalid_edit_shows_its_error_and_decides_nothing(
    gateway: GatewayRig, changed: dict[str, str], expected: str
) -> None:
    approval = await gateway.asked("book")
    async with browser(gateway) as page:
        for step in ("review", "approve"):
            answer = await edited(page, approval, step=step, **changed)
            assert answer.status_code == 422
            assert expected in words(answer.text)
            assert all(value.split("\n")[0] in answer.text for value in changed.values())
    assert (await gateway.turns.signoff.request(approval)).votes == ()


async def test_edit_needs_the_token_and_revision_of_its_page(gateway: GatewayRig) -> None:
    approval, other = await gateway.asked("book"), await gateway.asked("book")
    path = f"/approvals/{approval}/edit"
    async with browser(gateway) as page:
        form = hidden((await page.get(path)).text, path) | {"args/cost": "1", "step": "approve"}
        card = hidden((await page.get(f"/approvals/{approval}")).text, f"/approvals/{approval}/decide")
        foreign = hidden((await page.get(f"/approvals/{other}/edit")).text, f"/approvals/{other}/edit")
        for token in ("", "0" * 64, card["token"], foreign["token"]):
            assert (await page.post(path, data={**form, "token": token})).status_code == 403
        for stale in ({"revision": "2"}, {"question_hash": "0" * 64}):
            assert (await page.post(path, data={**form, **stale})).status_code == 409
        await page.get(path, params=form)
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_person_without_permission_to_decide_cannot_edit(gateway: GatewayRig) -> None:
    approval = await gateway.asked("book")
    path = f"/approvals/{approval}/edit"
    async with browser(gateway) as page:
        await as_person(page, "bo")
        assert path not in (await page.get(f"/approvals/{approval}")).text
        refused = await page.get(path)
        assert (refused.status_code, "you cannot decide it" in words(refused.text)) == (409, True)
        await gateway.decide(approval, verdict="denied")
        assert (await page.get(path)).status_code == 409


async def test_edit_needs_the_other_approvals_again(gateway: GatewayRig) -> None:
    approval = await gateway.asked("trip")
    async with browser(gateway) as page:
        await as_person(page, "ana")
        review = await edited(page, approval, cost="300")
        assert "Your version needs the other approvals again" in words(review.text)
        counted = words((await confirmed(page, approval, review)).text)
        assert "1 of 2 approvals" in counted
        assert "You approved, 1 of 2" in counted
        await as_person(page, "bo")
        card = (await page.get(f"/approvals/{approval}")).text
        text = words(card)
        assert "Edited by Ana" in text
        assert "Can still answer: Bo (finance)" in text
        assert (await answered(page, approval, verdict="approved")).status_code == 200
    assert (await ended(gateway, approval)).code == "ok"


async def test_typed_confirmation_of_an_edit_is_the_new_amount(gateway: GatewayRig) -> None:
    approval = await gateway.asked("typed")
    async with browser(gateway) as page:
        review = await edited(page, approval, amount="99")
        assert "To approve, type 99.00" in words(review.text)
        wrong = await confirmed(page, approval, review, typed="420")
        assert wrong.status_code == 422
        assert (await gateway.turns.signoff.request(approval)).state == "pending"
        assert "Approved by Approver" in words((await confirmed(page, approval, wrong, typed="99")).text)


@pytest.mark.parametrize("written", ["", "again "])
async def test_review_reveals_no_secret_value(gateway: GatewayRig, written: str) -> None:
    """Before the fix, only the right password led to "nothing was changed", and only it was masked among candidates."""
    approval = await gateway.asked("book")
    async with browser(gateway) as page:
        entries = []
        for guess in (PASSWORD, "wronger horse"):
            alone = await edited(page, approval, card=guess)
            inside = await edited(page, approval, traveller__name=f"{written}{guess}")
            entries.append((alone.status_code, inside.status_code, "[hidden]" in inside.text, guess in inside.text))
        same = await edited(page, approval, card="")
    assert entries == [(200, 200, False, True)] * 2
    assert same.status_code == 422
