import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import httpx2
import pytest
from gateway_login import as_person, bearer, browser, hidden, locked_rig, token_of, words
from gateway_rig import GatewayRig
from sqlalchemy import delete

from signoff.channels.push.push_messages import VapidKey
from signoff.contracts.limits import BROWSERS_OF_ONE
from signoff.gateway.pages.renderer import PUSH
from signoff.keys.secrets import SecretProvider
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel
from signoff.store.delivery_queue import DeliveryQueue, NewDelivery
from signoff.store.messages.push_subscriptions import PushSubscriptions
from signoff.store.tables import PUSH_SUBSCRIPTIONS
from signoff.testing.fake_push import CONTACT, PRIVATE_KEY, FakeBrowser

PAGE = "/notifications"
KEY = VapidKey(PRIVATE_KEY, CONTACT).public
SERVICE = "https://fcm.googleapis.com/fcm/send/"


@pytest.fixture
async def rig(gateway: GatewayRig) -> GatewayRig:
    await gateway.deps.store.run(lambda connection: connection.execute(delete(PUSH_SUBSCRIPTIONS)).close())
    return with_push(gateway)


def with_push(gateway: GatewayRig, **changes: Any) -> GatewayRig:
    options = {"private_key": "env:PUSH_KEY", "contact": CONTACT}
    channels = Channels(declared={"phone": DeclaredChannel("phone", PUSH, options)})
    secrets = SecretProvider(environment={"PUSH_KEY": PRIVATE_KEY} | changes)
    return gateway.beside(catalog=dataclasses.replace(gateway.deps.catalog, channels=channels), secrets=secrets)


def fields(endpoint: str) -> dict[str, str]:
    return FakeBrowser(endpoint).subscription.model_dump()


async def switched(
    page: httpx2.AsyncClient, endpoint: str, changes: Mapping[str, str] = MappingProxyType({})
) -> httpx2.Response:
    form = hidden((await page.get(PAGE)).text, PAGE)
    return await page.post(PAGE, data={**form, **fields(endpoint), **changes}, follow_redirects=True)


async def endpoints(rig: GatewayRig, person: str, tenant: str = "main") -> list[str]:
    found = await PushSubscriptions(rig.deps.store).list_of(tenant, person, KEY)
    return [each.endpoint.removeprefix(SERVICE) for each in found]


async def test_person_switches_notifications_on_and_off_in_a_browser(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        await as_person(page, "bo")
        assert "No browser notifies you yet." in words((await page.get(PAGE)).text)
        done = await switched(page, f"{SERVICE}bo")
        assert (done.status_code, "Browser 1, added" in words(done.text)) == (200, True)
        assert await endpoints(rig, "bo") == ["bo"]
        assert f'data-key="{KEY}"' in done.text
        name = FakeBrowser(f"{SERVICE}bo").subscription.id
        assert f'data-browser="{name}"' in done.text
        form = hidden(done.text, PAGE)
        off = await page.post(PAGE, data={"token": form["token"], "off": name}, follow_redirects=True)
        assert "No browser notifies you yet." in words(off.text)
    assert await endpoints(rig, "bo") == []
    acts = [each.facts for each in await rig.acts() if str(each.facts.get("act", "")).startswith("notifications")]
    assert [(each["act"], each["browser"]) for each in acts] == [
        ("notifications on", name[:16]),
        ("notifications off", name[:16]),
    ]


async def test_form_of_another_page_or_person_changes_nothing(rig: GatewayRig) -> None:
    async with browser(rig) as page, browser(rig) as other:
        await as_person(page, "bo")
        await as_person(other, "ana")
        await switched(page, f"{SERVICE}bo")
        foreign = hidden((await other.get(PAGE)).text, PAGE)["token"]
        for token in ("", "x", foreign):
            assert (await page.post(PAGE, data={**fields(f"{SERVICE}2"), "token": token})).status_code == 403
        name = FakeBrowser(f"{SERVICE}bo").subscription.id
        await other.post(PAGE, data={"token": foreign, "off": name})
    assert await endpoints(rig, "bo") == ["bo"]
    assert await endpoints(rig, "ana") == []


async def test_token_of_a_program_without_a_browser_session_adds_nothing(rig: GatewayRig) -> None:
    locked = locked_rig(rig)
    headers = bearer(await token_of(locked, "bo"))
    async with browser(locked) as page:
        answer = await page.post(PAGE, data=fields(f"{SERVICE}bo") | {"token": "x"}, headers=headers)
        assert answer.status_code in (303, 401, 403)
        assert (await page.get(PAGE)).headers["location"].startswith("/login")
    assert await endpoints(rig, "bo") == []


@pytest.mark.parametrize(
    "endpoint", ["https://evil.example/x", "https://127.0.0.1/x", "https://[fd00::1]/x", "http://fcm.googleapis.com/x"]
)
async def test_endpoint_outside_the_known_services_is_refused(rig: GatewayRig, endpoint: str) -> None:
    async with browser(rig) as page:
        await as_person(page, "bo")
        answer = await switched(page, endpoint)
    assert (answer.status_code, "Nothing was saved" in words(answer.text)) == (422, True)
    assert await endpoints(rig, "bo") == []


async def test_incomplete_or_endless_subscription_is_refused(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        await as_person(page, "bo")
        for changes in ({"auth": ""}, {"p256dh": "x"}, {"endpoint": SERVICE + "x" * 2_000}):
            assert (await switched(page, f"{SERVICE}bo", changes)).status_code == 422
    assert await endpoints(rig, "bo") == []


async def test_browsers_above_the_limit_are_refused(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        await as_person(page, "bo")
        answers = [await switched(page, f"{SERVICE}{number}") for number in range(BROWSERS_OF_ONE + 1)]
    assert [each.status_code for each in answers] == [*[200] * BROWSERS_OF_ONE, 422]
    assert "you already have 10 browsers" in words(answers[-1].text)


async def test_page_without_a_working_channel_offers_no_notifications(gateway: GatewayRig) -> None:
    for rig in (gateway, with_push(gateway, PUSH_KEY="broken")):
        async with browser(rig) as page:
            shown = await page.get(PAGE)
            assert "This installation has no notifications yet." in words(shown.text)
            assert 'id="notify"' not in shown.text
            assert ('href="/notifications"' in shown.text) == (rig is not gateway)


async def notified(rig: GatewayRig, approval: str) -> str:
    """Return the token of the approver's notification."""
    queue = DeliveryQueue(rig.deps.store)
    request = await rig.request(approval)
    await queue.plan([NewDelivery(request=request, person="approver", channel="phone", address="approver")])
    return next(row.token for row in await queue.of_request(approval) if row.channel == "phone")


async def test_button_of_a_notification_denies_for_its_recipient_alone(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    path = f"/cards/{await notified(rig, approval)}/deny"
    async with browser(rig) as page:
        await as_person(page, "bo")
        assert (await page.get(path)).status_code == 404
        await as_person(page, "approver")
        await page.get("/")
        form = (await page.get(path)).json()
        for wrong in ({}, {"token": "x"}):
            assert (await page.post(path, data=wrong)).status_code == 403
        await as_person(page, "bo")
        assert (await page.post(path, data=form)).status_code == 404
        foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        await as_person(page, "approver")
        assert (await page.post(path, data=form, headers=foreign)).status_code == 403
        assert (await rig.request(approval)).state == "pending"
        assert (await page.post(path, data=form)).status_code == 200
        request = await rig.request(approval)
        assert (request.state, request.decided_by) == ("denied", "approver")
        assert (await page.post(path, data=form)).status_code == 409
    async with browser(locked_rig(rig)) as page:
        assert (await page.get(path)).headers["location"].startswith("/login")


async def test_button_of_a_notification_follows_the_rules_of_the_request(rig: GatewayRig) -> None:
    approval, doubt = await rig.asked("guarded"), await rig.doubted()
    async with browser(rig) as page:
        await as_person(page, "approver")
        await page.get("/")
        for each in (approval, doubt):
            path = f"/cards/{await notified(rig, each)}/deny"
            refused = await page.post(path, data=(await page.get(path)).json())
            assert 400 <= refused.status_code < 500
            assert (await rig.request(each)).state == "pending"


async def test_notification_opens_the_card_for_its_recipient_alone(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    token = await notified(rig, approval)
    async with browser(rig) as page:
        await as_person(page, "approver")
        opened = await page.get(f"/cards/{token}")
        assert (opened.status_code, opened.headers["location"]) == (303, f"/approvals/{approval}")
        assert (await page.get("/cards/unknown")).status_code == 404
        await as_person(page, "bo")
        refused = await page.get(f"/cards/{token}")
        assert (refused.status_code, approval in refused.text) == (404, False)
    assert (await rig.request(approval)).state == "pending"
    async with browser(locked_rig(rig)) as page:
        assert (await page.get(f"/cards/{token}")).headers["location"].startswith("/login")


async def test_app_is_described_to_browsers_without_a_sign_in(rig: GatewayRig) -> None:
    locked = locked_rig(rig)
    async with browser(locked) as page:
        manifest = await page.get("/manifest.webmanifest")
        assert manifest.headers["content-type"].startswith("application/manifest+json")
        described = manifest.json()
        assert (described["start_url"], described["scope"], described["display"]) == ("/", "/", "standalone")
        for icon in described["icons"]:
            shown = await page.get(icon["src"])
            assert shown.headers["content-type"] == icon["type"]
        worker = await page.get("/service-worker.js")
        assert worker.headers["content-type"].startswith("text/javascript")
        assert "script-src 'self'" in worker.headers["content-security-policy"]
        # It can only show, open and deny.
        assert not any(word in worker.text for word in ("approvals", "XMLHttpRequest", "caches.", "importScripts"))
        assert worker.text.count("fetch(path") == worker.text.count("fetch(") == 2
