"""We would write to a machine that writes back."""

from pathlib import Path

import pytest
from mail_kit import signed
from mail_site import mail_site, with_keys

NOBODY = ("no-reply", "noreply", "do-not-reply", "bounce.donotreply", "notifications-noreply-17", "ne-pas-repondre")


@pytest.mark.parametrize("name", NOBODY)
async def test_no_reply_address_never_receives_mail(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither a card's reply without proof nor a stranger's proved mail is answered. With `reads_nothing` always false
    # each of these addresses received mail.
    address = f"{name}@people.example"
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        for mail in (site.reply(sender=address).as_bytes(), signed(site.reply(sender=address))):
            assert await site.state_after(mail) == "pending"
        assert site.mails(address) == []
        other = f"eva.{name[::-1]}@people.example"
        await site.state_after(site.reply(sender=other).as_bytes())
        assert len(site.mails(other)) == 1


async def test_unproved_mail_with_a_no_reply_address_gets_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In Bo's name with an unread Reply-To, like machines send. With `answers_go_nowhere` always false Bo was answered.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        before = len(site.mails(site.bo))
        assert await site.state_after(site.reply(Reply_To="no-reply@people.example").as_bytes()) == "pending"
        assert len(site.mails(site.bo)) == before


async def test_proved_person_with_a_no_reply_address_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The proved address gets the reply. With `MailReceiver.conclude` treating such an email as unproved his approval
    # did not count.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        assert await site.state_after(signed(site.reply(Reply_To="no-reply@people.example"))) == "approved"
        assert site.mails("no-reply@people.example") == []
        assert "Approved" in site.mails(site.bo)[-1].plain
