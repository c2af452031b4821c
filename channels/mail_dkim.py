"""DKIM signatures (RFC 6376, RFC 8463): which header fields one covers, and whether it holds.

dkimpy does the cryptography. What surrounds it keeps from it what a stranger could stop us with (its patterns take
time as the square of a run of blanks, its arithmetic a key of any length), and what a signature must not leave open:
fields and a body that anybody could add to.
"""

import re
from dataclasses import dataclass
from typing import Final

import dkim

from signoff.channels.mail_names import TxtLookup, dns_name

# RFC 8301 takes rsa-sha1 out.
_ALGORITHMS: Final = frozenset(("rsa-sha256", "ed25519-sha256"))
_MAX_SIGNATURE: Final = 4_096
_MAX_KEY: Final = 2_048
"""Characters of a key record: RSA of 8192 bits needs 1,400."""
MAX_TRIED: Final = 3
"""Signatures of one mail; each costs up to a second for the longest mail."""
# Bits of an RSA key below which no signature counts (RFC 8301).
_SHORTEST_KEY: Final = 1_024
_BLANKS = re.compile(rb"[ \t]+")


@dataclass(frozen=True)
class Signature:
    """What one DKIM-Signature field claims. `index` counts such fields from the top; `covers` in lower case."""

    index: int
    domain: str
    algorithm: str
    canonical_body: str
    covers: frozenset[str]
    partial: bool


def signatures(fields: list[str]) -> list[Signature]:
    """Those of the unfolded values of DKIM-Signature that can be read, topmost first."""
    return [read for index, value in enumerate(fields) if (read := _read(index, value)) is not None]


def holds(raw: bytes, signature: Signature, txt: TxtLookup) -> str:
    """Nothing if `signature` holds for the mail `raw`, else why not. Raises nothing."""
    if signature.algorithm not in _ALGORITHMS:
        return "the signature's algorithm is not one that proves anything"
    if signature.partial:
        return "the signature leaves the end of the mail open"
    if "from" not in signature.covers:
        return "the signature does not cover From"
    unknown: list[str] = []

    def key(name: bytes, timeout: float = 0) -> bytes | None:
        found = _key(name, txt, unknown)
        return found.encode("ascii", "replace") if found else None

    try:
        verifier = dkim.DKIM(_squeezed(raw, signature), minkey=_SHORTEST_KEY)
        held = verifier.verify(signature.index, dnsfunc=key)
    except Exception:  # dkimpy raises whatever its parts do, on what a stranger wrote
        held = False
    if held:
        return ""
    return unknown[0] if unknown else "the signature does not hold"


def _read(index: int, value: str) -> Signature | None:
    if len(value) > _MAX_SIGNATURE:
        return None
    tags: dict[str, str] = {}
    for tag in value.rstrip("; ").split(";"):
        name, equals, content = tag.partition("=")
        # A list that has a tag twice is not valid (RFC 6376, 3.2).
        if not equals or name.strip() in tags:
            return None
        tags[name.strip()] = content.strip()
    covers = frozenset(name.strip().lower() for name in tags.get("h", "").split(":"))
    # A single word is the header's; the body's is then `simple` (RFC 6376, 3.5).
    canonical = tags.get("c", "").lower().partition("/")[2].strip() or "simple"
    domain = dns_name(tags.get("d", ""))
    return Signature(index, domain, tags.get("a", "").lower(), canonical, covers, "l" in tags) if domain else None


def _key(name: bytes, txt: TxtLookup, unknown: list[str]) -> str:
    asked = dns_name(name.decode("ascii", "replace").removesuffix("."))
    if not asked:
        return ""
    try:
        records = txt(asked)
    except (LookupError, OSError):
        unknown.append("the key of the signature cannot be looked up now")
        return ""
    # Of several records RFC 6376 leaves open which is the key, so none is.
    return records[0] if len(records) == 1 and len(records[0]) <= _MAX_KEY else ""


def _squeezed(raw: bytes, signature: Signature) -> bytes:
    """The mail with CRLF, and its body made canonical here as far as dkimpy would take too long for it."""
    head, _, body = raw.replace(b"\r\n", b"\n").partition(b"\n\n")
    if signature.canonical_body == "relaxed":
        *lines, last = body.split(b"\n")
        body = b"\n".join([*(_BLANKS.sub(b" ", line).rstrip(b" ") for line in lines), _BLANKS.sub(b" ", last)])
    # Either form leaves out empty lines at the end.
    if body.endswith(b"\n"):
        body = body.rstrip(b"\n")
        body = body + b"\n" if body else b""
    return head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body.replace(b"\n", b"\r\n")
