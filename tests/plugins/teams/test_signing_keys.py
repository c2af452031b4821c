import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from signoff.channels.channel_errors import Forged, NotDelivered
from signoff.plugins.teams.signing_keys import AGAIN, FRESH, KEPT, SigningKeys
from signoff.testing.fake_teams import APP_ID, ISSUER, FakeTeams, fake_teams

START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@dataclasses.dataclass
class Setting:
    vendor: FakeTeams
    keys: SigningKeys
    now: datetime = START

    async def check(self, token: str = "") -> str:
        bearer = f"Bearer {token or self.vendor.token()}"
        await self.keys.prepare(bearer)
        return self.keys.check(bearer, "msteams")


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with fake_teams() as vendor:
        address = f"{vendor.url}/v1/.well-known/openidconfiguration"
        keys = SigningKeys(address, ISSUER, APP_ID, lambda: made.now)
        made = Setting(vendor, keys)
        vendor.clock = lambda: made.now
        yield made
        await keys.close()


async def test_keys_are_fetched_once_a_day(setting: Setting) -> None:
    assert await setting.check() == setting.vendor.service
    await setting.check()
    assert setting.vendor.fetches == 1
    setting.now += FRESH + timedelta(seconds=1)
    await setting.check()
    assert setting.vendor.fetches == 2


async def test_rotated_key_is_fetched_and_the_old_one_forgotten(setting: Setting) -> None:
    await setting.check()
    old = setting.vendor.token()
    setting.now += AGAIN
    setting.vendor.rotate()
    assert await setting.check() == setting.vendor.service
    with pytest.raises(Forged):
        await setting.check(old)


async def test_unknown_keys_cause_one_fetch_within_a_pause(setting: Setting) -> None:
    await setting.check()
    setting.now += AGAIN
    for number in range(5):
        with pytest.raises(Forged):
            await setting.check(setting.vendor.token(header={"kid": f"unknown-{number}"}))
    assert setting.vendor.fetches == 2
    assert await setting.check() == setting.vendor.service


async def test_key_at_the_end_of_a_long_list_counts(setting: Setting) -> None:
    setting.vendor.older_keys = 300
    assert await setting.check() == setting.vendor.service


async def test_malformed_token_causes_no_fetch(setting: Setting) -> None:
    token = setting.vendor.token()
    for wrong in ("a.b.c", token.replace(".", ""), setting.vendor.token(header={"alg": "PS256"}), f"{token}.x"):
        with pytest.raises(Forged):
            await setting.check(wrong)
    assert setting.vendor.fetches == 0


async def test_key_without_endorsement_is_forged(setting: Setting) -> None:
    for endorsements in ((), ("webchat",)):
        setting.vendor.endorsements = endorsements
        setting.now += FRESH + timedelta(seconds=1)
        with pytest.raises(Forged):
            await setting.check()


async def test_expiry_has_five_minutes_of_leeway(setting: Setting) -> None:
    moment = int(setting.now.timestamp())
    assert await setting.check(setting.vendor.token(exp=moment - 299)) == setting.vendor.service
    assert await setting.check(setting.vendor.token(nbf=moment + 299)) == setting.vendor.service
    for wrong in ({"exp": moment - 301}, {"nbf": moment + 301}):
        with pytest.raises(Forged):
            await setting.check(setting.vendor.token(**wrong))


async def test_outage_keeps_the_last_keys_for_some_days(setting: Setting) -> None:
    await setting.check()
    setting.vendor.trouble = "down"
    setting.now += KEPT - timedelta(seconds=1)
    assert await setting.check() == setting.vendor.service
    setting.now += timedelta(seconds=2)
    with pytest.raises(NotDelivered):
        await setting.check()
    setting.now += AGAIN
    setting.vendor.trouble = ""
    assert await setting.check() == setting.vendor.service


async def test_first_outage_is_no_forgery(setting: Setting) -> None:
    setting.vendor.trouble = "down"
    with pytest.raises(NotDelivered):
        await setting.check()


async def test_document_of_another_issuer_or_host_is_not_believed(setting: Setting) -> None:
    for wrong in ({"issuer": "https://evil.example"}, {"jwks_uri": "https://evil.example/keys"}, {"jwks_uri": None}):
        setting.vendor.metadata = wrong
        setting.now += AGAIN
        with pytest.raises(NotDelivered):
            await setting.check()
    assert setting.vendor.fetches == 0
