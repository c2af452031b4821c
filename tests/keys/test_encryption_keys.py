import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.keys import encryption_keys
from signoff.keys.encryption_keys import (
    ROTATION_DELAY,
    EncryptionKeyRing,
    create_encryption_key,
    ensure_encryption_keys,
    parse_encryption_keys,
    read_encryption_keys,
)
from signoff.keys.secrets import SecretProvider

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "encryption-keys.json"


def spoil(path: Path) -> None:
    path.write_text("{")


async def ring_at(path: Path, now: datetime) -> EncryptionKeyRing:
    keys = EncryptionKeyRing(f"file:{path}", SecretProvider(), clock=lambda: now)
    await keys.load()
    return keys


async def test_first_key_encrypts_immediately_and_the_next_after_the_delay(path: Path) -> None:
    first, second = (create_encryption_key(path, NOW) for _ in range(2))
    assert (await (await ring_at(path, NOW)).writer())[0] == first
    assert (await (await ring_at(path, NOW + ROTATION_DELAY - timedelta(seconds=1))).writer())[0] == first
    assert (await (await ring_at(path, NOW + ROTATION_DELAY)).writer())[0] == second


async def test_keys_created_together_start_encrypting_at_different_times(path: Path) -> None:
    """Otherwise the order in the file would decide."""
    made = [create_encryption_key(path, NOW) for _ in range(3)]
    assert [each.writes_from - NOW for each in made] == [timedelta(0), ROTATION_DELAY, 2 * ROTATION_DELAY]


async def test_clock_before_all_keys_encrypts_with_the_oldest(path: Path) -> None:
    """A wrong clock never leads to plain text."""
    first = create_encryption_key(path, NOW)
    create_encryption_key(path, NOW)
    assert (await (await ring_at(path, NOW - timedelta(days=400))).writer())[0] == first


async def test_later_key_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption_keys, "_ASK_SECONDS", 0.0)
    create_encryption_key(path, NOW)
    keys = await ring_at(path, NOW)
    assert await keys.reader("00000000") is None
    later = create_encryption_key(path, NOW)
    assert await keys.reader(later.id) is not None


async def test_unknown_keys_are_looked_up_at_a_limited_rate(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_encryption_key(path, NOW)
    keys = await ring_at(path, NOW)
    read: list[Path] = []
    genuine = encryption_keys.read_encryption_keys
    monkeypatch.setattr(encryption_keys, "read_encryption_keys", lambda path: (read.append(path), genuine(path))[1])
    monkeypatch.setattr(encryption_keys, "_ASK_SECONDS", 3_600.0)
    for number in range(50):
        assert await keys.reader(f"{number:08x}") is None
    assert read == []


async def test_keys_stay_in_force_if_their_file_becomes_unreadable(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(encryption_keys, "RENEW_SECONDS", 0.0)
    first = create_encryption_key(path, NOW)
    keys = await ring_at(path, NOW)
    spoil(path)
    with caplog.at_level(logging.WARNING):
        assert (await keys.writer())[0] == first
    assert "stay in force" in caplog.text


async def test_unresponsive_source_blocks_only_one_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    made = encryption_keys.new_encryption_key(NOW)
    content = encryption_keys.EncryptionKeys(keys=(made,)).model_dump_json()
    asked, answers = asyncio.Event(), asyncio.Event()
    answers.set()

    class Vault:
        async def read(self, name: str, tenant: str) -> str | None:
            asked.set()
            await answers.wait()
            return content

    keys = EncryptionKeyRing("secret:keys", SecretProvider(Vault()), clock=lambda: NOW)
    await keys.load()
    monkeypatch.setattr(encryption_keys, "RENEW_SECONDS", 0.0)
    asked.clear()
    answers.clear()
    first = asyncio.create_task(keys.writer())
    await asked.wait()
    second = asyncio.create_task(keys.writer())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (first.done(), second.done()) == (False, True)
    answers.set()
    assert (await first)[0] == second.result()[0] == made


async def test_key_is_introduced_only_by_an_earlier_one(path: Path) -> None:
    first, second = (create_encryption_key(path, NOW) for _ in range(2))
    keys = await ring_at(path, NOW)
    (introduction,) = second.introductions
    assert keys.introduces(second.id, [introduction])
    assert keys.introduces(second.id, ["", introduction])
    assert not keys.introduces("00000000", [introduction])
    assert not keys.introduces(second.id, [introduction.replace(first.id, "00000000")])
    assert not keys.introduces(second.id, [introduction.partition(":")[0], f"{first.id}:", "", ":"])
    assert not keys.introduces(second.id, [])


def test_only_one_of_two_concurrent_first_keys_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key encrypts immediately: replacing it would lose its data."""
    genuine = encryption_keys.new_encryption_key
    earlier: list[str] = []

    def somebody_is_earlier(*given: Any) -> encryption_keys.EncryptionKey:
        monkeypatch.setattr(encryption_keys, "new_encryption_key", genuine)
        earlier.append(create_encryption_key(path, NOW).id)
        return genuine(*given)

    monkeypatch.setattr(encryption_keys, "new_encryption_key", somebody_is_earlier)
    with pytest.raises(ConfigError, match="another process has just created a key"):
        create_encryption_key(path, NOW)
    assert [key.id for key in read_encryption_keys(path).keys] == earlier


def test_key_file_readable_by_others_is_refused(path: Path) -> None:
    create_encryption_key(path, NOW)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_encryption_keys(path)


@table("text", "", "{", "[]", '{"keys": []}', '{"keys": [{"id": "1"}]}', "\x00", '{"keys": [{"secret": "c2VjcmV0"}]}')
def test_invalid_key_file_error_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_encryption_keys(text, "`keys.json`")
    assert "`keys.json` holds no keys (" in caught.value.message
    assert "signoff keys create" in caught.value.message
    assert "c2VjcmV0" not in caught.value.message


def test_key_under_the_id_of_another_is_refused(path: Path) -> None:
    made = [create_encryption_key(path, NOW) for _ in range(2)]
    content = json.loads(path.read_text())
    content["keys"][1]["id"] = made[0].id
    with pytest.raises(ConfigError, match="not the one of this key"):
        parse_encryption_keys(json.dumps(content), "it")


def test_concurrent_first_starts_make_one_key(path: Path) -> None:
    assert ensure_encryption_keys(path, NOW) == ensure_encryption_keys(path, NOW + timedelta(days=1))


async def test_keys_may_come_from_a_secret() -> None:
    made = encryption_keys.new_encryption_key(NOW)
    content = encryption_keys.EncryptionKeys(keys=(made,)).model_dump_json()
    keys = EncryptionKeyRing("env:KEYS", SecretProvider(environment={"KEYS": content}), clock=lambda: NOW)
    await keys.load()
    assert (await keys.writer())[0] == made
    assert made.secret not in repr(made)
