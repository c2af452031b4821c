import asyncio

import pytest
from gateway_login import answered, as_person, browser, hidden, words
from gateway_rig import GatewayRig, turn_of
from tables import table

from signoff.contracts.ids import parse_approval_id
from signoff.gateway.pages.decision_form import draft_in
from signoff.store.freezes import Freezes


async def test_unknown_outcome_page_offers_three_answers(gateway: GatewayRig) -> None:
    approval = await gateway.doubted()
    async with browser(gateway) as page:
        card = words((await page.get(f"/approvals/{approval}")).text)
        for part in (
            "Outcome unknown",
            "Did this happen?",
            "never reported its outcome",
            "It happened",
            "It did not happen: run it",
            "Give up",
        ):
            assert part in card
        assert "otherwise given up" in card
        assert "Did this happen? Pay 420 EUR to Ana" in words((await page.get("/?all=1")).text)
        assert "Edit before approving" not in card
        done = words((await answered(page, approval, verdict="happened", result="receipt no 7")).text)
        talk = words((await page.get(f"/turns/{approval.rsplit('.', 2)[0]}")).text)
    assert "Approver (you) confirmed that the call happened" in done
    assert "Reported result: receipt no 7" in done
    assert "Happened, confirmed by Approver" in talk
    assert await gateway.runs(approval) == 0


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("approved", "Approver (you) confirmed that the call did not happen; it may run again"),
        ("denied", "Given up by Approver (you)"),
    ],
)
async def test_unknown_outcome_is_retried_or_given_up(gateway: GatewayRig, verdict: str, expected: str) -> None:
    approval = await gateway.doubted()
    first = len(gateway.ledger.rows)
    async with browser(gateway) as page:
        done = words((await answered(page, approval, verdict=verdict)).text)
    await gateway.turns.signoff.result(turn_of(approval))
    assert expected in done
    ran = [row for row in gateway.ledger.rows[first:] if row[2].endswith("/2")]
    assert len(ran) == (1 if verdict == "approved" else 0)


async def test_plain_request_refuses_the_verdict_happened(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        assert (await answered(page, approval, verdict="happened")).status_code == 422
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_card_shows_reminder_and_escalation_times(gateway: GatewayRig) -> None:
    approval = await gateway.asked("urgent")
    async with browser(gateway) as page:
        card = words((await page.get(f"/approvals/{approval}")).text)
    assert "A reminder follows at" in card
    assert "Without an answer, Ana, Bo (finance) may answer too from" in card
    assert "then Ana, Bo (finance) may answer too, until" in card


async def test_list_shows_an_edited_request_with_its_editor(rig: GatewayRig) -> None:
    approval = await rig.asked("trip")
    shown = (await rig.http.get(f"/v1/approvals/{approval}")).json()["args"]["inline"]
    edited = {**shown, "cost": 300}
    await rig.decide(approval, verdict="approved", edited_args=edited, **{"as": "ana"})
    async with browser(rig) as page:
        await as_person(page, "bo")
        text = words((await page.get("/")).text)
        while "300 EUR" not in text:
            await asyncio.sleep(0.05)
            text = words((await page.get("/")).text)
    assert "Book TP 531 in business, 300 EUR 300.00 EUR desk for Guest · edited by Ana" in text


async def test_remembered_answer_is_listed_and_revoked_on_the_page(rig: GatewayRig) -> None:
    approval = await rig.asked("alike")
    async with browser(rig) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        assert "such as args.amount <= 420" in words(card)
        wish = {"remember": "on", "which": "where", "where": "args.amount <= 500.0", "scope": "tenant", "uses": "3"}
        done = await answered(page, approval, verdict="approved", span="8h", **wish)
        assert "Approved by Approver (you)" in words(done.text)
        key = await rig.start("alike")
        assert (await rig.turns.signoff.result(key)).calls[0].code == "ok"
        listed = (await page.get("/grants")).text
        text = words(listed)
        assert "Runs without a request" in text
        assert "args.amount <= 500.0" in text
        assert "2 of 3" in text
        assert "Every conversation" in text
        action = listed.split('action="/grants/')[1].split('"')[0]
        bad = await page.post(f"/grants/{action}", data={"token": "0" * 64})
        assert (bad.status_code, "out of date" in words(bad.text)) == (403, True)
        gone = await page.post(f"/grants/{action}", data=hidden(listed, f"/grants/{action}"), follow_redirects=True)
        assert "Revoked" in words(gone.text)
        assert "No remembered answers" in words(gone.text)
    assert (await rig.turns.signoff.request(await rig.asked("alike"))).state == "pending"


async def test_only_its_author_or_an_operator_revokes_a_remembered_answer(rig: GatewayRig) -> None:
    approval = await rig.asked("alike")
    async with browser(rig) as page:
        await answered(page, approval, verdict="approved", remember="on", which="exact", uses="1")
        await rig.turns.signoff.result(parse_approval_id(approval).turn)  # type: ignore[union-attr]
        await as_person(page, "bo")
        listed = (await page.get("/grants")).text
        action = "/grants/" + listed.split('action="/grants/')[1].split('"')[0]
        refused = await page.post(action, data=hidden(listed, action))
        assert refused.status_code == 403
        assert "Nothing was changed: this needs the role `admin`" in words(refused.text)


@table(
    ("wish", "expected"),
    ({"uses": "0"}, "a whole number from 1 to 1000"),
    ({"uses": "many"}, "a whole number from 1 to 1000"),
    ({"uses": "1", "which": "where", "where": " "}, "write a condition"),
    ({"uses": "1", "which": "where", "where": "args.amount < 10.0"}, "not true of the arguments of this very call"),
    ({"uses": "1", "which": "where", "where": "args.amuont < 10.0"}, "amuont"),
)
async def test_invalid_grant_decides_nothing(gateway: GatewayRig, wish: dict[str, str], expected: str) -> None:
    approval = await gateway.asked("alike")
    async with browser(gateway) as page:
        answer = await answered(page, approval, verdict="approved", remember="on", **wish)
    assert answer.status_code == 422
    assert expected in words(answer.text)
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_batch_shows_each_request_before_deciding_them_together(gateway: GatewayRig) -> None:
    first, second, third = [await gateway.asked(word) for word in ("pay", "login", "pay")]
    typed, doubt = await gateway.asked("typed"), await gateway.doubted()
    picked = [first, second, third, typed, doubt]
    async with browser(gateway) as page:
        chooser = (await page.get("/?choose=1")).text
        assert f'name="pick" value="{first}"' in chooser
        assert f'name="pick" value="{typed}"' not in chooser
        shown = await page.get("/batch", params={"pick": picked})
        text = words(shown.text)
        assert text.count("Pay 420 EUR to Ana") >= 3
        assert "Log in to https://example.com" in text
        assert "Decide this one separately: approval needs a typed confirmation" in text
        assert "Decide this one separately: its outcome is unknown" in text
        assert shown.text.count('name="pick"') == 3
        await gateway.decide(second, verdict="denied", **{"as": "ana"})
        form = {**hidden(shown.text, "/batch"), "verdict": "approved"}
        done = await page.post("/batch", data={**form, "shown": picked, "pick": [first, second, typed, doubt]})
        assert done.status_code == 200
        text = words(done.text)
    assert "Already decided" in text
    assert "Ana" in text
    assert text.count("Refused") == 3
    states = [(await gateway.turns.signoff.request(each)).state for each in picked]
    assert states == ["approved", "denied", "pending", "pending", "pending"]


async def test_batch_is_decided_only_from_its_own_page(gateway: GatewayRig) -> None:
    first, second = [await gateway.asked("pay") for _ in range(2)]
    async with browser(gateway) as page:
        form = hidden((await page.get("/batch", params={"pick": [first]})).text, "/batch")
        form = {"verdict": "approved", "revision-0": "1", **form}
        tries: list[tuple[int, dict[str, object]]] = [
            (403, {**form, "token": "0" * 64, "shown": [first], "pick": [first]}),
            (403, {**form, "shown": [second], "pick": [second]}),
            (403, {**form, "shown": [first, second], "pick": [second]}),
            (422, {**form, "verdict": "", "shown": [first], "pick": [first]}),
            (422, {**form, "shown": [first], "pick": []}),
            (422, {**form, "shown": [first], "pick": [second]}),
        ]
        for status, data in tries:
            assert (await page.post("/batch", data=data)).status_code == status
        await page.get("/batch", params={**form, "pick": [first]})
        assert (await page.get("/batch", params={"pick": ["main.a.b"]})).status_code == 404
        assert "No request is selected" in words((await page.get("/batch")).text)
    for approval in (first, second):
        assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_frozen_tenant_is_named_on_every_page(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    pages = ["/", "/?choose=1", f"/approvals/{approval}", f"/approvals/{approval}/edit", "/batch", "/grants", "/turns"]
    pages += ["/tools", "/new", f"/turns/{approval.rsplit('.', 2)[0]}", "/nothing-here"]
    await Freezes(rig.deps.store).freeze("main", reason="strange payments", by="ana")
    async with browser(rig) as page:
        for path in pages:
            text = words((await page.get(path)).text)
            assert "Frozen by Ana: no calls start in main" in text, path
            assert "strange payments" in text, path
        await Freezes(rig.deps.store).unfreeze("main")
        assert "Frozen by" not in (await page.get("/")).text


def test_revision_with_thousands_of_digits_is_truncated() -> None:
    draft = draft_in({"revision": "1" * 5_000}, "main.s.t.c1.1", "approved", "en")
    assert draft.revision == 111_111_111
