import hashlib
import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from tables import table

from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision, GrantRequest, Passkey, PasskeyAssertion, Presence
from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import ASKED_SECONDS
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.keys.signature_form import (
    decision_bytes,
    hash_words,
    principal_as_asked,
    principal_bytes,
    unsigned_principal,
)
from signoff.keys.signatures import PrivateKeys, PublicKey, Signature, Signer, Verifier, new_key
from signoff.testing import a_call_context

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
OLD, NEW = new_key(NOW - timedelta(days=90)), new_key(NOW - timedelta(days=1))
SIGNER = Signer(PrivateKeys(keys=(NEW,)))
CHECK = SIGNER.verifier()
PASSKEY = Passkey(
    credential="c",
    tenant="main",
    person="ana",
    public_key="k",
    rp_id="localhost",
    origin="http://localhost",
    added_at=NOW,
    added_by="ana",
    key_id=NEW.id,
    signature="s",
)
ASSERTION = PasskeyAssertion(credential="c", nonce="n", authenticator_data="a", client_data="d", signature="s")
DECISION = Decision(
    approval_id="main.s.t.c1.1",
    revision=1,
    question_hash="d" * 64,
    thread="c" * 64,
    verdict="approved",
    to="bo",
    to_name="Bo",
    assigned="b" * 64,
    on_call=("oncall:payments",),
    edited_args={"amount": 380.5, "to": "Zoë", "list": [1, None, True]},
    answer={"room": 4, "words": ["no", None]},
    reason="cheap",
    subject="ana",
    channel="inbox",
    assurance="session",
    delivery_id="inbox:ana:1",
    received_at=NOW,
    remember=GrantRequest(seconds=60.0),
    presence=Presence(passkey=PASSKEY, assertion=ASSERTION),
)
ANA = Principal(user="ana", name="Ana", tier="trusted", roles=("finance",))


def pinned(**fields: Any) -> CallContext:
    where = {"channel": "inbox", "route": "refunds", "step": "1"}
    return a_call_context(**where | {"user": ANA, "extra": {"budget": 10, "data": {"name": "Zoë"}}} | fields)


def asked_by(signer: Signer, *, at: datetime = NOW) -> CallContext:
    ctx = pinned()
    stamped = replace(ctx, user=principal_as_asked(ctx, nonce="n", at=at, store_id="s", words="pay"))
    return replace(ctx, user=signer.sign_principal(stamped))


ASKED = asked_by(SIGNER)


def retired(*, at: datetime) -> tuple[Signer, Verifier]:
    keys = PrivateKeys(keys=(replace(OLD, retired_at=at), NEW))
    return Signer(PrivateKeys(keys=(OLD,))), Verifier(keys.public().keys)


def test_signed_decision_survives_histories() -> None:
    signed = SIGNER.sign_decision(DECISION)
    assert signed.key_id == NEW.id == SIGNER.key_id
    assert replace(signed, key_id="", signature="") == DECISION
    again = Decision.model_validate_json(signed.model_dump_json())
    once_more = Decision.model_validate(json.loads(json.dumps(again.model_dump(mode="json", exclude_none=True))))
    assert all(CHECK.check_decision(each) for each in (signed, again, once_more))
    east = replace(DECISION, received_at=NOW.astimezone(timezone(timedelta(hours=9))))
    assert SIGNER.sign_decision(east) == signed


@table(
    "change",
    {"approval_id": "main.s.t.c1.2"},
    {"revision": 2},
    {"revision": None},
    {"question_hash": "e" * 64},
    {"question_hash": ""},
    {"thread": "e" * 64},
    {"thread": ""},
    {"to": "rui"},
    {"to_name": "Rui"},
    {"assigned": "e" * 64},
    {"assigned": ""},
    {"on_call": ("oncall:search",)},
    {"on_call": ()},
    {"verdict": "denied"},
    {"edited_args": {"amount": 381, "to": "Zoë", "list": [1, None, True]}},
    {"edited_args": None},
    {"answer": {"room": 5, "words": ["no", None]}},
    {"answer": None},
    {"reason": "very cheap"},
    {"reason": ""},
    {"subject": "bo"},
    {"channel": "slack"},
    {"assurance": "mfa"},
    {"delivery_id": "inbox:ana:2"},
    {"received_at": NOW - timedelta(microseconds=1)},
    {"received_at": None},
    {"received_at": NOW.replace(tzinfo=None)},
    {"remember": GrantRequest(seconds=61.0)},
    {"remember": None},
    {"presence": None},
    {"presence": Presence(passkey=PASSKEY, assertion=replace(ASSERTION, signature="t"))},
    {"presence": Presence(passkey=replace(PASSKEY, signature="t"), assertion=ASSERTION)},
    {"result": "done"},
    {"v": 2},
    {"key_id": ""},
    {"key_id": OLD.id},
    {"signature": ""},
    {"signature": "not base64"},
    {"signature": "AAAA"},
    {"signature": "A" * 86 + "=="},
)
def test_changed_field_breaks_the_signature(change: dict[str, Any]) -> None:
    assert not CHECK.check_decision(replace(SIGNER.sign_decision(DECISION), **change))


def test_every_field_of_a_decision_is_signed() -> None:
    written = set(json.loads(decision_bytes(SIGNER.sign_decision(DECISION))))
    assert written == set(Decision.model_fields) - {"signature", "v", "result"}
    assert set(json.loads(decision_bytes(replace(DECISION, v=2, result="r")))) >= {"v", "result"}


def test_decision_signed_before_a_new_field_still_verifies() -> None:
    class Grown(Decision):
        """A decision of a later version."""

        mood: str = "calm"

    signed = SIGNER.sign_decision(DECISION)
    assert CHECK.check_decision(Grown.model_validate(signed.model_dump()))
    assert not CHECK.check_decision(Grown.model_validate({**signed.model_dump(), "mood": "angry"}))


@table(
    "change",
    {"tenant": "other"},
    {"session": "other"},
    {"turn": "other"},
    {"session": "t", "turn": "s"},
    {"actor": "other"},
    {"channel": "slack"},
    {"route": "other"},
    {"route": ""},
    {"step": "2"},
    {"route": "", "step": ""},
    {"transient": ("pay",)},
    {"extra": {}},
    {"extra": {"budget": 100, "data": {"name": "Zoë"}}},
    {"extra": {"budget": 10, "data": {"name": "Bo"}}},
    {"extra": {"budget": 10, "data": {}}},
    {"extra": {"budget": 10, "data": "none"}},
    {"extra": {"budget": float("nan"), "data": {"name": "Zoë"}}},
)
def test_principal_is_bound_to_its_request(change: dict[str, Any]) -> None:
    assert CHECK.check_principal(ASKED)
    assert not CHECK.check_principal(replace(ASKED, **change))


@table(
    "change",
    {"user": "bo"},
    {"name": "Bo"},
    {"tier": "premium"},
    {"roles": ("finance", "approvers")},
    {"roles": ()},
    {"locale": "de"},
    {"actor": ""},
    {"actor": "other"},
    {"transient": ("pay",)},
    {"given": ()},
    {"given_data": ()},
    {"words": hash_words("pay all", "n")},
    {"words": hash_words("pay", "another")},
    {"words": ""},
    {"nonce": "another"},
    {"nonce": ""},
    {"store_id": "another"},
    {"issued_at": NOW + timedelta(seconds=1)},
    {"issued_at": None},
    {"signature": ""},
    {"key_id": OLD.id},
)
def test_changed_principal_breaks_the_signature(change: dict[str, Any]) -> None:
    assert not CHECK.check_principal(replace(ASKED, user=replace(ASKED.user, **change)))


def test_context_changes_by_tools_break_no_signature() -> None:
    extra = {**ASKED.extra, "found": 1, "data": {"name": "Zoë", "seat": "2A"}}
    assert CHECK.check_principal(replace(ASKED, extra=extra))


@table(
    ("place", "holds"),
    (("refunds", "1", ("pay",)), True),
    (("", "", ()), True),
    (("refunds", "", ("pay",)), False),
    (("other", "1", ("pay",)), False),
    (("refunds", "1", ()), False),
    (("", "", ("pay",)), False),
    (("", "", ("look",)), False),
    (("refunds", "1", ("pay", "look")), False),
)
def test_turn_that_may_be_handed_over_loses_at_most_its_place(
    place: tuple[str, str, tuple[str, ...]], holds: bool
) -> None:
    """When the tools were part of the context's digest, a turn handed over with tools had no valid requester."""
    asked = pinned(actor="whoever", transient=("pay",))
    asker = principal_as_asked(asked, nonce="n", at=NOW, any_actor=True)
    asked = replace(asked, user=asker)
    asked = replace(asked, user=SIGNER.sign_principal(asked))
    assert (
        CHECK.check_principal(replace(asked, actor="another", route=place[0], step=place[1], transient=place[2]))
        is holds
    )


def test_signed_principal_survives_histories() -> None:
    asked = pinned(extra={"user.since": date(2020, 1, 1), "data": 7, "ratio": 1.0})
    asked = replace(asked, user=principal_as_asked(asked, nonce="n", at=NOW))
    signed = replace(asked, user=SIGNER.sign_principal(asked))
    again = CallContext.model_validate_json(signed.model_dump_json())
    assert CHECK.check_principal(signed)
    assert CHECK.check_principal(again)


def test_rules_run_calls_for_a_day_after_the_request() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=9)))
    asker = principal_as_asked(pinned(), nonce="n", at=east)
    assert (asker.issued_at, asker.expires_at) == (NOW, NOW + timedelta(seconds=ASKED_SECONDS))
    assert asker.issued_at is not None
    assert asker.issued_at.tzinfo is UTC


def test_identity_is_the_same_after_signing_again() -> None:
    other = asked_by(Signer(PrivateKeys(keys=(OLD,))), at=NOW + timedelta(days=1)).user
    assert other != ASKED.user
    assert unsigned_principal(other) == unsigned_principal(ASKED.user) == ANA


def test_wrong_key_is_rejected() -> None:
    stranger = Signer(PrivateKeys(keys=(OLD,)))
    foreign = stranger.sign_decision(DECISION)
    assert not CHECK.check_decision(foreign)
    assert not CHECK.check_decision(replace(foreign, key_id=NEW.id))
    theirs = asked_by(stranger)
    renamed = replace(theirs.user, key_id=NEW.id)
    assert not CHECK.check_principal(theirs)
    assert not CHECK.check_principal(replace(theirs, user=renamed))
    assert not Verifier().check_decision(SIGNER.sign_decision(DECISION))


def test_worker_without_the_gateways_key_names_the_missing_key(caplog: pytest.LogCaptureFixture) -> None:
    Verifier().check_decision(SIGNER.sign_decision(DECISION))
    CHECK.check_decision(replace(SIGNER.sign_decision(DECISION), key_id="\n" * 1_000))
    [first, second] = [record.getMessage() for record in caplog.records]
    assert NEW.id in first
    assert "\n" not in second
    assert len(second) < 200


def test_rotation_with_overlap() -> None:
    before = Signer(PrivateKeys(keys=(OLD,))).sign_decision(DECISION)
    both = Signer(PrivateKeys(keys=(NEW, OLD)))
    assert both.key_id == Signer(PrivateKeys(keys=(OLD, NEW))).key_id == NEW.id
    assert both.verifier().check_decision(before)
    assert both.verifier().check_decision(both.sign_decision(DECISION))
    assert set(both.verifier().key_ids) == {OLD.id, NEW.id}


def test_retired_key_verifies_data_received_before() -> None:
    signer, check = retired(at=NOW + timedelta(microseconds=1))
    assert check.check_decision(signer.sign_decision(DECISION))
    assert check.check_principal(asked_by(signer))
    _, too_late = retired(at=NOW)
    assert not too_late.check_decision(signer.sign_decision(DECISION))
    assert not too_late.check_principal(asked_by(signer))


def test_retired_keys_do_not_sign() -> None:
    gone = replace(NEW, retired_at=NOW)
    assert Signer(PrivateKeys(keys=(OLD, gone))).key_id == OLD.id
    with pytest.raises(ConfigError, match="signoff keys create"):
        Signer(PrivateKeys(keys=(gone,)))
    with pytest.raises(ConfigError, match="signoff keys create"):
        Signer(PrivateKeys())


def test_bytes_are_signed_for_one_purpose() -> None:
    mark = SIGNER.sign_bytes("checkpoint", b"heads")
    assert CHECK.check_bytes("checkpoint", b"heads", mark, at=NOW)
    assert not CHECK.check_bytes("checkpoint", b"tails", mark, at=NOW)
    assert not CHECK.check_bytes("link", b"heads", mark, at=NOW)
    assert not CHECK.check_bytes("checkpoint", b"heads", Signature(OLD.id, mark.signature), at=NOW)
    signed = SIGNER.sign_decision(DECISION)
    borrowed = SIGNER.sign_bytes("decision", decision_bytes(signed))
    assert not CHECK.check_decision(replace(signed, signature=borrowed.signature))
    signer, check = retired(at=NOW)
    assert not check.check_bytes("checkpoint", b"heads", signer.sign_bytes("checkpoint", b"heads"), at=NOW)


@table("args", {"amount": 2**60}, {"amount": float("nan"), "to": "\ud800"})
def test_decision_without_a_canonical_form_is_not_signed(args: dict[str, Any]) -> None:
    odd = replace(DECISION, edited_args=args)
    with pytest.raises(NotCanonical):
        SIGNER.sign_decision(odd)
    assert not CHECK.check_decision(replace(SIGNER.sign_decision(DECISION), edited_args=args))


def test_decision_without_a_time_is_not_signed() -> None:
    with pytest.raises(ValueError, match="when it was received"):
        SIGNER.sign_decision(replace(DECISION, received_at=None))


def test_key_ids_are_derived_from_the_keys() -> None:
    with pytest.raises(ValueError, match="is not the one of this key"):
        PublicKey(id=OLD.id, created_at=NOW, public=NEW.public_half().public)
    with pytest.raises(ValueError, match="is not the one of this key"):
        type(NEW)(id=OLD.id, created_at=NOW, private=NEW.private)


def test_no_text_form_shows_a_private_key() -> None:
    keys = PrivateKeys(keys=(OLD, NEW))
    texts = [repr(each) + str(each) for each in (NEW, keys, Signer(keys), keys.public(), vars(Signer(keys)))]
    assert not any(key.private in text for key in keys.keys for text in texts)


def test_signed_bytes_are_canonical_json() -> None:
    """Anyone with the public key can check a decision without Signoff: RFC 8785 of its content."""
    context = hashlib.sha256(b'{"context":{"budget":10},"data":{}}').hexdigest()
    ctx = pinned(extra={"budget": 10})
    ctx = replace(ctx, user=principal_as_asked(ctx, nonce="n", at=NOW, store_id="s"))
    assert principal_bytes(ctx) == (
        b'{"channel":"inbox","context":"' + context.encode() + b'","principal":{"actor":"desk",'
        b'"given":["budget"],"issued_at":"2026-03-01T12:00:00.123456Z",'
        b'"name":"Ana","nonce":"n","roles":["finance"],"route":"refunds","step":"1","store_id":"s","tier":"trusted",'
        b'"user":"ana"},"session":"s","tenant":"main","turn":"t"}'
    )
    bare = Decision(approval_id="a", verdict="denied", received_at=NOW, key_id="k")
    assert decision_bytes(bare) == (
        b'{"approval_id":"a","key_id":"k","received_at":"2026-03-01T12:00:00.123456Z","verdict":"denied"}'
    )
