"""Checks at a process's start that its credentials belong to it and to this installation."""

from collections.abc import Collection
from typing import Final, Literal

from signoff.audit.checkpoints import Checkpoints
from signoff.contracts.errors import ConfigError
from signoff.store.store import Store

ProcessName = Literal["worker", "gateway", "codec server"]
_EXPORT: Final = "take the output of `signoff keys export` at the gateway"


def check_store_role(store: Store, process: ProcessName) -> None:
    """Raise `ConfigError` if the store's address belongs to another process's role.

    An owner has all rights, and passes.
    """
    wanted = "worker" if process == "worker" else "gateway"
    if store.role not in (wanted, "owner"):
        raise ConfigError(
            f"the SIGNOFF_STORE_URL of this {process} is that of the {store.role}'s role, which lacks the "
            f"rights of a {process}: give it the address of the {wanted}'s (`signoff store roles`)",
            field="store_url",
        )


async def check_public_keys(store: Store, known: Collection[str], where: str) -> None:
    """Raise `ConfigError` if the last signer of the store's audit log is not among the `known` public keys.

    The keys then belong to another gateway, or precede a change of keys: every answer would be refused.
    """
    last = await Checkpoints(store).last()
    if last is not None and last.key_id not in known:
        raise ConfigError(
            f"the public keys in `{where}` are not those of the gateway that signs here, whose key is "
            f"`{last.key_id[:16]}`: {_EXPORT}",
            field="public_keys",
        )
