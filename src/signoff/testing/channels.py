"""The conformance suite of channels: what every one must do, whoever wrote it. It needs pytest and nothing else.

Write a `Vendor`, a fake of whoever is behind the channel, and a class that inherits `ChannelSuite`:

    class TestPigeon(ChannelSuite):
        def vendor(self) -> AbstractAsyncContextManager[Vendor]:
            return pigeon_loft()

Each test drives the real dispatcher, receiver and processor over a real store, with the real rules of approvals; the
vendor alone is a fake. It should be as strict as the real one: check signatures, sizes and shapes, and refuse the rest.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from signoff.channels.base import Channel
from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.channel_loader import open_channels
from signoff.channels.envelopes import ClosedCard, InboundRequest
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
"""What a model may write into an argument."""
UNICODE: Final = "naïve 🎉 日本語 שלום"
_HIDDEN: Final = "\u202e\u200b\x1b\u2028"
_NONSENSE: Final = (
    b"",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"3",
    b"{}",
    b'{"type": 3, "data": []}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"text": "\\ud800"}',
    b"9" * 10_000,
    b"payload=%7B%7D",
    b"a=b&" * 20_000,
    b"From: <>\r\n\r\n",
)

Scenario: TypeAlias = "Callable[[Any, ChannelRig], Awaitable[None]]"


def play_scenario(scenario: Scenario) -> Callable[["ChannelSuite", Path], None]:
    """Makes a test of pytest's that plays a scenario in a loop of its own."""

    def test(self: "ChannelSuite", tmp_path: Path) -> None:
        async def play() -> None:
            async with open_rig(self, tmp_path) as rig:
                await scenario(self, rig)

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(play())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@asynccontextmanager
async def open_rig(suite: "ChannelSuite", folder: Path, locale: str = "en") -> AsyncIterator[ChannelRig]:
    """Opens the suite's channel as a manifest would, at the suite's vendor; its people are of `locale`."""
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
            yield ChannelRig(store, channel, vendor, time, locale)
        finally:
            await channel.close_down()


def _receive(channel: Channel, raw: InboundRequest) -> None:
    """Reads a message as the way in does, and lets nothing but what a channel may raise pass for a refusal."""
    with contextlib.suppress(Forged, Malformed):
        channel.receive(raw)


class ChannelSuite:
    """Inherit from this, and say which vendor; what a channel cannot do at all is skipped."""

    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        """Runs a fresh vendor while the block does."""
        raise NotImplementedError

    # Out.

    @play_scenario
    async def test_each_person_is_sent_one_card_that_says_all(self, rig: ChannelRig) -> None:
        """What would happen, each argument, the code and the link; one card each, and not to who may not answer."""
        request = await rig.ask()
        await rig.dispatch()
        assert sorted(card.to for card in rig.vendor.cards()) == sorted((rig.ana, rig.bo))
        for card in rig.vendor.cards():
            for part in (request.card.effect, "Payee 1", show_code(request.code), "signoff.example/link/"):
                assert part in card.text
        row = await rig.delivery(request, "bo")
        assert (row.state, row.token) == ("sent", rig.card(rig.bo).token)

    @play_scenario
    async def test_every_copy_of_a_card_carries_the_same_token(self, rig: ChannelRig) -> None:
        """The sender may be killed before it knows that the card is out: then it is sent again."""
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        first = rig.card(rig.bo)
        await rig.channel.deliver(await rig.outbound_card(row), None)
        copies = [card for card in rig.vendor.cards() if card.to == rig.bo]
        assert {card.token for card in copies} == {first.token}

    @play_scenario
    async def test_what_a_model_writes_is_text_and_nothing_else(self, rig: ChannelRig) -> None:
        """No character that is not seen, no line of its own."""
        await rig.ask(args={"to": HOSTILE, "note\u202e": "x"})
        message = rig.card(rig.bo).text
        assert not any(char in message for char in _HIDDEN)
        assert "⟦U+202E⟧" in message
        assert not any(line.strip().startswith("Approved by") for line in message.splitlines())

    @play_scenario
    async def test_unicode_arrives_as_it_is(self, rig: ChannelRig) -> None:
        """In a card, and in a reason."""
        request = await rig.ask(args={"to": UNICODE})
        assert UNICODE in rig.card(rig.bo).text
        self._answers(rig)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied", UNICODE))
        assert rig.request(request.id).reason == UNICODE

    @play_scenario
    async def test_a_card_too_large_for_the_channel_says_so_and_links(self, rig: ChannelRig) -> None:
        """Every argument is there, cut where it has to be; or the card says that it is not whole."""
        args = {f"argument_{number}": f"{number}:" + "x" * 480 for number in range(40)}
        await rig.ask(args=args)
        message = rig.card(rig.bo).text
        if not all(value in message for value in args.values()):
            whole = (text("card.incomplete_short", "en"), text("card.incomplete", "en", link="").strip())
            assert any(words in message for words in whole)
        assert "signoff.example/link/" in message

    @play_scenario
    async def test_all_cards_say_who_decided_and_where(self, rig: ChannelRig) -> None:
        """Wherever it was decided; what could be answered before says now that it is over."""
        request = await rig.ask()
        assert "Approved by Ana" not in rig.text_read_by(rig.bo)
        await rig.decide_elsewhere(request)
        for identity in (rig.ana, rig.bo):
            message = rig.text_read_by(identity)
            assert "Approved by Ana" in message
            assert text("where.inbox", "en") in message
        assert (await rig.delivery(request, "bo")).state == "closed"

    @play_scenario
    async def test_a_long_reason_keeps_no_card_from_closing(self, rig: ChannelRig) -> None:
        """Nor does an action that takes many words."""
        request = await rig.ask(args={"to": UNICODE * 30, "note": "<&>" * 200})
        await rig.decide_elsewhere(request, "denied", f"{UNICODE} <&> *no* " * 60)
        assert "Denied by Ana" in rig.text_read_by(rig.bo)
        assert (await rig.delivery(request, "bo")).state == "closed"

    @play_scenario
    async def test_people_are_told_in_their_language(self, rig: ChannelRig) -> None:
        """What a card says, and what it says once it is over."""
        request = await rig.ask()
        card = await rig.outbound_card(await rig.delivery(request, "bo"))
        german = replace(card.person, locale="de-CH")
        another = "another" + card.token[7:]
        sent = await rig.channel.deliver(replace(card, person=german, token=another), None)
        assert text("rule.requires_approval", "de") in rig.card(rig.bo).text
        await rig.decide_in_inbox(request)
        closed = ClosedCard(request=rig.request(request.id), person=german, token=another, link=card.link)
        await rig.channel.close(sent, closed)
        assert "Genehmigt von Ana" in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_what_a_vendor_tells_of_a_card_never_leads_back(self, rig: ChannelRig) -> None:
        """It comes in any order, and more than once."""
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
                pytest.skip("that vendor tells nothing of cards")
            assert await rig.receive(raw, raw) == [None, None]
            assert (await rig.delivery(request, "bo")).state == known

    @play_scenario
    async def test_a_reminder_says_that_it_is_one(self, rig: ChannelRig) -> None:
        """It is about the same delivery, and answers to it count."""
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
    async def test_many_at_once_are_one_message(self, rig: ChannelRig) -> None:
        """A digest says how many there are, and decides nothing by itself."""
        for number in range(1, 9):
            await rig.ask(number, notify=False, approvers=("user:bo",))
        await rig.dispatch()
        mine = [card for card in rig.vendor.cards() if card.to == rig.bo]
        assert len(mine) == 1
        assert text("card.digest", "en", n=8) in mine[0].text

    @play_scenario
    async def test_a_vendor_that_is_down_gets_the_card_when_it_is_back(self, rig: ChannelRig) -> None:
        """Nothing is lost, nothing is said to be sent, and the token is the same."""
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
    async def test_a_vendor_that_is_busy_is_left_alone_as_long_as_it_says(self, rig: ChannelRig) -> None:
        """Each card waits, and goes out when the time is over."""
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
    async def test_a_call_that_goes_wrong_is_made_again(self, rig: ChannelRig) -> None:
        """Too much, a fault, an answer that is none, a cut connection: nothing is said to be sent, and later it is."""
        for number, trouble in enumerate(rig.vendor.troubles, 1):
            rig.vendor.trouble = trouble
            request = await rig.ask(number)
            rows = [await rig.delivery(request, who) for who in ("ana", "bo")]
            # Of one the vendor said that it takes no more, the other was then not even tried.
            assert {row.state for row in rows} == {"planned"}, trouble
            assert any(row.code for row in rows), trouble
            rig.vendor.trouble = ""
            rig.time.ahead += timedelta(minutes=11)
            await rig.make_due()
            await rig.dispatch()
            assert (await rig.delivery(request, "bo")).state == "sent", trouble
            assert rig.card(rig.bo).token == rows[1].token

    @play_scenario
    async def test_a_card_is_closed_even_where_the_vendor_was_down_at_the_decision(self, rig: ChannelRig) -> None:
        """Later, then."""
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
    async def test_the_check_says_what_is_wrong_and_never_fails(self, rig: ChannelRig) -> None:
        """Whether the vendor answers or not; a finding that is not well says what to do."""
        await rig.channel.check()
        for trouble in ("down", *rig.vendor.troubles):
            rig.vendor.trouble = trouble
            for finding in await rig.channel.check():
                assert finding.ok or finding.remedy

    # In.

    @play_scenario
    async def test_a_yes_approves_as_that_person_and_is_answered(self, rig: ChannelRig) -> None:
        """Who, by which channel, how surely; and they are told."""
        self._answers(rig)
        request = await rig.ask()
        assert await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")) == [None]
        decided = rig.request(request.id)
        assert (decided.state, decided.decided_by) == ("approved", "bo")
        assert decided.decided_channel == rig.channel.kind
        assert decided.votes[0].assurance == rig.channel.assurance
        assert "Approved" in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_a_no_denies_and_its_reason_is_kept(self, rig: ChannelRig) -> None:
        """The agent is told why."""
        self._answers(rig)
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied", "too expensive"))
        decided = rig.request(request.id)
        assert (decided.state, decided.reason) == ("denied", "too expensive")

    @play_scenario
    async def test_denial_without_a_required_reason_is_asked_back(self, rig: ChannelRig) -> None:
        """A button or a word alone decides nothing there; the reply asks for the reason."""
        self._answers(rig)
        request = await rig.ask(require_reason=True)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied"))
        assert rig.request(request.id).state == "pending"
        assert text("reply.reason", "en", deny="", code="").partition("“")[0] in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied", "too expensive"))
        assert (rig.request(request.id).state, rig.request(request.id).reason) == ("denied", "too expensive")

    @play_scenario
    async def test_a_card_that_is_not_whole_takes_a_no_and_no_yes(self, rig: ChannelRig) -> None:
        """Neither a button nor words approve what nobody could read there; they are told to open it."""
        self._answers(rig)
        request = await rig.ask(args={"items": [{"pieces": number} for number in range(40)]})
        card = rig.card(rig.bo)
        hint = text("card.how.unseen", "en", deny=text("word.deny", "en"), code=show_code(request.code), approve="")
        assert rig.channel.assurance == "link" or not rig.vendor.writes or hint in card.text
        answers = [rig.vendor.write(rig.bo, f"approve {show_code(request.code)}")] if rig.vendor.writes else []
        # A strict vendor knows no press of a button that the card does not have.
        with contextlib.suppress(KeyError):
            answers.append(rig.vendor.press(card, rig.bo, "approved"))
        for raw in answers:
            await rig.receive(raw)
            assert rig.request(request.id).state == "pending"
            assert text("reply.unseen", "en") in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(card, rig.bo, "denied", "too many"))
        assert rig.request(request.id).state == "denied"

    @play_scenario
    async def test_a_card_with_cut_values_takes_no_approval(self, rig: ChannelRig) -> None:
        """A card that the channel cut for want of room is approved elsewhere: `draws_whole` has to say so."""
        self._answers(rig)
        for number, rows in enumerate((12, 40), 1):
            args = {f"argument_{row}": f"{row}:" + "x" * 480 for row in range(rows)}
            request = await rig.ask(number, args=args)
            card = rig.card(rig.bo, show_code(request.code))
            if all(value in card.text for value in args.values()):
                continue
            answers = [rig.vendor.write(rig.bo, f"approve {show_code(request.code)}")] if rig.vendor.writes else []
            # A strict vendor knows no press of a button that the card does not have.
            with contextlib.suppress(KeyError):
                answers.append(rig.vendor.press(card, rig.bo, "approved"))
            await rig.receive(*answers)
            assert rig.request(request.id).votes == ()
            assert text("reply.unseen", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_two_answers_in_a_row_decide_each_their_own_card(self, rig: ChannelRig) -> None:
        """Two requests wait, and both answers arrive before either is read."""
        self._answers(rig)
        first, second = await rig.ask(1), await rig.ask(2)
        denied = rig.vendor.press(rig.card(rig.bo, show_code(first.code)), rig.bo, "denied", "no")
        approved = rig.vendor.press(rig.card(rig.bo, show_code(second.code)), rig.bo, "approved")
        await rig.receive(denied, approved)
        assert (rig.request(first.id).state, rig.request(second.id).state) == ("denied", "approved")

    @play_scenario
    async def test_one_of_two_is_counted_and_told_so(self, rig: ChannelRig) -> None:
        """It still waits for the other."""
        self._answers(rig)
        request = await rig.ask(quorum=2)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).state == "pending"
        assert text("receipt.counted", "en", n=1, of=2) in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(rig.card(rig.ana), rig.ana, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_what_is_forged_decides_nothing(self, rig: ChannelRig) -> None:
        """Altered, unsigned, signed by somebody else; the true one still counts afterwards."""
        self._answers(rig)
        request = await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        forged = rig.vendor.forgeries(true)
        assert forged, "a channel that takes everything has no place here"
        await rig.receive(*forged)
        assert rig.decisions.answers == []
        await rig.receive(true)
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_odd_headers_are_forged_and_nothing_worse(self, rig: ChannelRig) -> None:
        """Whatever stands in each of them: no letter, no number, no text at all."""
        self._answers(rig)
        await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        odd = ("", "é", "\udcff", "9" * 5_000, "-1", "nan", "0x", "v0=", "v1,", "sha256=", "=", ",", "\x00", "🎉" * 100)
        for name in true.headers:
            for value in odd:
                _receive(rig.channel, dataclasses.replace(true, headers={**true.headers, name: value}))

    @play_scenario
    async def test_nonsense_is_refused_and_nothing_worse(self, rig: ChannelRig) -> None:
        """Whatever the body is, though it comes from the vendor; also under another type."""
        self._answers(rig)
        await rig.ask()
        for body in _NONSENSE:
            raw = rig.vendor.sign(body)
            for kind in (raw.headers.get("content-type", ""), "application/octet-stream", "text/html; charset=nowhere"):
                odd = dataclasses.replace(raw, headers={**raw.headers, "content-type": kind})
                _receive(rig.channel, odd)
                await rig.receive(odd)
        assert rig.decisions.answers == []

    @play_scenario
    async def test_an_answer_under_another_content_type_decides_nothing_or_the_same(self, rig: ChannelRig) -> None:
        """It is refused, or it is what it is; never something else."""
        self._answers(rig)
        request = await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        for kind in ("", "text/html", "multipart/form-data", "application/xml; charset=utf-16"):
            await rig.receive(dataclasses.replace(true, headers={**true.headers, "content-type": kind}))
        assert rig.request(request.id).state in ("pending", "approved")

    @play_scenario
    async def test_the_largest_message_is_read_in_good_time(self, rig: ChannelRig) -> None:
        """As much as the channel takes, of what makes careless readers slow."""
        self._answers(rig)
        await rig.ask()
        for filling in (b"On ", b"> ", b"[", b" \t", b"<b>", b"{"):
            body = (filling * (rig.channel.max_bytes // len(filling) + 1))[: rig.channel.max_bytes]
            await rig.receive(rig.vendor.sign(body))
        assert rig.decisions.answers == []

    @play_scenario
    async def test_what_is_repeated_counts_once(self, rig: ChannelRig) -> None:
        """Vendors say everything more than once, at once and much later; who answered is told once."""
        self._answers(rig)
        request = await rig.ask(quorum=2)
        raw = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        await rig.receive(raw, raw, raw)
        before = len(rig.vendor.reads(rig.bo))
        await rig.receive(raw)
        assert len(rig.decisions.answers) == 1
        assert len(rig.request(request.id).votes) == 1
        assert len(rig.vendor.reads(rig.bo)) == before

    @play_scenario
    async def test_only_a_post_says_something(self, rig: ChannelRig) -> None:
        """What prefetches links and previews them decides nothing."""
        self._answers(rig)
        await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        await rig.receive(*(dataclasses.replace(true, method=method) for method in ("GET", "HEAD", "OPTIONS")))
        assert rig.decisions.answers == []

    @play_scenario
    async def test_a_stranger_decides_nothing_and_learns_nothing(self, rig: ChannelRig) -> None:
        """Whoever holds the card, it is the sender that counts."""
        self._answers(rig)
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.stranger, "approved"))
        assert rig.decisions.answers == []
        message = rig.text_read_by(rig.stranger)
        assert not any(part in message for part in (request.card.effect, show_code(request.code), "Payee"))

    @play_scenario
    async def test_who_is_not_asked_is_told_that_they_may_not(self, rig: ChannelRig) -> None:
        """A known person without a seat, with somebody else's card."""
        self._answers(rig)
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.cy, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("receipt.not_allowed", "en") in rig.text_read_by(rig.cy)

    @play_scenario
    async def test_who_comes_second_is_told_who_was_first(self, rig: ChannelRig) -> None:
        """By whom and where it was decided; nothing changes."""
        self._answers(rig)
        request = await rig.ask()
        late = rig.vendor.press(rig.card(rig.bo), rig.bo, "denied")
        await rig.decide_elsewhere(request)
        await rig.receive(late)
        assert rig.request(request.id).decided_by == "ana"
        message = rig.text_read_by(rig.bo)
        assert "Already decided. Approved by Ana" in message

    @play_scenario
    async def test_who_comes_too_late_is_told_that_time_is_over(self, rig: ChannelRig) -> None:
        """The deadline has passed, whether or not anybody has noticed yet."""
        self._answers(rig)
        request = await rig.ask(timeout=3_600.0)
        card = rig.card(rig.bo)
        # Said in time: the deadline is about the arrival.
        rig.vendor.said_at = rig.time.now()
        rig.time.ahead = timedelta(hours=2)
        await rig.receive(rig.vendor.press(card, rig.bo, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("receipt.expired", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_an_older_card_decides_nothing_of_a_newer_one(self, rig: ChannelRig) -> None:
        """A yes to what was asked before is none to what is asked now."""
        self._answers(rig)
        request = await rig.ask()
        older = self._said_before(rig, lambda: rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        await rig.revise(request)
        await rig.backdate(request)
        # Vendors tell whole seconds: an answer in the second of its card could be about the card before.
        await rig.backdate(rig.request(request.id), minutes=1)
        newer = rig.card(rig.bo, "Somebody else")
        await rig.receive(older)
        assert rig.request(request.id).votes == ()
        assert text("receipt.stale", "en") in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(newer, rig.bo, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_what_has_to_be_typed_is_not_decided_here(self, rig: ChannelRig) -> None:
        """The card says so, and an answer all the same is told where to go."""
        request = await rig.ask(confirm="type")
        card = rig.card(rig.bo)
        assert text("card.how.link", "en", link="").strip() in card.text
        self._answers(rig)
        await rig.receive(rig.vendor.press(card, rig.bo, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("reply.link_only", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_what_needs_more_than_this_channel_is_not_decided_here(self, rig: ChannelRig) -> None:
        """It says that it takes a sign-in, with the link."""
        self._answers(rig)
        request = await rig.ask(min_assurance="mfa")
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("reply.link_only", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_a_bare_yes_with_two_open_asks_which(self, rig: ChannelRig) -> None:
        """And with the code that is told it decides that one alone."""
        self._writes(rig)
        first, second = await rig.ask(1), await rig.ask(2)
        await rig.receive(rig.vendor.write(rig.bo, "yes"))
        assert rig.decisions.answers == []
        message = rig.text_read_by(rig.bo)
        assert text("reply.which", "en") in message
        assert all(show_code(each.code) in message for each in (first, second))
        await rig.receive(rig.vendor.write(rig.bo, f"approve {show_code(second.code).lower()}"))
        assert rig.request(second.id).state == "approved"
        assert rig.request(first.id).state == "pending"
        await rig.receive(rig.vendor.write(rig.bo, f"deny {show_code(first.code)} too expensive"))
        assert (rig.request(first.id).state, rig.request(first.id).reason) == ("denied", "too expensive")

    @play_scenario
    async def test_words_that_are_no_decision_decide_nothing(self, rig: ChannelRig) -> None:
        """Conditions, questions, both at once: whoever writes them is asked again."""
        self._answers(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        for words in ("yes, but only half", "yes if Ana agrees", "yes?", "yes no", "y", "ok let me think", "👍👎"):
            raw = rig.vendor.reply(card, rig.bo, words)
            if raw is None:
                pytest.skip("a card of this channel has no text below it")
            await rig.receive(raw)
            assert rig.decisions.answers == [], words
        assert rig.request(request.id).state == "pending"
        assert text("reply.not_understood", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_what_is_new_to_us_is_taken_and_changes_nothing(self, rig: ChannelRig) -> None:
        """Events and states that the vendor thinks of later."""
        self._answers(rig)
        request = await rig.ask()
        refusals = await rig.receive(*rig.vendor.unknown())
        assert Forged not in refusals
        assert rig.decisions.answers == []
        assert (await rig.delivery(request, "bo")).state == "sent"

    @play_scenario
    async def test_an_answer_is_kept_while_no_worker_runs(self, rig: ChannelRig) -> None:
        """It counts once, when one is back."""
        self._answers(rig)
        request = await rig.ask()
        rig.decisions.server = False
        raw = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        assert await rig.receive(raw, raw) == [None, None]
        assert rig.request(request.id).state == "pending"
        rig.decisions.server = True
        for _ in range(100):
            await rig.process_inbound()
            if rig.decisions.answers:
                break
            await asyncio.sleep(0.1)
        assert rig.request(request.id).state == "approved"
        assert len(rig.decisions.answers) == 1

    @play_scenario
    async def test_a_decision_stands_though_its_answer_does_not_get_out(self, rig: ChannelRig) -> None:
        """The vendor goes down between the two."""
        self._answers(rig)
        request = await rig.ask()
        await rig.receiver.take(rig.channel.name, rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        rig.vendor.trouble = "down"
        await rig.process_inbound()
        assert rig.request(request.id).state == "approved"
        assert await rig.inbound_rows() == []

    @play_scenario
    async def test_struck_words_are_asked_back(self, rig: ChannelRig) -> None:
        """Read without its marks, such text would be part of the answer."""
        self._answers(rig)
        request = await rig.ask()
        raw = rig.vendor.reply_struck(rig.card(rig.bo), rig.bo, "approve", "please")
        if raw is None:
            pytest.skip("this channel has no struck text")
        await rig.receive(raw)
        assert rig.request(request.id).votes == ()
        assert text("reply.not_understood", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_yes_with_a_no_behind_it_is_denied(self, rig: ChannelRig) -> None:
        """Both messages arrive before either is read."""
        self._writes(rig)
        request = await rig.ask()
        code = show_code(request.code)
        await rig.receive(*(rig.vendor.write(rig.bo, f"{word} {code}") for word in ("approve", "deny")))
        assert rig.request(request.id).state == "denied"
        assert all(vote.verdict == "denied" for vote in rig.request(request.id).votes)

    @play_scenario
    async def test_answer_to_our_question_is_about_its_request(self, rig: ChannelRig) -> None:
        """Where several were asked about, a code names one of them."""
        self._writes(rig)
        first = await rig.ask(1)
        await rig.receive(rig.vendor.write(rig.bo, "which supplier is this"))
        assert text("reply.not_understood", "en") in rig.text_read_by(rig.bo)
        await self._reply_to_latest(rig, "approve")
        assert rig.request(first.id).state == "approved"
        second, third = await rig.ask(2), await rig.ask(3)
        await rig.receive(rig.vendor.write(rig.bo, "approve"))
        assert text("reply.which", "en") in rig.text_read_by(rig.bo)
        await self._reply_to_latest(rig, "yes")
        assert rig.request(second.id).votes == rig.request(third.id).votes == ()
        await self._reply_to_latest(rig, f"approve {show_code(third.code)}")
        assert rig.request(second.id).votes == ()
        assert rig.request(third.id).state == "approved"

    @play_scenario
    async def test_words_about_an_earlier_request_approve_no_later_one(self, rig: ChannelRig) -> None:
        """A vendor may bring words hours late. By then another request waits."""
        self._writes(rig)
        first = await rig.ask(1)
        late = self._said_before(rig, lambda: rig.vendor.write(rig.bo, "yes"))
        await rig.decide_elsewhere(first, "denied")
        await rig.backdate(first)
        second = await rig.ask(2)
        await rig.receive(late)
        assert rig.request(second.id).state == "pending"
        assert rig.request(second.id).votes == ()

    @play_scenario
    async def test_words_written_before_the_card_are_asked_back(self, rig: ChannelRig) -> None:
        """No words can be about a request that their author had not been sent."""
        self._writes(rig)
        early = self._said_before(rig, lambda: rig.vendor.write(rig.bo, "yes"))
        request = await rig.ask()
        await rig.receive(early)
        assert rig.request(request.id).votes == ()
        message = rig.text_read_by(rig.bo)
        assert any(text(f"reply.{doubt}", "en") in message for doubt in ("before", "which"))

    @play_scenario
    async def test_a_late_code_approves_the_revision_that_it_was_written_about(self, rig: ChannelRig) -> None:
        """The request was asked again, with other arguments, before the words arrived."""
        self._writes(rig)
        request = await rig.ask()
        late = self._said_before(rig, lambda: rig.vendor.write(rig.bo, f"approve {show_code(request.code)}"))
        await rig.revise(request)
        await rig.backdate(request)
        await rig.receive(late)
        assert rig.request(request.id).votes == ()
        assert text("receipt.stale", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_a_late_denial_with_a_code_counts(self, rig: ChannelRig) -> None:
        """A denial runs nothing, so it is taken whenever it was written."""
        self._writes(rig)
        request = await rig.ask()
        late = self._said_before(rig, lambda: rig.vendor.write(rig.bo, f"deny {show_code(request.code)}"))
        await rig.revise(request)
        await rig.backdate(request)
        await rig.receive(late)
        assert rig.request(request.id).state == "denied"

    @play_scenario
    async def test_words_of_an_implausible_time_are_asked_back(self, rig: ChannelRig) -> None:
        """A time from the future or of another year proves nothing; a card that is answered needs none."""
        self._writes(rig)
        request = await rig.ask()
        for away in (timedelta(days=1), timedelta(days=-400)):
            rig.vendor.said_at = rig.time.now() + away
            await rig.receive(rig.vendor.write(rig.bo, f"approve {show_code(request.code)}"))
            assert rig.request(request.id).votes == ()
        assert text("reply.untimed", "en") in rig.text_read_by(rig.bo)

    async def _reply_to_latest(self, rig: ChannelRig, words: str) -> None:
        raw = rig.vendor.reply_to_latest(rig.bo, words)
        if raw is None:
            pytest.skip("a message of this channel has no text below it")
        await rig.receive(raw)

    def _said_before(self, rig: ChannelRig, make: Callable[[], InboundRequest]) -> InboundRequest:
        """Return what `make` makes, said half an hour ago."""
        rig.vendor.said_at = rig.time.now() - timedelta(minutes=30)
        try:
            return make()
        finally:
            rig.vendor.said_at = None

    def _answers(self, rig: ChannelRig) -> None:
        if not rig.channel.answers:
            pytest.skip("nobody answers by this channel")

    def _writes(self, rig: ChannelRig) -> None:
        if not (rig.channel.answers and rig.vendor.writes):
            pytest.skip("nobody can write there beside a card")
