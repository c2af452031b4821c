"""An email carries its own Authentication-Results in our server's name, a forged `Received`, or both.

Fields must not count at any position, and one `pass` among several must not suffice.
"""

from pathlib import Path

import pytest
from mail_kit import signed
from mail_servers import MailServer, mail_servers
from mail_site import mail_site, with_keys

SIGNING = [each for each in mail_servers() if each.options]
NAMELESS = next(each for each in mail_servers() if not each.options)
ANY = "mx2.messagingengine.com"


def name_of(server: MailServer) -> str:
    named = str(server.options["authserv_id"])
    return ANY if "*" in named else named


def forged(name: str) -> bytes:
    results = "spf=pass smtp.mailfrom=people.example; dmarc=pass header.from=people.example"
    return f"Authentication-Results: {name}; {results}\r\n".encode()


@pytest.mark.parametrize("server", mail_servers(), ids=str)
async def test_results_of_each_documented_mail_server_count(
    server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each documented mail server, with its documented options, and an email signed by its sender. Without the step over
    # `_TRACE` in `ResultsServer.results` the fields that Postfix, rspamd and Gmail write below their `Received` did
    # not count.
    async with mail_site(tmp_path, monkeypatch, with_keys("people.example"), **server.options) as site:
        assert await site.state_after(server.takes(signed(site.reply()), site.bo)) == "approved"


@pytest.mark.parametrize("server", SIGNING, ids=str)
async def test_forged_pass_next_to_a_fail_does_not_count(
    server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Our server reported no pass, and the mail's own field right below does not change that. With one `pass` among
    # several sufficient in `_by_results` the first mail of each server approved.
    for result in ("fail", "none", "temperror"):
        async with mail_site(tmp_path, monkeypatch, {}, **server.options) as site:
            head = server.takes(b"", site.bo).replace(b"dmarc=pass", f"dmarc={result}".encode())
            assert await site.state_after(head + forged(name_of(server)) + site.reply().as_bytes()) == "pending"
        (tmp_path / "signoff.db").unlink()


@pytest.mark.parametrize("server", SIGNING, ids=str)
async def test_results_brought_by_the_mail_never_count_alone(
    server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Below the sender's own `Received`, above a made-up one in our server's name, or in another's name. With fields
    # counted at any position in `ResultsServer.results` the first mail of each server approved.
    name = name_of(server)
    own = f"Received: from x by {name} (Postfix) with ESMTPS id 1; Sun, 22 Nov 2026 14:00:00 +0000\r\n".encode()
    other = own.replace(name.encode(), b"mx.else.example")
    below = b"Received: by mx.else.example with ESMTP; Sun, 22 Nov 2026 14:00:00 +0000\r\n"
    tries = (
        below + forged(name),
        below + forged(name) + own,
        forged(f"{name}.else.example"),
        forged("mx.else.example"),
    )
    async with mail_site(tmp_path, monkeypatch, {}, **server.options) as site:
        for number, brought in enumerate(tries):
            mail = brought + site.reply(Message_ID=f"<{number}@people.example>").as_bytes()
            # Our server's own results are missing, as while its filters are down.
            head = b"".join(line for line in _fields(server.takes(b"", site.bo)) if b"results:" not in line.lower())
            assert await site.state_after(head + mail) == "pending", brought
        # Behind a server with another name no field counts.
        assert await site.state_after(other + below + forged(name) + site.reply().as_bytes()) == "pending"
        # Only the position was wrong before.
        assert await site.state_after(own + forged(name) + site.reply().as_bytes()) == "approved"


async def test_results_without_a_server_name_never_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As Exchange Online writes them, on an email whose key is unavailable; the first word of the second one is no name.
    # With the first word taken for a name in `parse_results` the second installation approved.
    taken_by = "*.*.prod.outlook.com"
    for options in ({}, {"authserv_id": "spf", "received_by": taken_by}):
        async with mail_site(tmp_path, monkeypatch, {}, **options) as site:
            assert await site.state_after(NAMELESS.takes(signed(site.reply()), site.bo)) == "pending"
        (tmp_path / "signoff.db").unlink()


@pytest.mark.parametrize("greeting", ["x(", 'x"', "by mx.else.example", "x) by mx.else.example (", "by"])
async def test_greeting_of_the_sender_cannot_hide_our_received_field(
    greeting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Our server's field is then unclear, and a made-up one below it is not taken for its own. With an unclear field
    # skipped in `_by` every greeting approved.
    own = "Received: from {} (unknown [192.0.2.7]) by mx.example.com (Postfix) with ESMTP id 1; Sun, 22 Nov 2026\r\n"
    brought = forged("mx.example.com") + own.format("y").encode()
    async with mail_site(tmp_path, monkeypatch, {}, authserv_id="mx.example.com") as site:
        mail = own.format(greeting).encode() + b"Subject-Of: x\r\n" + brought + site.reply().as_bytes()
        assert await site.state_after(mail) == "pending"


def _fields(head: bytes) -> list[bytes]:
    """Each field keeps its line ends."""
    fields: list[bytes] = []
    for line in head.splitlines(keepends=True):
        if line[:1] in b" \t" and fields:
            fields[-1] += line
        else:
            fields.append(line)
    return fields
