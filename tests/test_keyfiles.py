import errno
import os
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError
from signoff.keys.key_files import (
    FileVerifier,
    create_key,
    ensure_development_keys,
    read_private,
    read_public,
    retire_key,
    write_keys,
)
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.testing import a_decision

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return tmp_path / "gateway" / "signing-keys.json"


@pytest.fixture
def public(tmp_path: Path) -> Path:
    return tmp_path / "worker" / "public-keys.json"


def decision(signer: Signer, at: datetime = NOW) -> Decision:
    return signer.sign_decision(a_decision(revision=None, received_at=at))


def test_created_keys_are_read_back(private: Path, public: Path) -> None:
    first = create_key(private, public, NOW)
    second = create_key(private, public, NOW + timedelta(days=1))
    assert read_private(private) == PrivateKeys(keys=(first, second))
    assert read_public(public) == read_private(private).public()
    assert Signer(read_private(private)).key_id == second.id


def test_only_the_gateways_user_may_read_private_keys(private: Path, public: Path) -> None:
    create_key(private, public, NOW)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    for mode in (0o604, 0o620, 0o602, 0o601):
        private.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_private(private)
    private.chmod(0o640)
    assert read_private(private).keys


def test_no_private_key_is_in_the_public_file(private: Path, public: Path) -> None:
    key = create_key(private, public, NOW)
    assert key.private not in public.read_text()
    with pytest.raises(ConfigError, match=r"holds private keys, which no worker may have.*signoff keys export"):
        read_public(private)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "invalid json"),
        ("[]", "object"),
        ("{}{", "invalid json"),
        ('{"keys": 1}', "`keys`"),
        ('{"keys": [{"id": "x"}]}', "`keys.0.created_at`: field required"),
        ('{"key": []}', "`key`: extra inputs"),
        ('{"keys": [{"id": "x", "created_at": "2026-03-01T12:00:00Z", "private": "SECRET"}]}', "32 bytes in base64"),
        ('{"keys": [{"id": "x", "created_at": "2026-03-01T12:00:00", "private": "SECRET"}]}', "timezone"),
    ],
)
def test_broken_file_is_reported_in_one_sentence_without_its_contents(private: Path, text: str, expected: str) -> None:
    private.parent.mkdir()
    private.write_text(text)
    private.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        read_private(private)
    assert expected in caught.value.message
    assert str(private) in caught.value.message
    assert "signoff keys create" in caught.value.message
    assert "SECRET" not in str(caught.value.context) + caught.value.message
    assert caught.value.__cause__ is None


def test_missing_file_is_reported_with_the_remedy(private: Path, public: Path) -> None:
    with pytest.raises(ConfigError, match="make one with `signoff keys create`"):
        read_private(private)
    with pytest.raises(ConfigError, match="signoff keys export"):
        read_public(public)


def test_key_is_retired_once_and_never_the_last(private: Path, public: Path) -> None:
    first = create_key(private, public, NOW)
    with pytest.raises(ConfigError, match="only key in use"):
        retire_key(private, public, first.id, NOW)
    create_key(private, public, NOW + timedelta(days=1))
    assert retire_key(private, public, first.id, NOW).retired_at == NOW
    assert retire_key(private, public, first.id, NOW + timedelta(days=9)).retired_at == NOW
    assert [key.retired_at for key in read_public(public).keys] == [NOW, None]
    with pytest.raises(ConfigError, match=rf"no key `nope` in .*{first.id}"):
        retire_key(private, public, "nope", NOW)


def test_development_keys_are_created_once(private: Path, public: Path) -> None:
    first = ensure_development_keys(private, public, NOW)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert ensure_development_keys(private, public, NOW + timedelta(days=1)) == first
    public.write_text("{")
    assert ensure_development_keys(private, public, NOW) == first
    public.unlink()
    assert ensure_development_keys(private, public, NOW) == first
    assert read_public(public) == first.public()
    before = public.stat().st_mtime_ns
    ensure_development_keys(private, public, NOW)
    assert public.stat().st_mtime_ns == before


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_processes_started_at_once_share_one_key(
    private: Path, public: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links can be made here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    found: list[PrivateKeys] = []
    starts = [
        threading.Thread(target=lambda: found.append(ensure_development_keys(private, public, NOW))) for _ in range(8)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(found) == 8
    assert all(keys == found[0] for keys in found)
    assert os.listdir(private.parent) == [private.name]


def test_unwritable_directory_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        create_key(tmp_path / "taken" / "private.json", tmp_path / "public.json", NOW)


def test_worker_reloads_new_and_retired_keys(private: Path, public: Path) -> None:
    check = FileVerifier(public)
    assert check.key_ids == ()
    create_key(private, public, NOW - timedelta(days=2))
    old = Signer(read_private(private))
    assert check.check_decision(decision(old))
    create_key(private, public, NOW - timedelta(days=1))
    new = Signer(read_private(private))
    assert check.check_decision(decision(new))
    assert check.check_decision(decision(old))
    retire_key(private, public, old.key_id, NOW)
    assert not check.check_decision(decision(old, NOW))
    assert check.check_decision(decision(old, NOW - timedelta(seconds=1)))
    assert set(check.key_ids) == {old.key_id, new.key_id}


def test_broken_file_leaves_the_known_keys_active(
    private: Path, public: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_key(private, public, NOW)
    signer = Signer(read_private(private))
    check = FileVerifier(public)
    public.write_text('{"keys": [')
    for _ in range(3):
        assert check.check_decision(decision(signer))
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the keys known before stay in force"
    ]
    public.unlink()
    assert check.check_decision(decision(signer))
    write_keys(PrivateKeys(keys=(new_key(NOW),)), private, public)
    assert not check.check_decision(decision(signer))


def test_worker_does_not_start_with_a_broken_file(public: Path) -> None:
    public.parent.mkdir()
    public.write_text("{}}")
    with pytest.raises(ConfigError, match="holds no keys"):
        FileVerifier(public)
