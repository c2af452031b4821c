import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from gateway_login import STRANGER, browser, hidden, locked_rig, words
from gateway_rig import PEOPLE, GatewayRig, http_of
from sqlalchemy import delete, update

from signoff.approvals.audit_events import admin_stream
from signoff.audit.log import AuditLog
from signoff.channels.base import ChannelContext
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.channels.mail.email import EmailChannel
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.formats.replace import replace as changed
from signoff.gateway.app import build_app
from signoff.gateway.auth.email_sign_in import AT_ONCE
from signoff.gateway.pages.dependencies import Site
from signoff.people.directory import FixedDirectory
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.settings import Settings
from signoff.store.messages.sign_in_links import ALL_OPEN_LINKS, LINK_MILLIS, OPEN_LINKS, SignInLink, SignInLinks
from signoff.store.tables import SIGN_IN_LINKS
from signoff.temporal.embedded_server import free_port
from signoff.testing.fake_mail import FakeMail, fake_mail, text_of

ANA, SHARED = "ana@people.example", "desk@people.example"
_LINK = re.compile(r"http://127\.0\.0\.1:8300(/login/email/\S+)")


def addressed() -> list[Person]:
    addresses = {"ana": (ANA,), "bo": (SHARED,), "zoe": (SHARED,), "gone": ("gone@people.example",)}
    return [changed(each, identities={"email": addresses.get(each.id, ())}) for each in (*PEOPLE, STRANGER)]


@dataclass
class Mailed:
    rig: GatewayRig
    mail: FakeMail

    @property
    def site(self) -> Site:
        found: Site = self.rig.app.state.site
        return found

    async def ask(self, page: httpx2.AsyncClient, address: str, then: str = "/") -> httpx2.Response:
        form = hidden((await page.get("/login", params={"next": then})).text, "/login/email")
        answer = await page.post("/login/email", data={**form, "address": address})
        await self.site.sign_in.email.settle()
        return answer

    def link(self, address: str = ANA) -> str:
        found = _LINK.search(text_of(self.mail.mails(address)[-1]))
        assert found is not None
        return found[1]


def rig_with(gateway: GatewayRig, **settings: Any) -> GatewayRig:
    declared = {"mail": DeclaredChannel("mail", "email"), "chat": DeclaredChannel("chat", "slack")}
    catalog = replace(gateway.deps.catalog, channels=Channels(declared, RoutingRules()))
    given = Settings(profile="production", **{"email_sign_in": "mail", **settings})
    return gateway.beside(
        people=FixedDirectory(addressed()), settings=given, catalog=catalog, clock=lambda: datetime.now(UTC)
    )


@pytest.fixture
async def mailed(gateway: GatewayRig) -> AsyncIterator[Mailed]:
    rig = rig_with(gateway)
    await rig.deps.store.run(lambda connection: connection.execute(delete(SIGN_IN_LINKS)))
    async with fake_mail(free_port()) as mail:
        options = {"smtp": mail.options["smtp"], "sender": "approvals@signoff.example"}
        channel = EmailChannel(ChannelContext("mail", options, "http://127.0.0.1:8300", rig.deps.clock, b"k" * 32))
        receiver = InboundReceiver(rig.deps.store, {"mail": channel}, AuditLog(rig.deps.store).append, rig.deps.clock)
        app = build_app(rig.deps, receiver)
        yield Mailed(replace(rig, app=app, http=http_of(app)), mail)
        receiver.close()


async def test_link_signs_in_once_with_the_assurance_link(mailed: Mailed) -> None:
    async with browser(mailed.rig) as page:
        asked = await mailed.ask(page, "ANA@people.example", "/decided")
        assert "If this address belongs to a person here, a link is on its way." in words(asked.text)
        address = mailed.link()
        shown = (await page.get(address)).text
        assert "Sign in as Ana" in words(shown)
        form = hidden(shown, address)
        entered = await page.post(address, data=form)
        assert (entered.status_code, entered.headers["location"]) == (303, "/decided")
        home = words((await page.get("/")).text)
        assert "Signed in as Ana" in home
        again = await page.get(address)
        assert (again.status_code, "This link does not work here" in words(again.text)) == (401, True)
    records = await AuditLog(mailed.rig.deps.store).stream(admin_stream("main"))
    entered_as = [(each.subject, json.loads(each.data)["assurance"]) for each in records if '"sign-in"' in each.data]
    assert entered_as[-1] == ("ana", "link")


async def test_opened_link_alone_does_not_sign_in(mailed: Mailed) -> None:
    async with browser(mailed.rig) as page:
        await mailed.ask(page, ANA)
        for _ in range(3):
            assert (await page.get(mailed.link())).status_code == 200
        assert (await page.get("/")).headers["location"].startswith("/login")


async def test_link_works_only_in_the_browser_that_asked(mailed: Mailed) -> None:
    async with browser(mailed.rig) as page, browser(mailed.rig) as other:
        await mailed.ask(page, ANA)
        address = mailed.link()
        own = hidden((await page.get(address)).text, address)
        await other.get("/login")
        shown = await other.get(address)
        assert (shown.status_code, "Ana" in words(shown.text)) == (401, False)
        assert (await other.post(address, data=own)).status_code == 401
        assert (await page.post(address, data=own)).status_code == 303


async def test_expired_link_is_refused(mailed: Mailed) -> None:
    async with browser(mailed.rig) as page:
        await mailed.ask(page, ANA)
        address = mailed.link()
        form = hidden((await page.get(address)).text, address)
        older = update(SIGN_IN_LINKS).values(made_at=SIGN_IN_LINKS.c.made_at - LINK_MILLIS)
        await mailed.rig.deps.store.run(lambda connection: connection.execute(older))
        assert (await page.post(address, data=form)).status_code == 401


@pytest.mark.parametrize("address", ["nobody@people.example", SHARED, "gone@people.example", "", "not an address"])
async def test_other_addresses_get_the_same_answer_and_no_email(mailed: Mailed, address: str) -> None:
    async with browser(mailed.rig) as page:
        known, other = await mailed.ask(page, ANA), await mailed.ask(page, address)
    plain = [re.sub(r'value="[^"]*"', "", each.text) for each in (known, other)]
    assert (known.status_code, plain[0]) == (other.status_code, plain[1])
    assert len(mailed.mail.taken) == 1


async def test_person_has_few_open_links(mailed: Mailed) -> None:
    links = SignInLinks(mailed.rig.deps.store)
    wish = SignInLink("main", "bo", "/")
    made = [await links.make(wish, "b") for _ in range(OPEN_LINKS + 1)]
    assert [each is not None for each in made] == [True] * OPEN_LINKS + [False]
    others = [await links.make(wish, f"other {n}") for n in range(ALL_OPEN_LINKS)]
    assert [each is not None for each in others] == [True] * (ALL_OPEN_LINKS - OPEN_LINKS) + [False] * OPEN_LINKS
    assert made[0] is not None
    used = await asyncio.gather(*(links.use(made[0], "b") for _ in range(4)))
    assert (used.count(wish), used.count(None)) == (1, 3)
    assert await links.make(wish, "b") is not None


async def test_flood_of_addresses_sends_few_emails(mailed: Mailed) -> None:
    for _ in range(3 * AT_ONCE):
        mailed.site.sign_in.email.ask(ANA, "b", "/")
    await mailed.site.sign_in.email.settle()
    assert len(mailed.mail.taken) == OPEN_LINKS


async def test_email_sign_in_decides_only_requests_that_accept_links(mailed: Mailed, gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(mailed.rig) as page:
        await mailed.ask(page, ANA)
        address = mailed.link()
        await page.post(address, data=hidden((await page.get(address)).text, address))
        card = (await page.get(f"/approvals/{approval}")).text
        policy = (await gateway.request(approval)).min_assurance
        assert ('id="decide"' in card) == (policy in ("none", "link"))
        for path in ("/freeze", "/away", "/passkeys/begin"):
            refused = await page.post(path, data={"token": "x"})
            assert refused.status_code == 403, path
            assert "an email link does not suffice" in words(refused.text).lower(), path
        assert (await page.post("/sessions", data={"text": "pay"})).status_code == 403


async def test_email_sign_in_gives_no_grant_and_questions_no_agent(mailed: Mailed, gateway: GatewayRig) -> None:
    easy, paid = await gateway.asked("easy"), await gateway.asked("pay")
    async with browser(mailed.rig) as page:
        await mailed.ask(page, ANA)
        address = mailed.link()
        await page.post(address, data=hidden((await page.get(address)).text, address))
        card = (await page.get(f"/approvals/{easy}")).text
        assert 'name="remember"' not in card
        form = {**hidden(card, f"/approvals/{easy}/decide"), "verdict": "approved"}
        wish = {"remember": "on", "scope": "tenant", "span": "30d", "uses": "9", "which": "same"}
        refused = await page.post(f"/approvals/{easy}/decide", data={**form, **wish})
        assert refused.status_code == 403
        assert (await gateway.request(easy)).state == "pending"
        asking = hidden((await page.get(f"/approvals/{easy}")).text, f"/approvals/{easy}/ask")
        assert (await page.post(f"/approvals/{easy}/ask", data={**asking, "question": "Why?"})).status_code == 303
        form = {"token": "x"}
        if f'action="/approvals/{paid}/ask"' in (shown := (await page.get(f"/approvals/{paid}")).text):
            form = hidden(shown, f"/approvals/{paid}/ask")
        assert (await page.post(f"/approvals/{paid}/ask", data={**form, "question": "Why?"})).status_code == 403
        assert (await gateway.request(paid)).messages == ()
        await page.post(f"/approvals/{easy}/decide", data={**form, "verdict": "denied"})


async def test_form_of_another_browser_sends_no_link(mailed: Mailed) -> None:
    async with browser(mailed.rig) as page:
        await page.get("/login")
        refused = await page.post("/login/email", data={"token": "x", "address": ANA})
    await mailed.site.sign_in.email.settle()
    assert (refused.status_code, mailed.mail.taken) == (403, [])


async def test_gateway_without_the_setting_has_no_such_pages(gateway: GatewayRig) -> None:
    async with browser(locked_rig(gateway)) as page:
        assert "/login/email" not in (await page.get("/login")).text
        assert (await page.post("/login/email", data={"address": ANA})).status_code == 404
        assert (await page.get("/login/email/x")).status_code == 404


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"email_sign_in": "post"}, "no channel `post` of kind `email`"),
        ({"email_sign_in": "chat"}, "no channel `chat` of kind `email`"),
        ({"oidc_issuer": "https://login.example.com"}, "exclude each other"),
    ],
)
async def test_wrong_setting_keeps_the_gateway_from_starting(
    gateway: GatewayRig, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why), suppress(KeyError):
        rig_with(gateway, **settings)
