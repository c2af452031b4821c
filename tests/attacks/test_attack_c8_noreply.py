"""Attack C8: a stranger's mail in the name of a `no-reply` address has us write there, to a machine that writes back.

Seen to fail without the mend: with `reads_nothing` always false both of the first mails are answered.
"""

from pathlib import Path

import pytest
from mail_kit import signed
from mail_site import mail_site, with_keys

NOBODY = ("no-reply", "noreply", "do-not-reply", "bounce.donotreply", "notifications-noreply-17", "ne-pas-repondre")


@pytest.mark.parametrize("name", NOBODY)
async def test_an_address_that_nobody_reads_is_never_written_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither with a card's address in it and no proof, nor proved and a stranger's. With `reads_nothing` always false
    # each of these addresses was written to.
    address = f"{name}@people.example"
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        for mail in (site.reply(sender=address).as_bytes(), signed(site.reply(sender=address))):
            assert await site.state_after(mail) == "pending"
        assert site.mails(address) == []
        other = f"eva.{name[::-1]}@people.example"
        await site.state_after(site.reply(sender=other).as_bytes())
        assert len(site.mails(other)) == 1


async def test_who_asks_for_no_answer_and_is_not_proved_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In Bo's name, with a Reply-To that nobody reads: machines send so. With `answers_go_nowhere` always false Bo was
    # answered.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        before = len(site.mails(site.bo))
        assert await site.state_after(site.reply(Reply_To="no-reply@people.example").as_bytes()) == "pending"
        assert len(site.mails(site.bo)) == before


async def test_a_proved_person_with_such_a_reply_to_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # And is told so, at the address that is proved. With `MailReceiver.conclude` taking such a mail for one that is not
    # proved his yes did not count.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        assert await site.state_after(signed(site.reply(Reply_To="no-reply@people.example"))) == "approved"
        assert site.mails("no-reply@people.example") == []
        assert "Approved" in site.mails(site.bo)[-1].plain
