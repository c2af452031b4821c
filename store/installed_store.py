"""The store of an installation, for the length of a block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from signoff.contracts.errors import ConfigError
from signoff.formats.private_folder import make_private_folder
from signoff.settings import Settings
from signoff.store.store import Store, open_store


@asynccontextmanager
async def working_store(settings: Settings) -> AsyncIterator[Store]:
    """The store of the settings, its folder made when needed. Raises `ConfigError`, `StoreUnavailable`."""
    make_state_dir(settings)
    async with open_store(settings.store_url, durable=settings.durable) as store:
        yield store


def make_state_dir(settings: Settings) -> None:
    """Makes the folder of state. Raises `ConfigError` naming the setting."""
    folder = settings.state_dir
    try:
        make_private_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"the folder `{folder}` cannot be made ({error.strerror}): name another in SIGNOFF_STATE_DIR",
            field="state_dir",
        ) from None
