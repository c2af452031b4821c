"""Which request an answer is about, by the rows of a real store."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signoff.channels.envelopes import PARTIAL, InboundAction
from signoff.channels.inbound.target import (
    UNKNOWN,
    AskedRevision,
    Target,
    find_target,
    note_of,
    open_requests,
    read_note,
)
from signoff.contracts.approval import ApprovalRequest, Card, CardRow
from signoff.contracts.person import Person
from signoff.store.delivery_queue import DeliveryKind, DeliveryQueue, NewDelivery
from signoff.store.store import Store
from signoff.testing import a_request
from signoff.testing.recording_channel import recording_channel

BO = Person(id="bo", identities={"recording": ("bo-1", "bo-2"), "email": ("bo@x",)})
CY = Person(id="cy", identities={"recording": ("cy-1",)})
FAR = Person(id="bo", tenant="other", identities={"recording": ("bo-1",)})
CODE = "K7Q2FM"
CUT = Card(effect="Pay", rows=(CardRow(name="why", label="Why", value="beca", cut=True),))


def request(number: int = 1, **fields: Any) -> ApprovalRequest:
    """A request of which nothing matters but which it is."""
    return a_request(**{"call": f"c{number}.1", "code": f"A1B2C{number}", "question_hash": f"d{number}"} | fields)


def revised(first: ApprovalRequest, **fields: Any) -> ApprovalRequest:
    """The same request, asked again with other words."""
    return first.model_copy(update={"revision": 2, "question_hash": "again"} | fields)


class Desk:
    """Cards in a store, the requests that are found by code alone, and one channel."""

    def __init__(self, store: Store) -> None:
        self.deliveries = DeliveryQueue(store)
        self.coded: list[ApprovalRequest] = []
        self.asked_for: list[tuple[str, str]] = []
        self.channel = recording_channel("chat")

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        """See `CodeLookup`."""
        self.asked_for.append((person.id, code))
        return [each for each in self.coded if each.code == code]

    async def plan(self, shown: ApprovalRequest, person: Person = BO, at: int = 0, channel: str = "chat") -> str:
        """A card that waits to be sent; its token."""
        address = person.identities["recording"][at]
        await self.deliveries.plan([NewDelivery(request=shown, person=person.id, channel=channel, address=address)])
        rows = await self.deliveries.of_request(shown.id, shown.revision)
        return next(row.token for row in rows if (row.person, row.channel) == (person.id, channel))

    async def tell(
        self,
        shown: ApprovalRequest,
        person: Person = BO,
        at: int = 0,
        channel: str = "chat",
        vendor: str = "",
        kind: DeliveryKind = "ask",
        handle: dict[str, Any] | None = None,
    ) -> str:
        """A card that is out; its token."""
        token = await self.plan(shown, person, at, channel)
        await self.deliveries.record_sent(token, vendor or f"v-{token}", handle or {}, kind=kind)
        return token

    async def find(
        self, code: str = "", person: Person = BO, at: datetime | None = None, **heard: Any
    ) -> tuple[list[tuple[str, int]], bool]:
        """The requests and revisions that something said may be about, and whether the one is certain."""
        found = await self.target(code, person, at, **heard)
        return [(each.request.id, each.revision) for each in found.asked], found.certain

    async def target(self, code: str = "", person: Person = BO, at: datetime | None = None, **heard: Any) -> Target:
        """What something said is about."""
        when = at or datetime.now(UTC) + timedelta(seconds=1)
        action = InboundAction(**{"key": "k", "identity": "bo-1"} | heard)
        return await find_target(self.deliveries, self, self.channel, person, action, code, when)


@pytest.fixture
def desk(store: Store) -> Desk:
    """No card, and no request."""
    return Desk(store)


async def test_a_bare_word_means_the_one_card_that_is_out(desk: Desk) -> None:
    """With what it showed; at whichever address of the person it is."""
    assert await desk.target() == Target((), certain=False)
    asked = request()
    await desk.tell(asked, at=1)
    assert await desk.target() == Target((AskedRevision(asked, 1, "d1"),), certain=True)
    assert await open_requests(desk.deliveries, desk.channel, BO, datetime.now(UTC) + timedelta(seconds=1)) == [asked]


async def test_a_bare_word_between_two_cards_means_neither(desk: Desk) -> None:
    """Both are candidates."""
    for number in (1, 2):
        await desk.tell(request(number))
    assert await desk.find() == ([(request(1).id, 1), (request(2).id, 1)], False)


async def test_a_list_or_a_card_on_its_way_may_not_have_been_read(desk: Desk) -> None:
    """Though it is the only one, a bare word does not decide it."""
    token = await desk.plan(request())
    await desk.deliveries.claim_due(1, ["chat"])
    assert await desk.find() == ([(request().id, 1)], False)
    await desk.deliveries.record_sent(token, "v", {}, kind="digest")
    assert await desk.find() == ([(request().id, 1)], False)


async def test_a_bare_word_is_about_what_was_out_when_it_came(desk: Desk) -> None:
    """What was sent since is not meant by it, with its code or without."""
    asked = request()
    await desk.tell(asked)
    before = datetime.now(UTC) - timedelta(minutes=1)
    assert await desk.find(at=before) == ([], False)
    desk.coded = [revised(asked)]
    assert await desk.target(asked.code, at=before) == Target((AskedRevision(desk.coded[0], 1, UNKNOWN),), certain=True)


async def test_cards_of_others_and_of_other_tenants_are_not_meant(desk: Desk) -> None:
    """Nor those on another channel, though they go to the same address."""
    await desk.tell(request(1), CY)
    await desk.tell(request(2, tenant="other"), FAR)
    await desk.tell(request(3), channel="other chat")
    assert await desk.find() == ([], False)
    assert await desk.find(vendor_ids=["of something else"]) == ([], False)


async def test_the_token_of_a_card_means_its_request(desk: Desk) -> None:
    """However many wait; whatever other message is named beside it."""
    first, second = await desk.tell(request(1)), await desk.tell(request(2))
    assert await desk.target(token=second) == Target((AskedRevision(request(2), 1, "d2"),), certain=True)
    assert await desk.find(token=second, vendor_ids=[f"v-{first}"]) == ([(request(2).id, 1)], True)


async def test_a_reply_to_a_card_means_its_request(desk: Desk) -> None:
    """Known by the vendor's name of the message; one name is enough, and two cards are not one."""
    first, second = await desk.tell(request(1)), await desk.tell(request(2))
    assert await desk.find(vendor_ids=[f"v-{first}", "of nothing"]) == ([(request(1).id, 1)], True)
    assert await desk.find(vendor_ids=[f"v-{first}", f"v-{second}"]) == (
        [(request(1).id, 1), (request(2).id, 1)],
        False,
    )


async def test_an_unknown_card_means_nothing_and_an_unknown_message_anything(desk: Desk) -> None:
    """A bare word to such a message is about whatever waits, and certain of nothing."""
    await desk.tell(request())
    assert await desk.find(token="a" * 26) == ([], False)
    assert await desk.find(vendor_ids=["of something else"]) == ([(request().id, 1)], False)


async def test_a_token_of_another_channel_or_tenant_names_nothing(desk: Desk) -> None:
    """Somebody copied it."""
    elsewhere = await desk.tell(request(1), channel="other chat", vendor="same")
    await desk.tell(request(2), vendor="same")
    assert await desk.find(token=elsewhere) == ([], False)
    assert await desk.find(token=elsewhere, vendor_ids=["same"]) == ([], False)
    assert await desk.find(vendor_ids=["same"]) == ([(request(2).id, 1)], True)
    foreign = await desk.tell(request(3, tenant="other"), FAR, vendor="far")
    assert await desk.find(token=foreign) == ([], False)
    assert await desk.find(vendor_ids=["far"]) == ([(request(2).id, 1)], False)


async def test_ones_own_card_is_meant_before_that_of_another(desk: Desk) -> None:
    """Where one message went to a group under one name; who had no card of their own answers all that it showed."""
    await desk.tell(request(), CY, vendor="group")
    assert await desk.target(vendor_ids=["group"]) == Target(
        (AskedRevision(request(), 1, "d1"),), certain=True, from_others_card=True
    )
    await desk.tell(request(2), BO, vendor="group")
    assert await desk.target(vendor_ids=["group"]) == Target((AskedRevision(request(2), 1, "d2"),), certain=True)


async def test_a_button_on_the_card_of_another_is_no_word_to_it(desk: Desk) -> None:
    """Only words may have been meant for another question; a code in them says which they mean."""
    token = await desk.tell(request(), CY)
    assert (await desk.target(token=token)).from_others_card
    assert await desk.target(token=token, verdict="denied") == Target(
        (AskedRevision(request(), 1, "d1"),), certain=True
    )
    assert await desk.target(request().code, token=token) == Target((AskedRevision(request(), 1, "d1"),), certain=True)


async def test_a_list_means_all_that_it_showed_and_waits(desk: Desk) -> None:
    """Named by any of its tokens; of those that are over, nothing more is asked."""
    tokens = [await desk.tell(request(number), vendor="list", kind="digest") for number in (1, 2, 3)]
    await desk.tell(request(4), vendor="of something else")
    await desk.deliveries.end(request(1).id, 1, request(1))
    named = [(request(2).id, 1), (request(3).id, 1)]
    assert await desk.find(token=tokens[0], vendor_ids=["of something else"]) == (named, False)
    assert await desk.find(vendor_ids=["list"]) == (named, False)
    await desk.deliveries.end(request(2).id, 1, request(2))
    assert await desk.find(token=tokens[0]) == ([(request(3).id, 1)], False)
    # A card by itself that is over is meant all the same: whoever answers it hears what became of it.
    await desk.deliveries.end(request(4).id, 1, request(4))
    assert await desk.find(vendor_ids=["of something else"]) == ([(request(4).id, 1)], True)


async def test_a_code_agrees_with_its_card_or_nobody_knows_what_is_meant(desk: Desk) -> None:
    """The card and what has the code are both candidates; to a list what is written counts."""
    first, second = await desk.tell(request(1)), await desk.tell(request(2))
    assert await desk.find(request(1).code, token=first) == ([(request(1).id, 1)], True)
    assert await desk.find(request(2).code, token=first) == ([(request(1).id, 1), (request(2).id, 1)], False)
    assert await desk.find("Z9Z9ZZ", token=second) == ([(request(2).id, 1)], False)
    assert await desk.find(request(2).code, vendor_ids=["of something else"]) == ([(request(2).id, 1)], True)
    tokens = [await desk.tell(request(number), vendor="list", kind="digest") for number in (3, 4)]
    assert await desk.find(request(4).code, token=tokens[0]) == ([(request(4).id, 1)], True)
    assert await desk.find(request(1).code, token=tokens[0]) == ([(request(1).id, 1)], True)


async def test_two_cards_with_one_code_are_not_told_apart_by_it(desk: Desk) -> None:
    """Neither where both are out nor where one message is said to be both."""
    first = await desk.tell(request(1, code=CODE))
    second = await desk.tell(request(2, code=CODE))
    both = [(request(1).id, 1), (request(2).id, 1)]
    assert await desk.find(CODE) == (both, False)
    assert await desk.find(CODE, vendor_ids=[f"v-{first}", f"v-{second}"]) == (both, False)


async def test_a_code_means_the_newest_revision_that_was_told(desk: Desk) -> None:
    """Whichever card went out last."""
    asked = request()
    await desk.tell(revised(asked))
    await desk.tell(asked)
    assert await desk.target(asked.code) == Target((AskedRevision(revised(asked), 2, "again"),), certain=True)
    assert desk.asked_for == []


async def test_a_code_of_what_is_being_sent_is_looked_up(desk: Desk) -> None:
    """Its card may not be there yet: without one, what names no revision means the first."""
    asked = request()
    await desk.plan(asked)
    await desk.deliveries.claim_due(1, ["chat"])
    assert await desk.find(asked.code) == ([], False)
    desk.coded = [asked]
    assert await desk.target(asked.code) == Target((AskedRevision(asked, 1, "d1"),), certain=True)
    assert desk.asked_for == [("bo", asked.code)] * 2
    desk.coded = [asked, request(2, code=asked.code)]
    assert (await desk.find(asked.code))[1] is False


async def test_what_has_the_code_is_meant_as_its_last_card_told_it(desk: Desk) -> None:
    """On whatever channel this person had it; what others were shown does not count."""
    asked = request()
    again = revised(asked, revision=3, question_hash="third")
    await desk.tell(asked, channel="other chat")
    await desk.tell(revised(asked), channel="other chat")
    await desk.tell(again, CY)
    desk.coded = [again]
    assert await desk.target(asked.code) == Target((AskedRevision(revised(asked), 2, "again"),), certain=True)


async def test_a_card_counts_from_the_moment_in_which_it_was_sent(desk: Desk) -> None:
    """On another channel as on this one; a moment before, nobody can have seen it."""
    asked = revised(request())
    desk.coded = [asked]
    sent = []
    for channel in ("other chat", "chat"):
        row = await desk.deliveries.by_token(await desk.tell(asked, channel=channel))
        assert row is not None
        assert row.sent_at is not None
        assert await desk.find(asked.code, at=row.sent_at) == ([(asked.id, 2)], True)
        sent.append(row.sent_at)
    assert await desk.find(asked.code, at=sent[0] - timedelta(milliseconds=1)) == ([(asked.id, 1)], True)


async def test_of_a_later_revision_without_a_card_nothing_was_seen(desk: Desk) -> None:
    """Its hash is not known, so that nothing is decided by it."""
    desk.coded = [revised(request(), card=CUT)]
    found = await desk.target(request().code)
    assert found.asked == (AskedRevision(desk.coded[0], 1, UNKNOWN, whole=False),)


async def test_a_card_that_did_not_show_everything_says_so(desk: Desk) -> None:
    """Whether there was more than a card holds, or more than the channel shows of it."""
    for number, fields, handle in (
        (1, {}, {}),
        (2, {"card": CUT}, {}),
        (3, {}, {PARTIAL: True}),
    ):
        token = await desk.tell(request(number, **fields), handle=handle)
        assert [each.whole for each in (await desk.target(token=token)).asked] == [number == 1], number


async def test_a_request_that_was_over_when_it_was_asked_again_keeps_its_number_alone(desk: Desk) -> None:
    """The hash of another revision is not what the card showed."""
    asked = request()
    token = await desk.tell(asked)
    await desk.deliveries.end(asked.id, 1, revised(asked))
    found = (await desk.target(token=token)).asked
    assert found == (AskedRevision(revised(asked), 1, UNKNOWN),)


def test_a_note_is_read_as_it_was_written() -> None:
    """As JSON, which is what a store keeps."""
    asked = AskedRevision(request(), 3, "d", whole=False)
    for each in (asked, replace(asked, whole=True, revision=1)):
        assert read_note(json.loads(json.dumps(note_of(each)))) == each
