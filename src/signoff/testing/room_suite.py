"""The conformance suite of channels with rooms, next to `ChannelSuite`."""

import json

import pytest

from signoff.audit.log import AuditLog
from signoff.contracts.ids import show_code
from signoff.contracts.person import Principal
from signoff.languages.catalogue import text
from signoff.store.questions.taken_requests import TAKEN_FOR, TakenRequests
from signoff.testing.channel_cards import HOSTILE, CardSuite, play_scenario
from signoff.testing.rig import TENANT, ChannelRig
from signoff.testing.vendor import VendorCard

_SECRETS = ("Payee", "8761", "hidden words")


def _card(rig: ChannelRig) -> VendorCard:
    cards = rig.vendor.room_cards()
    assert cards, "the room has no card"
    return cards[-1]


def _first_words(key: str) -> str:
    return text(key, "en", who="", when="").partition(" until")[0].strip(" .")


class RoomSuite(CardSuite):
    """Tests of a channel's rooms. Inherit, and write `vendor(self)` to open a `Vendor` with a `room`."""

    @play_scenario
    async def test_card_in_a_room_names_tool_and_code_without_arguments(self, rig: ChannelRig) -> None:
        rig.open_room()
        args = {"to": f"Payee {HOSTILE}", "amount": 8761, "Payee": "hidden words"}
        request = await rig.ask(args=args)
        await rig.dispatch()
        assert len(rig.vendor.room_cards()) == 1
        shown = _card(rig).text
        assert "pay" in shown
        assert show_code(request.code) in shown
        assert "Guest" in shown
        assert not any(value in shown for value in _SECRETS)
        assert "signoff.example" not in shown

    @play_scenario
    async def test_taking_is_shown_to_the_room_and_decides_nothing(self, rig: ChannelRig) -> None:
        rig.open_room()
        request = await rig.ask()
        assert await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "take")) == [None]
        assert "Bo has taken it" in _card(rig).text
        assert _first_words("room.took") in rig.text_read_by(rig.bo)
        assert (rig.request(request.id).state, rig.decisions.answers) == ("pending", [])
        await rig.receive(rig.vendor.press(rig.card(rig.ana), rig.ana, "approved"))
        assert rig.request(request.id).decided_by == "ana"

    @play_scenario
    async def test_first_of_two_takers_has_it_and_the_second_reads_the_name(self, rig: ChannelRig) -> None:
        rig.open_room()
        request = await rig.ask()
        card = _card(rig)
        await rig.receive(rig.vendor.press_room(card, rig.bo, "take"), rig.vendor.press_room(card, rig.ana, "take"))
        holder = (await TakenRequests(rig.store).find(TENANT, [request.id]))[request.id].person
        assert holder in ("ana", "bo")
        first, second = (rig.ana, rig.bo) if holder == "ana" else (rig.bo, rig.ana)
        assert _first_words("room.took") in rig.text_read_by(first)
        assert f"{holder.title()} has taken it" in rig.text_read_by(second)
        assert _card(rig).text.count("has taken it") == 1

    @play_scenario
    async def test_lapsed_taking_is_removed_and_another_person_may_take_it(self, rig: ChannelRig) -> None:
        rig.open_room()
        request = await rig.ask()
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "take"))
        await rig.age_taking(request, TAKEN_FOR)
        await rig.make_due()
        await rig.dispatch()
        assert "has taken it" not in _card(rig).text
        await rig.receive(rig.vendor.press_room(_card(rig), rig.ana, "take"))
        assert "Ana has taken it" in _card(rig).text

    @play_scenario
    async def test_only_its_holder_gives_a_request_back(self, rig: ChannelRig) -> None:
        rig.open_room()
        await rig.ask()
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "take"))
        await rig.receive(rig.vendor.press_room(_card(rig), rig.ana, "release"))
        assert "Bo has taken it" in _card(rig).text
        assert text("room.not_taken", "en") in rig.text_read_by(rig.ana)
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "release"))
        assert "has taken it" not in _card(rig).text

    @play_scenario
    async def test_stranger_and_known_person_without_rights_get_the_same_refusal(self, rig: ChannelRig) -> None:
        rig.open_room()
        request = await rig.ask(personal=False)
        refusal = text("room.refused", "en")
        for identity in (rig.stranger, rig.cy):
            await rig.receive(rig.vendor.press_room(_card(rig), identity, "take"))
            await rig.receive(rig.vendor.press_room(_card(rig), identity, "show"))
            words = [each for each in rig.vendor.reads(identity) if each]
            assert words == [refusal, refusal]
        assert await TakenRequests(rig.store).find(TENANT, [request.id]) == {}
        assert "has taken it" not in _card(rig).text

    @play_scenario
    async def test_requester_who_may_not_decide_is_refused(self, rig: ChannelRig) -> None:
        rig.open_room()
        await rig.ask(personal=False, requester=Principal(user="bo", name="Bo"))
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "show"))
        assert rig.text_read_by(rig.bo) == text("room.refused", "en")

    @play_scenario
    async def test_card_is_shown_to_the_asking_approver_alone(self, rig: ChannelRig) -> None:
        rig.open_room()
        await rig.ask(personal=False)
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "show"))
        assert "Payee 1" in rig.text_read_by(rig.bo)
        assert "Payee 1" not in rig.text_read_by(rig.ana)
        assert "Payee 1" not in _card(rig).text

    @play_scenario
    async def test_room_card_shows_the_end_without_its_reason(self, rig: ChannelRig) -> None:
        rig.open_room()
        request = await rig.ask()
        pressed = rig.vendor.press_room(_card(rig), rig.bo, "take")
        await rig.decide_elsewhere(request, "denied", "Payee 1 is no customer")
        shown = _card(rig).text
        assert "Denied by Ana" in shown
        assert not any(value in shown for value in _SECRETS)
        with pytest.raises(KeyError):
            rig.vendor.press_room(_card(rig), rig.bo, "take")
        await rig.receive(pressed)
        assert text("room.over", "en") in rig.text_read_by(rig.bo)
        assert await TakenRequests(rig.store).find(TENANT, [request.id]) == {}

    @play_scenario
    async def test_room_reads_its_cards_in_its_language(self, rig: ChannelRig) -> None:
        rig.open_room(locale="de")
        request = await rig.ask()
        assert "braucht eine Genehmigung" in _card(rig).text
        await rig.decide_elsewhere(request)
        assert "Genehmigt von Ana" in _card(rig).text

    @play_scenario
    async def test_room_of_another_tenant_shows_nothing(self, rig: ChannelRig) -> None:
        rig.open_room("other")
        request = await rig.ask()
        assert rig.vendor.room_cards() == []
        assert {row.kind for row in await rig.cards.of_request(request.id)} == {"ask"}

    @play_scenario
    async def test_room_that_is_no_longer_declared_gets_no_card(self, rig: ChannelRig) -> None:
        rig.open_room()
        await rig.ask(notify=False)
        assert await rig.dispatcher.read() == 1
        rig.rooms.clear()
        await rig.dispatch()
        assert rig.vendor.room_cards() == []
        assert len(rig.vendor.cards()) == 2

    @play_scenario
    async def test_new_revision_has_another_card(self, rig: ChannelRig) -> None:
        """The older card loses its buttons. A late press of one takes nothing."""
        rig.open_room()
        request = await rig.ask(personal=False)
        older = rig.vendor.press_room(_card(rig), rig.bo, "take")
        await rig.revise(request)
        first, second = rig.vendor.room_cards()
        assert _first_words("room.requester") not in first.text
        assert _first_words("room.requester") in second.text
        await rig.receive(older)
        assert await TakenRequests(rig.store).find(TENANT, [request.id]) == {}

    @play_scenario
    async def test_card_in_a_room_waits_for_the_vendor(self, rig: ChannelRig) -> None:
        rig.open_room()
        rig.vendor.trouble = "down"
        await rig.ask()
        assert rig.vendor.room_cards() == []
        rig.vendor.trouble = ""
        rig.time.ahead += TAKEN_FOR
        await rig.make_due()
        await rig.dispatch()
        assert len(rig.vendor.room_cards()) == 1

    @play_scenario
    async def test_taking_and_giving_back_are_recorded(self, rig: ChannelRig) -> None:
        rig.open_room()
        request = await rig.ask()
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "take"))
        await rig.receive(rig.vendor.press_room(_card(rig), rig.bo, "release"))
        records = [each async for each in AuditLog(rig.store).records(tenant=request.tenant)]
        assert [(each.subject, json.loads(each.data)["event"]) for each in records] == [
            ("bo", "taken"),
            ("bo", "released"),
        ]
        assert {each.kind for each in records} == {"delivery"}
