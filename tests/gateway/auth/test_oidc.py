import base64
import hmac
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gateway_login import answered, browser, locked_rig, words
from gateway_rig import GatewayRig
from joserfc import jwt
from oidc_provider import CLIENT, Provider, answer_of, new_key
from provider_login import START, login_settings, sign_in_at_provider, to_provider
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.gateway.auth.oidc import assurance_of, check_secret, provider_of
from signoff.gateway.auth.oidc_provider import AGAIN
from signoff.gateway.pages.sign_in import ATTEMPT
from signoff.keys.secrets import SecretProvider
from signoff.settings import Settings, load_settings
from signoff.testing.builders import a_person


@pytest.fixture
def locked(gateway: GatewayRig, provider: Provider) -> GatewayRig:
    """`ana` is declared by her login, `bo` by his email address."""
    people = (
        a_person("ana", name="Ana", identities={"oidc": (f"{provider.issuer}#ana-at-work",)}),
        Person(id="bo", name="Bo", identities={"email": ("bo@example.com",)}),
        Person(id="gone", name="Gone", active=False, identities={"email": ("gone@example.com",)}),
    )
    return locked_rig(
        gateway,
        people=people,
        **login_settings(provider, {"money": ("finance",)}),
    )


async def test_declared_login_signs_in(gateway: GatewayRig, locked: GatewayRig, provider: Provider) -> None:
    approval = await gateway.asked("pay")
    async with browser(locked) as page:
        shown = (await page.get("/login?next=/tools")).text
        assert "Sign in with 127.0.0.1" in words(shown)
        back = await sign_in_at_provider(page)
        assert (back.status_code, back.headers["location"]) == (303, "/tools")
        assert ATTEMPT not in page.cookies
        card = (await page.get(f"/approvals/{approval}")).text
        assert "Signed in as Ana" in words(card)
        await answered(page, approval, verdict="denied")
    decision = (await gateway.request(approval)).votes[0].decision
    assert (decision.subject, decision.assurance) == ("ana", "session")


@pytest.mark.parametrize(
    ("claims", "who"),
    [
        ({"sub": "b", "email": "bo@example.com", "email_verified": True}, "Bo"),
        ({"sub": "b", "email": "BO@Example.com", "email_verified": True}, "Bo"),
        ({"sub": "z", "name": "Zoe", "groups": ["money"]}, "Zoe"),
        ({"sub": "b", "email": "bo@example.com", "email_verified": False}, ""),
        ({"sub": "b", "email": "bo@example.com"}, ""),
        ({"sub": "b", "email": "bo@example.com", "email_verified": "true"}, ""),
        ({"sub": "g", "email": "gone@example.com", "email_verified": True}, ""),
        ({"sub": "z", "name": "Ana", "groups": ["others"]}, ""),
        ({"sub": "ana"}, ""),
        ({"sub": "ANA-AT-WORK"}, ""),
    ],
)
async def test_login_claims_select_the_person(
    locked: GatewayRig, provider: Provider, claims: dict[str, Any], who: str
) -> None:
    provider.claims = claims
    async with browser(locked) as page:
        back = await sign_in_at_provider(page)
        home = await page.get("/tools")
    if who:
        assert back.status_code == 303, words(back.text)
        assert f"Signed in as {who}" in words(home.text)
    else:
        assert back.status_code == 401
        assert "You are not signed in" in words(back.text)
        assert home.status_code == 303


@table(
    ("claims", "assurance"),
    ({}, "session"),
    ({"amr": ["pwd"]}, "session"),
    ({"amr": ["pwd", "mfa"]}, "mfa"),
    ({"acr": "urn:example:two"}, "mfa"),
    ({"acr": "urn:example:TWO"}, "session"),
    ({"acr": "urn:example:mfa"}, "session"),
    ({"amr": "mfa"}, "session"),
    ({"acr": ["mfa"]}, "session"),
)
def test_assurance_follows_the_providers_claims(claims: dict[str, Any], assurance: str) -> None:
    assert assurance_of(claims, ("urn:example:two",)) == assurance


async def test_decision_after_a_second_factor_has_assurance_mfa(
    gateway: GatewayRig, locked: GatewayRig, provider: Provider
) -> None:
    provider.claims = {"amr": ["pwd", "otp", "mfa"]}
    approval = await gateway.asked("pay")
    async with browser(locked) as page:
        await sign_in_at_provider(page)
        await answered(page, approval, verdict="denied")
    assert (await gateway.request(approval)).votes[0].decision.assurance == "mfa"


LIES: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "x"},
    "no nonce": {"nonce": None},
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "another-client"},
    "many audiences, for another": {"aud": [CLIENT, "another-client"], "azp": "another-client"},
    "many audiences, for nobody": {"aud": [CLIENT, "another-client"]},
    "expired": {"exp": int(time.time()) - 300},
    "no end": {"exp": None},
    "made tomorrow": {"iat": int(time.time()) + 86_400},
    "not yet": {"nbf": int(time.time()) + 86_400},
    "another access token": {"at_hash": "AAAA"},
    "nobody": {"sub": None},
    "an end that is none": {"exp": "never"},
    "methods that are none": {"amr": "mfa"},
}


@pytest.mark.parametrize("lie", LIES)
async def test_invalid_id_token_is_rejected(locked: GatewayRig, provider: Provider, lie: str) -> None:
    provider.claims = LIES[lie]
    async with browser(locked) as page:
        back = await sign_in_at_provider(page)
        assert back.status_code == 401, lie
        assert "You are not signed in" in words(back.text)
        assert (await page.get("/tools")).status_code == 303


async def test_id_token_signed_with_a_foreign_key_is_rejected(locked: GatewayRig, provider: Provider) -> None:
    now = int(time.time())
    good = {"iss": provider.issuer, "sub": "ana-at-work", "aud": CLIENT, "iat": now, "exp": now + 300}
    stranger = new_key()
    public = provider.key.as_pem(private=False)
    guessed = f"{_part({'alg': 'HS256', 'kid': provider.key.kid})}.{_part(good)}"
    tokens = {
        "another key": jwt.encode({"alg": "RS256", "kid": stranger.kid}, good, stranger),
        "another key, our id": jwt.encode({"alg": "RS256", "kid": provider.key.kid}, good, stranger),
        "no signature": f"{_part({'alg': 'none'})}.{_part(good)}.",
        "the public key as a secret": f"{guessed}.{_base64(hmac.digest(public, guessed.encode(), 'sha256'))}",
        "garbage": "a.b.c",
        "empty": "",
        "not a token": "x",
    }
    for what, written in tokens.items():
        provider.id_token = written
        async with browser(locked) as page:
            assert (await sign_in_at_provider(page)).status_code == 401, what
            assert (await page.get("/tools")).status_code == 303


def _part(data: dict[str, Any]) -> str:
    return _base64(json.dumps(data).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_rotated_provider_key_is_fetched_once(gateway: GatewayRig, provider: Provider) -> None:
    now = [datetime.now(UTC)]
    provider.claims = {"groups": ["money"]}
    locked = locked_rig(
        gateway,
        clock=lambda: now[0],
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret="env:THE_SECRET",
        oidc_roles={"money": ("finance",)},
    )

    async def status() -> int:
        async with browser(locked) as page:
            return (await sign_in_at_provider(page)).status_code

    assert [await status(), await status(), provider.asked.count("keys")] == [303, 303, 1]
    provider.key = new_key()
    assert [await status(), provider.asked.count("keys")] == [401, 1], "asked a moment ago"
    now[0] += AGAIN
    assert [await status(), provider.asked.count("keys")] == [303, 2]
    now[0] += AGAIN
    assert [await status(), provider.asked.count("keys")] == [303, 2]


async def test_provider_callback_works_once_and_in_one_browser(locked: GatewayRig, provider: Provider) -> None:
    async with browser(locked) as page, browser(locked) as victim:
        back = await to_provider(page)
        attempt = page.cookies[ATTEMPT]
        assert (await victim.get(back)).status_code == 401, "begun elsewhere (login CSRF)"
        victim_back = await to_provider(victim)
        assert (await victim.get(back)).status_code == 401, "another browser's state"
        assert (await victim.get(victim_back)).status_code == 401, "an attempt is used up by any answer"
        given = answer_of(back)
        for altered in ({**given, "state": "x"}, {"code": given["code"]}, {"state": given["state"]}, {}):
            page.cookies.set(ATTEMPT, attempt)
            assert (await page.get("/login/oidc/callback", params=altered)).status_code == 401
        page.cookies.set(ATTEMPT, attempt[:-2] + "AA")
        assert (await page.get(back)).status_code == 401
        page.cookies.delete(ATTEMPT)
        page.cookies.set(ATTEMPT, attempt)
        assert (await page.get(back)).status_code == 303
    async with browser(locked) as again:
        again.cookies.set(ATTEMPT, attempt)
        replayed = await again.get(back)
        assert replayed.status_code == 401
        assert "does not know this sign-in, or it has expired" in words(replayed.text)
        assert (await again.get("/tools")).status_code == 303


async def test_sign_in_attempt_expires_after_ten_minutes(gateway: GatewayRig, provider: Provider) -> None:
    now = [datetime.now(UTC)]
    locked = locked_rig(gateway, clock=lambda: now[0], oidc_issuer=provider.issuer, oidc_client_id=CLIENT)
    async with browser(locked) as page:
        back = await to_provider(page)
        now[0] += timedelta(minutes=10)
        answer = await page.get(back)
    assert answer.status_code == 401
    assert "took longer than ten minutes" in words(answer.text)


async def test_refusal_by_the_provider_is_shown(locked: GatewayRig, provider: Provider) -> None:
    async with browser(locked) as page:
        state = answer_of(await to_provider(page))["state"]
        denied = {"state": state, "error": "access_denied", "error_description": "<script>alert(1)</script>"}
        answer = await page.get("/login/oidc/callback", params=denied)
        assert answer.status_code == 401
        assert "did not agree" in words(answer.text)
        assert "alert(1)" not in answer.text
        given = answer_of(await to_provider(page))
        mixed = await page.get("/login/oidc/callback", params={**given, "iss": "https://evil.example"})
        assert "another provider" in words(mixed.text)


async def test_unavailable_provider_leaves_tokens_usable(
    gateway: GatewayRig, locked: GatewayRig, provider: Provider
) -> None:
    provider.discovery = {"issuer": "https://evil.example"}
    async with browser(locked) as page:
        lying = await page.get(START)
        assert lying.status_code == 503
        assert "names another issuer" in words(lying.text)
    for wrong in ({"token_endpoint": "ftp://x"}, {"jwks_uri": None}, {"authorization_endpoint": "javascript:x"}):
        provider.discovery = wrong
        async with browser(locked) as page:
            assert (await page.get(START)).status_code == 503
    nowhere = locked_rig(gateway, oidc_issuer="http://127.0.0.1:9", oidc_client_id=CLIENT)
    async with browser(nowhere) as page:
        away = await page.get(START)
        assert away.status_code == 503
        assert "or use a token" in words(away.text)
        assert (await page.get("/login")).status_code == 200


async def test_incomplete_provider_settings_are_refused_at_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = lambda: datetime.now(UTC)  # noqa: E731
    issuer = "https://login.example.com"
    secrets = SecretProvider()
    with pytest.raises(ConfigError, match="SIGNOFF_OIDC_CLIENT_ID"):
        provider_of(Settings(oidc_issuer=issuer), clock, secrets)
    for reference in ("env:NOT_THERE", f"file:{tmp_path}/not-there", f"file:{tmp_path}", "secret:oidc"):
        with pytest.raises(ConfigError, match="`oidc_client_secret` needs the"):
            await check_secret(Settings(oidc_issuer=issuer, oidc_client_secret=reference), secrets)
    (tmp_path / "secret").write_text("hush\n")
    given = Settings(oidc_issuer=issuer, oidc_client_id="x", oidc_client_secret=f"file:{tmp_path}/secret")
    await check_secret(given, secrets)
    assert secrets.known_values == {"hush"}
    assert provider_of(given, clock, secrets) is not None
    assert provider_of(Settings(), clock, secrets) is None
    await check_secret(Settings(), secrets)


def test_secret_value_in_a_setting_is_refused(clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_OIDC_CLIENT_SECRET", "hunter2-hunter2")
    with pytest.raises(ConfigError, match=r"SIGNOFF_OIDC_CLIENT_SECRET.*env:NAME") as refused:
        load_settings()
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in str(refused.value.context)


@pytest.mark.parametrize(
    "issuer", ["http://login.example.com", "login.example.com", "https://x.example/?a=b", "ftp://x"]
)
def test_insecure_or_invalid_issuer_address_is_refused(clean_env: pytest.MonkeyPatch, issuer: str) -> None:
    clean_env.setenv("SIGNOFF_OIDC_ISSUER", issuer)
    with pytest.raises(ConfigError, match="SIGNOFF_OIDC_ISSUER"):
        load_settings()
