"""One change of a supplier's account, decided with the tools of approvers.

Chromium plays both approvers, with its own virtual authenticator. Slack, mail, Teams and the push service are strict
fakes.
"""

import os
import re
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from playwright.async_api import expect as seen

from demo.polling import Unexpected, expect, until
from demo.proof import recorded
from demo.scenes import Scene
from demo.stage import FIRST_CALL, Stage
from signoff.channels.envelopes import InboundRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.temporal.embedded_server import free_port
from signoff.testing.fake_mail import FakeMail, fake_mail, text_of
from signoff.testing.fake_push import FakePush, fake_push
from signoff.testing.fake_slack import FakeSlack, fake_slack
from signoff.testing.fake_teams import ROOM, FakeTeams, fake_teams
from signoff.testing.vendor import VendorCard

HOST: Final = "localhost"
"""Browsers allow passkeys at a name, and at no number."""
PHONE: Final = {"width": 390, "height": 844}
OLD: Final = "DE02 1203 0000 0000 2020 51"
NEW: Final = "DE89 3704 0044 0532 0130 00"
QUESTION: Final = "Which letter names this account?"
ANSWER: Final = "signed by Nordwind's director, names this account"
REMARK: Final = "I called Nordwind, they confirmed it."
CLOSED_SECONDS: Final = float(os.environ.get("DEMO_CLOSED_SECONDS", "2"))
"""The most seconds until every place shows the end. On a machine with other work, set more."""
_ANA, _CLERK = FakeSlack.identities[0], FakeSlack.identities[1]
_ANAS_TEAMS, _BOS_TEAMS = FakeTeams.identities[0], FakeTeams.identities[1]
_BOS_MAIL: Final = "bo@people.example"
_LINK: Final = re.compile(r"/link/[\w.-]+")
_NOTICES: Final = ("Waiting for approval", "Approved by Bo Berg", "The approved call ran")
_PATIENCE_MILLIS: Final = 15_000
_CHROMIUM: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_AUTHENTICATOR: Final[Mapping[str, Any]] = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@dataclass
class Deciding:
    """The vendors, the browser, and the installation that uses them."""

    slack: FakeSlack
    mail: FakeMail
    teams: FakeTeams
    push: FakePush
    chromium: Browser
    manifest: Path
    env: Mapping[str, str]

    async def play(self, stage: Stage) -> AsyncIterator[Scene]:
        """Play every scene in order."""
        for each in self.teams.introductions():
            await self._bring(stage, "teams", each)
        key = await stage.ask(f"change the account of Nordwind to {NEW}", user="clerk")
        await stage.suspended(key)
        async with self._window(stage, "ana") as ana, self._window(stage, "bo", phone=True) as bo:
            await self._notify(stage, bo)
            yield await self.previewed(stage, key, ana)
            yield await self.taken(stage, key)
            yield await self.asked_back(key, ana)
            yield await self.handed_on(stage, key, ana)
            yield await self.stepped_up(stage, key, bo)
            yield await self.closed_everywhere(stage, key, ana)
            yield await self.repeated(stage, key)
            yield await self.told(key)
            yield await self.found(stage, key, bo)
            yield await self.proved(stage, key)

    async def previewed(self, stage: Stage, key: TurnKey, page: Page) -> Scene:
        """Ana sees both accounts before anything has changed."""
        await page.goto(self._page(stage, key))
        lines = page.locator(".preview .changes")
        await seen(lines).to_contain_text(OLD)
        await seen(lines).to_contain_text(NEW)
        expect("accounts on file", [], self._accounts(stage, NEW))
        return Scene(f"Ana sees the change before it happens: {OLD} becomes {NEW}", key)

    async def taken(self, stage: Stage, key: TurnKey) -> Scene:
        """The card in the room names no account. One of two approvers takes it, and the other one reads who."""

        async def cards() -> Sequence[VendorCard]:
            return self.teams.room_cards()

        card = (await until("a card in the team's channel", cards, bool))[0]
        expect("accounts on the card in the channel", False, NEW in card.text or OLD in card.text)
        first = await self._bring(stage, "teams", self.teams.press_room(card, _ANAS_TEAMS, "take"))
        second = await self._bring(stage, "teams", self.teams.press_room(card, _BOS_TEAMS, "take"))
        expect("what Ana reads", True, "You have taken it until" in first)
        expect("what Bo reads", True, "Ana Sousa has taken it until" in second)
        await until("the name on the card in the channel", self._room, lambda words: "Ana Sousa has taken it" in words)
        return Scene(
            "a card without the account is in the team's Teams channel: Ana takes it, Bo reads that she has", key
        )

    async def asked_back(self, key: TurnKey, page: Page) -> Scene:
        """The agent answers in words, without tools, and the request still waits."""
        await page.get_by_label("Your question to the agent").fill(QUESTION)
        await page.get_by_role("button", name="Ask the agent").click()
        await seen(page.locator(".asking")).to_contain_text(ANSWER)
        return Scene(f"Ana asks “{QUESTION}”, and reads the agent's answer on the card", key)

    async def handed_on(self, stage: Stage, key: TurnKey, page: Page) -> Scene:
        """Bo decides in Ana's place, and her passkey confirms that."""
        await self._register(stage, page)
        await page.goto(self._page(stage, key))
        await page.get_by_text("Hand on, or add an approver").click()
        await page.get_by_label("Person", exact=True).select_option("bo")
        await page.get_by_role("button", name="Hand on", exact=True).click()
        await seen(page.locator("#card")).to_contain_text("Ana Sousa handed it on to Bo Berg.")
        return Scene("Ana hands the request on to Bo, by her passkey", key)

    async def stepped_up(self, stage: Stage, key: TurnKey, page: Page) -> Scene:
        """Without a passkey the approval does not count. With one it counts for these arguments alone."""
        await page.goto(self._page(stage, key))
        await seen(page.locator(".asking")).to_contain_text(ANSWER)
        await self._approve(page)
        await seen(page.locator("#decide .passkey-note")).to_contain_text("you have no passkey")
        expect("votes without a passkey", (), (await stage.asked(key)).votes)
        await self._register(stage, page)
        await page.goto(self._page(stage, key))
        await self._approve(page)
        await seen(page.locator("#card")).to_contain_text("Approved by Bo Berg")
        request = await stage.asked(key)
        vote = request.votes[0].decision
        expect("the decision", ("bo", "present", REMARK), (vote.subject, vote.assurance, vote.reason))
        return Scene("Bo approves on a phone: his passkey confirms this one decision, with a remark", key)

    async def closed_everywhere(self, stage: Stage, key: TurnKey, ana: Page) -> Scene:
        """Each place of the request shows its end."""
        decided = (await stage.asked(key)).decided_at or system_clock()
        ended = time.monotonic() - (system_clock() - decided).total_seconds()
        words = "Approved by Bo Berg"
        await until("the end on each channel", self._shown, lambda every: all(words in each for each in every))
        await seen(ana.locator("#card")).to_contain_text(words)
        linked = await stage.http.get(self._link())
        expect("whether the page of the mail's link shows it", True, words in linked.text)
        took = time.monotonic() - ended
        expect(f"whether {took:.1f} s are at most {CLOSED_SECONDS} s", True, took <= CLOSED_SECONDS)
        places = "Ana's open page, Slack, both places in Teams, Bo's mail, its link and his browser"
        return Scene(f"{took:.1f} s later {places} say: {words}", key)

    async def repeated(self, stage: Stage, key: TurnKey) -> Scene:
        """The model reads the remark with the result."""
        expect("the outcome", "ok", (await stage.outcome(key)).code)
        expect("accounts on file", [("Nordwind",)], self._accounts(stage, NEW))
        result = (await stage.finished(key)).result
        expect("whether the agent repeats the remark", True, result is not None and REMARK in result.text)
        return Scene("the account is changed, and the agent repeats Bo's remark", key)

    async def told(self, key: TurnKey) -> Scene:
        """Notices without buttons."""

        async def notices() -> str:
            return "\n".join(self.slack.reads(_CLERK))

        await until("the notices in Slack", notices, lambda words: all(each in words for each in _NOTICES))
        return Scene("the requester reads in Slack that the request waited, was approved, and ran", key)

    async def found(self, stage: Stage, key: TurnKey, page: Page) -> Scene:
        """Search reads the text of the card."""

        async def rows() -> str:
            await page.goto(f"{stage.public}/decided?text=Nordwind")
            return await page.locator("main").inner_text()

        # The gateway indexes decided requests in the background.
        await until("the decision among the decided requests", rows, lambda words: f"account {NEW}" in words)
        await seen(page.locator("main .badge").first).to_have_text("Approved")
        await page.goto(f"{stage.public}/insights")
        await seen(page.locator("main")).to_contain_text("1 approved")
        await page.goto(f"{self._page(stage, key)}/course")
        await seen(page.locator("main")).to_contain_text("Bo Berg")
        return Scene("Bo finds the decision by a search for “Nordwind”, in the insights, and its course", key)

    async def proved(self, stage: Stage, key: TurnKey) -> Scene:
        """The record has question, hand-on and approval."""
        record = await recorded(stage, key)
        return Scene(record.words, key)

    async def _register(self, stage: Stage, page: Page) -> None:
        await page.goto(f"{stage.public}/passkeys")
        await page.get_by_role("button", name="Add a passkey").click()
        await seen(page.locator(".passkeys li")).to_have_count(1)

    async def _approve(self, page: Page) -> None:
        await page.locator("#reason").fill(REMARK)
        # The policy's strong sign-in also asks for the first value.
        await page.locator("#typed").fill("Nordwind")
        await page.get_by_role("button", name="Approve", exact=True).click()

    def _page(self, stage: Stage, key: TurnKey) -> str:
        return f"{stage.public}/approvals/{ApprovalKey(key, FIRST_CALL).id}"

    def _accounts(self, stage: Stage, account: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.env["SUPPLIERS_DB"], timeout=30)) as records:
            return records.execute("SELECT supplier FROM suppliers WHERE account = ?", (account,)).fetchall()

    async def _shown(self) -> Sequence[str]:
        mails = "\n".join(text_of(mail) for mail in self.mail.mails(_BOS_MAIL))
        # A notification has no content: it only says that the request has ended.
        pushed = "Approved by Bo Berg" if any(each.content["ended"] for each in self.push.messages) else ""
        chats = ["\n".join(self.slack.reads(_ANA)), "\n".join(self.teams.reads(_BOS_TEAMS))]
        return [*chats, await self._room(), mails, pushed]

    async def _room(self) -> str:
        return "\n".join(each.text for each in self.teams.room_cards())

    def _link(self) -> str:
        found = _LINK.search(text_of(self.mail.mails(_BOS_MAIL)[0]))
        if found is None:
            raise Unexpected("Bo's mail: expected a link, seen none")
        return found[0]

    async def _notify(self, stage: Stage, page: Page) -> None:
        """Switch notifications on. A push service of the real world gives a browser its address."""
        await page.goto(f"{stage.public}/notifications")
        form = page.locator("#notify")
        self.push.server_key = await form.get_attribute("data-key") or ""
        for name, value in self.push.open_browser("bo").subscription.model_dump().items():
            await form.locator(f"[name={name}]").evaluate("(field, value) => { field.value = value; }", value)
        await form.evaluate("(each) => HTMLFormElement.prototype.submit.call(each)")
        await seen(page.locator(".browsers li")).to_have_count(1)

    async def _bring(self, stage: Stage, channel: str, raw: InboundRequest) -> str:
        reply = await stage.http.post(f"/channels/{channel}", content=raw.body, headers=dict(raw.headers))
        expect(f"the gateway's answer to {channel}", 200, reply.status_code)
        return reply.text

    @asynccontextmanager
    async def _window(self, stage: Stage, person: str, *, phone: bool = False) -> AsyncIterator[Page]:
        """Open a browser of `person`, with an authenticator for passkeys."""
        context: BrowserContext = await self.chromium.new_context(**({"viewport": PHONE} if phone else {}))  # type: ignore[arg-type]
        base = stage.public
        names = {"signoff_person": person, "signoff_language": "en"}
        await context.add_cookies([{"name": each, "value": value, "url": base} for each, value in names.items()])
        page = await context.new_page()
        page.set_default_timeout(_PATIENCE_MILLIS)
        devices = await context.new_cdp_session(page)
        await devices.send("WebAuthn.enable")
        await devices.send("WebAuthn.addVirtualAuthenticator", {"options": dict(_AUTHENTICATOR)})
        try:
            yield page
        finally:
            await context.close()


@asynccontextmanager
async def deciding(example: Path, folder: Path) -> AsyncIterator[Deciding]:
    """Yield vendors and a browser, and a copy of the example in `folder` whose people have addresses there.

    Raises `Unexpected` without Chromium.
    """
    program = shutil.which("chromium")
    if program is None:
        raise Unexpected("this story needs the program `chromium`, of your system's packages")
    seen.set_options(timeout=_PATIENCE_MILLIS)
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(fake_slack())
        teams = await stack.enter_async_context(fake_teams())
        push = await stack.enter_async_context(fake_push())
        mail = await stack.enter_async_context(fake_mail(free_port()))
        for vendor in (slack, teams, push):
            # The gateway is a separate process that checks signed times by the real clock.
            vendor.clock = system_clock
        playwright = await stack.enter_async_context(async_playwright())
        chromium = await playwright.chromium.launch(executable_path=program, args=list(_CHROMIUM))
        stack.push_async_callback(chromium.close)
        copy = shutil.copytree(example, folder / example.name)
        options = {"slack": slack.options, "mail": mail.options, "teams": teams.options, "push": push.options}
        keys = {**slack.environment, **teams.environment, **push.environment}
        env = {**keys, "SUPPLIERS_DB": str(folder / "suppliers.db")}
        yield Deciding(slack, mail, teams, push, chromium, _with_channels(copy, options), env)


def _with_channels(copy: Path, options: Mapping[str, Mapping[str, Any]]) -> Path:
    kinds = {"slack": "slack", "mail": "email", "teams": "teams", "push": "push"}
    sections = {
        "channels": {name: {"kind": kinds[name], **dict(given)} for name, given in options.items()},
        "routing": {"default": list(options), "all": True},
        "rooms": {"role:finance": [{"channel": "teams", "room": ROOM}]},
    }
    manifest, people = copy / "signoff.yaml", copy / "people.yaml"
    manifest.write_text(manifest.read_text(encoding="utf-8") + "\n" + yaml.safe_dump(sections), encoding="utf-8")
    addresses = {
        "ana": {"slack": [_ANA], "teams": [_ANAS_TEAMS]},
        "bo": {"email": [_BOS_MAIL], "teams": [_BOS_TEAMS]},
        "clerk": {"slack": [_CLERK]},
    }
    everybody = yaml.safe_load(people.read_text(encoding="utf-8"))
    known = [{**person, "identities": addresses[person["id"]]} for person in everybody]
    people.write_text(yaml.safe_dump(known), encoding="utf-8")
    return manifest
