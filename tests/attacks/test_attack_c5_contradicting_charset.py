"""A content type such as `charset*=a; charset*0*=b` must not lose an email silently."""

from pathlib import Path

import pytest
from mail_kit import signed
from mail_site import MailSite, mail_site, with_keys

CONTRADICTIONS = (
    "text/plain; charset*=utf-8''utf-8; charset*0*=x",
    "text/plain; charset=utf-8; name*=a; name*0*=b",
    "multipart/mixed; boundary*=a; boundary*0=b",
)


async def told_after(site: MailSite, mail: bytes) -> str:
    before = len(site.mails(site.bo))
    assert await site.state_after(mail) == "pending"
    return "".join(each.plain for each in site.mails(site.bo)[before:])


def contradicting(site: MailSite, kind: str) -> bytes:
    raw = site.reply("approve").as_bytes()
    plain = b'Content-Type: text/plain; charset="utf-8"'
    assert plain in raw
    return raw.replace(plain, b"Content-Type: " + kind.encode())


@pytest.mark.parametrize("kind", CONTRADICTIONS)
async def test_proved_sender_of_a_contradictory_mail_is_asked_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # His approval is not read, and the reply explains how to write one. Without the fallback in `_read` of
    # `mail_hearing.py` no reply was sent.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        assert "We found no decision" in await told_after(site, signed(contradicting(site, kind)))


@pytest.mark.parametrize("kind", CONTRADICTIONS)
async def test_unproved_sender_of_a_contradictory_mail_is_informed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The reply states that the sender was not proved, as after any other mail. Without the fallback in `_read` of
    # `mail_hearing.py` no reply was sent.
    async with mail_site(tmp_path, monkeypatch, {}) as site:
        assert "could not verify" in await told_after(site, contradicting(site, kind))
