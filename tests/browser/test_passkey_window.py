import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from gateway_rig import turn_of
from playwright.async_api import CDPSession, Page, Route, expect
from sqlalchemy import delete

from signoff.contracts.decision import Decision
from signoff.formats.replace import replace
from signoff.gateway.transport.server import serve
from signoff.keys.passkeys import presence_problem
from signoff.store.tables import PASSKEYS
from signoff.temporal.embedded_server import free_port

pytestmark = pytest.mark.chromium

PERSON = {"signoff_language": "en", "signoff_person": "approver"}
AUTHENTICATOR: dict[str, Any] = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


class Device:
    """A page with Chromium's virtual authenticator."""

    def __init__(self, page: Page, session: CDPSession, base: str, authenticator: str) -> None:
        self.page = page
        self._session = session
        self._base = base
        self._authenticator = authenticator

    async def open(self, path: str) -> Page:
        await self.page.goto(self._base + path)
        return self.page

    async def verifies(self, verified: bool) -> None:
        of = {"authenticatorId": self._authenticator, "isUserVerified": verified}
        await self._session.send("WebAuthn.setUserVerified", of)

    async def register(self) -> None:
        page = await self.open("/passkeys")
        await page.get_by_role("button", name="Add a passkey").click()
        await expect(page.locator(".passkeys li")).to_have_count(1)


@pytest.fixture
async def local(served: Served) -> AsyncIterator[Served]:
    """A gateway at a name: browsers allow no passkeys at a number."""
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    base = f"http://localhost:{port}"
    rig = served.rig.beside(settings=replace(served.rig.deps.settings, public_url=base))
    running = asyncio.create_task(serve(rig.app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    yield Served(base, rig)
    stop.set()
    await running


@pytest.fixture
async def device(window: Open, local: Served) -> AsyncIterator[Device]:
    await local.rig.deps.store.run(lambda connection: connection.execute(delete(PASSKEYS)))
    page = await window("/")
    person = [{"name": name, "value": value, "url": local.base} for name, value in PERSON.items()]
    await page.context.add_cookies(person)  # type: ignore[arg-type]
    session = await page.context.new_cdp_session(page)
    await session.send("WebAuthn.enable")
    made = await session.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    yield Device(page, session, local.base, made["authenticatorId"])
    await session.send("WebAuthn.disable")
    await session.detach()


async def decision_of(local: Served, approval: str) -> Decision:
    return (await local.rig.request(approval)).votes[0].decision


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_registered_passkey_approves_in_the_browser(device: Device, local: Served, size: tuple[int, int]) -> None:
    approval = await local.rig.asked("guarded")
    page = await device.open("/passkeys")
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await device.register()
    assert await axe_findings(page, size) == []
    await shoot(page, f"passkeys-{size[0]}")
    await device.open(f"/approvals/{approval}")
    await expect(page.locator("#decide")).to_contain_text("Your passkey confirms your answer.")
    assert await axe_findings(page, size) == []
    await shoot(page, f"card-{size[0]}")
    await page.locator("#typed").fill("420")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator("#card")).to_contain_text("Approved")
    decision = await decision_of(local, approval)
    assert (decision.assurance, decision.channel) == ("present", "inbox")
    assert presence_problem(decision, local.rig.deps.verifier()) == ""
    await local.rig.turns.signoff.result(turn_of(approval))
    assert await local.rig.runs(approval) == 1


async def test_decision_needs_the_authenticator_to_verify_the_person(device: Device, local: Served) -> None:
    approval = await local.rig.asked("guarded")
    await device.register()
    await device.verifies(False)
    page = await device.open(f"/approvals/{approval}")
    await page.get_by_role("button", name="Deny", exact=True).click()
    await expect(page.locator("#decide .passkey-note")).to_have_text(
        "Your passkey did not confirm it. Nothing is decided."
    )
    assert (await local.rig.request(approval)).state == "pending"
    await device.verifies(True)
    await page.get_by_role("button", name="Deny", exact=True).click()
    await expect(page.locator("#card")).to_contain_text("Denied")
    assert (await decision_of(local, approval)).assurance == "present"


async def test_card_without_a_registered_passkey_leads_to_the_registration(device: Device, local: Served) -> None:
    approval = await local.rig.asked("guarded")
    page = await device.open(f"/approvals/{approval}")
    await page.get_by_role("button", name="Deny", exact=True).click()
    await expect(page.locator("#decide .passkey-note")).to_contain_text("you have no passkey for this gateway")
    await page.locator("#decide").get_by_role("link", name="Passkeys").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Passkeys")


async def test_edited_arguments_are_confirmed_by_the_passkey(device: Device, local: Served) -> None:
    approval = await local.rig.asked("guarded")
    await device.register()
    page = await device.open(f"/approvals/{approval}")
    await page.get_by_role("link", name="Edit before approving").click()
    await page.get_by_label("amount").fill("421")
    await page.get_by_role("button", name="Review changes").click()
    await page.get_by_label("421").fill("421")
    await page.get_by_role("button", name="Approve with these changes").click()
    await expect(page.locator("#card")).to_contain_text("Approved")
    await local.rig.turns.signoff.result(turn_of(approval))
    assert local.rig.ledger.rows[-1][1]["amount"] == 421


async def test_further_passkey_is_permitted_by_the_earlier_one(device: Device) -> None:
    await device.register()
    page = device.page
    await page.get_by_role("button", name="Add a passkey").click()
    # The only authenticator of this browser holds a passkey already, and makes no second one.
    await expect(page.locator("#register .passkey-note")).to_have_text(
        "Your browser created no passkey. Nothing has changed."
    )
    await page.route("**/passkeys/begin", without_exclusion)
    await page.get_by_role("button", name="Add a passkey").click()
    await expect(page.locator(".passkeys li")).to_have_count(2)


async def without_exclusion(route: Route) -> None:
    """Let the only authenticator play a second one."""
    answer = await route.fetch()
    begun = await answer.json()
    begun["create"]["excludeCredentials"] = []
    await route.fulfill(response=answer, json=begun)


async def shoot(page: Page, name: str) -> None:
    if folder := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{folder}/{name}.png", full_page=True)
