"""What functions of a program see of a requester that is no person: reading a fact of people raises.

No value fits: `tier != "external"` is true of both "" and None, so that a check for outsiders would let an event pass.
"""

from collections.abc import Mapping
from typing import Any, Final, Never

from signoff.contracts.person import Principal
from signoff.formats.replace import replace

PERSONAL: Final = frozenset({"tier", "roles", "person_id"})
_NAMES: Final = PERSONAL | {"human"}


def asker(user: Principal) -> Principal:
    """A subscription's requester raises `LookupError` for facts of people."""
    # From the hash, code could guess a message that its actor does not show.
    user = replace(user, words="") if user.words else user
    return user if user.is_person else _NoPerson.model_construct(**dict(user))


def guard_user(ctx: Mapping[str, Any]) -> dict[str, Any]:
    """Make `user` raise for facts of people that it lacks."""
    user = ctx.get("user")
    if not isinstance(user, Mapping) or PERSONAL & user.keys():
        return dict(ctx)
    return {**ctx, "user": _NoPersonFacts(user)}


class _NoPerson(Principal):
    def __getattribute__(self, name: str) -> Any:
        if name in _NAMES:
            _refuse(name)
        return super().__getattribute__(name)


class _NoPersonFacts(dict[str, Any]):
    def __missing__(self, key: str) -> Never:
        _refuse(key)

    def get(self, key: str, default: Any = None) -> Any:
        if key in PERSONAL:
            _refuse(key)
        return super().get(key, default)


def _refuse(name: str) -> Never:
    raise LookupError(f"a subscription has no `{name}`: check first whether a person asks")
