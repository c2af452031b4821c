import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from playwright.async_api import expect
from test_decided import picture

from signoff.gateway.history.request_indexer import RequestIndexer

pytestmark = pytest.mark.chromium
FITS = "document.documentElement.scrollWidth <= window.innerWidth"


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_figures_and_the_course_of_a_request_are_readable(
    window: Open, served: Served, size: tuple[int, int]
) -> None:
    rig = served.rig
    for word, verdict in (("pay", "approved"), ("write", "denied"), ("pay", "approved")):
        approval = await rig.asked(word)
        await rig.decide(approval, verdict=verdict, revision=1)
    await rig.asked("pay")
    while await RequestIndexer(rig.deps).step():
        pass
    page = await window("/insights", size=size)
    await expect(page.get_by_role("heading", name="Insights")).to_be_visible()
    await expect(page.get_by_role("heading", name="Decisions by tool")).to_be_visible()
    await expect(page.get_by_role("img", name="Requests by day")).to_be_visible()
    await page.get_by_text("Days with requests, as a table").click()
    await expect(page.get_by_role("columnheader", name="Day", exact=True)).to_be_attached()
    await page.get_by_role("button", name="Start the back-test").or_(page.get_by_text("Newest conversations")).click()
    await expect(page.get_by_text("Newest conversations")).to_be_visible()
    await picture(page, f"insights-{size[0]}")
    assert await page.evaluate(FITS)
    assert await axe_findings(page, size) == []
    # The width of a wide window at 400 %.
    await page.set_viewport_size({"width": 320, "height": size[1]})
    assert await page.evaluate(FITS)
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await page.get_by_role("link", name="Last 7 days").click()
    await expect(page.get_by_role("link", name="Last 7 days")).to_have_attribute("aria-current", "page")
    page = await window(f"/approvals/{approval}", size=size)
    await page.get_by_role("link", name="Course", exact=True).click()
    await expect(page.get_by_role("heading", name="Course of the request")).to_be_visible()
    await expect(page.get_by_text("Answer of")).to_be_visible()
    assert await page.evaluate(FITS)
    await picture(page, f"course-{size[0]}")
    assert await axe_findings(page, size) == []
