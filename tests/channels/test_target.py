import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from sqlalchemy import update
from tables import table

from signoff.channels.asked_revision import UNKNOWN, AskedRevision, note_of, read_note, subject_of
from signoff.channels.envelopes import PARTIAL, InboundAction
from signoff.channels.inbound.message_time import MessageTime
from signoff.channels.inbound.target import Target, find_target, open_requests
from signoff.contracts.approval import ApprovalRequest, Card, CardRow
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.store.delivery_queue import DeliveryKind, DeliveryQueue, NewDelivery
from signoff.store.messages.own_messages import OwnMessage, OwnMessages
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES, millis_from_time
from signoff.testing import a_request
from signoff.testing.recording_channel import recording_channel

BO = Person(id="bo", identities={"recording": ("bo-1", "bo-2"), "email": ("bo@x",)})
CY = Person(id="cy", identities={"recording": ("cy-1",)})
FAR = Person(id="bo", tenant="other", identities={"recording": ("bo-1",)})
CODE = "K7Q2FM"
CUT = Card(effect="Pay", rows=(CardRow(name="why", label="Why", value="beca", cut=True),))
ARRIVED = datetime(2026, 5, 1, 12, tzinfo=UTC)


def request(number: int = 1, **fields: Any) -> ApprovalRequest:
    return a_request(**{"call": f"c{number}.1", "code": f"A1B2C{number}", "question_hash": f"d{number}"} | fields)


def soon() -> MessageTime:
    moment = datetime.now(UTC) + timedelta(seconds=1)
    return MessageTime(moment, moment)


def moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else ARRIVED + timedelta(seconds=seconds)


class Out(NamedTuple):
    """Times are in seconds from the arrival of the message."""

    number: int = 1
    revision: int = 1
    tried: float = -60
    ended: float | None = None
    sent: bool = True
    kind: DeliveryKind = "ask"

    @property
    def request(self) -> ApprovalRequest:
        return request(self.number, revision=self.revision, question_hash=f"d{self.number}.{self.revision}")


def revised(first: ApprovalRequest, **fields: Any) -> ApprovalRequest:
    return replace(first, **{"revision": 2, "question_hash": "again"} | fields)


class SentCards:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.deliveries = DeliveryQueue(store)
        self.coded: list[ApprovalRequest] = []
        self.asked_for: list[tuple[str, str]] = []
        self.channel = recording_channel("chat")

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        self.asked_for.append((person.id, code))
        return [each for each in self.coded if each.code == code]

    async def plan(self, shown: ApprovalRequest, person: Person = BO, at: int = 0, channel: str = "chat") -> str:
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
        token = await self.plan(shown, person, at, channel)
        await self.deliveries.record_sent(token, vendor or f"v-{token}", handle or {}, kind=kind)
        return token

    async def put_out(self, card: Out) -> None:
        token = await self.tell(card.request, kind=card.kind)
        times = {"tried_at": card.tried, "sent_at": card.tried if card.sent else None, "ended_at": card.ended}
        values = {
            name: at and millis_from_time(at) for name, at in zip(times, map(moment, times.values()), strict=True)
        }
        if not card.sent:
            values["state"] = "planned"
        which = update(DELIVERIES).where(DELIVERIES.c.token == token)
        await self.store.run(lambda connection: connection.execute(which.values(**values)))

    async def said(self, said: float | None, code: str = "", *, denies: bool = False, **fields: Any) -> Target:
        """`said` is the writing time in seconds before the arrival."""
        action = InboundAction(**{"key": "k", "identity": "bo-1"} | fields)
        deps = (self.deliveries, OwnMessages(self.store), self, self.channel)
        option = {"denies": True} if denies else {}
        return await find_target(*deps, BO, action, code, MessageTime(ARRIVED, moment(said)), **option)

    async def reply(self, vendor: str, *about: AskedRevision) -> None:
        message = OwnMessage(subjects=tuple(map(subject_of, about)))
        await OwnMessages(self.store).note("chat", vendor, "main", "bo", message)

    async def find(
        self, code: str = "", person: Person = BO, at: datetime | None = None, **fields: Any
    ) -> tuple[list[tuple[str, int]], bool]:
        found = await self.target(code, person, at, **fields)
        return [(each.request.id, each.revision) for each in found.asked], found.certain

    async def target(self, code: str = "", person: Person = BO, at: datetime | None = None, **fields: Any) -> Target:
        when = at or datetime.now(UTC) + timedelta(seconds=1)
        action = InboundAction(**{"key": "k", "identity": "bo-1"} | fields)
        deps = (self.deliveries, OwnMessages(self.store), self, self.channel)
        return await find_target(*deps, person, action, code, MessageTime(when, when))


@pytest.fixture
def cards(store: Store) -> SentCards:
    return SentCards(store)


async def test_bare_word_means_the_only_open_card(cards: SentCards) -> None:
    assert await cards.target() == Target((), certain=False)
    asked = request()
    await cards.tell(asked, at=1)
    assert await cards.target() == Target((AskedRevision(asked, 1, "d1"),), certain=True)
    assert await open_requests(cards.deliveries, cards.channel, BO, soon()) == [asked]


async def test_bare_word_is_about_the_cards_at_its_arrival(cards: SentCards) -> None:
    asked = request()
    await cards.tell(asked)
    before = datetime.now(UTC) - timedelta(minutes=1)
    assert await cards.find(at=before) == ([], False)
    cards.coded = [revised(asked)]
    assert await cards.target(asked.code, at=before) == Target(
        (AskedRevision(cards.coded[0], 1, UNKNOWN, whole=False),), certain=True
    )


async def test_cards_of_other_people_and_tenants_do_not_match(cards: SentCards) -> None:
    await cards.tell(request(1), CY)
    await cards.tell(request(2, tenant="other"), FAR)
    await cards.tell(request(3), channel="other chat")
    assert await cards.find() == ([], False)
    assert await cards.find(vendor_ids=["of something else"]) == ([], False)


async def test_token_of_a_card_means_its_request(cards: SentCards) -> None:
    first, second = await cards.tell(request(1)), await cards.tell(request(2))
    assert await cards.target(token=second) == Target((AskedRevision(request(2), 1, "d2"),), certain=True)
    assert await cards.find(token=second, vendor_ids=[f"v-{first}"]) == ([(request(2).id, 1)], True)


async def test_reply_to_a_card_means_its_request(cards: SentCards) -> None:
    first, second = await cards.tell(request(1)), await cards.tell(request(2))
    assert await cards.find(vendor_ids=[f"v-{first}", "of nothing"]) == ([(request(1).id, 1)], True)
    assert await cards.find(vendor_ids=[f"v-{first}", f"v-{second}"]) == (
        [(request(1).id, 1), (request(2).id, 1)],
        False,
    )


async def test_token_of_another_channel_or_tenant_matches_nothing(cards: SentCards) -> None:
    elsewhere = await cards.tell(request(1), channel="other chat", vendor="same")
    await cards.tell(request(2), vendor="same")
    assert await cards.find(token=elsewhere) == ([], False)
    assert await cards.find(token=elsewhere, vendor_ids=["same"]) == ([], False)
    assert await cards.find(vendor_ids=["same"]) == ([(request(2).id, 1)], True)
    foreign = await cards.tell(request(3, tenant="other"), FAR, vendor="far")
    assert await cards.find(token=foreign) == ([], False)
    assert await cards.find(vendor_ids=["far"]) == ([(request(2).id, 1)], False)


async def test_persons_own_card_is_preferred_over_anothers(cards: SentCards) -> None:
    await cards.tell(request(), CY, vendor="group")
    assert await cards.target(vendor_ids=["group"]) == Target(
        (AskedRevision(request(), 1, "d1"),), certain=True, from_others_card=True
    )
    await cards.tell(request(2), BO, vendor="group")
    assert await cards.target(vendor_ids=["group"]) == Target((AskedRevision(request(2), 1, "d2"),), certain=True)


async def test_button_on_another_persons_card_is_certain_and_text_is_not(cards: SentCards) -> None:
    token = await cards.tell(request(), CY)
    assert (await cards.target(token=token)).from_others_card
    assert await cards.target(token=token, verdict="denied") == Target(
        (AskedRevision(request(), 1, "d1"),), certain=True
    )
    assert await cards.target(request().code, token=token) == Target((AskedRevision(request(), 1, "d1"),), certain=True)


async def test_digest_means_all_its_open_requests(cards: SentCards) -> None:
    tokens = [await cards.tell(request(number), vendor="list", kind="digest") for number in (1, 2, 3)]
    await cards.tell(request(4), vendor="of something else")
    await cards.deliveries.end(request(1).id, 1, request(1))
    named = [(request(2).id, 1), (request(3).id, 1)]
    assert await cards.find(token=tokens[0], vendor_ids=["of something else"]) == (named, False)
    assert await cards.find(vendor_ids=["list"]) == (named, False)
    await cards.deliveries.end(request(2).id, 1, request(2))
    assert await cards.find(token=tokens[0]) == ([(request(3).id, 1)], False)
    # A single closed card still matches, so that its reply can name the outcome.
    await cards.deliveries.end(request(4).id, 1, request(4))
    assert await cards.find(vendor_ids=["of something else"]) == ([(request(4).id, 1)], True)


async def test_code_that_contradicts_its_card_is_uncertain(cards: SentCards) -> None:
    first, second = await cards.tell(request(1)), await cards.tell(request(2))
    assert await cards.find(request(1).code, token=first) == ([(request(1).id, 1)], True)
    assert await cards.find(request(2).code, token=first) == ([(request(1).id, 1), (request(2).id, 1)], False)
    assert await cards.find("Z9Z9ZZ", token=second) == ([(request(2).id, 1)], False)
    assert await cards.find(request(2).code, vendor_ids=["of something else"]) == ([(request(2).id, 1)], True)
    tokens = [await cards.tell(request(number), vendor="list", kind="digest") for number in (3, 4)]
    assert await cards.find(request(4).code, token=tokens[0]) == ([(request(4).id, 1)], True)
    assert await cards.find(request(1).code, token=tokens[0]) == ([(request(1).id, 1)], True)


async def test_code_of_two_cards_is_uncertain(cards: SentCards) -> None:
    first = await cards.tell(request(1, code=CODE))
    second = await cards.tell(request(2, code=CODE))
    both = [(request(1).id, 1), (request(2).id, 1)]
    assert await cards.find(CODE) == (both, False)
    assert await cards.find(CODE, vendor_ids=[f"v-{first}", f"v-{second}"]) == (both, False)


async def test_code_means_the_newest_revision_sent(cards: SentCards) -> None:
    asked = request()
    await cards.tell(revised(asked))
    await cards.tell(asked)
    assert await cards.target(asked.code) == Target((AskedRevision(revised(asked), 2, "again"),), certain=True)
    assert cards.asked_for == []


async def test_code_of_a_card_in_delivery_is_looked_up(cards: SentCards) -> None:
    asked = request()
    await cards.plan(asked)
    await cards.deliveries.claim_due(1, "chat")
    assert await cards.find(asked.code) == ([], False)
    cards.coded = [asked]
    assert await cards.target(asked.code) == Target((AskedRevision(asked, 1, "d1", whole=False),), certain=True)
    assert cards.asked_for == [("bo", asked.code)] * 2
    cards.coded = [asked, request(2, code=asked.code)]
    assert (await cards.find(asked.code))[1] is False


async def test_code_means_the_revision_of_the_last_card(cards: SentCards) -> None:
    asked = request()
    again = revised(asked, revision=3, question_hash="third")
    await cards.tell(asked, channel="other chat")
    await cards.tell(revised(asked), channel="other chat")
    await cards.tell(again, CY)
    cards.coded = [again]
    assert await cards.target(asked.code) == Target((AskedRevision(revised(asked), 2, "again"),), certain=True)


async def test_card_counts_from_its_sending_time(cards: SentCards) -> None:
    asked = revised(request())
    cards.coded = [asked]
    sent = []
    for channel in ("other chat", "chat"):
        row = await cards.deliveries.by_token(await cards.tell(asked, channel=channel))
        assert row is not None
        assert row.sent_at is not None
        assert await cards.find(asked.code, at=row.sent_at) == ([(asked.id, 2)], True)
        sent.append(row.sent_at)
    assert await cards.find(asked.code, at=sent[0] - timedelta(milliseconds=1)) == ([(asked.id, 1)], True)


async def test_later_revision_without_a_card_counts_as_unseen(cards: SentCards) -> None:
    cards.coded = [revised(request(), card=CUT)]
    found = await cards.target(request().code)
    assert found.asked == (AskedRevision(cards.coded[0], 1, UNKNOWN, whole=False),)


async def test_code_after_a_list_and_a_whole_card_means_the_card(cards: SentCards) -> None:
    asked = request()
    await cards.tell(asked, channel="other chat", kind="digest")
    cards.coded = [asked]
    assert [each.whole for each in (await cards.target(asked.code)).asked] == [False]
    await cards.tell(asked, channel="third chat")
    assert [each.whole for each in (await cards.target(asked.code)).asked] == [True]


async def test_incomplete_card_is_marked_as_such(cards: SentCards) -> None:
    for number, fields, handle in (
        (1, {}, {}),
        (2, {"card": CUT}, {}),
        (3, {}, {PARTIAL: True}),
    ):
        token = await cards.tell(request(number, **fields), handle=handle)
        assert [each.whole for each in (await cards.target(token=token)).asked] == [number == 1], number


async def test_renewed_request_keeps_only_its_revision_number(cards: SentCards) -> None:
    asked = request()
    token = await cards.tell(asked)
    await cards.deliveries.end(asked.id, 1, revised(asked))
    found = (await cards.target(token=token)).asked
    assert found == (AskedRevision(revised(asked), 1, UNKNOWN),)


def test_note_round_trip_keeps_its_fields() -> None:
    asked = AskedRevision(request(), 3, "d", whole=False)
    for each in (asked, dataclasses.replace(asked, whole=True, revision=1)):
        assert read_note(json.loads(json.dumps(note_of(each)))) == each


@table(
    ("out", "said", "numbers", "certain", "doubt"),
    ([Out()], None, [1], False, "untimed"),
    ([Out(), Out(2, ended=-5)], None, [1], False, "untimed"),
    ([Out()], -30, [1], True, ""),
    ([Out(tried=-29)], -30, [1], True, ""),
    ([Out(tried=-27)], -30, [1], False, "before"),
    ([Out(tried=-10, ended=-5)], -30, [], False, ""),
    ([], -30, [], False, ""),
    ([Out(tried=1)], 0, [], False, ""),
    ([Out(ended=-5)], -30, [1], True, ""),
    ([Out(ended=-5), Out(2, tried=-10)], -30, [1], True, ""),
    ([Out(ended=-5), Out(2)], -30, [2], False, ""),
    ([Out(ended=0), Out(2)], -30, [2], False, ""),
    ([Out(ended=1), Out(2)], -30, [1, 2], False, ""),
    ([Out(ended=-5), Out(2, ended=-5)], -30, [1, 2], False, ""),
    ([Out(), Out(2, tried=-10)], -30, [1, 2], False, ""),
    ([Out(kind="digest")], -30, [1], False, ""),
    ([Out(kind="digest", ended=-5), Out(2, tried=-10)], -30, [2], False, ""),
    ([Out(sent=False)], -30, [1], False, ""),
    ([Out(sent=False, ended=-5), Out(2, tried=-10)], -30, [2], False, ""),
)
async def test_words_mean_the_cards_open_at_writing_time(
    store: Store, out: list[Out], said: float | None, numbers: list[int], certain: bool, doubt: str
) -> None:
    cards = SentCards(store)
    for card in out:
        await cards.put_out(card)
    found = await cards.said(said)
    assert [each.request.id for each in found.asked] == [request(number).id for number in numbers]
    assert (found.certain, found.doubt) == (certain, doubt)


@table(
    ("out", "said", "denies", "revision", "certain", "doubt"),
    ([Out()], None, False, 1, False, "untimed"),
    ([Out()], None, True, 1, True, ""),
    ([Out(ended=-20), Out(revision=2, tried=-20)], -30, False, 1, True, ""),
    ([Out(ended=-20), Out(revision=2, tried=-20)], -30, True, 2, True, ""),
    ([Out(ended=-20), Out(revision=2, tried=-29)], -30, False, 1, True, ""),
    ([Out(ended=-20), Out(revision=2, tried=-30)], -30, False, 2, True, ""),
    ([Out(tried=-29, ended=-20), Out(revision=2, tried=-28.5)], -30, False, 1, True, ""),
)
async def test_code_means_the_revision_open_at_writing_time(
    store: Store, out: list[Out], said: float | None, denies: bool, revision: int, certain: bool, doubt: str
) -> None:
    cards = SentCards(store)
    for card in out:
        await cards.put_out(card)
    found = await cards.said(said, request().code, denies=denies)
    assert [(each.revision, each.question_hash) for each in found.asked] == [(revision, f"d1.{revision}")]
    assert (found.certain, found.doubt, cards.asked_for) == (certain, doubt, [])


@table(
    ("opened", "said", "numbers", "certain", "doubt"),
    ([None], -30, [1], True, ""),
    ([-60], -30, [1], True, ""),
    ([-60], None, [1], False, "untimed"),
    ([-28], -30, [1], True, ""),
    ([-27.9], -30, [1], False, "before"),
    ([-60, -10], -30, [1], True, ""),
    ([-60, -60], -30, [1, 2], False, ""),
)
async def test_code_of_a_later_request_is_uncertain(
    store: Store, opened: list[float | None], said: float | None, numbers: list[int], certain: bool, doubt: str
) -> None:
    cards = SentCards(store)
    cards.coded = [request(number, code=CODE, opened_at=moment(at)) for number, at in enumerate(opened, 1)]
    found = await cards.said(said, CODE)
    assert [each.request.id for each in found.asked] == [request(number).id for number in numbers]
    assert (found.certain, found.doubt) == (certain, doubt)


async def test_reply_to_another_message_means_its_requests(cards: SentCards) -> None:
    first, second = (AskedRevision(request(number), 1, "then", whole=False) for number in (1, 2))
    tokens = [await cards.tell(each.request, vendor=f"card {number}") for number, each in enumerate((first, second), 1)]
    await cards.reply("about 1", first)
    await cards.reply("about both", first, second)
    assert await cards.target(vendor_ids=["about 1"]) == Target((first,), certain=True)
    assert await cards.target(vendor_ids=["about both"]) == Target((first, second), certain=False)
    as_shown = [AskedRevision(each.request, 1, each.request.question_hash) for each in (first, second)]
    assert await cards.target(vendor_ids=["about 1", "card 1"]) == Target((as_shown[0],), certain=True)
    assert await cards.target(token=tokens[1], vendor_ids=["about 1"]) == Target((as_shown[1], first), certain=False)


async def test_code_that_contradicts_the_replied_message_is_uncertain(cards: SentCards) -> None:
    first, second = (AskedRevision(request(number), 1, f"d{number}") for number in (1, 2))
    for each in (first, second):
        await cards.tell(each.request)
    await cards.reply("about 1", dataclasses.replace(first, question_hash="then"))
    assert await cards.target(request(1).code, vendor_ids=["about 1"]) == Target((first,), certain=True)
    found = await cards.find(request(2).code, vendor_ids=["about 1"])
    assert found == ([(request(1).id, 1), (request(2).id, 1)], False)


async def test_replied_message_keeps_its_revision(cards: SentCards) -> None:
    asked = request()
    await cards.tell(asked, CY)
    await cards.reply("of then", AskedRevision(asked, 1, "d1"))
    cards.coded = [request(2, code=asked.code), asked]
    assert await cards.target(vendor_ids=["of then"]) == Target((AskedRevision(asked, 1, "d1"),), certain=True)
    cards.coded = cards.coded[:1]
    assert (await cards.target(vendor_ids=["of then"])).asked == ()
    for each in (asked, revised(asked)):
        await cards.tell(each)
    assert await cards.target(vendor_ids=["of then"]) == Target((AskedRevision(asked, 1, "d1"),), certain=True)


async def test_reply_to_a_message_without_a_request_is_read_like_plain_words(cards: SentCards) -> None:
    await cards.reply("about nothing")
    for card in (Out(ended=-20), Out(revision=2, tried=-20)):
        await cards.put_out(card)
    elsewhere = await cards.tell(request(2), channel="other chat")
    for fields in (dict[str, Any](), {"token": elsewhere}):
        found = await cards.said(0, vendor_ids=["about nothing"], **fields)
        assert ([each.revision for each in found.asked], found.certain) == ([2], True)
    for denies, revision in ((False, 1), (True, 2)):
        found = await cards.said(-30, request().code, denies=denies, vendor_ids=["about nothing"])
        assert ([each.revision for each in found.asked], found.certain) == ([revision], True)
    await cards.tell(request(3), vendor="card 3")
    assert await cards.find(vendor_ids=["about nothing", "card 3"]) == ([(request(3).id, 1)], True)
