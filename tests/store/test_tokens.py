import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signoff.contracts.errors import NotFound, Refused
from signoff.store.browser_sessions import LIFETIME, StoredSessions
from signoff.store.store import Store, open_store
from signoff.store.tokens import LONGEST, SCOPES, SEEN_EVERY, Tokens

NOW = datetime(2030, 1, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)


async def test_token_is_found_only_by_its_secret(store: Store) -> None:
    tokens = Tokens(store)
    secret, token = await tokens.create("main", "ana", ["decide", "read"], lifetime=DAY, now=NOW)
    assert secret.startswith("sgf_")
    assert len(secret) == 4 + 43
    found = await tokens.authenticate(secret, NOW)
    assert (found.tenant, found.person, found.scopes) == ("main", "ana", ("read", "decide"))
    assert found.expires_at == NOW + DAY
    for wrong in ("", "sgf_", secret[:-1], secret + "A", secret.upper(), token.id, "\ud800"):
        with pytest.raises(Refused, match="not known") as refused:
            await tokens.authenticate(wrong, NOW)
        assert refused.value.code == "unauthenticated"


async def test_database_does_not_hold_the_secret(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        secret, _ = await Tokens(store).create("main", "ana", ["read"], lifetime=DAY, now=NOW)
        cookie = "c" * 64
        await StoredSessions(store).open(cookie, tenant="main", person="ana", assurance="session", now=NOW)
    dump = "\n".join(sqlite3.connect(tmp_path / "s.db").iterdump())
    assert "ana" in dump
    assert secret not in dump
    assert secret[4:] not in dump
    assert cookie not in dump


async def test_token_expires_and_may_be_revoked(store: Store) -> None:
    tokens = Tokens(store)
    secret, token = await tokens.create("main", "ana", ["read"], lifetime=DAY, now=NOW)
    await tokens.authenticate(secret, NOW + DAY - timedelta(milliseconds=1))
    with pytest.raises(Refused, match="expired on 2030-01-03"):
        await tokens.authenticate(secret, NOW + DAY)
    ended = await tokens.revoke(token.id, "main", NOW)
    assert (await tokens.revoke(token.id, "main", NOW + DAY)).revoked_at == ended.revoked_at == NOW
    with pytest.raises(Refused, match="revoked"):
        await tokens.authenticate(secret, NOW)


async def test_last_use_of_a_token_is_recorded(store: Store) -> None:
    tokens = Tokens(store)
    secret, token = await tokens.create("main", "ana", ["read"], lifetime=DAY, now=NOW)
    moments = [NOW, NOW + SEEN_EVERY / 2, NOW + SEEN_EVERY * 2]
    used = []
    for moment in moments:
        await tokens.authenticate(secret, moment)
        used.append((await tokens.all("main"))[0].used_at)
    assert used == [NOW, NOW, NOW + SEEN_EVERY * 2]
    await tokens.revoke(token.id, "main", NOW)
    with pytest.raises(Refused):
        await tokens.authenticate(secret, NOW + DAY / 2)
    assert (await tokens.all("main"))[0].used_at == NOW + SEEN_EVERY * 2


async def test_token_belongs_to_its_tenant(store: Store) -> None:
    tokens = Tokens(store)
    secret, token = await tokens.create("acme", "ana", ["read"], lifetime=DAY, now=NOW)
    assert await tokens.all("main") == []
    with pytest.raises(NotFound, match="signoff token list"):
        await tokens.revoke(token.id, "main", NOW)
    assert (await tokens.authenticate(secret, NOW)).tenant == "acme"


async def test_peer_token_excludes_all_other_scopes(store: Store) -> None:
    tokens = Tokens(store)
    secret, _ = await tokens.create("main", "ana", ["peer"], lifetime=DAY, now=NOW)
    assert (await tokens.authenticate(secret, NOW)).scopes == ("peer",)
    for other in SCOPES:
        with pytest.raises(Refused, match="excludes all others"):
            await tokens.create("main", "ana", ["peer", other], lifetime=DAY, now=NOW)
    assert "peer" not in SCOPES


@pytest.mark.parametrize("lifetime", [timedelta(0), -DAY, LONGEST + timedelta(seconds=1)])
async def test_token_without_a_valid_lifetime_or_scope_is_refused(store: Store, lifetime: timedelta) -> None:
    with pytest.raises(Refused, match="366 days"):
        await Tokens(store).create("main", "ana", ["read"], lifetime=lifetime, now=NOW)
    with pytest.raises(Refused, match="scope"):
        await Tokens(store).create("main", "ana", [], lifetime=DAY, now=NOW)


async def test_session_lasts_until_it_is_closed_or_expires(store: Store) -> None:
    sessions = StoredSessions(store)
    opened = await sessions.open("a" * 64, tenant="main", person="ana", assurance="mfa", now=NOW)
    assert await sessions.find("a" * 64, NOW) == opened
    assert (opened.assurance, opened.scopes) == ("mfa", ("read", "decide", "start"))
    assert await sessions.find("b" * 64, NOW) is None
    assert await sessions.find("a" * 64, NOW + LIFETIME) is None
    await sessions.open("b" * 64, tenant="main", person="bo", assurance="session", now=NOW + LIFETIME)
    await sessions.close("b" * 64)
    assert await sessions.find("b" * 64, NOW + LIFETIME) is None
    assert await sessions.find("a" * 64, NOW) is None, "what is over is forgotten"


async def test_session_has_the_scopes_and_lifetime_of_its_token(store: Store) -> None:
    tokens, sessions = Tokens(store), StoredSessions(store)
    _, token = await tokens.create("main", "ana", ["read"], lifetime=timedelta(hours=1), now=NOW)
    opened = await sessions.open("a" * 64, tenant="main", person="ana", assurance="session", now=NOW, token=token)
    assert (opened.scopes, opened.expires_at) == (("read",), token.expires_at)
    assert await sessions.find("a" * 64, NOW) == opened
    await tokens.revoke(token.id, "main", NOW)
    assert await sessions.find("a" * 64, NOW) is None
