"""Checks at the start of a process that its credentials are its own, and of this installation."""

from collections.abc import Collection
from typing import Final, Literal

from signoff.audit.checkpoints import Checkpoints
from signoff.contracts.errors import ConfigError
from signoff.store.store import Store

ProcessName = Literal["worker", "gateway", "codec server"]
_EXPORT: Final = "take what `signoff keys export` writes where the gateway is"


def check_store_role(store: Store, process: ProcessName) -> None:
    """Raises `ConfigError` where the store's address is that of another process's role.

    An owner may do everything, and passes.
    """
    wanted = "worker" if process == "worker" else "gateway"
    if store.role not in (wanted, "owner"):
        raise ConfigError(
            f"the SIGNOFF_STORE_URL of this {process} is that of the {store.role}'s role, which may not do what a "
            f"{process} does: give it the address of the {wanted}'s (`signoff store roles`)",
            field="store_url",
        )


async def check_public_keys(store: Store, known: Collection[str], where: str) -> None:
    """Raises `ConfigError` where the store's record was last signed by a key that is not among the `known` public ones.

    They are another gateway's, then, or of before its last change of keys: every answer would be refused.
    """
    last = await Checkpoints(store).last()
    if last is not None and last.key_id not in known:
        raise ConfigError(
            f"the public keys in `{where}` are not those of the gateway that signs here, whose key is "
            f"`{last.key_id[:16]}`: {_EXPORT}",
            field="public_keys",
        )
