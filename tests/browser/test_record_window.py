import pytest
from axe_playwright_python.async_playwright import Axe
from browser_window import PHONE, WIDE, Open, Served
from playwright.async_api import expect

from signoff.contracts.ids import TurnKey

pytestmark = pytest.mark.chromium


async def test_audit_log_of_a_turn_fits_and_passes_axe(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    await served.rig.decide(approval, verdict="approved", **{"as": "approver"})
    turn = approval.rpartition(".c1")[0]
    await served.rig.turns.signoff.result(TurnKey(*turn.split(".")))
    page = await window(f"/turns/{turn}")
    await page.get_by_role("link", name="Audit log").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")
    await page.get_by_text("Original entry").first.click()
    for size in (WIDE, PHONE):
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wider) == 0, size
        found = await Axe().run(page)
        assert found.response["violations"] == [], size
    await page.get_by_role("link", name="The conversation").click()
    await expect(page.locator("main")).to_contain_text("Finished")
