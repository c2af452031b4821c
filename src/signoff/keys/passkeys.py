"""Verifies passkeys: each assertion proves one person's presence at exactly one decision.

Stops answers without the person. Does not stop a page that shows one decision and asks the passkey for another.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from webauthn import verify_authentication_response, verify_registration_response
from webauthn.helpers import parse_authenticator_data
from webauthn.helpers.exceptions import WebAuthnException

from signoff.contracts.canonical_json import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.decision import Decision, Passkey, PasskeyAssertion
from signoff.contracts.errors import Refused
from signoff.contracts.ids import parse_approval_id
from signoff.formats.replace import replace
from signoff.keys.signatures import Signature, Signer, Verifier

_PURPOSE: Final = "passkey"
_LOOPBACK: Final = frozenset(("127.0.0.1", "::1"))
_LOCAL_NAME: Final = "localhost"
_ALGORITHMS: Final = (-7, -8, -257)
"""ES256, EdDSA and RS256, by their COSE numbers."""
_TIMEOUT_MILLIS: Final = 120_000


class RelyingParty(NamedTuple):
    """The gateway as browsers know it."""

    id: str
    """Its host name."""
    origin: str


class NewPasskey(NamedTuple):
    """A verified registration."""

    credential: str
    public_key: str
    counter: int


def relying_party(public_url: str) -> RelyingParty:
    """Use `localhost` for a loopback address, because passkeys need a name."""
    parts = urlsplit(public_url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port is not None else ""
    name = _LOCAL_NAME if host in _LOOPBACK else host
    return RelyingParty(name, f"{parts.scheme}://{name}{port}")


def decision_challenge(decision: Decision, nonce: str) -> bytes:
    """Raises `NotCanonical`."""
    remember = None if decision.remember is None else decision.remember.model_dump(mode="json")
    return _challenge(
        {
            "question_hash": decision.question_hash,
            "verdict": decision.verdict,
            "edited_args": "" if decision.edited_args is None else sha256_hex(decision.edited_args),
            "answer": "" if decision.answer is None else sha256_hex(decision.answer),
            "remember": remember,
            "thread": decision.thread,
            "to": decision.to,
            "person": decision.subject,
            "nonce": nonce,
        }
    )


def registration_challenge(tenant: str, person: str, nonce: str) -> bytes:
    return _challenge({"register": [tenant, person], "nonce": nonce})


def further_challenge(tenant: str, person: str, nonce: str) -> bytes:
    """The challenge for an old passkey that permits a further one."""
    return _challenge({"further": [tenant, person], "nonce": nonce})


def creation_options(
    party: RelyingParty, challenge: bytes, *, user: tuple[str, str, str], known: tuple[str, ...]
) -> dict[str, Any]:
    """`user` is tenant, id and name. An authenticator of a `known` credential makes no second one."""
    tenant, person, name = user
    handle = hashlib.sha256(canonical_json([tenant, person])).digest()
    return {
        "rp": {"id": party.id, "name": party.id},
        "user": {"id": encode(handle), "name": person, "displayName": name or person},
        "challenge": encode(challenge),
        "pubKeyCredParams": [{"type": "public-key", "alg": number} for number in _ALGORITHMS],
        "timeout": _TIMEOUT_MILLIS,
        "excludeCredentials": _descriptors(known),
        "authenticatorSelection": {"residentKey": "preferred", "userVerification": "required"},
        "attestation": "none",
    }


def assertion_options(party: RelyingParty, challenge: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    return {
        "challenge": encode(challenge),
        "timeout": _TIMEOUT_MILLIS,
        "rpId": party.id,
        "allowCredentials": _descriptors(known),
        "userVerification": "required",
    }


def verify_creation(given: Mapping[str, Any], party: RelyingParty, challenge: bytes) -> NewPasskey:
    """`given` is the browser's `PublicKeyCredential` as JSON. Raises `Refused` with the reason."""
    try:
        found = verify_registration_response(
            credential=dict(given),
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=True,
        )
    # The library also passes on errors of its parsers.
    except Exception as error:
        why = str(error) if isinstance(error, WebAuthnException) else "it cannot be read"
        raise Refused(f"this is no registration of a passkey for this page: {why}", code="malformed") from None
    return NewPasskey(encode(found.credential_id), encode(found.credential_public_key), found.sign_count)


def sign_passkey(passkey: Passkey, signer: Signer) -> Passkey:
    unsigned = replace(passkey, key_id=signer.key_id, signature="")
    return replace(unsigned, signature=signer.sign_bytes(_PURPOSE, _signed_part(unsigned)).signature)


def is_registered(passkey: Passkey, verifier: Verifier) -> bool:
    """Return whether the gateway signed every field."""
    mark = Signature(passkey.key_id, passkey.signature)
    return verifier.check_bytes(_PURPOSE, _signed_part(passkey), mark, at=passkey.added_at)


def presence_problem(decision: Decision, verifier: Verifier) -> str:
    """Return why a decision does not prove its claim of presence, or "".

    Needs only the gateway's public keys, so gateway and worker both check it.
    """
    proof = decision.presence
    if proof is None:
        return "no passkey proves its presence" if decision.assurance == "present" else ""
    passkey, named = proof.passkey, parse_approval_id(decision.approval_id)
    if not is_registered(passkey, verifier):
        return "the gateway did not register its passkey"
    if passkey.person != decision.subject or named is None or passkey.tenant != named.turn.tenant:
        return "its passkey belongs to another person"
    try:
        challenge = decision_challenge(decision, proof.assertion.nonce)
    except NotCanonical:
        return "its arguments cannot be bound to a passkey"
    return assertion_problem(proof.assertion, passkey, challenge)


def assertion_problem(assertion: PasskeyAssertion, passkey: Passkey, challenge: bytes) -> str:
    """Return why `passkey` did not sign exactly `challenge` on its own page, with its person verified, or "".

    The counter is left to `counter_of`.
    """
    if assertion.credential != passkey.credential:
        return "it was made with another passkey"
    try:
        client = json.loads(_decode(assertion.client_data))
        data = parse_authenticator_data(_decode(assertion.authenticator_data))
        if client["challenge"] != encode(challenge):
            return "its passkey confirmed another decision: another verdict, other arguments, or an older page"
        if client["origin"] != passkey.origin or client.get("crossOrigin", False) is not False:
            return "its passkey was used on a page of another site"
        if data.rp_id_hash != hashlib.sha256(passkey.rp_id.encode()).digest():
            return "its passkey was used for another site"
        if not data.flags.uv:
            return "its passkey did not verify the person, by a PIN or biometrics"
        verify_authentication_response(
            credential=_as_credential(assertion),
            expected_challenge=challenge,
            expected_rp_id=passkey.rp_id,
            expected_origin=passkey.origin,
            credential_public_key=_decode(passkey.public_key),
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    # The library also passes on errors of its parsers.
    except Exception as error:
        return f"its passkey's signature is not valid ({type(error).__name__})"
    return ""


def counter_of(assertion: PasskeyAssertion) -> int:
    """Return the authenticator's count of signatures, 0 if it does not count. Only for a verified assertion."""
    return int.from_bytes(_decode(assertion.authenticator_data)[33:37])


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}")


def _challenge(fields: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(canonical_json(fields)).digest()


def _descriptors(known: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"type": "public-key", "id": each} for each in known]


def _signed_part(passkey: Passkey) -> bytes:
    return canonical_json(passkey.model_dump(mode="json", exclude={"signature"}))


def _as_credential(assertion: PasskeyAssertion) -> dict[str, Any]:
    return {
        "id": assertion.credential,
        "rawId": assertion.credential,
        "type": "public-key",
        "response": {
            "authenticatorData": assertion.authenticator_data,
            "clientDataJSON": assertion.client_data,
            "signature": assertion.signature,
        },
    }
