"""Checks DKIM signatures (RFC 6376, RFC 8463). dkimpy does the cryptography.

This module guards it against denial of service (bodies and keys of any length). It rejects signatures that leave the
From field or the end of the body open for an attacker's additions. It also applies the key owner's restrictions, which
dkimpy ignores.
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

# RFC 8301 removes rsa-sha1.
_ALGORITHMS: Final = frozenset(("rsa-sha256", "ed25519-sha256"))
_MAX_SIGNATURE: Final = 4_096
_MAX_KEY: Final = 2_048
"""Characters of a key record: RSA of 4096 bits needs 750."""
# The least bits of an RSA key (RFC 8301).
_SHORTEST_KEY: Final = 1_024
_MAX_EXPONENT: Final = 2**33
"""Usual keys have 65537. With an exponent as long as the modulus, verifying takes a quarter of a second."""
_BROKEN: Final = "the signature does not hold"


@dataclass(frozen=True)
class DkimSignature:
    """The claims of one DKIM-Signature field."""

    index: int
    """The field's place among such fields, counted from the top."""
    domain: str
    signer: str
    """The domain of `i=`, which is `domain` or below."""
    key_name: str
    """The DNS name of the key, or ""."""
    algorithm: str
    canonical_body: str
    body_hash: bytes
    covers: frozenset[str]
    """The covered header fields, in lower case."""
    names: int
    partial: bool


def signatures(fields: list[str]) -> list[DkimSignature]:
    """Parse the readable ones of the unfolded values of DKIM-Signature, topmost first."""
    return [read for index, value in enumerate(fields) if (read := _read(index, value)) is not None]


def flaw(signature: DkimSignature, body: BodyHashes) -> str:
    """Return why `signature` proves nothing with any key, "" if its key must be looked up."""
    if signature.algorithm not in _ALGORITHMS:
        return "the signature's algorithm proves nothing"
    if signature.partial:
        return "the signature leaves the end of the mail open"
    if "from" not in signature.covers:
        return "the signature does not cover From"
    if signature.names > MAIL_SIGNED_FIELDS or not signature.key_name:
        return _BROKEN
    # Compare the hash before looking up the key: a changed or forged email must not cost a DNS query.
    made = body.of(signature.canonical_body)
    return "" if made is not None and made == signature.body_hash else _BROKEN


def holds(head: bytes, signature: DkimSignature, txt: KnownTxt) -> str:
    """Return why `signature`, which has no `flaw`, does not hold for the header `head`, or "".

    Never raises. `head` has line ends CRLF.
    """
    try:
        records = txt(signature.key_name)
    except (LookupError, OSError):
        return "the key of the signature cannot be looked up now"
    # RFC 6376 does not define which of several records is the key, so reject them.
    record = records[0] if len(records) == 1 and len(records[0]) <= _MAX_KEY else ""
    why = _key_flaw(record, signature)
    if why:
        return why
    try:
        verifier = dkim.DKIM(head + b"\r\n\r\n", minkey=_SHORTEST_KEY)
        tags, covered, fields = verifier.verify_headerprep(signature.index)
        # Remove the body's hash, which `flaw` has compared, so that dkimpy does not need the body.
        tags = {name: value for name, value in tags.items() if name != b"bh"}
        key = record.encode("ascii", "replace")
        held = verifier.verify_sig(tags, covered, fields[signature.index], lambda name, timeout: key)
    except Exception:  # dkimpy lets any error of its parts through
        held = False
    return "" if held is True else _BROKEN


def _read(index: int, value: str) -> DkimSignature | None:
    tags = _tags(value) if len(value) <= _MAX_SIGNATURE else None
    domain = dns_name(tags.get("d", "")) if tags else ""
    if not tags or not domain:
        return None
    names = [name.strip().lower() for name in tags.get("h", "").split(":")]
    # A single word applies to the header; the body's form is then `simple` (RFC 6376, 3.5).
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
    """Parse a tag list of a signature or key. None for other texts."""
    tags: dict[str, str] = {}
    for tag in value.rstrip("; ").split(";"):
        name, equals, content = tag.partition("=")
        # A list with a repeated tag is not valid (RFC 6376, 3.2).
        if not equals or name.strip() in tags:
            return None
        tags[name.strip()] = content.strip()
    return tags


def _key_flaw(record: str, signature: DkimSignature) -> str:
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
        # The owner restricts the key to exactly the domain.
        and ("s" not in flags or signature.signer == signature.domain)
        and (kind != "rsa" or _usual(_decode("".join(tags["p"].split()))))
    )
    return "" if usable else _BROKEN


def _split_list(value: str) -> set[str]:
    return {each.strip().lower() for each in value.split(":")}


def _usual(key: bytes) -> bool:
    try:
        public_key = serialization.load_der_public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    if not isinstance(public_key, rsa.RSAPublicKey):
        return False
    return _SHORTEST_KEY <= public_key.key_size <= MAIL_KEY_BITS and public_key.public_numbers().e < _MAX_EXPONENT


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""
