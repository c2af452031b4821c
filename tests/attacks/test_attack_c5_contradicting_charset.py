"""Attack C5: a content type that contradicts itself, as `charset*=a; charset*0*=b`, has a mail lost without a word.

Seen to fail without the mend: with `_parameter` letting the TypeError out, and no fallback in `_read`, nobody is told.
"""

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
    """Bo's `approve`, with that content type."""
    raw = site.reply("approve").as_bytes()
    plain = b'Content-Type: text/plain; charset="utf-8"'
    assert plain in raw
    return raw.replace(plain, b"Content-Type: " + kind.encode())


@pytest.mark.parametrize("kind", CONTRADICTIONS)
async def test_who_is_proved_is_asked_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # His yes is not read, and he is told how to write one. Without the fallback in `_read` of `mail_hearing.py` nobody
    # was told anything.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example")) as site:
        assert "No decision could be read" in await told_after(site, signed(contradicting(site, kind)))


@pytest.mark.parametrize("kind", CONTRADICTIONS)
async def test_who_has_a_card_is_told(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # That nothing was proved, as after any other mail. Without the fallback in `_read` of `mail_hearing.py` nobody was
    # told anything.
    async with mail_site(tmp_path, monkeypatch, {}) as site:
        assert "could not be proved" in await told_after(site, contradicting(site, kind))
