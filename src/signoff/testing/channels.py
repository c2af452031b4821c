"""The conformance suite of channels: requirements for every channel, by any author. It needs only pytest.

Write a `Vendor`, a fake of the vendor behind the channel, and a class that inherits `ChannelSuite`:

    class TestPigeon(ChannelSuite):
        def vendor(self) -> AbstractAsyncContextManager[Vendor]:
            return pigeon_loft()

Each test drives the real dispatcher, receiver and processor over a real store, with the real rules of approvals. Only
the vendor is a fake. Make it as strict as the real one: check signatures, sizes and shapes, and refuse the rest.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Final
from unittest import mock

try:
    import pytest
except ModuleNotFoundError as error:
    raise ImportError("`ChannelSuite` needs pytest: run `pip install pytest`") from error

from signoff.channels.base import Channel
from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import InboundRequest
from signoff.channels.inbound import processor
from signoff.contracts.ids import show_code
from signoff.languages.catalogue import text
from signoff.testing.channel_cards import CardSuite, play_scenario
from signoff.testing.rig import ChannelRig

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


def _receive(channel: Channel, raw: InboundRequest) -> None:
    """Only the errors that a channel may raise count as refusals."""
    with contextlib.suppress(Forged, Malformed):
        channel.receive(raw)


class ChannelSuite(CardSuite):
    """Tests of a channel. Inherit, and write `vendor(self)` to open your `Vendor`.

    Tests of missing features are skipped.
    """

    @play_scenario
    async def test_approval_counts_for_its_author_and_is_answered(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        assert await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")) == [None]
        decided = rig.request(request.id)
        assert (decided.state, decided.decided_by) == ("approved", "bo")
        assert decided.decided_channel == rig.channel.kind
        assert decided.votes[0].assurance == rig.channel.assurance
        assert "Approved" in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_denial_keeps_its_reason(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied", "too expensive"))
        decided = rig.request(request.id)
        assert (decided.state, decided.reason) == ("denied", "too expensive")

    @play_scenario
    async def test_denial_without_a_required_reason_is_asked_back(self, rig: ChannelRig) -> None:
        """A button or word alone decides nothing: the reply asks for the reason."""
        self._answers(rig)
        request = await rig.ask(require_reason=True)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied"))
        assert rig.request(request.id).state == "pending"
        assert text("reply.reason", "en", deny="", code="").partition("“")[0] in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "denied", "too expensive"))
        assert (rig.request(request.id).state, rig.request(request.id).reason) == ("denied", "too expensive")

    @play_scenario
    async def test_incomplete_card_accepts_a_denial_but_no_approval(self, rig: ChannelRig) -> None:
        """Neither a button nor text approves values that the card does not show: the reply links to them."""
        self._answers(rig)
        request = await rig.ask(args={"items": [{"pieces": number} for number in range(40)]})
        card = rig.card(rig.bo)
        hint = text("card.how.unseen", "en", deny=text("word.deny", "en"), code=show_code(request.code), approve="")
        assert rig.channel.assurance == "link" or not rig.vendor.writes or hint in card.text
        answers = [rig.vendor.write(rig.bo, f"approve {show_code(request.code)}")] if rig.vendor.writes else []
        # A strict vendor refuses a press of a button that the card does not have.
        with contextlib.suppress(KeyError):
            answers.append(rig.vendor.press(card, rig.bo, "approved"))
        for raw in answers:
            await rig.receive(raw)
            assert rig.request(request.id).state == "pending"
            assert text("reply.unseen", "en") in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(card, rig.bo, "denied", "too many"))
        assert rig.request(request.id).state == "denied"

    @play_scenario
    async def test_card_with_truncated_values_accepts_no_approval(self, rig: ChannelRig) -> None:
        """A card with values cut for lack of room is approved elsewhere: `draws_whole` must report it."""
        self._answers(rig)
        for number, rows in enumerate((12, 40), 1):
            args = {f"argument_{row}": f"{row}:" + "x" * 480 for row in range(rows)}
            request = await rig.ask(number, args=args)
            card = rig.card(rig.bo, show_code(request.code))
            if all(value in card.text for value in args.values()):
                continue
            answers = [rig.vendor.write(rig.bo, f"approve {show_code(request.code)}")] if rig.vendor.writes else []
            # A strict vendor refuses a press of a button that the card does not have.
            with contextlib.suppress(KeyError):
                answers.append(rig.vendor.press(card, rig.bo, "approved"))
            await rig.receive(*answers)
            assert rig.request(request.id).votes == ()
            assert text("reply.unseen", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_two_consecutive_answers_decide_their_own_cards(self, rig: ChannelRig) -> None:
        """Two requests wait, and both answers arrive before either is read."""
        self._answers(rig)
        first, second = await rig.ask(1), await rig.ask(2)
        denied = rig.vendor.press(rig.card(rig.bo, show_code(first.code)), rig.bo, "denied", "no")
        approved = rig.vendor.press(rig.card(rig.bo, show_code(second.code)), rig.bo, "approved")
        await rig.receive(denied, approved)
        assert (rig.request(first.id).state, rig.request(second.id).state) == ("denied", "approved")

    @play_scenario
    async def test_first_of_two_approvals_is_counted_and_answered(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask(quorum=2)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).state == "pending"
        assert text("receipt.counted", "en", n=1, of=2) in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(rig.card(rig.ana), rig.ana, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_forged_message_decides_nothing(self, rig: ChannelRig) -> None:
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
    async def test_odd_headers_are_refused_as_forged(self, rig: ChannelRig) -> None:
        self._answers(rig)
        await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        odd = ("", "é", "\udcff", "9" * 5_000, "-1", "nan", "0x", "v0=", "v1,", "sha256=", "=", ",", "\x00", "🎉" * 100)
        for name in true.headers:
            for value in odd:
                _receive(rig.channel, dataclasses.replace(true, headers={**true.headers, name: value}))

    @play_scenario
    async def test_nonsense_is_refused_without_other_errors(self, rig: ChannelRig) -> None:
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
    async def test_answer_with_another_content_type_decides_nothing_or_the_same(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        for kind in ("", "text/html", "multipart/form-data", "application/xml; charset=utf-16"):
            await rig.receive(dataclasses.replace(true, headers={**true.headers, "content-type": kind}))
        assert rig.request(request.id).state in ("pending", "approved")

    @play_scenario
    async def test_largest_message_is_read_in_time(self, rig: ChannelRig) -> None:
        """The largest accepted message, of text that makes careless parsers slow."""
        self._answers(rig)
        await rig.ask()
        for filling in (b"On ", b"> ", b"[", b" \t", b"<b>", b"{"):
            body = (filling * (rig.channel.max_bytes // len(filling) + 1))[: rig.channel.max_bytes]
            await rig.receive(rig.vendor.sign(body))
        assert rig.decisions.answers == []

    @play_scenario
    async def test_repeated_message_counts_once(self, rig: ChannelRig) -> None:
        """Vendors redeliver everything, at once and much later. The approver gets one reply."""
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
    async def test_only_a_post_request_decides(self, rig: ChannelRig) -> None:
        """Prefetchers and previews of links decide nothing."""
        self._answers(rig)
        await rig.ask()
        true = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        await rig.receive(*(dataclasses.replace(true, method=method) for method in ("GET", "HEAD", "OPTIONS")))
        assert rig.decisions.answers == []

    @play_scenario
    async def test_stranger_decides_and_learns_nothing(self, rig: ChannelRig) -> None:
        """The sender counts, not the holder of the card."""
        self._answers(rig)
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.stranger, "approved"))
        assert rig.decisions.answers == []
        message = rig.text_read_by(rig.stranger)
        assert not any(part in message for part in (request.card.effect, show_code(request.code), "Payee"))

    @play_scenario
    async def test_person_without_permission_is_refused(self, rig: ChannelRig) -> None:
        """A known person without rights, with another person's card."""
        self._answers(rig)
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.cy, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("receipt.not_allowed", "en") in rig.text_read_by(rig.cy)

    @play_scenario
    async def test_author_gets_exactly_one_reply(self, rig: ChannelRig) -> None:
        """In the vendor's response or as a message, never both."""
        self._answers(rig)
        await rig.ask(quorum=2)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        replies = [each for each in rig.vendor.reads(rig.bo) if text("receipt.counted", "en", n=1, of=2) in each]
        assert len(replies) == 1

    @play_scenario
    async def test_second_answer_names_the_first_decider(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        late = rig.vendor.press(rig.card(rig.bo), rig.bo, "denied")
        await rig.decide_elsewhere(request)
        await rig.receive(late)
        assert rig.request(request.id).decided_by == "ana"
        message = rig.text_read_by(rig.bo)
        assert "Already decided. Approved by Ana" in message

    @play_scenario
    async def test_late_answer_is_refused_as_expired(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask(timeout=3_600.0)
        card = rig.card(rig.bo)
        # Sent in time: the deadline is about the arrival.
        rig.vendor.said_at = rig.time.now()
        rig.time.ahead = timedelta(hours=2)
        await rig.receive(rig.vendor.press(card, rig.bo, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("receipt.expired", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_older_card_does_not_decide_a_newer_revision(self, rig: ChannelRig) -> None:
        """An approval of the previous revision does not approve the present one."""
        self._answers(rig)
        request = await rig.ask()
        older = self._said_before(rig, lambda: rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        await rig.revise(request)
        await rig.backdate(request)
        # Vendors have whole seconds: an answer in the second of its card could be about the previous card.
        await rig.backdate(rig.request(request.id), minutes=1)
        newer = rig.card(rig.bo, "Somebody else")
        await rig.receive(older)
        assert rig.request(request.id).votes == ()
        assert text("receipt.stale", "en") in rig.text_read_by(rig.bo)
        await rig.receive(rig.vendor.press(newer, rig.bo, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_answer_of_the_asked_agent_comes_on_a_new_card(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        question = rig.vendor.reply(card, rig.bo, f"ask {show_code(request.code)} Why this amount?")
        if question is None:
            pytest.skip("a card of this channel has no text below it")
        await rig.receive(question)
        assert [each.text for each in rig.request(request.id).messages] == ["Why this amount?"]
        assert text("receipt.accepted.pending", "en") in rig.text_read_by(rig.bo)
        await rig.backdate(request)
        older = self._said_before(rig, lambda: rig.vendor.press(card, rig.bo, "approved"))
        await rig.answer_question(request, "It is due.")
        await rig.backdate(request, minutes=1)
        newer = rig.card(rig.bo, "It is due.")
        await rig.receive(older)
        assert rig.request(request.id).votes == ()
        # Words of before the question are taken back by it.
        whys = text("why.thread", "en"), text("reply.taken_back", "en", code=show_code(request.code))
        assert any(why in rig.text_read_by(rig.bo) for why in whys)
        await rig.receive(rig.vendor.press(newer, rig.bo, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_request_with_typed_confirmation_is_not_decided_here(self, rig: ChannelRig) -> None:
        """The card asks for a sign-in, and so does the reply to an answer."""
        self._shows(rig)
        request = await rig.ask(confirm="type")
        card = rig.card(rig.bo)
        assert text("card.how.link", "en", link="").strip() in card.text
        self._answers(rig)
        await rig.receive(rig.vendor.press(card, rig.bo, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("reply.link_only", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_request_with_higher_assurance_is_not_decided_here(self, rig: ChannelRig) -> None:
        """The reply asks for a sign-in, with the link."""
        self._answers(rig)
        request = await rig.ask(min_assurance="mfa")
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).votes == ()
        assert text("reply.link_only", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_bare_yes_with_two_open_requests_asks_for_a_code(self, rig: ChannelRig) -> None:
        """An answer with a code from the reply then decides that request alone."""
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
    async def test_unclear_words_decide_nothing(self, rig: ChannelRig) -> None:
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
    async def test_unknown_events_are_accepted_without_effect(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        refusals = await rig.receive(*rig.vendor.unknown())
        assert Forged not in refusals
        assert rig.decisions.answers == []
        assert (await rig.delivery(request, "bo")).state == "sent"

    @play_scenario
    async def test_answer_is_kept_without_a_worker(self, rig: ChannelRig) -> None:
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
    async def test_decision_counts_although_its_reply_fails(self, rig: ChannelRig) -> None:
        self._answers(rig)
        request = await rig.ask()
        await rig.receiver.take(rig.channel.name, rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        rig.vendor.trouble = "down"
        with mock.patch.object(processor, "REPLY_PAUSES", (0.0, 0.0)):
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
    async def test_approval_followed_by_a_denial_is_denied(self, rig: ChannelRig) -> None:
        """Both messages arrive before either is read."""
        self._writes(rig)
        request = await rig.ask()
        code = show_code(request.code)
        await rig.receive(*(rig.vendor.write(rig.bo, f"{word} {code}") for word in ("approve", "deny")))
        assert rig.request(request.id).state == "denied"
        assert all(vote.verdict == "denied" for vote in rig.request(request.id).votes)

    @play_scenario
    async def test_answer_to_our_question_is_about_its_request(self, rig: ChannelRig) -> None:
        """If the question listed several requests, a code names one of them."""
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
        """A vendor may deliver text hours late. By then another request waits."""
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
        """Text cannot be about a request that its author had not received."""
        self._writes(rig)
        early = self._said_before(rig, lambda: rig.vendor.write(rig.bo, "yes"))
        request = await rig.ask()
        await rig.receive(early)
        assert rig.request(request.id).votes == ()
        message = rig.text_read_by(rig.bo)
        assert any(text(f"reply.{doubt}", "en") in message for doubt in ("before", "which"))

    @play_scenario
    async def test_late_code_approves_only_the_revision_of_its_writing(self, rig: ChannelRig) -> None:
        """The request got a new revision, with other arguments, before the text arrived."""
        self._writes(rig)
        request = await rig.ask()
        late = self._said_before(rig, lambda: rig.vendor.write(rig.bo, f"approve {show_code(request.code)}"))
        await rig.revise(request)
        await rig.backdate(request)
        await rig.receive(late)
        assert rig.request(request.id).votes == ()
        assert text("receipt.stale", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_late_denial_with_a_code_counts(self, rig: ChannelRig) -> None:
        """A denial runs nothing, so its time does not matter."""
        self._writes(rig)
        request = await rig.ask()
        late = self._said_before(rig, lambda: rig.vendor.write(rig.bo, f"deny {show_code(request.code)}"))
        await rig.revise(request)
        await rig.backdate(request)
        await rig.receive(late)
        assert rig.request(request.id).state == "denied"

    @play_scenario
    async def test_words_of_an_implausible_time_are_asked_back(self, rig: ChannelRig) -> None:
        """A time from the future or from another year proves nothing. An answer to a card needs none."""
        self._writes(rig)
        request = await rig.ask()
        for away in (timedelta(days=1), timedelta(days=-400)):
            rig.vendor.said_at = rig.time.now() + away
            await rig.receive(rig.vendor.write(rig.bo, f"approve {show_code(request.code)}"))
            assert rig.request(request.id).votes == ()
        assert text("reply.untimed", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_notice_is_text_and_no_card(self, rig: ChannelRig) -> None:
        """A notice has no buttons, and no token that an answer could name."""
        self._notifies(rig)
        request = await rig.ask()
        cards = len(rig.vendor.cards())
        await rig.notify(request, "ran")
        message = rig.vendor.reads(rig.bo)[-1]
        for part in (text("notice.ran", "en"), request.card.effect, show_code(request.code)):
            assert part in message
        assert text("button.approve", "en") not in message
        assert len(rig.vendor.cards()) == cards
        assert [each.data["event"] for each in rig.recorded if "notice" in each.data] == ["notice sent"]

    @play_scenario
    async def test_reply_to_a_notice_decides_nothing(self, rig: ChannelRig) -> None:
        """The notice shows no values, so even a code below it is asked back."""
        self._notifies(rig)
        self._writes(rig)
        request = await rig.ask()
        await rig.notify(request, "waiting")
        for words in ("approve", f"approve {show_code(request.code)}"):
            await self._reply_to_latest(rig, words)
            assert rig.request(request.id).votes == ()
            await rig.notify(rig.request(request.id), "decided" if words == "approve" else "ran")

    def _notifies(self, rig: ChannelRig) -> None:
        if type(rig.channel).notify is Channel.notify:
            pytest.skip("this channel sends no notices")

    async def _reply_to_latest(self, rig: ChannelRig, words: str) -> None:
        raw = rig.vendor.reply_to_latest(rig.bo, words)
        if raw is None:
            pytest.skip("a message of this channel has no text below it")
        await rig.receive(raw)

    def _said_before(self, rig: ChannelRig, make: Callable[[], InboundRequest]) -> InboundRequest:
        rig.vendor.said_at = rig.time.now() - timedelta(minutes=30)
        try:
            return make()
        finally:
            rig.vendor.said_at = None
