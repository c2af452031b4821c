"""What a tool's permission check answers (gate 10): allowed, denied, or denied unless a person overrides it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from signoff.contracts.canonical_json import sha256_hex
from signoff.registry.availability import Occasion

PERMISSION_RULE: Final = "permission"
"""The rule of a call about which people are asked because its permission check would deny it (X10)."""
_DENIED: Final = "this call is not permitted"


@dataclass(frozen=True)
class Permission:
    """An answer. Make it with `allow` or `deny`; `reason` is for people and for the model."""

    allowed: bool
    reason: str = ""
    can_override: bool = False

    @property
    def why(self) -> str:
        """The reason, in any case some words."""
        return self.reason or _DENIED

    @classmethod
    def allow(cls) -> "Permission":
        """The call may go on to the next gates; it is not approved by this."""
        return cls(True)

    @classmethod
    def deny(cls, reason: str = "", *, can_override: bool = False) -> "Permission":
        """The call is denied; with `can_override` a person is asked, this once, whether it may be all the same."""
        return cls(False, reason, can_override)


PermissionCheck: TypeAlias = Callable[[dict[str, Any], Occasion], Awaitable[Permission]]
"""`async (args, occasion)`; `args` are a copy of the valid arguments. What is no `Permission` denies."""


def override_hash(objection: str) -> str:
    """What says that people were shown this very objection; "" for none."""
    return sha256_hex(objection) if objection else ""


def read_permission(said: object) -> Permission | None:
    """What a permission check returned; None when that is no answer."""
    if not isinstance(said, Permission) or not isinstance(said.reason, str):
        return None
    # Only the two booleans themselves: a truthy object must neither allow a call nor let people override its denial.
    return said if isinstance(said.allowed, bool) and isinstance(said.can_override, bool) else None
