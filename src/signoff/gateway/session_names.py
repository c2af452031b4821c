"""Names sessions: every person has a space of their own, so that a name in use elsewhere is as free as any other."""

import base64
import hashlib
import re
from typing import Final

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.ids import SessionKey
from signoff.contracts.person import Person

MARK_CHARS: Final = 11
"""Of 5 bits each: 55 bits, which nobody hits by choosing who they are, and room for a UUID before it in an id."""
_NAME_CHARS: Final = 36
_PEER_CHARS: Final = 26
_PEER: Final = re.compile(rf"peer-[0-9a-f]{{{_PEER_CHARS}}}(-[a-z2-7]{{{MARK_CHARS}}})?")
_SHOWN_CHARS: Final = 20


def own_session(named: SessionKey, person: Person | None, *, development: bool) -> SessionKey:
    """Returns the session that `person` means by the name or the whole id `named`.

    Its id ends with a mark of whose it is. In the development profile, where nobody proves who they are, and for nobody
    in particular, a name is the id and is everybody's.
    """
    if development or person is None or is_own(named, person.id):
        return named
    name = named.session
    if len(name) > _NAME_CHARS:
        # Cut, two long names of one person would be one session.
        rest = _short(_NAME_CHARS - _SHOWN_CHARS - 1, "name", name)
        name = f"{name[:_SHOWN_CHARS]}-{rest}"
    return SessionKey(named.tenant, f"{name}-{_mark(named.tenant, person.id)}")


def is_own(key: SessionKey, person_id: str) -> bool:
    """Returns whether a session is of the person of this id: its own id says so, and neither a workflow nor a
    worker.
    """
    return key.session.endswith(f"-{_mark(key.tenant, person_id)}")


def peer_session(tenant: str, seed: str) -> SessionKey:
    """Names a conversation of another agent; `seed` is of hexadecimal digits."""
    return SessionKey(tenant, f"peer-{seed[:_PEER_CHARS]}")


def is_of_peer(key: SessionKey) -> bool:
    """Returns whether a session is named as those are that other agents begin, and nobody else may speak in."""
    return _PEER.fullmatch(key.session) is not None


def _mark(tenant: str, person_id: str) -> str:
    return _short(MARK_CHARS, "owner", tenant, person_id)


def _short(chars: int, *words: str) -> str:
    digest = hashlib.sha256(canonical_json(["session", *words])).digest()
    return base64.b32encode(digest).decode().lower()[:chars]
