"""Resolves an actor's settings for its model: secrets are read from the environment here, and kept nowhere."""

import os
from typing import Any

from signoff.contracts.errors import ConfigError
from signoff.keys.secret_references import with_secrets
from signoff.registry.actor import Actor


def model_settings(actor: Actor) -> dict[str, Any]:
    """Returns the settings with the value of each variable that they name.

    Raises `ConfigError` for one that is not set.
    """

    def read(name: str) -> str:
        value = os.environ.get(name, "")
        if not value:
            raise ConfigError(
                f"`model_settings` of actor `{actor.name}` need the environment variable `{name}`, which is not set",
                actor=actor.name,
                field="model_settings",
                value=name,
            )
        return value

    return with_secrets(actor.model_settings, read)
