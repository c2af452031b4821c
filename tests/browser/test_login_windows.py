import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from gateway_login import STRANGER, asked_of, locked_rig, token_of
from gateway_rig import PEOPLE
from oidc_provider import CLIENT, SECRET, Provider, running_provider
from playwright.async_api import expect

from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link
from signoff.gateway.auth.sign_in_attempt import CALLBACK
from signoff.gateway.transport.server import serve
from signoff.languages.catalogue import language_codes
from signoff.temporal.embedded_server import free_port
from signoff.testing.builders import a_person

pytestmark = pytest.mark.chromium

SIZES = pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with running_provider() as running:
        yield running


@pytest.fixture
async def served(served: Served, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setenv("THE_SECRET", SECRET)
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    base = f"http://127.0.0.1:{port}"
    provider.redirect = base + CALLBACK
    eve = a_person("eve", name="Eve", identities={"oidc": (f"{provider.issuer}#ana-at-work",)})
    rig = locked_rig(
        served.rig,
        people=(*PEOPLE, STRANGER, eve),
        public_url=base,
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret="env:THE_SECRET",
    )
    running = asyncio.create_task(serve(rig.app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    yield Served(base, rig)
    stop.set()
    await running


async def link_to(served: Served, approval: str, **fields: object) -> str:
    key = await served.rig.deps.store.secret_key(LINK_KEY)
    end = served.rig.deps.clock() + timedelta(hours=1)
    given = {"approval": approval, "revision": 1, "person": "ana", "expires": end} | fields
    return f"/link/{make_link(key, ApprovalLink.model_validate(given))}"


@SIZES
@SCRIPTS
async def test_token_sign_in_permits_a_decision_and_sign_out(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await asked_of(served.rig, "pay")
    page = await window(f"/approvals/{approval}", size=size, scripts=scripts)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await page.get_by_label("Personal token").fill("sgf_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("You are not signed in")
    await page.get_by_label("Personal token").fill(await token_of(served.rig, "ana"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Pay 420 EUR to Ana")
    await expect(page.get_by_text("Signed in as Ana")).to_be_visible()
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator(".receipt-who")).to_have_text("Denied by Ana (you)")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("status").first).to_contain_text("You are signed out")
    await page.goto(f"{served.base}/approvals/{approval}")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


@SCRIPTS
async def test_provider_signs_in(window: Open, served: Served, scripts: bool) -> None:
    page = await window("/tools", scripts=scripts)
    await page.get_by_role("link", name="Sign in with 127.0.0.1").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Tools")
    await expect(page.get_by_text("Signed in as Eve")).to_be_visible()
    if scripts:
        # Other tests' requests wait here, too.
        await page.goto(f"{served.base}/?all=1")
        approval = await asked_of(served.rig, "pay")
        await expect(page.locator(f'[data-key="{approval}"]')).to_be_visible()


@SCRIPTS
async def test_card_comes_first_on_a_phone(window: Open, served: Served, scripts: bool) -> None:
    booked, typed = await asked_of(served.rig, "book"), await asked_of(served.rig, "typed")
    page = await window("/login", size=(390, 844), scripts=scripts)
    await page.get_by_label("Personal token").fill(await token_of(served.rig, "approver"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{served.base}/")
    for language in language_codes():
        await page.goto(f"{served.base}/approvals/{booked}")
        await page.locator("#language").select_option(language)
        await page.locator(".foot button").click()
        await expect(page.locator("html")).to_have_attribute("lang", language)
        title = await page.locator("h1").bounding_box()
        assert title is not None
        assert title["y"] < 220
        await expect(page.locator(".below")).to_contain_text("7")
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await page.goto(f"{served.base}/approvals/{typed}")
        approve, field = [await page.locator(each).bounding_box() for each in (".approve", "#typed")]
        assert approve is not None
        assert field is not None
        assert approve["y"] + approve["height"] <= 844
        assert 0 <= approve["y"] - field["y"] - field["height"] < 32


@SCRIPTS
async def test_unread_text_is_marked_until_it_is_read(window: Open, served: Served, scripts: bool) -> None:
    approval = await asked_of(served.rig, "query")
    page = await window("/login", size=(390, 844), scripts=scripts)
    await page.get_by_label("Personal token").fill(await token_of(served.rig, "approver"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{served.base}/")
    await page.goto(f"{served.base}/approvals/{approval}")
    await expect(page.get_by_text("not fully read")).to_be_visible()
    await page.locator(".whole summary").click()
    await expect(page.get_by_text("not fully read")).to_be_hidden()
    await expect(page.locator(".whole bdi")).to_contain_text("and id <> 29")
    await page.locator(".choices").get_by_role("link", name="See every value").click()
    await page.get_by_role("button", name="I have read this page").click()
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()


@SIZES
@SCRIPTS
async def test_link_answers_a_request(window: Open, served: Served, size: tuple[int, int], scripts: bool) -> None:
    page = await window(await link_to(served, await asked_of(served.rig, "easy")), size=size, scripts=scripts)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Pay 420 EUR to Ana")
    await expect(page.get_by_text("This was sent to Ana")).to_be_visible()
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".receipt-who")).to_have_text("Approved by Ana (you)")


async def test_keys_offer_only_the_links_verdict(window: Open, served: Served) -> None:
    page = await window(await link_to(served, await asked_of(served.rig, "easy"), verb="denied"))
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    await page.locator("h1").click()
    await expect(page.get_by_role("button", name="Deny")).to_be_enabled()
    await page.keyboard.press("a")
    await expect(page.locator("#sure")).to_be_hidden()
    await page.keyboard.press("d")
    await page.locator("#sure").get_by_role("button", name="Deny").click()
    await expect(page.locator(".receipt-who")).to_have_text("Denied by Ana (you)")


@pytest.mark.timeout(300)
async def test_sign_in_pages_pass_axe(window: Open, served: Served) -> None:
    easy, more = await asked_of(served.rig, "easy"), await asked_of(served.rig, "pay")
    links = [await link_to(served, easy), await link_to(served, easy, verb="denied"), await link_to(served, more)]
    stale = await link_to(served, easy, revision=2)
    paths = ["/login", "/login?out=1", *links, stale, "/link/x"]
    page = await window("/login")
    findings: dict[str, list[str]] = {}
    for path in paths:
        await page.goto(served.base + path)
        findings[path] = await axe_findings(page)
    await page.goto(f"{served.base}/login")
    await page.get_by_label("Personal token").fill("sgf_wrong")
    await page.get_by_role("button", name="Sign in").click()
    findings["refused"] = await axe_findings(page)
    await page.get_by_label("Personal token").fill(await token_of(served.rig, "ana"))
    await page.get_by_role("button", name="Sign in").click()
    for path in ("/", "/new", f"/approvals/{more}"):
        await page.goto(served.base + path)
        findings[path] = await axe_findings(page)
    assert {path: found for path, found in findings.items() if found} == {}


async def test_sign_in_pages_need_no_sideways_scrolling(window: Open, served: Served) -> None:
    link = await link_to(served, await asked_of(served.rig, "easy"))
    page = await window("/login", size=(320, 640))
    for path in ("/login", link, "/link/x"):
        await page.goto(served.base + path)
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wider) == 0, path
