"""Connects to the Temporal server of an installation, with what encrypts there."""

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
    """Connects as `connect`, with the encryption of the installation. Raises what `open_encryption` raises too."""
    return await connect(address, namespace, encryption=await open_encryption(settings, secrets))


def check_client(settings: Settings, client: Client) -> Client:
    """Returns a client that somebody else connected. Raises `ConfigError` where it does not encrypt and has to."""
    if settings.encryption:
        require_codec(client)
    return client


def require_codec(client: Client) -> None:
    """Raises `ConfigError` for a client without a codec, by which all that a worker writes would be plain."""
    if client.data_converter.payload_codec is None:
        raise ConfigError(
            "the client does not encrypt, and SIGNOFF_ENCRYPTION is on: connect it with the plugin of `App.plugin()` "
            "among its own `plugins`, give it a codec of its own, or leave `client` out",
            field="encryption",
        )


async def open_encryption(settings: Settings, secrets: SecretProvider) -> Encryption | None:
    """Reads the encryption keys of an installation; None where it encrypts nothing and has no keys.

    Keys are read also where encryption is off: what was written before stays readable. The development profile makes
    the first key itself. Raises `ConfigError` where encryption is on and there are none, `Unavailable` where their
    source is away.
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
