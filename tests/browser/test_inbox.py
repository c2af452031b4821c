import os
import re

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings, until
from playwright.async_api import Page, expect

# The first row must have a running worker.
pytestmark = [pytest.mark.chromium, pytest.mark.usefixtures("nothing_waits")]

SIZES = pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])


async def say(page: Page, words: str) -> str:
    await page.get_by_label("What do you need?").fill(words)
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".said")).to_contain_text(words)
    return page.url.rpartition("/")[2]


@SIZES
@SCRIPTS
async def test_request_is_approved_and_its_result_shown(window: Open, size: tuple[int, int], scripts: bool) -> None:
    page = await window("/new", size=size, scripts=scripts)
    await say(page, "pay")
    await until(page, "Waiting for approvers", scripts=scripts)
    await page.get_by_role("link", name="Open the request").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Pay 420 EUR to Ana")
    await expect(page.locator(".act-what")).to_be_visible(visible=size == PHONE)
    approve, deny = [await page.get_by_role("button", name=name).bounding_box() for name in ("Approve", "Deny")]
    assert approve is not None
    assert deny is not None
    assert (approve["width"], approve["height"]) == (deny["width"], deny["height"])
    assert approve["height"] >= 48
    assert deny["x"] - approve["x"] - approve["width"] >= 16
    assert await page.evaluate("document.activeElement === document.body")
    await page.get_by_role("button", name="Approve").click()
    await until(page, "Ran, approved by Approver", scripts=scripts)
    await expect(page.locator(".receipt-who")).to_have_text("Approved by Approver (you)")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    await page.get_by_text("Result").click()
    await expect(page.locator(".receipt pre")).to_have_text("paid")
    await page.get_by_role("link", name="See the conversation").click()
    await until(page, "Finished", scripts=scripts)


@SIZES
@SCRIPTS
async def test_denial_shows_its_reason(window: Open, size: tuple[int, int], scripts: bool) -> None:
    page = await window("/new", size=size, scripts=scripts)
    await say(page, "pay")
    await until(page, "Waiting for approvers", scripts=scripts)
    await page.get_by_role("link", name="Open the request").click()
    await page.get_by_label(re.compile("Reason")).fill("too expensive")
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator(".receipt")).to_contain_text("Denied by Approver (you)")
    await expect(page.locator(".receipt")).to_contain_text("too expensive")
    await page.get_by_role("link", name="See the conversation").click()
    await until(page, "“too expensive”", scripts=scripts)
    await until(page, "pay: denied", scripts=scripts)


@SCRIPTS
async def test_second_window_gets_its_receipt(window: Open, served: Served, scripts: bool) -> None:
    approval = await served.rig.asked("pay")
    first = await window(f"/approvals/{approval}", scripts=False)
    second = await window(f"/approvals/{approval}", scripts=scripts, of=first if not scripts else None)
    if scripts:
        # A window without a connection does not learn of it in time.
        await second.route("**/live/**", lambda route: route.abort())
        await second.reload()
    await first.get_by_role("button", name="Approve").click()
    await expect(first.locator(".receipt-who")).to_contain_text("Approved by Approver")
    await second.get_by_role("button", name="Deny").click()
    await expect(second.get_by_role("alert")).to_contain_text("Already decided")
    await expect(second.locator(".receipt-who")).to_contain_text("Approved by Approver")
    assert await served.rig.runs(approval) == 1


async def test_open_card_becomes_a_receipt_after_another_persons_decision(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}")
    await expect(page.get_by_role("button", name="Deny")).to_be_visible()
    await served.rig.decide(approval, verdict="denied", reason="no budget", **{"as": "ana"})
    await expect(page.locator(".receipt")).to_contain_text("Denied by Ana")
    await expect(page.get_by_role("button", name="Deny")).to_have_count(0)


async def test_typed_text_survives_another_persons_vote(window: Open, served: Served) -> None:
    approval = await served.rig.asked("both")
    page = await window("/")
    await page.get_by_label("Acting as").select_option("bo")
    await page.get_by_role("button", name="Switch").click()
    await page.goto(f"{served.base}/approvals/{approval}")
    await page.get_by_label(re.compile("Reason")).fill("wait for")
    await served.rig.decide(approval, verdict="approved", **{"as": "ana"})
    await expect(page.locator(".card")).to_contain_text("1 of 2 approvals")
    await expect(page.get_by_label(re.compile("Reason"))).to_have_value("wait for")
    await expect(page.get_by_label(re.compile("Reason"))).to_be_focused()


async def test_new_requests_appear_automatically(window: Open, served: Served) -> None:
    first = await served.rig.asked("login")
    page = await window("/?tool=login")
    link = page.locator(f'[data-key="{first}"] a')
    await link.focus()
    second = await served.rig.asked("login")
    await expect(page.locator(f'[data-key="{second}"]')).to_be_visible()
    await expect(link).to_be_focused()
    count = await page.locator("#count").inner_text()
    assert await page.title() == f"({count}) Waiting for you · Signoff"
    assert (await page.locator("link[rel=icon]").get_attribute("href")) == f"/icon.svg?n={count}"
    await served.rig.decide(second, verdict="denied")
    await expect(page.locator(f'[data-key="{second}"]')).to_have_count(0)


async def test_keys_move_and_decide_after_a_confirmation(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    # Other tests' requests wait here, too.
    page = await window("/?all=1")
    await expect(page.locator(f'[data-key="{approval}"]')).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await expect(page.locator(".rows .row").first).to_be_focused()
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await expect(page.locator(".rows .row").first).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#card")).to_be_visible()
    await page.goto(f"{served.base}/approvals/{approval}")
    await page.get_by_label(re.compile("Reason")).press_sequentially("bad idea")
    await expect(page.locator("#sure")).to_be_hidden()
    await page.locator("h1").click()
    await expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    await page.keyboard.press("a")
    await expect(page.locator("#sure")).to_contain_text("Approve this?")
    await page.keyboard.press("Enter")
    await expect(page.locator("#sure")).to_be_hidden()
    assert (await served.rig.turns.signoff.request(approval)).state == "pending"
    await page.keyboard.press("d")
    await page.locator("#sure").get_by_role("button", name="Deny").click()
    await expect(page.locator(".receipt")).to_contain_text("bad idea")


async def test_no_page_needs_sideways_scrolling(window: Open, served: Served) -> None:
    approval = await served.rig.asked("long")
    turn = approval.rsplit(".", 2)[0]
    page = await window("/", size=(320, 640))
    for path in ("/", f"/approvals/{approval}", f"/turns/{turn}", "/turns", "/tools", "/tools/small", "/new", "/x"):
        await page.goto(served.base + path)
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wider) == 0, path


async def test_targets_on_a_phone_are_at_least_44_pixels_high(window: Open, served: Served) -> None:
    waiting, changed = await served.rig.asked("alike"), await served.rig.asked("book")
    page = await window("/", size=PHONE)
    found = {}
    for path in ("/", "/?choose=1", f"/batch?pick={waiting}", f"/approvals/{waiting}", f"/approvals/{changed}/edit"):
        await page.goto(served.base + path)
        found[path] = await page.evaluate(
            """() => [...document.querySelectorAll("button, select, summary, textarea, .button, nav a, .row, .back a, "
                + ".several a, .edit-link a, label:has(input), .check label, input:not([type=hidden])")]
              .filter((each) => each.checkVisibility() && !/checkbox|radio/.test(each.type))
              .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect().height])
              .filter(([, height]) => Math.round(height) < 44)"""
        )
    assert {path: small for path, small in found.items() if small} == {}


async def test_null_checkbox_is_left_of_its_label(window: Open, served: Served) -> None:
    approval = await served.rig.asked("book")
    page = await window(f"/approvals/{approval}/edit", size=PHONE)
    label = page.get_by_text("No value (null)")
    words, box = await label.bounding_box(), await page.get_by_label("No value (null)").bounding_box()
    assert words is not None
    assert box is not None
    assert box["width"] <= 24
    assert box["x"] + box["width"] <= words["x"]
    assert words["y"] <= box["y"] <= words["y"] + words["height"] - box["height"]


async def test_table_on_a_phone_shows_every_column_and_keeps_words_whole(window: Open, served: Served) -> None:
    approval = await served.rig.asked("wide")
    page = await window("/", size=PHONE)
    for path in (f"/approvals/{approval}", f"/batch?pick={approval}"):
        await page.goto(served.base + path)
        cell = await page.get_by_text("pencil, HB, with eraser").first.bounding_box()
        assert cell is not None
        assert cell["height"] <= 2 * 27, path
        edges = "(cells) => Math.max(...cells.map((cell) => cell.getBoundingClientRect().right))"
        assert await page.locator(".values td").evaluate_all(edges) <= PHONE[0], path
        assert await axe_findings(page, PHONE) == []


async def test_last_button_is_inside_its_card(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    page = await window("/")
    await page.get_by_label("Acting as").select_option("guest")
    await page.get_by_role("button", name="Switch").click()
    await page.goto(f"{served.base}/approvals/{approval}")
    below = "(button) => button.closest('.card').getBoundingClientRect().bottom - button.getBoundingClientRect().bottom"
    assert await page.get_by_role("button", name="Withdraw the request").evaluate(below) >= 16


@pytest.mark.timeout(300)
async def test_pages_pass_axe(window: Open, served: Served) -> None:
    rig = served.rig
    long, login, both, typed = [await rig.asked(words) for words in ("long", "login", "both", "typed")]
    approved, denied, failed = [await rig.asked(words) for words in ("pay", "pay", "fail")]
    await rig.decide(approved, verdict="approved")
    await rig.decide(denied, verdict="denied", reason="no", **{"as": "ana"})
    await rig.decide(failed, verdict="approved")
    await rig.decide(both, verdict="approved", **{"as": "ana"})
    gone = await rig.asked("pay")
    await rig.http.post(f"/v1/approvals/{gone}/withdraw?as=guest", json={})
    mixed = ".".join(await rig.start("small refund wrong pay"))
    done = failed.rsplit(".", 2)[0]
    paths = ["/", "/?actor=other", "/new", "/turns", "/turns?person=bo", "/tools", "/nothing-here"]
    paths += [f"/approvals/{each}" for each in (long, login, both, typed, approved, denied, failed, gone)]
    page = await window("/")
    findings = {}
    for path in (*paths, f"/turns/{mixed}", f"/turns/{done}"):
        await page.goto(served.base + path)
        findings[path] = await axe_findings(page)
    await page.goto(f"{served.base}/tools/small")
    await page.get_by_role("button", name="Explain").click()
    findings["explained"] = await axe_findings(page)
    await page.goto(f"{served.base}/approvals/{long}")
    await page.locator("h1").click()
    await page.keyboard.press("d")
    findings["confirmation"] = await axe_findings(page)
    await page.goto(served.base)
    await page.get_by_label("Acting as").select_option("guest")
    await page.get_by_role("button", name="Switch").click()
    findings["empty"] = await axe_findings(page)
    assert {path: found for path, found in findings.items() if found} == {}


async def test_suggested_command_wraps_on_a_phone(window: Open, served: Served) -> None:
    page = await window("/", size=(390, 844), scripts=False)
    # Other tests of this gateway leave requests: its inbox may not be empty.
    widths = """main => {
        const shown = main.appendChild(document.createElement('pre'));
        shown.className = 'command';
        shown.textContent = `signoff ask '${'refund ana '.repeat(8)}'`;
        return [shown.scrollWidth, shown.clientWidth];
    }"""
    whole, visible = await page.locator("main").evaluate(widths)
    assert 200 < whole <= visible < 390


@SIZES
@SCRIPTS
async def test_first_of_two_approvals_shows_its_state_and_moves_to_the_others(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await served.rig.asked("both")
    page = await window("/", size=size, scripts=scripts)
    await page.get_by_label("Acting as").select_option("bo")
    await page.get_by_role("button", name="Switch").click()
    waiting = int(await page.locator("#count").inner_text())
    await page.goto(f"{served.base}/approvals/{approval}")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".receipt.own")).to_contain_text("You approved, 1 of 2")
    await expect(page.locator(".receipt.own")).to_contain_text("The call does not run before the others have answered.")
    await expect(page.locator(".receipt.own")).to_be_in_viewport()
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    await expect(page.get_by_role("button", name="Deny")).to_be_hidden()
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/voted-{size[0]}-{scripts}.png")
    if scripts:
        assert await axe_findings(page, size) == []
    await page.goto(f"{served.base}/")
    if screenshots:
        await page.screenshot(path=f"{screenshots}/list-{size[0]}-{scripts}.png")
    await expect(page.locator("#count")).to_have_text(str(waiting - 1))
    parts = await page.locator(".rows > li").all_inner_texts()
    at = next(number for number, each in enumerate(parts) if each.startswith("Waiting for others"))
    assert "Pay 420 EUR to Ana" in parts[at + 1]
    await page.goto(f"{served.base}/approvals/{approval}")
    await page.get_by_text("Change your answer").click()
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator(".receipt")).to_contain_text("Denied by Bo (you)")
    assert await served.rig.runs(approval) == 0


async def test_filters_stay_in_view_when_a_new_request_does_not_match(window: Open, served: Served) -> None:
    await served.rig.asked("pay")
    page = await window("/?least=1000000")
    await expect(page.get_by_text("No requests match these filters")).to_be_visible()
    await served.rig.asked("pay")
    await expect(page.locator("#announce")).not_to_be_empty()
    await expect(page.get_by_label("Amount from")).to_have_value("1000000")


async def test_request_with_hidden_characters_is_decided_alone(window: Open, served: Served) -> None:
    page = await window(f"/batch?pick={await served.rig.asked('strange')}")
    await expect(page.locator(".batch .again")).to_contain_text(
        "Some values hold invisible characters", ignore_case=True
    )
    await expect(page.locator(".batch .alone")).to_contain_text("some of its characters may deceive")
    await expect(page.get_by_role("checkbox")).to_have_count(0)
