"""Silent name servers or an expensive body hash must not keep the reader of emails busy.

Without turns per domain, an honest email waits for every stranger's.
"""

import asyncio
import time
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import dkim.canonicalization
import pytest
from mail_kit import signed, written
from mail_site import MailSite, mail_site, with_keys

from signoff.channels.envelopes import InboundBatch
from signoff.channels.mail.authentication import dns_names, verification_queue
from signoff.contracts.errors import Unavailable
from signoff.contracts.limits import MAIL_LOOKUPS_AT_ONCE, MAIL_STRANGERS_AT_ONCE

PEOPLE = "people.example"
SECONDS = 0.6
"""Instead of 3 seconds for all names of an email."""


def mute(number: int) -> str:
    return f"d{number}.mute{number}.example"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_names, "MAIL_LOOKUP_SECONDS", SECONDS)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow emails so much time that none waiting for a name ends before the test."""
    monkeypatch.setattr(dns_names, "MAIL_LOOKUP_SECONDS", 600.0)


def strange(sender: str, *selectors: str, domain: str = "") -> bytes:
    """Each signature is plausible until its key is looked up."""
    mail: EmailMessage | bytes = written(sender, "approvals@signoff.example", "approve K7Q-2FM")
    for selector in selectors or ("s1",):
        mail = signed(mail, selector=selector, domain=domain)
    assert isinstance(mail, bytes)
    return mail


MUTE = {f"mute{number}.example": None for number in range(20)}


@pytest.mark.usefixtures("hurried")
async def test_lookups_of_one_mail_share_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Three keys and five names of DMARC's walk, two at a time, and none of them again for the next such mail. Without
    # the limit for all of them in `DnsNames.find` every name was looked up, and without the cache in `DnsNames` names
    # were looked up again.
    mail = strange("eve@a.b.c.mute0.example", "s1", "s2", "s3", domain="mute0.example")
    async with mail_site(tmp_path, monkeypatch, with_keys(PEOPLE, more=MUTE)) as site:
        await site.take(mail)
        asked = site.names.asked
        # The time ended before a third lookup started.
        assert len(asked) == MAIL_LOOKUPS_AT_ONCE
        before = asked.copy()
        await site.take(strange("eve@a.b.c.mute0.example", "s1", "s2", domain="mute0.example"))
        assert all(asked[name] == times for name, times in before.items())


async def test_missing_dns_name_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # For any number of emails. Without the cache in `DnsNames` it was looked up five times.
    async with mail_site(tmp_path, monkeypatch, {}) as site:
        for _ in range(5):
            await site.take(strange("eve@else.example"))
        assert site.names.asked == {"s1._domainkey.else.example": 1}


@pytest.mark.usefixtures("patient")
async def test_proved_sender_does_not_wait_for_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Twenty silent domains take six places. The other two serve Bo, and he decides at once. Without
    # `MAIL_STRANGERS_AT_ONCE` in `MailQueue._find_next` strangers took all eight places, and Bo waited for them.
    async with mail_site(tmp_path, monkeypatch, with_keys(PEOPLE, more=MUTE)) as site:
        await site.take(signed(site.reply("hm")))
        strangers = [asyncio.create_task(site.take(strange(f"eve@{mute(number)}"))) for number in range(20)]
        while len(site.names.asked) < 1 + MAIL_STRANGERS_AT_ONCE:
            await asyncio.sleep(0.01)
        assert await site.state_after(signed(site.reply("approve"))) == "approved"
        assert not any(task.done() for task in strangers)
        assert len(site.names.asked) == 1 + MAIL_STRANGERS_AT_ONCE
        await left(strangers)


@pytest.mark.usefixtures("patient")
async def test_slow_domain_delays_only_its_own_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten emails of one silent domain, and a sender of another domain without proof still has a turn. With several turns
    # at a time for one domain in `MailQueue._find_next` ten of its names were looked up.
    async with mail_site(tmp_path, monkeypatch, with_keys(PEOPLE, more=MUTE)) as site:
        selectors = [f"k{number}" for number in range(10)]
        slow = [asyncio.create_task(site.take(strange(f"eve@{mute(0)}", each))) for each in selectors]
        while not site.names.asked:
            await asyncio.sleep(0.01)
        assert await site.state_after(signed(site.reply("approve"))) == "approved"
        assert not any(task.done() for task in slow)
        assert sum(mute(0) in name for name in site.names.asked) == 1
        await left(slow)
        # Cancelled emails leave no turn taken and no bytes.
        queue = vars(vars(site.rig.channel)["_queue"])
        assert (queue["_busy"], queue["_waiting"], held_by(site)) == (set(), [], 0)


@pytest.mark.usefixtures("patient")
async def test_mail_beyond_the_queue_limit_is_refused_temporarily(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limits of one domain and of all strangers refuse temporarily; mail of proved senders is still accepted.
    # Without the refusal in `MailQueue.turn` all were accepted.
    async with mail_site(tmp_path, monkeypatch, with_keys(PEOPLE, more=MUTE)) as site:
        await site.take(signed(site.reply("hm")))
        size = len(strange(f"eve@{mute(0)}"))
        monkeypatch.setattr(verification_queue, "MAIL_DOMAIN_BYTES", 2.5 * size)
        monkeypatch.setattr(verification_queue, "MAIL_WAITING_BYTES", 3.5 * size)
        tasks: list[asyncio.Task[InboundBatch]] = []
        for number in (0, 0, 0, 1, 2):
            held = held_by(site)
            tasks.append(asyncio.create_task(site.take(strange(f"eve@{mute(number)}"))))
            while held_by(site) == held and not tasks[-1].done():
                await asyncio.sleep(0.01)
        assert await site.state_after(signed(site.reply("approve"))) == "approved"
        taken = await left(tasks)
        assert [isinstance(each, Unavailable) for each in taken] == [False, False, True, False, True]


async def left(tasks: list[asyncio.Task[InboundBatch]]) -> list[Any]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


def held_by(site: MailSite) -> int:
    return int(vars(vars(site.rig.channel)["_queue"])["_bytes"].total())


@pytest.mark.parametrize("kind", ["proved", "without a key", "altered"])
async def test_approvers_mail_needs_the_same_lookups_as_a_strangers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For an approver, another person and an unknown sender the same names are looked up in the same order, and the
    # channel holds no names to distinguish them. With keys looked up only for Bo and Cy in `EmailChannel.read`, the
    # unknown sender's keys were not. Without the comparison of hashes in `flaw`, an altered email's keys were looked
    # up.
    asked = []
    for name in ("bo", "cy", "nobody"):
        zone = with_keys(PEOPLE) if kind == "proved" else {}
        async with mail_site(tmp_path, monkeypatch, zone) as site:
            mail = strange(f"{name}@{PEOPLE}", "s1", "s2")
            await site.take(mail + (b"more\r\n" if kind == "altered" else b""))
            asked.append(list(site.names.asked.items()))
            assert not any("people" in held or "directory" in held for held in vars(site.rig.channel))
            assert "people" not in vars(site.rig.channel.context)
        (tmp_path / "signoff.db").unlink()
    assert asked[0] == asked[1] == asked[2]
    assert bool(asked[0]) == (kind != "altered")


async def test_long_mail_is_hashed_cheaply_outside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 10 MB and three false signatures in both forms, hashed outside the event loop, which continues. Read on the event
    # loop by `EmailChannel.read` the loop ran once, and with dkimpy's canonical body made for each signature in
    # `BodyHashes.of` it took more than three times as long.
    false = "DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/{}; d=else.example; s=s{}; h=from; bh=AAAA; b=AAAA\r\n"
    head = "".join(false.format(form, number) for number, form in enumerate(("relaxed", "simple", "relaxed")))
    words = written("eve@else.example", "approvals@signoff.example", "approve K7Q-2FM").as_bytes()
    mail = head.encode() + words + b"a  \tb \r\n" * ((10 * 1024 * 1024 - 2_000) // 8)
    async with mail_site(tmp_path, monkeypatch, {}) as site:
        raw = site.brought(mail)
        begun = time.process_time()
        reading = asyncio.create_task(site.rig.receiver.take(site.rig.channel.name, raw))
        went_on = 0
        while not reading.done():
            await asyncio.sleep(0.005)
            went_on += 1
        await reading
        cost, begun = time.process_time() - begun, time.process_time()
        dkim.canonicalization.Relaxed.canonicalize_body(mail)
        # Compared with the same machine at the same time: dkimpy needs 0.4 s to 1.4 s for one such signature.
        assert cost < 2 * (time.process_time() - begun)
        assert went_on >= 10
        assert site.names.asked == {}
