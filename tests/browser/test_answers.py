import os
import re
import uuid
from collections.abc import AsyncIterator

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings, until
from gateway_rig import FLIGHT, LINES
from playwright.async_api import Page, expect

from signoff.approvals import request_state
from signoff.store.freezes import Freezes

pytestmark = pytest.mark.chromium

NARROW = (320, 640)
SIZES = pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])


async def become(page: Page, served: Served, person: str) -> None:
    await page.goto(served.base)
    await page.get_by_label("Acting as").select_option(person)
    await page.get_by_role("button", name="Switch").click()


@SIZES
@SCRIPTS
async def test_edit_is_reviewed_and_approved_in_the_browser(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await served.rig.asked("book")
    page = await window(f"/approvals/{approval}", size=size, scripts=scripts)
    await page.get_by_role("link", name="Edit before approving").click()
    await page.get_by_label("Cost").fill("3 hundred")
    await page.get_by_label("Class").select_option("economy")
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was decided")
    cost = page.get_by_label("Cost")
    await expect(cost).to_have_value("3 hundred")
    await expect(cost).to_have_attribute("aria-invalid", "true")
    await expect(cost).to_have_accessible_description(re.compile("Must be a number"))
    await cost.fill("300")
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Book TP 531 in economy, 300 EUR")
    await expect(page.locator(".diff tbody tr")).to_have_text(
        [re.compile(r"Cost\s*420.00 EUR\s*300.00 EUR"), re.compile(r"Class\s*business\s*economy")]
    )
    await page.get_by_role("button", name="Edit more").click()
    await expect(page.get_by_label("Cost")).to_have_value("300")
    await page.get_by_role("button", name="Review changes").click()
    await page.get_by_role("button", name="Approve with these changes").click()
    await until(page, "Ran as edited by Approver, approved by Approver", scripts=scripts)
    ran = [args for name, args, _ in served.rig.ledger.rows if name == "book"][-1]
    assert ran == {**FLIGHT, "cost": 300, "class": "economy"}


@SIZES
@SCRIPTS
async def test_long_list_is_approved_only_after_each_page_is_confirmed_below_its_last_line(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await served.rig.asked("order")
    page = await window(f"/approvals/{approval}", size=size, scripts=scripts)
    await expect(page.locator(".unseen")).to_contain_text("Read them all first")
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    await page.locator(".choices .open").click()
    # The number next to `Waiting` counts requests, and not the page's values.
    await expect(page.locator("#count")).not_to_have_text(f"{1 + 2 * LINES}")
    read = ""
    for number in (1, 2):
        await expect(page.get_by_role("columnheader", name="Pieces")).to_be_visible()
        read += await page.locator("main").inner_text()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if number == 1 and scripts:
            assert await axe_findings(page, size) == []
        last = await page.locator("main tr").last.bounding_box()
        confirm = page.get_by_role("button", name="I have read this page")
        button = await confirm.bounding_box()
        assert last is not None
        assert button is not None
        assert button["y"] > last["y"]
        if number == 2:
            # The pages were shown, and the last one was not confirmed.
            await page.goto(f"{served.base}/approvals/{approval}")
            await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
            await page.goto(f"{served.base}/approvals/{approval}/values?page=2")
        if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
            await page.screenshot(path=f"{screenshots}/values-{size[0]}-{number}.png", full_page=number == 2)
        await confirm.click()
    assert [n for n in range(LINES) if f"pencil {n}\t" not in read] == []
    assert f"Sum of {LINES}\t\t{sum(range(LINES)):,}" in read
    await expect(page.locator(".unseen")).to_contain_text("You have read them all")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await until(page, "Ran, approved by Approver", scripts=scripts)


@SIZES
@SCRIPTS
async def test_unknown_outcome_is_settled_in_the_browser(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await served.rig.doubted()
    page = await window(f"/approvals/{approval}", size=size, scripts=scripts)
    names = ("It happened", "It did not happen: run it", "Give up")
    boxes = [await page.get_by_role("button", name=name).bounding_box() for name in names]
    sizes = {(round(box["width"]), round(box["height"])) for box in boxes if box is not None}
    assert len(sizes) == 1
    assert sizes.pop()[1] >= 48
    await page.get_by_label(re.compile("Result, if it happened")).fill("receipt no 7")
    await page.get_by_role("button", name="It happened").click()
    await until(page, "Approver (you) confirmed that the call happened", scripts=scripts)
    await until(page, "Happened, confirmed by Approver", scripts=scripts)
    await page.get_by_text("Result", exact=True).click()
    await expect(page.locator(".receipt pre")).to_have_text("receipt no 7")


@SCRIPTS
async def test_answer_is_remembered_and_revoked_in_the_browser(window: Open, served: Served, scripts: bool) -> None:
    approval = await served.rig.asked("alike")
    page = await window(f"/approvals/{approval}", scripts=scripts)
    await page.get_by_text("Remember this answer").click()
    await page.get_by_label("Give the same answer next time").check()
    await page.get_by_label("Maximum uses").fill("3")
    await page.get_by_role("button", name="Approve").click()
    await until(page, "Ran, approved by Approver", scripts=scripts)
    await page.get_by_role("link", name="Grants").click()
    await expect(page.locator(".grants")).to_contain_text("Exactly the arguments of the request")
    await expect(page.locator(".grants")).to_contain_text("3 of 3")
    await page.get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("status").first).to_contain_text("Revoked")
    await expect(page.locator("main")).to_contain_text("No remembered answers")


@SIZES
@SCRIPTS
async def test_several_requests_are_chosen_read_and_decided(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    asked = [await served.rig.asked("small refund login") for _ in range(2)]
    page = await window("/?tool=login", size=size, scripts=scripts)
    await page.goto(f"{served.base}/?choose=1")
    for approval in asked:
        await page.locator(f'input[value="{approval}"]').check()
    await page.get_by_role("button", name="Read selected").click()
    await expect(page.get_by_role("heading", name="Log in to https://example.com")).to_have_count(2)
    await page.get_by_label("Include this request").nth(1).uncheck()
    await page.get_by_label(re.compile("Reason")).fill("not today")
    await page.get_by_role("button", name="Deny all ticked").click()
    await expect(page.locator(".grants > li")).to_have_count(1)
    await expect(page.locator(".grants > li .badge")).to_have_text("Denied")
    states = [(await served.rig.request(each)).state for each in asked]
    assert states == ["denied", "pending"]
    await served.rig.decide(asked[1], verdict="denied")


@SCRIPTS
async def test_denial_is_undone_with_its_button(
    window: Open, served: Served, scripts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_state, "UNDO_SECONDS", 60.0)
    approval = await served.rig.asked("login")
    page = await window(f"/approvals/{approval}", scripts=scripts)
    await page.get_by_role("button", name="Deny", exact=True).click()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("button", name="Deny", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert (await served.rig.request(approval)).state == "pending"


async def test_ticked_boxes_survive_another_persons_vote(window: Open, served: Served) -> None:
    approval = await served.rig.asked("trip")
    page = await window("/")
    await become(page, served, "bo")
    await page.goto(f"{served.base}/approvals/{approval}")
    await page.get_by_text("Remember this answer").click()
    await page.get_by_label("Give the same answer next time").check()
    await page.get_by_label("Duration").select_option("7d")
    await page.get_by_label("If this is true:").first.check()
    await served.rig.decide(approval, verdict="approved", **{"as": "ana"})
    await expect(page.locator(".card")).to_contain_text("1 of 2 approvals")
    await expect(page.get_by_label("Give the same answer next time")).to_be_checked()
    await expect(page.get_by_label("If this is true:").first).to_be_checked()
    await expect(page.get_by_label("Duration")).to_have_value("7d")
    await served.rig.decide(approval, verdict="denied", **{"as": "bo"})


@pytest.fixture
async def states(served: Served) -> AsyncIterator[list[str]]:
    rig = served.rig
    doubt, over, again, given_up = [await rig.doubted() for _ in range(4)]
    for approval, verdict in ((over, "happened"), (again, "approved"), (given_up, "denied")):
        await rig.decide(approval, verdict=verdict, revision=2)
    urgent, trip, book, typed, alike, kept = [
        await rig.asked(word) for word in ("urgent", "trip", "book", "typed", "alike", "alike")
    ]
    shown = (await rig.http.get(f"/v1/approvals/{trip}")).json()["args"]["inline"]
    await rig.decide(trip, verdict="approved", edited_args={**shown, "cost": 300}, **{"as": "ana"})
    await rig.decide(kept, verdict="approved", remember={"where": "args.amount <= 500.0", "uses": 5})
    paths = [f"/approvals/{each}" for each in (doubt, over, again, given_up, urgent, trip, book, alike, kept)]
    batch = "&".join(f"pick={each}" for each in (alike, book, typed, doubt))
    paths += [f"/approvals/{book}/edit", f"/approvals/{typed}/edit", "/grants", "/?choose=1", f"/batch?{batch}"]
    paths += ["/batch", f"/turns/{over.rsplit('.', 2)[0]}", f"/approvals/{over}/edit"]
    freezes = Freezes(rig.deps.store)
    await freezes.freeze("main", reason=f"strange payments {uuid.uuid4().hex}", by="ana")
    yield paths
    await freezes.unfreeze("main")
    for approval in (doubt, urgent, trip, book, typed, alike):
        await rig.http.post(f"/v1/approvals/{approval}/withdraw?as=guest", json={})


@pytest.mark.timeout(300)
async def test_every_state_fits_the_window_and_passes_axe(window: Open, served: Served, states: list[str]) -> None:
    page = await window("/", size=NARROW)
    findings: dict[str, list[str]] = {}

    async def judge(name: str) -> None:
        findings[name] = await axe_findings(page, NARROW, WIDE)
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wider) == 0, name

    for path in states:
        await page.goto(served.base + path)
        await judge(path)
    edit = next(path for path in states if path.endswith("/edit"))
    await page.goto(served.base + edit)
    await page.get_by_label("Cost").fill("x")
    await page.get_by_role("button", name="Review changes").click()
    await judge("mistake")
    await page.get_by_label("Cost").fill("1")
    await page.get_by_role("button", name="Review changes").click()
    await judge("review")
    assert {path: found for path, found in findings.items() if found} == {}
