"""Checks DKIM signatures (RFC 6376, RFC 8463): which header fields one covers, and whether it holds.

dkimpy does the cryptography. What surrounds it keeps from it what a stranger could stop us with (a body of any length,
arithmetic with a key of any length), what a signature must not leave open (fields and a body that anybody could add
to), and what a key's owner says of it, which dkimpy passes over.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

import dkim
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from signoff.channels.mail.authentication.body_hash import BodyHashes
from signoff.channels.mail.authentication.dns_names import KnownTxt, dns_name
from signoff.contracts.limits import MAIL_KEY_BITS, MAIL_SIGNED_FIELDS

# RFC 8301 takes rsa-sha1 out.
_ALGORITHMS: Final = frozenset(("rsa-sha256", "ed25519-sha256"))
_MAX_SIGNATURE: Final = 4_096
_MAX_KEY: Final = 2_048
"""Characters of a key record: RSA of 4096 bits needs 750."""
# Bits of an RSA key below which no signature counts (RFC 8301).
_SHORTEST_KEY: Final = 1_024
_MAX_EXPONENT: Final = 2**33
"""Keys have 65537; with one as long as the modulus, a signature is verified for a quarter of a second."""
_BROKEN: Final = "the signature does not hold"


@dataclass(frozen=True)
class DkimSignature:
    """The claims of one DKIM-Signature field."""

    index: int
    """Its place among such fields, counted from the top."""
    domain: str
    """The signing domain."""
    signer: str
    """The domain of its `i=`, which is `domain` or below."""
    key_name: str
    """The DNS name of its key, or ""."""
    algorithm: str
    canonical_body: str
    body_hash: bytes
    covers: frozenset[str]
    """The header fields that it covers, in lower case."""
    names: int
    partial: bool


def signatures(fields: list[str]) -> list[DkimSignature]:
    """Parses those of the unfolded values of DKIM-Signature that can be read, topmost first."""
    return [read for index, value in enumerate(fields) if (read := _read(index, value)) is not None]


def flaw(signature: DkimSignature, body: BodyHashes) -> str:
    """Returns why `signature` proves nothing whatever its key is; "" if its key has to be looked up."""
    if signature.algorithm not in _ALGORITHMS:
        return "the signature's algorithm is not one that proves anything"
    if signature.partial:
        return "the signature leaves the end of the mail open"
    if "from" not in signature.covers:
        return "the signature does not cover From"
    if signature.names > MAIL_SIGNED_FIELDS or not signature.key_name:
        return _BROKEN
    # Before the key: what was changed, or is made up, costs no look into the DNS.
    made = body.of(signature.canonical_body)
    return "" if made is not None and made == signature.body_hash else _BROKEN


def holds(head: bytes, signature: DkimSignature, txt: KnownTxt) -> str:
    """Returns why `signature`, which has no `flaw`, does not hold for the header `head`; "" if it does. Raises nothing.

    `head` has line ends CRLF.
    """
    try:
        records = txt(signature.key_name)
    except (LookupError, OSError):
        return "the key of the signature cannot be looked up now"
    # Of several records RFC 6376 leaves open which is the key, so none is.
    record = records[0] if len(records) == 1 and len(records[0]) <= _MAX_KEY else ""
    why = _key_flaw(record, signature)
    if why:
        return why
    try:
        verifier = dkim.DKIM(head + b"\r\n\r\n", minkey=_SHORTEST_KEY)
        tags, covered, fields = verifier.verify_headerprep(signature.index)
        # Without the hash of the body, which `flaw` has compared, dkimpy does not ask for the body.
        tags = {name: value for name, value in tags.items() if name != b"bh"}
        key = record.encode("ascii", "replace")
        held = verifier.verify_sig(tags, covered, fields[signature.index], lambda name, timeout: key)
    except Exception:  # dkimpy raises whatever its parts do, on what a stranger wrote
        held = False
    return "" if held is True else _BROKEN


def _read(index: int, value: str) -> DkimSignature | None:
    tags = _tags(value) if len(value) <= _MAX_SIGNATURE else None
    domain = dns_name(tags.get("d", "")) if tags else ""
    if not tags or not domain:
        return None
    names = [name.strip().lower() for name in tags.get("h", "").split(":")]
    # A single word is the header's; the body's is then `simple` (RFC 6376, 3.5).
    canonical = tags.get("c", "").lower().partition("/")[2].strip() or "simple"
    return DkimSignature(
        index=index,
        domain=domain,
        signer=tags.get("i", f"@{domain}").rpartition("@")[2].lower(),
        key_name=dns_name(f"{tags.get('s', '')}._domainkey.{domain}"),
        algorithm=tags.get("a", "").lower(),
        canonical_body=canonical,
        body_hash=_decode("".join(tags.get("bh", "").split())),
        covers=frozenset(names),
        names=len(names),
        partial="l" in tags,
    )


def _tags(value: str) -> dict[str, str] | None:
    """Parses a list of tags, as signatures and keys are; None for other texts."""
    tags: dict[str, str] = {}
    for tag in value.rstrip("; ").split(";"):
        name, equals, content = tag.partition("=")
        # A list that has a tag twice is not valid (RFC 6376, 3.2).
        if not equals or name.strip() in tags:
            return None
        tags[name.strip()] = content.strip()
    return tags


def _key_flaw(record: str, signature: DkimSignature) -> str:
    """Returns why the key in `record` does not count for `signature`; "" if it may."""
    tags = _tags(record) or {}
    kind = tags.get("k", "rsa").lower()
    flags = _split_list(tags.get("t", ""))
    if "y" in flags:
        return "the sender's domain is only trying out the key of the signature"
    usable = (
        tags.get("p")
        and signature.algorithm == f"{kind}-sha256"
        and ("h" not in tags or "sha256" in _split_list(tags["h"]))
        and ("s" not in tags or not _split_list(tags["s"]).isdisjoint(("*", "email")))
        # The owner of the key has it for the very domain alone.
        and ("s" not in flags or signature.signer == signature.domain)
        and (kind != "rsa" or _usual(_decode("".join(tags["p"].split()))))
    )
    return "" if usable else _BROKEN


def _split_list(value: str) -> set[str]:
    return {each.strip().lower() for each in value.split(":")}


def _usual(key: bytes) -> bool:
    """Returns whether an RSA key is of a length and an exponent that keys have."""
    try:
        found = serialization.load_der_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    if not isinstance(found, rsa.RSAPublicKey):
        return False
    return _SHORTEST_KEY <= found.key_size <= MAIL_KEY_BITS and found.public_numbers().e < _MAX_EXPONENT


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""
