from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.channels.base import FETCHED, ChannelContext
from signoff.channels.channel_errors import Forged
from signoff.channels.envelopes import InboundRequest
from signoff.channels.signature_check import HmacSignature, check_same, check_time, hmac_base64, hmac_hex, is_same
from signoff.testing.recording_channel import recording_channel

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
TIMED = HmacSignature("x-mark", (b"new", b"old"), "v0=", time_header="x-time", before="v0:{time}:")
BARE = HmacSignature("x-mark", (b"new",))


def raw(signature: HmacSignature, body: bytes = b"{}", at: datetime = NOW, **headers: str) -> InboundRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return InboundRequest(body, {**signature.sign(body, at), **named})


def test_hmac_equals_the_published_value() -> None:
    """RFC 4231, test case 2, and RFC 2202, test case 2."""
    key, content = b"Jefe", b"what do ya want for nothing?"
    assert hmac_hex(key, content).startswith("5bdcc146bf60754e6a042426089575c7")
    assert hmac_hex(key, content, "sha1") == "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
    assert hmac_base64(key, content, "sha1") == "7/zfauXrL6LSdBbV8YTfnCWafHk="


@table("signature", TIMED, BARE)
def test_signed_request_is_accepted_and_any_change_refused(signature: HmacSignature) -> None:
    signature.check(raw(signature), NOW)
    others = HmacSignature(signature.header, (b"else",), signature.prefix, signature.time_header, signature.before)
    for forged in (
        InboundRequest(b"{} ", raw(signature).headers),
        InboundRequest(b"{}"),
        raw(signature, x_mark=""),
        raw(signature, x_mark="ä" * 9),
        raw(signature, x_mark=raw(signature).headers["x-mark"].upper()),
        raw(others),
    ):
        with pytest.raises(Forged):
            signature.check(forged, NOW)


def test_old_secret_is_accepted_while_configured() -> None:
    old, new = (
        HmacSignature("x-mark", (secret,), "v0=", time_header="x-time", before="v0:{time}:")
        for secret in (b"old", b"new")
    )
    for each in (old, new):
        TIMED.check(raw(each), NOW)
    with pytest.raises(Forged):
        new.check(raw(old), NOW)


@table("secrets", (), (b"",), (b"", b""))
def test_signature_without_a_secret_is_forged(secrets: tuple[bytes, ...]) -> None:
    empty = HmacSignature("x-mark", (b"",))
    with pytest.raises(Forged):
        HmacSignature("x-mark", secrets).check(raw(empty), NOW)


@table(("seconds", "taken"), (300, True), (301, False), (-300, True), (-301, False))
def test_signature_outside_five_minutes_is_forged(seconds: int, taken: bool) -> None:
    request = raw(TIMED, at=NOW - timedelta(seconds=seconds))
    if taken:
        TIMED.check(request, NOW)
    else:
        with pytest.raises(Forged):
            TIMED.check(request, NOW)


def test_unsigned_timestamp_is_forged() -> None:
    old = raw(TIMED, at=NOW - timedelta(hours=1))
    with pytest.raises(Forged):
        TIMED.check(InboundRequest(old.body, {**old.headers, "x-time": str(int(NOW.timestamp()))}), NOW)


@table("stamp", "", " 1", "1 ", "+1", "1.0", "²", "١٢٣", "9" * 13, "9" * 5_000, "\udcff", b"\xff")
def test_invalid_timestamp_is_forged(stamp: str | bytes) -> None:
    with pytest.raises(Forged):
        check_time(stamp, NOW)


@given(st.text(), st.text())
def test_any_texts_can_be_compared(given: str, right: str) -> None:
    assert is_same(given, right) == (
        bool(right) and given.encode("utf-8", "replace") == right.encode("utf-8", "replace")
    )


def test_one_of_several_matches_is_enough() -> None:
    check_same("b", "a", "b")
    with pytest.raises(Forged):
        check_same("b")


def test_message_fetched_by_the_channel_has_its_own_mark() -> None:
    ours, theirs = recording_channel("ours"), recording_channel("theirs")
    fetched = ours.mark_fetched(b'{"a": 1}')
    assert ours.is_fetched(fetched)
    assert not ours.is_fetched(InboundRequest(fetched.body, {FETCHED: ""}))
    for forged in (
        InboundRequest(b"{}", fetched.headers),
        InboundRequest(fetched.body, {FETCHED: "0" * 64}),
        InboundRequest(fetched.body, {FETCHED: hmac_hex(ours.context.secret, fetched.body)}),
    ):
        with pytest.raises(Forged):
            ours.is_fetched(forged)
    if theirs.context.secret != ours.context.secret:
        with pytest.raises(Forged):
            theirs.is_fetched(fetched)


def test_repr_shows_no_secret() -> None:
    context = ChannelContext("chat", {"token": "t0ken"}, "https://a.example", lambda: NOW, b"s3cret")
    for holder in (HmacSignature("x-mark", (b"s3cret",)), context):
        assert not any(secret in repr(holder) for secret in ("t0ken", "s3cret"))
