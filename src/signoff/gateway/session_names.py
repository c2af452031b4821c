"""Names sessions. Each person has their own namespace, so names of other people are free."""

import base64
import hashlib
import re
from typing import Final

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.ids import SessionKey
from signoff.contracts.person import Person

MARK_CHARS: Final = 11
"""55 bits at 5 bits a character: hard to hit by choosing a person's id, and leaves room for a UUID before it."""
_NAME_CHARS: Final = 36
_PEER_CHARS: Final = 26
_PEER: Final = re.compile(rf"peer-[0-9a-f]{{{_PEER_CHARS}}}(-[a-z2-7]{{{MARK_CHARS}}})?")
_SHOWN_CHARS: Final = 20


def own_session(named: SessionKey, person: Person | None, *, development: bool) -> SessionKey:
    """`named` is a name or a whole id.

    The id ends with a mark of its owner. In the development profile, and for an anonymous caller, a name is the id and
    belongs to all.
    """
    if development or person is None or is_own(named, person.id):
        return named
    name = named.session
    if len(name) > _NAME_CHARS:
        # Truncation would merge two long names of one person.
        rest = _short(_NAME_CHARS - _SHOWN_CHARS - 1, "name", name)
        name = f"{name[:_SHOWN_CHARS]}-{rest}"
    return SessionKey(named.tenant, f"{name}-{_mark(named.tenant, person.id)}")


def is_own(key: SessionKey, person_id: str) -> bool:
    """The id alone decides, not a workflow or worker."""
    return key.session.endswith(f"-{_mark(key.tenant, person_id)}")


def peer_session(tenant: str, seed: str) -> SessionKey:
    """`seed` has hexadecimal digits."""
    return SessionKey(tenant, f"peer-{seed[:_PEER_CHARS]}")


def is_of_peer(key: SessionKey) -> bool:
    """Another agent's conversation is closed to all others."""
    return _PEER.fullmatch(key.session) is not None


def _mark(tenant: str, person_id: str) -> str:
    return _short(MARK_CHARS, "owner", tenant, person_id)


def _short(chars: int, *words: str) -> str:
    digest = hashlib.sha256(canonical_json(["session", *words])).digest()
    return base64.b32encode(digest).decode().lower()[:chars]
