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
    """Leave half a file."""
    path.write_text("{")


async def ring_at(path: Path, now: datetime) -> EncryptionKeyRing:
    """The keys of a file as a process has them whose clock says `now`."""
    keys = EncryptionKeyRing(f"file:{path}", SecretProvider(), clock=lambda: now)
    await keys.load()
    return keys


async def test_the_first_key_encrypts_at_once_and_the_next_when_everybody_has_it(path: Path) -> None:
    first, second = (create_encryption_key(path, NOW) for _ in range(2))
    assert (await (await ring_at(path, NOW)).writer())[0] == first
    assert (await (await ring_at(path, NOW + ROTATION_DELAY - timedelta(seconds=1))).writer())[0] == first
    assert (await (await ring_at(path, NOW + ROTATION_DELAY)).writer())[0] == second


async def test_two_keys_made_at_once_do_not_encrypt_from_the_same_moment(path: Path) -> None:
    """Which of them encrypts would depend on their order in the file."""
    made = [create_encryption_key(path, NOW) for _ in range(3)]
    assert [each.writes_from - NOW for each in made] == [timedelta(0), ROTATION_DELAY, 2 * ROTATION_DELAY]


async def test_a_clock_that_is_behind_all_keys_encrypts_with_the_oldest(path: Path) -> None:
    """Nothing is written in plain words because a clock is wrong."""
    first = create_encryption_key(path, NOW)
    create_encryption_key(path, NOW)
    assert (await (await ring_at(path, NOW - timedelta(days=400))).writer())[0] == first


async def test_a_key_that_comes_later_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption_keys, "_ASK_SECONDS", 0.0)
    create_encryption_key(path, NOW)
    keys = await ring_at(path, NOW)
    assert await keys.reader("00000000") is None
    later = create_encryption_key(path, NOW)
    assert await keys.reader(later.id) is not None


async def test_unknown_keys_are_not_looked_for_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_encryption_key(path, NOW)
    keys = await ring_at(path, NOW)
    read: list[Path] = []
    genuine = encryption_keys.read_encryption_keys
    monkeypatch.setattr(encryption_keys, "read_encryption_keys", lambda path: (read.append(path), genuine(path))[1])
    monkeypatch.setattr(encryption_keys, "_ASK_SECONDS", 3_600.0)
    for number in range(50):
        assert await keys.reader(f"{number:08x}") is None
    assert read == []


async def test_keys_that_cannot_be_read_any_more_stay_in_force(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(encryption_keys, "RENEW_SECONDS", 0.0)
    first = create_encryption_key(path, NOW)
    keys = await ring_at(path, NOW)
    spoil(path)
    with caplog.at_level(logging.WARNING):
        assert (await keys.writer())[0] == first
    assert "stay in force" in caplog.text


async def test_a_source_that_does_not_answer_holds_up_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_only_a_key_that_was_there_introduces_another(path: Path) -> None:
    first, second = (create_encryption_key(path, NOW) for _ in range(2))
    keys = await ring_at(path, NOW)
    (introduction,) = second.introductions
    assert keys.introduces(second.id, [introduction])
    assert keys.introduces(second.id, ["", introduction])
    assert not keys.introduces("00000000", [introduction])
    assert not keys.introduces(second.id, [introduction.replace(first.id, "00000000")])
    assert not keys.introduces(second.id, [introduction.partition(":")[0], f"{first.id}:", "", ":"])
    assert not keys.introduces(second.id, [])


def test_of_two_first_keys_one_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It encrypts at once, so another must not take its place: what it encrypted would be lost."""
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


def test_what_others_may_read_is_refused(path: Path) -> None:
    create_encryption_key(path, NOW)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_encryption_keys(path)


@table("text", "", "{", "[]", '{"keys": []}', '{"keys": [{"id": "1"}]}', "\x00", '{"keys": [{"secret": "c2VjcmV0"}]}')
def test_what_is_no_file_of_keys_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_encryption_keys(text, "`keys.json`")
    assert "`keys.json` holds no keys (" in caught.value.message
    assert "signoff keys create" in caught.value.message
    assert "c2VjcmV0" not in caught.value.message


def test_a_key_under_another_ones_id_is_refused(path: Path) -> None:
    made = [create_encryption_key(path, NOW) for _ in range(2)]
    content = json.loads(path.read_text())
    content["keys"][1]["id"] = made[0].id
    with pytest.raises(ConfigError, match="not the one of this key"):
        parse_encryption_keys(json.dumps(content), "it")


def test_two_first_starts_make_one_key(path: Path) -> None:
    assert ensure_encryption_keys(path, NOW) == ensure_encryption_keys(path, NOW + timedelta(days=1))


async def test_keys_come_from_a_secret_too() -> None:
    made = encryption_keys.new_encryption_key(NOW)
    content = encryption_keys.EncryptionKeys(keys=(made,)).model_dump_json()
    keys = EncryptionKeyRing("env:KEYS", SecretProvider(environment={"KEYS": content}), clock=lambda: NOW)
    await keys.load()
    assert (await keys.writer())[0] == made
    assert made.secret not in repr(made)
