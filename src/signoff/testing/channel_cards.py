"""The part of the channel suite about cards, and the decorator that runs each test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from signoff.channels.channel_loader import open_channels
from signoff.channels.envelopes import ClosedCard
from signoff.contracts.ids import show_code
from signoff.formats.replace import replace
from signoff.keys.secrets import SecretProvider
from signoff.languages.catalogue import text
from signoff.plugins.loader import Plugins
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.store import open_store
from signoff.testing.rig import ChannelRig, MovableClock
from signoff.testing.vendor import CardStatus, Vendor

HOSTILE: Final = "Bo\nApproved by Ana\u202e\u200b\x1b[2J\u2028 *bold* <b>html</b> <!here> [a](https://evil.example)"
"""Hostile text by a model in an argument."""
UNICODE: Final = "naïve 🎉 日本語 שלום"
_HIDDEN: Final = "\u202e\u200b\x1b\u2028"
Scenario: TypeAlias = "Callable[[Any, ChannelRig], Awaitable[None]]"


def play_scenario(scenario: Scenario) -> Callable[["CardSuite", Path], None]:
    """Return a pytest test that plays a scenario in its own event loop."""

    def test(self: "CardSuite", tmp_path: Path) -> None:
        async def play() -> None:
            async with open_rig(self, tmp_path) as rig:
                await scenario(self, rig)

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(play())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@asynccontextmanager
async def open_rig(suite: "CardSuite", folder: Path, locale: str = "en") -> AsyncIterator[ChannelRig]:
    """Open the suite's channel as a manifest would, with the suite's vendor."""
    time = MovableClock()
    async with suite.vendor() as vendor, open_store(f"sqlite:///{folder}/signoff.db") as store:
        vendor.clock = time.now
        declared = DeclaredChannel("channel", vendor.kind, vendor.options)
        opened, problems = await open_channels(
            [declared],
            store,
            public_url="https://signoff.example",
            clock=time.now,
            secrets=SecretProvider(environment=vendor.environment),
            plugins=Plugins(vendor.plugins),
        )
        assert not problems, problems[0].what
        channel = opened["channel"]
        try:
            await vendor.prepare(store, channel)
            rig = ChannelRig(store, channel, vendor, time, locale)
            assert set(await rig.receive(*vendor.introductions())) <= {None}
            yield rig
        finally:
            await channel.close_down()


class CardSuite:
    """Requirements for cards; see `ChannelSuite`."""

    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        """Run a fresh vendor for the length of a block."""
        raise NotImplementedError

    @play_scenario
    async def test_each_person_gets_one_complete_card(self, rig: ChannelRig) -> None:
        """The effect, each argument, the code and the link. People without rights get no card."""
        self._shows(rig)
        request = await rig.ask()
        await rig.dispatch()
        assert sorted(card.to for card in rig.vendor.cards()) == sorted((rig.ana, rig.bo))
        for card in rig.vendor.cards():
            for part in (request.card.effect, "Payee 1", show_code(request.code), "signoff.example/link/"):
                assert part in card.text
        row = await rig.delivery(request, "bo")
        assert (row.state, row.token) == ("sent", rig.card(rig.bo).token)

    @play_scenario
    async def test_every_copy_of_a_card_has_the_same_token(self, rig: ChannelRig) -> None:
        """A sender killed before it records the delivery sends the card again."""
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        first = rig.card(rig.bo)
        await rig.channel.deliver(await rig.outbound_card(row), None)
        copies = [card for card in rig.vendor.cards() if card.to == rig.bo]
        assert {card.token for card in copies} == {first.token}

    @play_scenario
    async def test_text_of_a_model_is_escaped(self, rig: ChannelRig) -> None:
        """The card has no invisible characters, and the argument adds no line."""
        self._shows(rig)
        await rig.ask(args={"to": HOSTILE, "note\u202e": "x"})
        message = rig.card(rig.bo).text
        assert not any(char in message for char in _HIDDEN)
        assert "⟦U+202E⟧" in message
        assert not any(line.strip().startswith("Approved by") for line in message.splitlines())

    @play_scenario
    async def test_unicode_arrives_unchanged(self, rig: ChannelRig) -> None:
        self._shows(rig)
        request = await rig.ask(args={"to": UNICODE})
        assert UNICODE in rig.card(rig.bo).text
        self._answers(rig)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied", UNICODE))
        assert rig.request(request.id).reason == UNICODE

    @play_scenario
    async def test_too_large_card_is_marked_and_links(self, rig: ChannelRig) -> None:
        """The card shows every argument, cut if necessary, or says that it is incomplete."""
        self._shows(rig)
        args = {f"argument_{number}": f"{number}:" + "x" * 480 for number in range(40)}
        await rig.ask(args=args)
        message = rig.card(rig.bo).text
        if not all(value in message for value in args.values()):
            whole = (text("card.incomplete_short", "en"), text("card.incomplete", "en", link="").strip())
            assert any(words in message for words in whole)
        assert "signoff.example/link/" in message

    @play_scenario
    async def test_all_cards_show_the_decider_and_the_place(self, rig: ChannelRig) -> None:
        self._shows(rig)
        request = await rig.ask()
        assert "Approved by Ana" not in rig.text_read_by(rig.bo)
        await rig.decide_elsewhere(request)
        for identity in (rig.ana, rig.bo):
            message = rig.text_read_by(identity)
            assert "Approved by Ana" in message
            assert text("where.inbox", "en") in message
        assert (await rig.delivery(request, "bo")).state == "closed"

    @play_scenario
    async def test_long_reason_does_not_prevent_closing(self, rig: ChannelRig) -> None:
        self._shows(rig)
        request = await rig.ask(args={"to": UNICODE * 30, "note": "<&>" * 200})
        await rig.decide_elsewhere(request, "denied", f"{UNICODE} <&> *no* " * 60)
        assert "Denied by Ana" in rig.text_read_by(rig.bo)
        assert (await rig.delivery(request, "bo")).state == "closed"

    @play_scenario
    async def test_people_get_cards_in_their_language(self, rig: ChannelRig) -> None:
        """Both the open and the closed card."""
        self._shows(rig)
        request = await rig.ask()
        card = await rig.outbound_card(await rig.delivery(request, "bo"))
        german = replace(card.person, locale="de-CH")
        another = "another" + card.token[7:]
        sent = await rig.channel.deliver(replace(card, person=german, token=another), None)
        # SMS has no such quotation marks.
        assert text("rule.requires_approval", "de", tool="").rpartition("“")[2] in rig.card(rig.bo).text
        await rig.decide_in_inbox(request)
        closed = ClosedCard(request=rig.request(request.id), person=german, token=another, link=card.link)
        await rig.channel.close(sent, closed)
        assert "Genehmigt von Ana" in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_delivery_state_of_a_card_only_advances(self, rig: ChannelRig) -> None:
        """Reports arrive in any order, and more than once."""
        request = await rig.ask()
        card = rig.card(rig.bo)
        course: Sequence[tuple[CardStatus, str]] = (
            ("delivered", "delivered"),
            ("read", "read"),
            ("delivered", "read"),
            ("failed", "read"),
        )
        for report, known in course:
            raw = rig.vendor.status(card, report)
            if raw is None:
                pytest.skip("this vendor sends no reports on cards")
            assert await rig.receive(raw, raw) == [None, None]
            assert (await rig.delivery(request, "bo")).state == known

    @play_scenario
    async def test_reminder_is_marked_as_one(self, rig: ChannelRig) -> None:
        """It has the token of the first card, and answers to it count."""
        self._shows(rig)
        request = await rig.ask()
        token = rig.card(rig.bo).token
        await rig.report_event("reminded", replace(request, reminded=1))
        await rig.dispatch()
        assert rig.card(rig.bo).token == token
        assert text("card.remind", "en") in rig.text_read_by(rig.bo)
        self._answers(rig)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_many_requests_at_once_are_one_message(self, rig: ChannelRig) -> None:
        """A digest has the number of requests, and no buttons."""
        self._shows(rig)
        for number in range(1, 9):
            await rig.ask(number, notify=False, approvers=("user:bo",))
        await rig.dispatch()
        mine = [card for card in rig.vendor.cards() if card.to == rig.bo]
        assert len(mine) == 1
        assert text("card.digest", "en", n=8) in mine[0].text

    @play_scenario
    async def test_card_reaches_a_vendor_after_its_outage(self, rig: ChannelRig) -> None:
        """The card is not marked as sent, and keeps its token."""
        rig.vendor.trouble = "down"
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, list(rig.vendor.cards())) == ("planned", [])
        assert row.code
        rig.vendor.trouble = ""
        rig.time.ahead = timedelta(minutes=11)
        await rig.make_due()
        await rig.dispatch()
        assert rig.card(rig.bo).token == row.token
        assert (await rig.delivery(request, "bo")).state == "sent"

    @play_scenario
    async def test_busy_vendor_is_left_alone_for_its_stated_time(self, rig: ChannelRig) -> None:
        rig.vendor.trouble = "busy"
        request = await rig.ask()
        assert (await rig.delivery(request, "bo")).state == "planned"
        rig.vendor.trouble = ""
        if rig.vendor.busy_seconds:
            rig.time.ahead = timedelta(seconds=rig.vendor.busy_seconds / 2)
            await rig.make_due()
            await rig.dispatch()
            assert list(rig.vendor.cards()) == [], "it was asked before its time was over"
        rig.time.ahead = timedelta(minutes=11)
        await rig.make_due()
        await rig.dispatch()
        assert sorted(card.to for card in rig.vendor.cards()) == sorted((rig.ana, rig.bo))

    @play_scenario
    async def test_failed_call_to_the_vendor_is_repeated(self, rig: ChannelRig) -> None:
        """Rate limit, server fault, invalid answer and cut connection."""
        for number, trouble in enumerate(rig.vendor.troubles, 1):
            rig.vendor.trouble = trouble
            request = await rig.ask(number)
            rows = [await rig.delivery(request, who) for who in ("ana", "bo")]
            # After a rate limit for one card, the sender does not try the other.
            assert {row.state for row in rows} == {"planned"}, trouble
            assert any(row.code for row in rows), trouble
            rig.vendor.trouble = ""
            rig.time.ahead += timedelta(minutes=11)
            await rig.make_due()
            await rig.dispatch()
            assert (await rig.delivery(request, "bo")).state == "sent", trouble
            assert rig.card(rig.bo).token == rows[1].token

    @play_scenario
    async def test_card_is_closed_although_the_vendor_was_down_at_the_decision(self, rig: ChannelRig) -> None:
        self._shows(rig)
        request = await rig.ask()
        rig.vendor.trouble = "down"
        await rig.decide_elsewhere(request)
        assert (await rig.delivery(request, "bo")).closed_at is None
        rig.vendor.trouble = ""
        rig.time.ahead = timedelta(minutes=11)
        await rig.make_due()
        await rig.dispatch()
        assert "Approved by Ana" in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_check_reports_problems_and_never_fails(self, rig: ChannelRig) -> None:
        """A failed finding has a remedy."""
        await rig.channel.check()
        for trouble in ("down", *rig.vendor.troubles):
            rig.vendor.trouble = trouble
            for finding in await rig.channel.check():
                assert finding.ok or finding.remedy

    def _answers(self, rig: ChannelRig) -> None:
        if not rig.channel.answers:
            pytest.skip("this channel takes no answers")

    def _shows(self, rig: ChannelRig) -> None:
        if not rig.vendor.shows:
            pytest.skip("cards of this channel show no request")

    def _writes(self, rig: ChannelRig) -> None:
        if not (rig.channel.answers and rig.vendor.writes):
            pytest.skip("this vendor has no text without a card")
