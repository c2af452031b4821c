from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from tables import table

from signoff.channels.envelopes import PARTIAL, InboundAction, RoomAct
from signoff.channels.inbound import outcome as outcome_module
from signoff.channels.inbound.message_time import MessageTime
from signoff.channels.inbound.outcome import Outcome, UnknownSenders
from signoff.channels.inbound.room_handler import RoomHandler
from signoff.channels.inbound.target import find_target
from signoff.contracts.approval import ApprovalRequest, RequestMessage
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import Refused
from signoff.contracts.person import Delegation, Person, Principal
from signoff.decisions.request_taker import RequestTaker
from signoff.formats.replace import replace
from signoff.languages.catalogue import text
from signoff.people.directory import FixedDirectory
from signoff.store.delivery_queue import DeliveryKind, DeliveryQueue, DeliveryRow, NewDelivery, room_person
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.questions.taken_requests import TakenRequests
from signoff.store.store import Store
from signoff.testing.builders import a_person, a_request
from signoff.testing.recording_channel import RecordingChannel, recording_channel
from signoff.testing.rig import RecordingDecisions

REFUSED = text("room.refused", "en")
NOW = system_clock()


def known(name: str, tenant: str = "main", **fields: Any) -> Person:
    return a_person(name, name=name.title(), tenant=tenant, identities={"recording": (f"T1:{name}",)}, **fields)


def until(days: float) -> datetime:
    return NOW + timedelta(days=days)


PEOPLE = FixedDirectory(
    [
        known("ana", locale="de"),
        known("bo"),
        known("cy", roles=()),
        known("eve", roles=()),
        known("left", active=False),
        known("dan", delegations=(Delegation(to="eve", until=until(1)),)),
        known("far", tenant="other"),
    ]
)


class OpenDecisions(RecordingDecisions):
    """Finds a request for everyone, so that only the handler judges."""

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        return [each for each in self._requests.values() if each.code == code]


class Rooms:
    """One request in one room, as people press its buttons."""

    def __init__(self, store: Store, **fields: Any) -> None:
        self.store = store
        self.decisions = OpenDecisions(PEOPLE, system_clock)
        given = {"approvers": ("role:approvers",), "requester": Principal(user="guest")} | fields
        self.request = self.decisions.open(a_request(**given))
        self.channel: RecordingChannel = recording_channel("chat")
        self.handler = RoomHandler(store, PEOPLE, self.decisions, system_clock)
        self.strangers = UnknownSenders("chat", self._record, system_clock)
        self.recorded: list[Any] = []

    async def _record(self, entries: Any) -> int:
        self.recorded += entries
        return len(entries)

    async def open(self) -> str:
        person = room_person("C1")
        card = NewDelivery(request=self.request, person=person, channel="chat", address="C1", kind="room")
        await DeliveryQueue(self.store).plan([card])
        return (await self.rows())[0].token

    async def rows(self) -> list[DeliveryRow]:
        return await DeliveryQueue(self.store).of_request(self.request.id)

    async def press(self, token: str, identity: str, act: RoomAct = "take") -> Outcome:
        where = {"trigger_id": "t"}
        action = InboundAction(key=f"{identity}{act}", identity=identity, token=token, room=act, where=where)
        return await self.handler.handle(self.channel, action, self.strangers)

    async def holder(self) -> str:
        taken = await TakenRequests(self.store).find("main", [self.request.id])
        return taken[self.request.id].person if taken else ""


def said(outcome: Outcome) -> str:
    assert outcome.reply is not None
    return outcome.reply.text


@pytest.mark.parametrize(
    "identity",
    ["T1:nobody", "T2:bo", "T1:cy", "T1:left", "T1:far", "bo", ""],
    ids=["stranger", "other team", "no role", "inactive", "other tenant", "no team", "nameless"],
)
@pytest.mark.parametrize("act", ["take", "release", "show"])
async def test_all_who_may_not_decide_get_the_same_reply(store: Store, identity: str, act: RoomAct) -> None:
    rooms = Rooms(store)
    outcome = await rooms.press(await rooms.open(), identity, act)
    assert outcome.reply is not None
    assert outcome.reply.model_dump(exclude_defaults=True) == {"text": REFUSED}
    assert "trigger_id" not in outcome.where
    assert (await rooms.holder(), len(await rooms.rows())) == ("", 1)


async def test_requester_is_refused_although_an_approver(store: Store) -> None:
    rooms = Rooms(store, requester=Principal(user="bo"))
    assert said(await rooms.press(await rooms.open(), "T1:bo")) == REFUSED
    assert await rooms.holder() == ""


async def test_delegate_takes_a_request(store: Store) -> None:
    rooms = Rooms(store)
    assert "You have taken it" in said(await rooms.press(await rooms.open(), "T1:eve"))
    assert await rooms.holder() == "eve"


async def test_only_the_token_of_a_room_card_on_its_channel_counts(store: Store) -> None:
    rooms = Rooms(store)
    token = await rooms.open()
    personal = NewDelivery(request=rooms.request, person="bo", channel="chat", address="T1:bo")
    await DeliveryQueue(store).plan([personal])
    own = next(row.token for row in await rooms.rows() if row.kind == "ask")
    for wrong in (own, "", f"{token}x", "nonsense"):
        assert said(await rooms.press(wrong, "T1:bo")) == REFUSED
    rooms.channel.name = "another"
    assert said(await rooms.press(token, "T1:bo")) == REFUSED
    assert await rooms.holder() == ""
    # The sender is known: they are no stranger.
    assert rooms.recorded == []


async def test_presses_of_strangers_on_unknown_cards_are_not_all_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_module, "AN_HOUR", 2)
    rooms = Rooms(store)
    for token in ("", "nonsense", "a" * 26):
        outcomes = [await rooms.press(token, f"T1:{name}") for name in ("nobody", "left", "third", "bo", "far")]
        assert [said(each) for each in outcomes] == [REFUSED] * 5
    # Known people are never forgotten, and do not use up the limit of strangers.
    assert [each.forgotten for each in outcomes] == [True, True, True, False, False]
    assert [each.data["identity"] for each in rooms.recorded] == ["T1:nobody", "T1:left"]


async def press_shown(rooms: Rooms, kind: DeliveryKind, vendor: str = "list") -> tuple[Outcome, DeliveryRow]:
    room = await rooms.open()
    own = NewDelivery(request=rooms.request, person="bo", channel="chat", address="T1:bo")
    await DeliveryQueue(rooms.store).plan([own])
    token = next(row.token for row in await rooms.rows() if row.person == "bo")
    await DeliveryQueue(rooms.store).record_sent(token, vendor, {"ts": "1"}, kind=kind)
    shown = await rooms.press(room, "T1:bo", "show")
    return shown, next(row for row in await rooms.rows() if row.person == "bo")


async def test_view_of_a_request_in_a_list_has_a_separate_card(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buttons of a list's request would be about the whole list."""
    monkeypatch.setattr(RecordingChannel, "views", True)
    rooms = Rooms(store)
    shown, own = await press_shown(rooms, "digest")
    assert shown.reply is not None
    assert shown.reply.card is not None
    assert shown.reply.card.token == own.token
    assert (own.kind, own.state, own.vendor_id, own.sent_at, own.handle) == ("ask", "planned", "", None, {})
    assert own.due_at > until(300)
    action = InboundAction(key="k", identity="T1:bo", token=own.token, verdict="approved")
    when = MessageTime(NOW, NOW)
    given = (DeliveryQueue(store), OwnMessages(store), rooms.decisions, rooms.channel)
    found = await find_target(*given, known("bo"), action, "", when)
    assert ([each.request.id for each in found.asked], found.certain) == ([rooms.request.id], True)


async def test_request_in_a_list_is_sent_alone_on_a_channel_without_views(store: Store) -> None:
    rooms = Rooms(store)
    shown, own = await press_shown(rooms, "digest")
    assert text("room.sent", "en") in said(shown)
    assert (own.kind, own.state, own.vendor_id) == ("ask", "planned", "")
    assert own.due_at <= system_clock() + timedelta(seconds=1)


async def test_sent_card_stays_as_it_is_when_shown(store: Store) -> None:
    rooms = Rooms(store)
    _, own = await press_shown(rooms, "ask", "own")
    assert (own.kind, own.state, own.vendor_id) == ("ask", "sent", "own")


@table("ended", "cancelled", "revised")
async def test_ended_or_changed_request_is_not_taken(store: Store, ended: str) -> None:
    rooms = Rooms(store)
    token = await rooms.open()
    if ended == "cancelled":
        rooms.decisions.cancel(rooms.request.id)
    else:
        rooms.decisions.open(replace(rooms.request, revision=2))
    for act in ("take", "release", "show"):
        assert said(await rooms.press(token, "T1:bo", act)) == text("room.over", "en")
    assert (await rooms.holder(), len(await rooms.rows())) == ("", 1)


async def test_reply_is_in_the_language_of_its_reader(store: Store) -> None:
    rooms = Rooms(store)
    token = await rooms.open()
    await rooms.press(token, "T1:bo")
    assert said(await rooms.press(token, "T1:ana")).startswith("Bo kümmert sich")


async def test_personal_card_is_due_at_once_on_a_channel_without_views(store: Store) -> None:
    rooms = Rooms(store)
    shown = await rooms.press(await rooms.open(), "T1:bo", "show")
    assert text("room.sent", "en") in said(shown)
    assert "Pay" not in said(shown)
    own = next(row for row in await rooms.rows() if row.kind == "ask")
    assert (own.person, own.address, own.state) == ("bo", "T1:bo", "planned")
    assert own.due_at <= system_clock() + timedelta(seconds=1)


async def test_view_contains_the_own_card_which_is_not_sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingChannel, "views", True)
    monkeypatch.setattr(RecordingChannel, "draws_whole", lambda self, card: False)
    rooms = Rooms(store)
    shown = await rooms.press(await rooms.open(), "T1:bo", "show")
    assert shown.reply is not None
    assert shown.reply.card is not None
    own = next(row for row in await rooms.rows() if row.kind == "ask")
    assert (shown.reply.card.token, shown.reply.card.person.id) == (own.token, "bo")
    assert own.due_at > until(300)
    # Its presser has not seen every value.
    assert PARTIAL in own.handle


async def test_taker_refuses_people_and_requests_on_every_entrance(store: Store) -> None:
    rooms = Rooms(store)
    taker = RequestTaker(store, PEOPLE, system_clock)
    ended: ApprovalRequest = replace(rooms.request, state="approved")
    for name, request in (("cy", rooms.request), ("far", rooms.request), ("bo", ended)):
        person = next(each for each in PEOPLE.all() if each.id == name)
        for change in (taker.take, taker.release):
            with pytest.raises(Refused, match="may not take"):
                await change(request, person, "inbox")
    assert await rooms.holder() == ""


async def test_view_shows_the_messages_of_its_card(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # The agent answers between the two reads.
    monkeypatch.setattr(RecordingChannel, "views", True)
    rooms = Rooms(store)
    room, cards = await rooms.open(), DeliveryQueue(store)
    await cards.plan([NewDelivery(request=rooms.request, person="bo", channel="chat", address="T1:bo")])

    async def link(*given: Any) -> str:
        rooms.decisions.tell(rooms.request.id, RequestMessage(number=1, by="approver", text="Why?", revision=1))
        said = RequestMessage(number=2, by="agent", text="It is due.", revision=1)
        await cards.replace_old(rooms.decisions.tell(rooms.request.id, said), {"bo"})
        return "https://example.org"

    monkeypatch.setattr(rooms.decisions, "link", link)
    shown = await rooms.press(room, "T1:bo", "show")
    assert shown.reply is not None
    assert shown.reply.card is not None
    present = rooms.decisions.request(rooms.request.id)
    drawn = shown.reply.card
    assert [each.text for each in drawn.request.messages] == ["Why?", "It is due."]
    assert (drawn.token, drawn.request.thread) == (
        next(row.token for row in await rooms.rows() if row.kind == "ask"), present.thread,
    )  # fmt: skip
