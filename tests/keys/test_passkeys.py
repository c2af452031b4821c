from collections.abc import Callable
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from passkey_device import PRESENT, PasskeyDevice
from tables import table

from signoff.contracts.decision import Decision, GrantRequest, Passkey, Presence
from signoff.contracts.errors import Refused
from signoff.formats.replace import replace
from signoff.keys.passkeys import (
    RelyingParty,
    counter_of,
    decision_challenge,
    encode,
    presence_problem,
    registration_challenge,
    relying_party,
    sign_passkey,
    verify_creation,
)
from signoff.keys.signatures import PrivateKeys, Signer, new_key

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
SIGNER: Final = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=1)),)))
OTHER_SIGNER: Final = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=1)),)))
PARTY: Final = RelyingParty("approvals.example.com", "https://approvals.example.com")
DECISION: Final = Decision(
    approval_id="main.s.t.c1.1",
    revision=1,
    question_hash="d" * 64,
    verdict="approved",
    edited_args={"amount": 380.5},
    remember=GrantRequest(seconds=60.0),
    subject="ana",
    assurance="present",
    received_at=NOW,
)
NONCE: Final = "nonce-1"


def device(**fields: Any) -> PasskeyDevice:
    return PasskeyDevice(**{"rp_id": PARTY.id, "origin": PARTY.origin} | fields)


def registered(of: PasskeyDevice, signer: Signer = SIGNER, **fields: Any) -> Passkey:
    passkey = Passkey(
        credential=encode(of.credential),
        tenant="main",
        person="ana",
        public_key=encode(of.public_key),
        rp_id=PARTY.id,
        origin=PARTY.origin,
        added_at=NOW,
        added_by="ana",
    )
    return sign_passkey(replace(passkey, **fields), signer)


def confirmed(of: PasskeyDevice, decision: Decision = DECISION, passkey: Passkey | None = None) -> Decision:
    """`decision` with the proof of `of` for `DECISION`."""
    assertion = of.answer(encode(decision_challenge(DECISION, NONCE)), NONCE)
    return replace(decision, presence=Presence(passkey=passkey or registered(of), assertion=assertion))


def test_assertion_for_exactly_this_decision_proves_presence() -> None:
    assert presence_problem(confirmed(device()), SIGNER.verifier()) == ""


def test_decision_below_present_needs_no_passkey() -> None:
    assert presence_problem(replace(DECISION, assurance="mfa"), SIGNER.verifier()) == ""


def test_claim_of_presence_without_a_passkey_is_refused() -> None:
    assert "no passkey" in presence_problem(DECISION, SIGNER.verifier())


@table(
    "fields",
    {"verdict": "denied"},
    {"edited_args": {"amount": 380.6}},
    {"edited_args": None},
    {"thread": "e" * 64},
    {"remember": None},
    {"remember": GrantRequest(seconds=61.0)},
    {"question_hash": "e" * 64},
)
def test_assertion_for_another_decision_is_refused(fields: dict[str, Any]) -> None:
    decision = replace(confirmed(device()), **fields)
    assert "confirmed another decision" in presence_problem(decision, SIGNER.verifier())


def test_assertion_with_another_nonce_is_refused() -> None:
    decision = confirmed(device())
    assert decision.presence is not None
    renamed = replace(decision.presence, assertion=replace(decision.presence.assertion, nonce="nonce-2"))
    assert "confirmed another decision" in presence_problem(replace(decision, presence=renamed), SIGNER.verifier())


@table(
    ("fields", "why"),
    ({"person": "bo"}, "another person"),
    ({"tenant": "acme"}, "another person"),
    ({"origin": "https://evil.example"}, "another site"),
    ({"rp_id": "example.com"}, "another site"),
    ({"credential": "AAAA"}, "another passkey"),
)
def test_passkey_registered_for_another_use_is_refused(fields: dict[str, Any], why: str) -> None:
    made = device()
    assert why in presence_problem(confirmed(made, passkey=registered(made, **fields)), SIGNER.verifier())


@table(
    ("change", "why"),
    ({"origin": "https://approvals.example.com.evil.example"}, "another site"),
    ({"rp_id": "evil.example"}, "another site"),
    ({"flags": PRESENT}, "did not verify the person"),
)
def test_authenticator_of_another_page_or_without_verification_is_refused(change: dict[str, Any], why: str) -> None:
    assert why in presence_problem(confirmed(device(**change)), SIGNER.verifier())


def test_assertion_in_a_foreign_frame_is_refused() -> None:
    made = device()
    assertion = made.answer(encode(decision_challenge(DECISION, NONCE)), NONCE, crossOrigin=True)
    decision = replace(DECISION, presence=Presence(passkey=registered(made), assertion=assertion))
    assert "another site" in presence_problem(decision, SIGNER.verifier())


def test_assertion_signed_by_another_key_is_refused() -> None:
    made = device()
    thief = device(credential=made.credential)
    assert "signature is not valid" in presence_problem(confirmed(thief, passkey=registered(made)), SIGNER.verifier())


@table(
    "fields",
    {"authenticator_data": ""},
    {"client_data": ""},
    {"client_data": encode(b"[]")},
    {"client_data": encode(b"{}")},
    {"client_data": "A"},
    {"signature": ""},
)
def test_malformed_assertion_is_refused(fields: dict[str, str]) -> None:
    decision = confirmed(device())
    assert decision.presence is not None
    broken = replace(decision.presence, assertion=replace(decision.presence.assertion, **fields))
    assert "not valid" in presence_problem(replace(decision, presence=broken), SIGNER.verifier())


@table("spoil", lambda each: replace(each, signature=""), lambda each: replace(each, added_by="bo"))
def test_passkey_that_the_gateway_did_not_sign_is_refused(spoil: Callable[[Passkey], Passkey]) -> None:
    made = device()
    decision = confirmed(made, passkey=spoil(registered(made)))
    assert "did not register" in presence_problem(decision, SIGNER.verifier())
    assert "did not register" in presence_problem(confirmed(made), OTHER_SIGNER.verifier())


def test_counter_is_the_authenticators() -> None:
    made = device(count=41)
    assert counter_of(made.answer("", NONCE)) == 42


def test_registration_returns_the_credential_and_its_key() -> None:
    made, challenge = device(count=6), registration_challenge("main", "ana", NONCE)
    new = verify_creation(made.create(encode(challenge)), PARTY, challenge)
    assert new == (encode(made.credential), encode(made.public_key), 7)


@table(
    ("change", "client", "person"),
    ({"flags": PRESENT}, {}, "ana"),
    ({"origin": "https://evil.example"}, {}, "ana"),
    ({"rp_id": "evil.example"}, {}, "ana"),
    ({}, {"type": "webauthn.get"}, "ana"),
    ({}, {}, "bo"),
)
def test_registration_elsewhere_or_without_verification_is_refused(
    change: dict[str, Any], client: dict[str, Any], person: str
) -> None:
    challenge = registration_challenge("main", "ana", NONCE)
    signed = registration_challenge("main", person, NONCE)
    created = changed(device(), **change).create(encode(signed), **client)
    with pytest.raises(Refused):
        verify_creation(created, PARTY, challenge)


@table("given", {}, {"id": 1}, {"id": "AAAA", "rawId": "AAAA", "type": "public-key", "response": {}})
def test_malformed_registration_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="no registration"):
        verify_creation(given, PARTY, b"x")


@table(
    ("address", "party"),
    ("https://approvals.example.com", PARTY),
    ("https://approvals.example.com:8443", ("approvals.example.com", "https://approvals.example.com:8443")),
    ("http://127.0.0.1:8300", ("localhost", "http://localhost:8300")),
    ("http://[::1]:8300", ("localhost", "http://localhost:8300")),
)
def test_party_of_a_public_address_is_its_host_name(address: str, party: tuple[str, str]) -> None:
    assert relying_party(address) == party
