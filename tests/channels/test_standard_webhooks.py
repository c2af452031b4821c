import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook
from tables import table

from signoff.channels.channel_errors import Forged
from signoff.channels.standard_webhooks import read_secret, signed_headers, verify_id
from signoff.contracts.errors import ConfigError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The secret of the reference library's own tests."""
KEY = read_secret(SECRET)
OTHER = b"another secret of 32 characters."
NOW = datetime(2026, 11, 22, 14, 2, tzinfo=UTC)
BODY = '{"who": "Ana", "note": "naïve 🎉"}'.encode()


def test_published_example_has_the_published_signature() -> None:
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers([KEY], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.text(min_size=1, max_size=40, alphabet="abcXYZ019_-"), st.text())
def test_our_signature_equals_the_reference_librarys(message: str, text: str) -> None:
    body = text.encode(errors="replace")
    theirs = Webhook(SECRET).sign(message, NOW, body.decode())
    ours = signed_headers([OTHER, KEY], message, NOW, body)
    assert ours["webhook-signature"].split(" ")[1] == theirs
    assert verify_id([KEY], ours | {"webhook-signature": theirs}, body, NOW) == message


def test_reference_library_accepts_our_signature() -> None:
    headers = signed_headers([OTHER, KEY], "msg_1", datetime.now(UTC), BODY)
    assert Webhook(SECRET).verify(BODY, headers) == {"who": "Ana", "note": "naïve 🎉"}


def test_secret_is_rotated_without_a_gap() -> None:
    both = signed_headers([OTHER, KEY], "msg_1", NOW, BODY)
    assert verify_id([KEY], both, BODY, NOW) == "msg_1"
    assert verify_id([OTHER], both, BODY, NOW) == "msg_1"
    with pytest.raises(Forged):
        verify_id([OTHER], signed_headers([KEY], "msg_1", NOW, BODY), BODY, NOW)


@table(
    ("header", "value"),
    ("webhook-id", "msg_2"),
    ("webhook-id", ""),
    ("webhook-id", "msg 1"),
    ("webhook-id", "\uff4dsg"),
    ("webhook-id", "m" * 201),
    ("webhook-timestamp", "0"),
    ("webhook-timestamp", "soon"),
    ("webhook-timestamp", "-1"),
    ("webhook-timestamp", "\uff11\uff17"),
    ("webhook-timestamp", "9" * 400),
    ("webhook-timestamp", "nan"),
    ("webhook-signature", ""),
    ("webhook-signature", "v1,"),
    ("webhook-signature", "v2,g0hM9SsE"),
    ("webhook-signature", "v1,é"),
    ("webhook-signature", "v1"),
    ("webhook-signature", "v1," * 100_000),
)
def test_changed_header_is_forged(header: str, value: str) -> None:
    headers = signed_headers([KEY], "msg_1", NOW, BODY)
    assert verify_id([KEY], headers, BODY, NOW) == "msg_1"
    with pytest.raises(Forged):
        verify_id([KEY], headers | {header: value}, BODY, NOW)


def test_changed_body_or_missing_header_is_forged() -> None:
    headers = signed_headers([KEY], "msg_1", NOW, BODY)
    for body in (BODY + b" ", b"", BODY[:-1]):
        with pytest.raises(Forged):
            verify_id([KEY], headers, body, NOW)
    for name in headers:
        with pytest.raises(Forged):
            verify_id([KEY], {each: value for each, value in headers.items() if each != name}, BODY, NOW)
    with pytest.raises(Forged):
        verify_id([], headers, BODY, NOW)


def test_message_is_valid_for_five_minutes_before_and_after() -> None:
    headers = signed_headers([KEY], "msg_1", NOW, BODY)
    for seconds in (-300, 0, 300):
        assert verify_id([KEY], headers, BODY, NOW + timedelta(seconds=seconds)) == "msg_1"
    for seconds in (-301, 301):
        with pytest.raises(Forged):
            verify_id([KEY], headers, BODY, NOW + timedelta(seconds=seconds))


@given(st.text(), st.text(), st.text(), st.binary())
def test_arbitrary_headers_are_forged(message: str, moment: str, signature: str, body: bytes) -> None:
    headers = {"webhook-id": message, "webhook-timestamp": moment, "webhook-signature": signature}
    with pytest.raises(Forged):
        verify_id([KEY], headers, body, NOW)


@table("written", "", "whsec_", "whsec_MfKQ", "whsec_not base64!", "whsec_" + "A" * 400, "é" * 40)
def test_invalid_secret_is_refused_without_its_value(written: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_secret(written)
    assert "openssl rand" in refused.value.message
    assert len(written) < 8 or written not in refused.value.message


def test_secret_may_lack_its_prefix_and_padding() -> None:
    key = bytes(range(25))
    written = base64.b64encode(key).decode()
    assert written.endswith("=")
    assert [read_secret(each) for each in (written, f"whsec_{written}", written.rstrip("="))] == [key] * 3
