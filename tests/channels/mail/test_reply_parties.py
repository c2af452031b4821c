from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from answer_rigs import answer_rig
from mail_post import Post

from signoff.channels.inbound.sent_mail import may_send_for
from signoff.contracts.ids import show_code
from signoff.contracts.person import Delegation, Person
from signoff.people.directory import FixedDirectory
from signoff.testing.rig import ChannelRig

MARIA = "Maria <maria@people.example>"


async def answered(rig: ChannelRig, number: int, words: str, **headers: str) -> str:
    request = await rig.ask(number)
    assert isinstance(rig.vendor, Post)
    card = rig.card(rig.bo, show_code(request.code))
    await rig.receive(rig.vendor.reply_with(card, rig.bo, words, headers))
    return rig.request(request.id).state


@pytest.mark.parametrize(
    "words", ["please approve", "Approve", "Go ahead", "Hi Maria,\n\nplease approve.\n\nThanks\nBo"]
)
async def test_order_in_a_reply_to_all_is_asked_back(words: str, tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, words, Cc=MARIA) == "pending"
        assert await answered(rig, 2, "Approved.\n\nBo", Cc=MARIA) == "approved"
        assert await answered(rig, 3, "No.\n\nBo", Cc=MARIA) == "denied"


async def test_copy_to_an_address_of_the_approver_changes_nothing(tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, "Please approve", Cc=f"{rig.bo}, signoff@signoff.example") == "approved"


async def test_email_sent_by_another_address_is_refused_and_recorded(tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, "Approve", Sender="helper@people.example") == "pending"
        assert "helper@people.example" in rig.text_read_by(rig.bo)
        [entry] = [each for each in rig.recorded if each.data.get("act") == "mail sent for another"]
        assert (entry.data["sender"], entry.data.get("allowed", False)) == ("helper@people.example", False)
        assert await answered(rig, 2, "Approve", Sender=rig.bo) == "approved"
        assert await answered(rig, 3, "No", Sender="nonsense") == "pending"


def test_delegate_may_send_email_while_the_delegation_lasts() -> None:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    ana = Person(id="ana", delegations=(Delegation(to="cy", until=now),), identities={"email": ("ana@people.example",)})
    cy = Person(id="cy", identities={"email": ("cy@people.example",)})
    eve = Person(id="eve", identities={"email": ("eve@people.example",)})
    people = FixedDirectory([ana, cy, eve])
    before = now - timedelta(hours=1)
    senders = ("cy@people.example", "ana@people.example", "eve@people.example", "?")
    assert [may_send_for(ana, each, people, "email", before) for each in senders] == [True, True, False, False]
    assert not may_send_for(ana, "cy@people.example", people, "email", now)
