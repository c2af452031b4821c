"""The guide's example passes the suite, and the suite fails channels with one defect each."""

import dataclasses
import importlib
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, page

from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import (
    ChannelReply,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    OutboundNotice,
    SentCard,
)
from signoff.formats.replace import replace
from signoff.registry.import_reference import extend_path

FOLDER = ROOT / "examples" / "pigeon"
extend_path([FOLDER])
pigeon: Any = importlib.import_module("post.pigeon")
loft: Any = importlib.import_module("test_pigeon")


class TestPigeon(loft.TestPigeon):  # type: ignore[misc]
    pass


class Unverified(pigeon.Pigeon):  # type: ignore[misc]
    def verify(self, raw: InboundRequest) -> None:
        """Check nothing."""


class Careless(pigeon.Pigeon):  # type: ignore[misc]
    def verify(self, raw: InboundRequest) -> None:
        raw.headers.get("x-pigeon-signature", "").encode("ascii")
        super().verify(raw)


class Unread(pigeon.Pigeon):  # type: ignore[misc]
    def parse(self, raw: InboundRequest) -> InboundBatch:
        json.loads(raw.body)["id"]
        return super().parse(raw)


class Changing(pigeon.Pigeon):  # type: ignore[misc]
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        sent: SentCard = await super().deliver(replace(card, token=uuid.uuid4().hex[:26]), before)
        return sent


class Unmarked(pigeon.Pigeon):  # type: ignore[misc]
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        args = " ".join(map(str, card.request.args.inline.values()))
        text = f"{card.request.card.effect} {args} {card.link}"
        message = {"to": card.address, "text": text[:4_000], "token": card.token, "buttons": {}}
        return SentCard(vendor_id=await self._ask("POST", "/messages", message))


class Silent(pigeon.Pigeon):  # type: ignore[misc]
    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """Do nothing."""

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> None:
        """Do nothing."""


class Hopeful(pigeon.Pigeon):  # type: ignore[misc]
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        try:
            sent: SentCard = await super().deliver(card, before)
        except NotDelivered:
            return SentCard(vendor_id="m99")
        return sent


class Pushing(pigeon.Pigeon):  # type: ignore[misc]
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        try:
            sent: SentCard = await super().deliver(card, before)
        except NotDelivered as error:
            raise NotDelivered(error.message, code=error.code, again=error.again) from None
        return sent


class English(pigeon.Pigeon):  # type: ignore[misc]
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        person = replace(card.person, locale="en")
        sent: SentCard = await super().deliver(replace(card, person=person), before)
        return sent


class Overdrawn(pigeon.Pigeon):  # type: ignore[misc]
    draws_whole = Channel.draws_whole


class Nameless(pigeon.Pigeon):  # type: ignore[misc]
    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> None:
        await super().answer(where, reply)


class Inviting(pigeon.Pigeon):  # type: ignore[misc]
    async def notify(self, notice: OutboundNotice) -> SentCard:
        message = {"to": notice.address, "text": notice.text, "token": notice.token, "buttons": {}}
        sent: SentCard = await self._ask("POST", "/messages", message)
        return sent


class Unnamed(pigeon.Pigeon):  # type: ignore[misc]
    async def notify(self, notice: OutboundNotice) -> None:
        await super().notify(notice)


def changing(what: str, change: Callable[[Any, InboundRequest], Any]) -> type[Any]:
    class Changed(pigeon.Pigeon):  # type: ignore[misc]
        def parse(self, raw: InboundRequest) -> InboundBatch:
            received = super().parse(raw)
            changed = tuple(change(each, raw) for each in getattr(received, what))
            return dataclasses.replace(received, **{what: changed})

    return Changed


Forgetful = changing("actions", lambda each, raw: replace(each, key=uuid.uuid4().hex))
"""Gives a repeated message a new key each time."""
Trusting = changing("actions", lambda each, raw: replace(each, identity="@bo"))
"""Trusts that the sender is the card's addressee."""
Eager = changing(
    "actions", lambda each, raw: replace(each, verdict="approved") if each.text.startswith("yes") else each
)
"""Treats any text with an initial yes as an approval."""
Undated = changing("actions", lambda each, raw: replace(each, said_at=None))
"""Leaves out the time of writing."""
Arriving = changing("actions", lambda each, raw: replace(each, said_at=raw.at))
"""Uses the arrival time as the time of writing."""
Smoothing = changing("actions", lambda each, raw: replace(each, text=each.text.replace("~", "")))
"""Drops the marks around struck text."""
Merging = changing("actions", lambda each, raw: replace(each, key=each.identity))
"""Identifies a message by its author alone."""
Adrift = changing("actions", lambda each, raw: replace(each, vendor_ids=(), token=""))
"""Drops the reference to the replied message."""
Regressing = changing("statuses", lambda each, raw: replace(each, state="delivered"))
"""Reports every state as delivered."""
Wordless = changing("actions", lambda each, raw: replace(each, text="") if each.verdict else each)
"""Drops the reason of a button."""


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Unverified, "test_forged_message_decides_nothing"),
        (Careless, "test_odd_headers_are_refused_as_forged"),
        (Unread, "test_nonsense_is_refused_without_other_errors"),
        (Forgetful, "test_repeated_message_counts_once"),
        (Trusting, "test_stranger_decides_and_learns_nothing"),
        (Trusting, "test_person_without_permission_is_refused"),
        (Eager, "test_unclear_words_decide_nothing"),
        (Changing, "test_every_copy_of_a_card_has_the_same_token"),
        (Changing, "test_approval_counts_for_its_author_and_is_answered"),
        (Unmarked, "test_each_person_gets_one_complete_card"),
        (Unmarked, "test_text_of_a_model_is_escaped"),
        (Unmarked, "test_too_large_card_is_marked_and_links"),
        (Silent, "test_all_cards_show_the_decider_and_the_place"),
        (Silent, "test_second_answer_names_the_first_decider"),
        (Silent, "test_late_answer_is_refused_as_expired"),
        (Hopeful, "test_card_reaches_a_vendor_after_its_outage"),
        (Hopeful, "test_busy_vendor_is_left_alone_for_its_stated_time"),
        (Pushing, "test_busy_vendor_is_left_alone_for_its_stated_time"),
        (English, "test_people_get_cards_in_their_language"),
        (Overdrawn, "test_card_with_truncated_values_accepts_no_approval"),
        (Undated, "test_bare_yes_with_two_open_requests_asks_for_a_code"),
        (Arriving, "test_words_about_an_earlier_request_approve_no_later_one"),
        (Arriving, "test_words_written_before_the_card_are_asked_back"),
        (Arriving, "test_late_code_approves_only_the_revision_of_its_writing"),
        (Arriving, "test_words_of_an_implausible_time_are_asked_back"),
        (Smoothing, "test_struck_words_are_asked_back"),
        (Merging, "test_approval_followed_by_a_denial_is_denied"),
        (Nameless, "test_answer_to_our_question_is_about_its_request"),
        (Inviting, "test_notice_is_text_and_no_card"),
        (Unnamed, "test_reply_to_a_notice_decides_nothing"),
        (Adrift, "test_two_consecutive_answers_decide_their_own_cards"),
        (Regressing, "test_delivery_state_of_a_card_only_advances"),
        (Wordless, "test_denial_keeps_its_reason"),
    ],
)
def test_suite_fails_a_channel_with_any_one_defect(
    broken: type[Any], test: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pigeon, "CHANNEL", broken)
    play = getattr(loft.ChannelSuite, test)
    with pytest.raises((AssertionError, UnicodeError, LookupError, TypeError, ValueError)):
        play(TestPigeon(), tmp_path)


def test_guide_shows_the_exact_example() -> None:
    text = (FOLDER / "post" / "pigeon.py").read_text(encoding="utf-8")
    assert f"```python\n# examples/pigeon/post/pigeon.py\n{text}```" in page("docs/writing-a-channel.md")
    assert len(text.splitlines()) < 130
