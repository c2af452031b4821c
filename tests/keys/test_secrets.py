import json
import sys
from pathlib import Path

import pytest
from tables import table

from signoff.contracts.errors import ConfigError, SecretMissing, Unavailable
from signoff.keys import secrets as module
from signoff.keys.secrets import REMEMBERED, SecretProvider, parts_of
from signoff.registry.installation import provider_of_secrets
from signoff.settings import Settings, load_settings

HELD = "held-by-a-vault-41"
SOURCE = f"""
class Vault:
    async def read(self, name, tenant):
        if name == "slow":
            raise TimeoutError("no answer to token {HELD}")
        return {{"key": "{HELD}", "tenant": tenant or "nobody's", "number": 4711, "blank": " "}}.get(name)

vault, no_vault, maker = Vault(), object(), Vault
"""


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecretProvider:
    (tmp_path / "vault_of_ours.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vault_of_ours", raising=False)
    return provider_of_secrets(Settings(secrets="vault_of_ours:vault"))


async def test_each_kind_of_reference_is_read_and_hidden(
    provider: SecretProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "from-a-variable")
    (tmp_path / "secret").write_text("from-a-file\n", encoding="utf-8")
    read = {name: await provider.read(name) for name in ("env:OURS", "OURS", f"file:{tmp_path}/secret", "secret:key")}
    assert list(read.values()) == ["from-a-variable", "from-a-variable", "from-a-file", HELD]
    assert provider.redact(f"from-a-variable, from-a-file, {HELD} and {json.dumps({HELD: 1})}") == (
        '[hidden], [hidden], [hidden] and {"[hidden]": 1}'
    )
    assert await provider.read("secret:tenant", tenant="acme") == "acme"


async def test_secret_is_hidden_without_its_surrounding_spaces() -> None:
    provider = SecretProvider(environment={"OURS": " from-a-variable\n"})
    assert await provider.read("OURS") == " from-a-variable\n"
    assert provider.redact("sent from-a-variable as it is") == "sent [hidden] as it is"
    assert set(parts_of(" from-a-variable\n")) == {"from-a-variable"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("env:NOT_SET", "the environment variable `NOT_SET`, which is not set"),
        ("file:/nowhere/at/all", "the file `/nowhere/at/all`, which cannot be read"),
        ("secret:absent", "the secret `absent`, which the source named in SIGNOFF_SECRETS does not have"),
        ("secret:blank", "the secret `blank`, which"),
        ("secret:number", "the secret `number`, which"),
    ],
)
async def test_missing_secret_is_named_by_its_reference(provider: SecretProvider, reference: str, message: str) -> None:
    with pytest.raises(SecretMissing) as caught:
        await provider.read(reference)
    assert caught.value.message.startswith(message)
    assert provider.known_values == frozenset()


async def test_error_of_a_failing_source_is_not_repeated(provider: SecretProvider) -> None:
    with pytest.raises(Unavailable) as caught:
        await provider.read("secret:slow")
    assert caught.value.message == "the secret `slow` cannot be read now: TimeoutError"
    assert HELD not in repr(caught.value.context)


async def test_unresponsive_secret_source_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        async def read(self, name: str, tenant: str) -> str | None:
            await module.asyncio.Event().wait()
            return None

    monkeypatch.setattr(module, "SECONDS", 0.01)
    with pytest.raises(Unavailable, match="TimeoutError"):
        await SecretProvider(Stuck()).read("secret:any")


async def test_secret_reference_without_a_source_is_an_error() -> None:
    with pytest.raises(SecretMissing, match="no source of secrets is named in SIGNOFF_SECRETS"):
        await SecretProvider().read("secret:key")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("vault_of_ours:no_vault", "it needs `async def read"),
        ("vault_of_ours:maker", "it needs `async def read"),
        ("vault_of_ours:nothing", "has no `nothing`"),
        ("not_there_at_all:vault", "cannot import `not_there_at_all`"),
    ],
)
def test_invalid_secret_source_is_an_error_at_start(provider: SecretProvider, named: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        provider_of_secrets(Settings(secrets=named))
    assert caught.value.message.startswith("`secrets`: ")
    assert caught.value.context["field"] == "secrets"


def test_secret_source_needs_an_import_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNOFF_SECRETS", "vault")
    with pytest.raises(ConfigError, match=r"named as `package\.module:name`"):
        load_settings()


@table("size", 0, 1)
async def test_secret_file_above_the_size_limit_is_not_read(tmp_path: Path, size: int) -> None:
    """A secret is never that long, and a device without an end would be read forever."""
    path = tmp_path / "secret"
    path.write_bytes(b"x" * (module.FILE_BYTES + size))
    provider = SecretProvider()
    if size:
        with pytest.raises(SecretMissing, match="more than 64 KiB"):
            await provider.read(f"file:{path}")
    else:
        assert len(await provider.read(f"file:{path}")) == module.FILE_BYTES


async def test_number_of_remembered_secrets_is_limited() -> None:
    class Minting:
        async def read(self, name: str, tenant: str) -> str | None:
            return f"minted-{name}"

    provider = SecretProvider(Minting())
    for number in range(REMEMBERED):
        await provider.read(f"secret:{number}")
    await provider.read("secret:0")
    await provider.read("secret:new")
    assert len(provider.known_values) == REMEMBERED
    assert {"minted-0", "minted-new"} < provider.known_values
    assert "minted-1" not in provider.known_values


async def test_too_short_secret_is_not_redacted() -> None:
    """Hiding each `1` would make a text unreadable."""
    provider = SecretProvider(environment={"PIN": "12"})
    assert await provider.read("env:PIN") == "12"
    assert provider.redact("room 12") == "room 12"


def test_parts_of_a_json_secret_are_hidden_too() -> None:
    document = json.dumps({"type": "service_account", "keys": [{"private": "BEGIN abc"}]})
    assert set(parts_of(document)) == {document, "service_account", "BEGIN abc"}
    assert list(parts_of("[" * 100_000)) == ["[" * 100_000]
