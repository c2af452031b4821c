import os
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client

from signoff.contracts.clock import system_clock
from signoff.keys.encryption_keys import EncryptionKeyRing, ensure_encryption_keys
from signoff.keys.secrets import SecretProvider
from signoff.temporal.converter import encrypting_converter
from signoff.temporal.encryption import Encryption

_KEYS: Final = "TEST_ENCRYPTION_KEYS"
"""The variable with the keys' file for such processes."""


async def make_encryption(path: Path) -> Encryption:
    ensure_encryption_keys(path, system_clock())
    os.environ[_KEYS] = str(path)
    return await _read(path)


async def encrypted_client(address: str, **more: Any) -> Client:
    codec = (await _read(Path(os.environ[_KEYS]))).codec("default")
    return await Client.connect(address, data_converter=encrypting_converter(codec), **more)


async def _read(path: Path) -> Encryption:
    keys = EncryptionKeyRing(f"file:{path}", SecretProvider())
    await keys.load()
    return Encryption(keys)
