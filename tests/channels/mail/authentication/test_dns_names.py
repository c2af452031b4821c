from collections.abc import AsyncIterator

import pytest
from name_server import name_server

from signoff.channels.mail.authentication import dns_names
from signoff.channels.mail.authentication.dns_names import lookup_txt

ZONE = {
    "s1._domainkey.example.org": '"v=DKIM1; p=AA" "BB"',
    "two.example.org": '"a"',
    "mute.example.org": None,
    "empty.example.org": "",
}


@pytest.fixture(autouse=True)
async def asked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    async with name_server(ZONE, monkeypatch):
        yield


async def test_strings_of_one_txt_record_are_joined() -> None:
    assert await lookup_txt("s1._domainkey.example.org") == ["v=DKIM1; p=AABB"]


async def test_name_without_txt_records_returns_an_empty_list() -> None:
    assert await lookup_txt("none.example.org") == []
    assert await lookup_txt("empty.example.org") == []


async def test_silent_name_server_raises_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_names, "MAIL_LOOKUP_SECONDS", 0.2)
    with pytest.raises(OSError, match="does not answer"):
        await lookup_txt("mute.example.org")
