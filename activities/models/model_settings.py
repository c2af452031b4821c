"""Resolves an actor's settings for its model: secrets are read here, and kept nowhere."""

from typing import Any

from signoff.contracts.errors import ConfigError, SecretMissing
from signoff.keys.secrets import SecretProvider
from signoff.registry.actor import Actor


async def model_settings(actor: Actor, secrets: SecretProvider) -> dict[str, Any]:
    """Returns the settings with each secret in place of its reference.

    Raises `ConfigError` for one that is not there, `Unavailable` where its source does not answer.
    """
    try:
        return await secrets.fill(actor.model_settings)
    except SecretMissing as error:
        raise ConfigError(
            f"`model_settings` of actor `{actor.name}` need {error.message}", actor=actor.name, field="model_settings"
        ) from None
