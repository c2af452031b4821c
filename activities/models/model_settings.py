"""Resolves an actor's settings for its model. Reads secrets without storing them."""

from typing import Any

from signoff.contracts.errors import ConfigError, SecretMissing
from signoff.keys.secrets import SecretProvider
from signoff.registry.actor import Actor


async def model_settings(actor: Actor, secrets: SecretProvider) -> dict[str, Any]:
    """Return the settings with each reference replaced by its secret.

    Raises `ConfigError` for a missing secret, `Unavailable` if its source does not answer.
    """
    try:
        return await secrets.fill(actor.model_settings)
    except SecretMissing as error:
        raise ConfigError(
            f"`model_settings` of actor `{actor.name}` need {error.message}", actor=actor.name, field="model_settings"
        ) from None
