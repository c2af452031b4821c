"""Resolves an actor's settings for its model. Does not store the secrets."""

from typing import Any

from signoff.contracts.errors import ConfigError, SecretMissing
from signoff.keys.secrets import SecretProvider
from signoff.registry.actor import Actor


async def model_settings(actor: Actor, secrets: SecretProvider) -> dict[str, Any]:
    """Replace each reference by its secret.

    Raises `ConfigError` for a missing secret, `Unavailable` if its source does not answer.
    """
    try:
        return await secrets.fill(actor.model_settings)
    except SecretMissing as error:
        raise ConfigError(
            f"`model_settings` of actor `{actor.name}` need {error.message}", actor=actor.name, field="model_settings"
        ) from None
