"""The key holder of `co.uk` or `github.io` must not sign an approval for everyone below it."""

from pathlib import Path

import pytest
from mail_kit import key_record, signed
from mail_site import mail_site, with_keys

ABOVE, BELOW = "hosting.example", "people.hosting.example"


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ({}, "pending"),
        ({f"_dmarc.{BELOW}": '"v=DMARC1; p=reject"'}, "pending"),
        ({f"_dmarc.{ABOVE}": '"v=DMARC1; p=reject; psd=y"'}, "pending"),
        ({f"_dmarc.{ABOVE}": '"v=DMARC1; p=none"', f"_dmarc.{BELOW}": '"v=DMARC1; p=none; psd=n"'}, "pending"),
        ({f"_dmarc.{ABOVE}": '"v=DMARC1; p=none"', f"_dmarc.{BELOW}": '"v=DMARC1; adkim=s; p=none"'}, "pending"),
        ({f"_dmarc.{ABOVE}": '"v=DMARC1; p=none"', "_dmarc.example": '"v=DMARC1; p=none; psd=y"'}, "approved"),
        ({f"_dmarc.{ABOVE}": '"v=DMARC1; p=none"'}, "approved"),
    ],
    ids=["no record", "its own record", "a public suffix", "its own boundary", "its own name", "marked above", "one"],
)
async def test_parent_domain_signs_only_within_its_organisation(
    records: dict[str, str], state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Decided by DMARC's walk. The last two are organisations and show that no other rule stops the rest. With
    # `may_not_sign` always empty the five that should wait were approved.
    async with mail_site(tmp_path, monkeypatch, with_keys(ABOVE, more=records), domain=BELOW) as site:
        assert await site.state_after(signed(site.reply(), domain=ABOVE)) == state


@pytest.mark.parametrize(
    ("tags", "signer", "state"),
    [
        ("t=y; ", "", "pending"),
        ("t=y:s; ", "", "pending"),
        ("h=sha1; ", "", "pending"),
        ("s=tlsrpt; ", "", "pending"),
        ("s=other; ", "", "pending"),
        ("t=s; ", "@sub.people.example", "pending"),
        ("t=s; ", "@people.example", "approved"),
        ("", "@sub.people.example", "approved"),
        ("h=sha1:sha256; s=*; t=x; ", "", "approved"),
    ],
)
async def test_restrictions_in_a_key_record_are_respected(
    tags: str, signer: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key in test mode, for another hash, another service or the exact name only. With `_key_flaw` always empty the
    # keys in test mode, for another hash or for the exact name approved; dkimpy refused those for another service.
    record = key_record(tags)
    quoted = " ".join(f'"{record[at : at + 200]}"' for at in range(0, len(record), 200))
    zone = {"s1._domainkey.people.example": quoted}
    async with mail_site(tmp_path, monkeypatch, zone) as site:
        assert await site.state_after(signed(site.reply(), signer=signer)) == state
