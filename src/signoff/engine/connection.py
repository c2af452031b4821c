"""Connects to the Temporal server of an installation, with its encryption."""

import asyncio

from temporalio.client import Client

from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError
from signoff.keys.encryption_keys import EncryptionKeyRing, ensure_encryption_keys
from signoff.keys.secrets import SecretProvider
from signoff.settings import Settings, encryption_file, require_ready
from signoff.temporal.encryption import Encryption
from signoff.temporal.server_connection import connect


async def connect_installation(
    settings: Settings, secrets: SecretProvider, address: str | None = None, namespace: str | None = None
) -> Client:
    """Raises as `connect` and `open_encryption`."""
    return await connect(address, namespace, encryption=await open_encryption(settings, secrets))


def check_client(settings: Settings, client: Client) -> Client:
    """Raise `ConfigError` if the client lacks required encryption."""
    if settings.encryption:
        require_codec(client)
    return client


def require_codec(client: Client) -> None:
    """Raise `ConfigError` for a client without a codec, which would write all of a worker's data in plain text."""
    if client.data_converter.payload_codec is None:
        raise ConfigError(
            "the client does not encrypt, and SIGNOFF_ENCRYPTION is on: connect it with the plugin of `App.plugin()` "
            "among its own `plugins`, give it another codec, or leave `client` out",
            field="encryption",
        )


async def open_encryption(settings: Settings, secrets: SecretProvider) -> Encryption | None:
    """Return `None` if the installation neither encrypts nor has keys.

    Keys are read even with encryption off: older data stays readable. The development profile creates the first key
    itself. Raises `ConfigError` if encryption is on without keys, `Unavailable` if their source is unavailable.
    """
    path = encryption_file(settings)
    if path is not None and not await asyncio.to_thread(path.exists):
        if not settings.encryption:
            return None
        require_ready(settings, encryption_keys=False)
        await asyncio.to_thread(ensure_encryption_keys, path, system_clock())
    keys = EncryptionKeyRing(settings.encryption_keys, secrets)
    await keys.load()
    return Encryption(keys, writes=settings.encryption)
