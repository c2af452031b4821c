import asyncio
import dataclasses
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from browser_window import PHONE, SOON, WIDE, Open, Served, axe_findings
from playwright.async_api import CDPSession, Page, expect
from sqlalchemy import delete

from signoff.formats.replace import replace
from signoff.gateway.pages.renderer import PUSH
from signoff.gateway.transport.server import serve
from signoff.keys.secrets import SecretProvider
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel
from signoff.store.delivery_queue import DeliveryQueue, NewDelivery
from signoff.store.tables import PUSH_SUBSCRIPTIONS
from signoff.temporal.embedded_server import free_port
from signoff.testing.fake_push import CONTACT, PRIVATE_KEY, FakeBrowser

pytestmark = pytest.mark.chromium

PERSON = {"signoff_language": "en", "signoff_person": "approver"}
FAKE = FakeBrowser("https://fcm.googleapis.com/fcm/send/chromium")
# Chromium without Google's servers cannot subscribe. All else is its own: worker, permission, notification.
SUBSCRIBE = """
({ endpoint, p256dh, auth }) => {
  const bytes = (words) => Uint8Array.from(atob(words.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const on = () => sessionStorage.getItem("subscribed");
  const subscription = (key) => ({
    endpoint,
    options: { applicationServerKey: key.buffer },
    getKey: (name) => bytes(name === "auth" ? auth : p256dh).buffer,
    unsubscribe: async () => sessionStorage.removeItem("subscribed"),
  });
  PushManager.prototype.getSubscription = async () => (on() ? subscription(new Uint8Array(65)) : null);
  PushManager.prototype.subscribe = async (options) => {
    if (!options.userVisibleOnly || options.applicationServerKey.length !== 65) throw new Error("wrong options");
    sessionStorage.setItem("subscribed", "yes");
    return subscription(options.applicationServerKey);
  };
}
"""
SHOWN = """async () => {
  const registration = await navigator.serviceWorker.getRegistration("/");
  return (await registration.getNotifications()).map(({ title, tag, body, silent }) => ({ title, tag, body, silent }));
}"""
CLICK = """async () => {
  const [notification] = await self.registration.getNotifications();
  const opened = [];
  self.clients.openWindow = async (address) => { opened.push(address); };
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  return opened;
}"""
# The worker's promise is out of reach, since events made by a test cannot wait for it.
PRESS = """async (broken) => {
  const [notification] = (await self.registration.getNotifications()).filter((each) => each.actions.length);
  const [button] = notification.actions;
  if (notification.actions.length !== 1 || button.action !== "deny" || button.title !== "Deny") return ["no button"];
  const opened = [];
  const refused = [];
  self.clients.openWindow = async (address) => {
    opened.push(address);
    throw new DOMException("Not allowed to open a window.", "InvalidAccessError");
  };
  const note = (event) => refused.push(String(event.reason));
  self.addEventListener("unhandledrejection", note);
  const send = self.fetch;
  const held = [];
  if (broken) self.fetch = (_, { signal }) => new Promise((_, fail) => {
    held.push(signal);
    signal.onabort = () => fail(signal.reason);
  });
  const limit = AbortSignal.timeout;
  if (broken) AbortSignal.timeout = (ms) => limit.call(AbortSignal, ms === 8000 ? 50 : 60_000);
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification, action: "deny" }));
  const shown = async () => (await self.registration.getNotifications({ tag: notification.tag }))[0];
  const late = Date.now() + 60_000;
  while ((await shown()).actions.length && Date.now() < late) await new Promise((done) => setTimeout(done, 20));
  await new Promise((done) => setTimeout(done, 100));
  self.fetch = send;
  AbortSignal.timeout = limit;
  self.removeEventListener("unhandledrejection", note);
  const { title, silent, data } = await shown();
  return { opened, refused, title, silent, card: data.card };
}"""

UNREGISTER = """async () => {
  for (const each of await navigator.serviceWorker.getRegistrations()) await each.unregister();
}"""


class PushWindow:
    """A page with Chromium's own service worker."""

    def __init__(self, page: Page, session: CDPSession, base: str) -> None:
        self.page = page
        self.base = base
        self._session = session
        self._registered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        session.on("ServiceWorker.workerRegistrationUpdated", self._note)

    def _note(self, event: dict[str, Any]) -> None:
        for each in event["registrations"]:
            if each["scopeURL"] == f"{self.base}/" and not each["isDeleted"] and not self._registered.done():
                self._registered.set_result(each["registrationId"])

    async def open(self, path: str) -> Page:
        await self.page.goto(self.base + path)
        return self.page

    async def switch_on(self) -> None:
        await self.open("/notifications")
        await self.page.get_by_role("button", name="Switch on in this browser").click()
        await expect(self.page.locator(".browsers li")).to_contain_text("This browser")

    async def send(self, content: dict[str, Any] | str) -> None:
        data = content if isinstance(content, str) else json.dumps(content)
        of = {"origin": self.base, "registrationId": await self._registered, "data": data}
        await self._session.send("ServiceWorker.deliverPushMessage", of)

    async def shown(self, count: int) -> list[dict[str, Any]]:
        """Wait for that many notifications. A promise alone would end the page's own waiting."""
        return await self.until(lambda found: len(found) == count)

    async def until(self, is_so: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        async with asyncio.timeout(SOON / 1000):
            while True:
                found: list[dict[str, Any]] = await self.page.evaluate(SHOWN)
                if is_so(found):
                    return found
                await asyncio.sleep(0.05)

    async def worker(self, script: str, about: Any = None) -> Any:
        (worker,) = [each for each in self.page.context.service_workers if each.url.startswith(self.base)]
        async with asyncio.timeout(2 * SOON / 1000):
            return await worker.evaluate(script, about)


@pytest.fixture
async def local(served: Served) -> AsyncIterator[Served]:
    """A gateway with the channel `push`, on localhost."""
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    base = f"http://localhost:{port}"
    options = {"private_key": "env:PUSH_KEY", "contact": CONTACT}
    channels = Channels(declared={"phone": DeclaredChannel("phone", PUSH, options)})
    rig = served.rig.beside(
        settings=replace(served.rig.deps.settings, public_url=base),
        catalog=dataclasses.replace(served.rig.deps.catalog, channels=channels),
        secrets=SecretProvider(environment={"PUSH_KEY": PRIVATE_KEY}),
    )
    await rig.deps.store.run(lambda connection: connection.execute(delete(PUSH_SUBSCRIPTIONS)).close())
    running = asyncio.create_task(serve(rig.app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    yield Served(base, rig)
    stop.set()
    await running


def cookies(local: Served) -> list[Any]:
    return [{"name": name, "value": value, "url": local.base} for name, value in PERSON.items()]


@pytest.fixture
async def phone(window: Open, local: Served) -> AsyncIterator[PushWindow]:
    first = await window("/")
    context = first.context
    await context.add_cookies(cookies(local))
    await context.grant_permissions(["notifications"], origin=local.base)
    page = await window("/", of=first)
    await page.add_init_script(f"({SUBSCRIBE})({FAKE.subscription.model_dump_json()})")
    session = await context.new_cdp_session(page)
    opened = PushWindow(page, session, local.base)
    await session.send("ServiceWorker.enable")
    yield opened
    await page.goto(local.base + "/notifications")
    await page.evaluate(UNREGISTER)
    await context.clear_permissions()
    await session.detach()


async def test_inbox_is_installable(window: Open, served: Served) -> None:
    page = await window("/")
    session = await page.context.new_cdp_session(page)
    manifest = await session.send("Page.getAppManifest")
    assert manifest["errors"] == []
    assert manifest["url"] == f"{served.base}/manifest.webmanifest"
    found = await session.send("Page.getInstallabilityErrors")
    # Each page of a test is incognito, in which Chromium installs nothing.
    assert {each["errorId"] for each in found["installabilityErrors"]} <= {"in-incognito"}
    await session.detach()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_person_switches_notifications_on_and_off(phone: PushWindow, size: tuple[int, int]) -> None:
    page = phone.page
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await phone.open("/notifications")
    await expect(page.locator("main")).to_contain_text("No browser notifies you yet.")
    assert await axe_findings(page, size) == []
    await phone.switch_on()
    await expect(page.locator("#notify")).to_be_hidden()
    assert await axe_findings(page, size) == []
    await shoot(page, f"notifications-{size[0]}")
    await page.get_by_role("button", name="Switch off").click()
    await expect(page.locator("main")).to_contain_text("No browser notifies you yet.")
    assert await page.evaluate("sessionStorage.getItem('subscribed')") is None


async def test_denied_permission_changes_nothing(phone: PushWindow) -> None:
    await phone.page.context.clear_permissions()
    await phone.open("/notifications")
    await phone.page.get_by_role("button", name="Switch on in this browser").click()
    await expect(phone.page.locator(".notify-note")).to_have_text(
        "Your browser did not permit notifications. Nothing has changed."
    )
    await expect(phone.page.locator(".browsers li")).to_have_count(0)


async def test_page_without_scripts_explains_and_still_switches_off(
    phone: PushWindow, window: Open, local: Served
) -> None:
    await phone.switch_on()
    plain = await window("/", scripts=False)
    await plain.context.add_cookies(cookies(local))
    await plain.goto(f"{local.base}/notifications")
    assert "Notifications need scripts" in await plain.content()
    await plain.get_by_role("button", name="Switch off").click()
    await expect(plain.locator("main")).to_contain_text("No browser notifies you yet.")


async def test_notification_shows_no_content_opens_the_card_and_is_replaced_at_the_end(
    phone: PushWindow, local: Served
) -> None:
    token, approval = await notified(local, "pay")
    await phone.switch_on()
    await phone.send({"card": token, "text": "A request waits for you.", "ended": False})
    assert await phone.shown(1) == [{"title": "A request waits for you.", "tag": token, "body": "", "silent": False}]
    assert await phone.worker(CLICK) == [f"{local.base}/cards/{token}"]
    assert (await local.rig.request(approval)).state == "pending"
    await phone.open(f"/cards/{token}")
    await expect(phone.page.locator("#decide")).to_be_visible()
    assert phone.page.url == f"{local.base}/approvals/{approval}"
    await phone.send({"card": token, "text": "A request waits for you.", "ended": False})
    await phone.shown(1)
    await phone.send({"card": token, "text": "The request has ended: Denied", "ended": True})
    ended = await phone.until(lambda found: len(found) == 1 and found[0]["silent"])
    assert [each["title"] for each in ended] == ["The request has ended: Denied"]


async def test_button_of_a_notification_denies_and_shows_the_result(phone: PushWindow, local: Served) -> None:
    token, approval = await push_card(phone, local, "pay")
    pressed = await phone.worker(PRESS)
    done = {"opened": [], "refused": [], "title": "You denied this", "silent": True, "card": token}
    assert pressed == done
    assert (await local.rig.request(approval)).state == "denied"
    assert await phone.worker(CLICK) == [f"{local.base}/cards/{token}"]


@pytest.mark.parametrize(("tool", "broken"), [("guarded", False), ("pay", True)], ids=["refused", "unanswered"])
async def test_failed_denial_shows_the_notification_again_if_no_window_opens(
    phone: PushWindow, local: Served, tool: str, broken: bool
) -> None:
    token, approval = await push_card(phone, local, tool)
    pressed = await phone.worker(PRESS, broken)
    opened = [f"{local.base}/cards/{token}"]
    title = "A request waits for you."
    assert pressed == {"opened": opened, "refused": [], "title": title, "silent": False, "card": token}
    assert (await local.rig.request(approval)).state == "pending"
    assert await phone.worker(CLICK) == opened


async def test_hostile_message_opens_nothing_outside_the_gateway(phone: PushWindow, local: Served) -> None:
    await phone.switch_on()
    await phone.send({"card": "//evil.example/../..?x#y", "text": "A request waits for you."})
    await phone.shown(1)
    assert await phone.worker(CLICK) == [f"{local.base}/cards/%2F%2Fevil.example%2F..%2F..%3Fx%23y"]
    await phone.send("no JSON")
    await phone.shown(1)
    assert await phone.worker(CLICK) == [f"{local.base}/"]


async def notified(local: Served, tool: str) -> tuple[str, str]:
    """Return the token of the approver's notification, and its request."""
    approval = await local.rig.asked(tool)
    queue = DeliveryQueue(local.rig.deps.store)
    request = await local.rig.request(approval)
    await queue.plan([NewDelivery(request=request, person="approver", channel="phone", address="approver")])
    token = next(row.token for row in await queue.of_request(approval) if row.channel == "phone")
    return token, approval


async def push_card(phone: PushWindow, local: Served, tool: str) -> tuple[str, str]:
    """Show the notification with a button."""
    token, approval = await notified(local, tool)
    await phone.switch_on()
    content = {"card": token, "text": "A request waits for you.", "deny": "Deny", "denied": "You denied this"}
    await phone.send({**content, "ended": False})
    await phone.shown(1)
    return token, approval


async def shoot(page: Page, name: str) -> None:
    if folder := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{folder}/{name}.png", full_page=True)
