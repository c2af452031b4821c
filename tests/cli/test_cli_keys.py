import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST

from signoff.cli.local.installation import find_installation
from signoff.gateway.runtime import gateway_signer
from signoff.keys.encryption_keys import read_encryption_keys
from signoff.keys.key_files import FileVerifier, read_private, read_public
from signoff.store.store import Store


@pytest.fixture
def keys(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    return cli


PRIVATE, PUBLIC = Path(".signoff/signing-keys.json"), Path(".signoff/public-keys.json")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def lose(path: Path) -> None:
    path.unlink()


def written(path: Path) -> Any:
    return json.loads(path.read_text())


async def test_create_writes_both_files_and_prints_their_paths(keys: Cli) -> None:
    made = await keys("keys", "create")
    assert (made.code, made.err) == (0, "")
    [key] = read_private(PRIVATE).keys
    assert key.id in made.out
    assert str(PRIVATE) in made.out
    assert str(PUBLIC) in made.out
    assert mode(PRIVATE) == 0o600
    assert read_public(PUBLIC).keys == (key.public_half(),)
    shown = [await keys("keys", *words) for words in (("list",), ("list", "--json"), ("export",), ("export", "--json"))]
    assert all(ran.code == 0 and key.private not in made.out + ran.out + ran.err for ran in shown)


async def test_keys_are_rotated_by_commands(keys: Cli) -> None:
    first = (await keys("keys", "create", "--json")).data["id"]
    second = (await keys("keys", "create", "--json")).data["id"]
    rows = [row for row in (await keys("keys", "list", "--json")).data if row["for"] == "signing"]
    assert [(row["id"], row["signs"], row["retired_at"]) for row in rows] == [
        (first, False, None),
        (second, True, None),
    ]
    retired = (await keys("keys", "retire", first, "--json")).data
    assert retired["retired_at"] is not None
    lines = [line.split() for line in (await keys("keys", "list")).out.splitlines()]
    assert [line[0] for line in lines[:3]] == ["key", first, second]
    assert lines[1][-4:] == ["checks", "what", "is", "older"]
    assert lines[2][-1] == "signs"
    assert read_public(PUBLIC) == read_private(PRIVATE).public()


async def test_last_active_key_cannot_be_retired(keys: Cli) -> None:
    only = (await keys("keys", "create", "--json")).data["id"]
    refused = await keys("keys", "retire", only)
    assert refused.code == 1
    assert "make another first" in assert_one_sentence(refused)
    unknown = await keys("keys", "retire", "nope")
    assert only in assert_one_sentence(unknown)


async def test_export_writes_the_public_keys_for_workers(keys: Cli) -> None:
    await keys("keys", "create")
    printed = await keys("keys", "export")
    assert json.loads(printed.out) == written(PUBLIC) == (await keys("keys", "export", "--json")).data
    ran = await keys("keys", "export", "--out", "for-workers.json")
    assert ran.code == 0
    assert ran.out.startswith("for-workers.json holds 1 public key;")
    assert read_public(Path("for-workers.json")) == read_public(PUBLIC)


async def test_worker_lists_its_public_keys(keys: Cli) -> None:
    made = (await keys("keys", "create", "--json")).data["id"]
    lose(PRIVATE)
    rows = [row for row in (await keys("keys", "list", "--json")).data if row["for"] == "signing"]
    assert [(row["id"], row["signs"]) for row in rows] == [(made, False)]
    assert "signoff keys create" in assert_one_sentence(await keys("keys", "export"))
    lose(PUBLIC)
    assert "signoff keys export" in assert_one_sentence(await keys("keys", "list"))


async def test_development_creates_keys_at_the_first_start(keys: Cli, store: Store) -> None:
    place = find_installation(str(MANIFEST))
    before = FileVerifier(place.settings.public_keys)
    assert before.key_ids == ()
    signer = await gateway_signer(place.settings, place.people, store)
    assert (await gateway_signer(place.settings, place.people, store)).key_id == signer.key_id
    assert before.key_ids == (signer.key_id,)
    assert mode(PRIVATE) == 0o600


ENCRYPTION = Path(".signoff/encryption-keys.json")


async def test_first_create_makes_an_encryption_key_too(keys: Cli) -> None:
    made = await keys("keys", "create")
    [key] = read_encryption_keys(ENCRYPTION).keys
    assert f"encryption key {key.id} is made" in made.out
    assert mode(ENCRYPTION) == 0o600
    assert "encryption key" not in (await keys("keys", "create")).out
    assert read_encryption_keys(ENCRYPTION).keys == (key,)
    shown = [await keys("keys", *words) for words in (("list",), ("list", "--json"))]
    assert all(key.secret not in made.out + ran.out + ran.err for ran in shown)
    assert key.id in shown[0].out


async def test_new_encryption_key_encrypts_after_its_distribution(keys: Cli) -> None:
    await keys("keys", "create")
    made = await keys("keys", "create", "--encryption", "--json")
    old, new = read_encryption_keys(ENCRYPTION).keys
    assert made.data["encryption_key"] == new.id
    assert len(read_private(PRIVATE).keys) == 1
    lines = (await keys("keys", "list")).out.splitlines()
    assert next(line for line in lines if old.id in line).rstrip().endswith("  encrypts")
    assert next(line for line in lines if new.id in line).rstrip().endswith("decrypts, and encrypts soon")


async def test_keys_in_a_vault_cannot_be_created(keys: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_ENCRYPTION_KEYS", "env:KEYS")
    refused = await keys("keys", "create", "--encryption")
    assert refused.code == 1
    assert "SIGNOFF_ENCRYPTION_KEYS=file:PATH" in assert_one_sentence(refused)
