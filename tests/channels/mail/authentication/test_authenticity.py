import base64
from collections.abc import Callable, Sequence

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from mail_corpus import MAILS, TO, mail, work
from tables import table

from signoff.channels.mail.authentication.authentication_results import ResultsServer, parse_results
from signoff.channels.mail.authentication.authenticity import Authenticity, ProviderVerdict, authenticate
from signoff.channels.mail.authentication.dns_names import dns_name, reaches, txt_lookup_of

RFC8463_KEYS = {
    "brisbane._domainkey.football.example.com": ["v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="],
    "test._domainkey.football.example.com": [
        "v=DKIM1; k=rsa; p="
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/"
        "J16JYi0Qvx/byYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLz"
        "BfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB"
    ],
}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
ED = Ed25519PrivateKey.generate()
COVERED = (b"from", b"to", b"subject", b"date", b"message-id", b"in-reply-to", b"references")
ANA = "ana@example.org"
OUR_SERVER = ResultsServer("mx.example.com")
PASSED = "mx.example.com; dmarc=pass (p=none) header.from=example.org"
REPLY = mail("Yes")


def records(found: dict[str, list[str]]) -> Callable[[str], Sequence[str]]:
    return lambda name: found.get(name, [])


def public(key: rsa.RSAPrivateKey) -> str:
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"v=DKIM1; k=rsa; p={base64.b64encode(key.public_key().public_bytes(*form)).decode()}"


def private(key: rsa.RSAPrivateKey) -> bytes:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return key.private_bytes(*form)


def signed(
    raw: bytes = REPLY,
    *,
    domain: str = "example.org",
    covers: Sequence[bytes] = COVERED,
    canonical: tuple[bytes, bytes] = (b"relaxed", b"relaxed"),
    length: bool = False,
    algorithm: bytes = b"rsa-sha256",
) -> bytes:
    if algorithm == b"ed25519-sha256":
        form = (serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
        key = base64.b64encode(ED.private_bytes(*form))
    else:
        key = private(RSA)
    field: bytes = dkim.DKIM(raw).sign(
        b"s1",
        domain.encode(),
        key,
        include_headers=list(covers),
        canonicalize=canonical,
        length=length,
        signature_algorithm=algorithm,
    )
    return field + raw


KEYS = {"s1._domainkey.example.org": [public(RSA)]}


def by_dkim(raw: bytes, found: dict[str, list[str]] | None = None) -> Authenticity:
    return authenticate(raw).judge(records(KEYS if found is None else found))


def by_results(raw: bytes) -> Authenticity:
    return authenticate(b"Received: by mx.example.com\r\n" + raw, server=OUR_SERVER).judge(txt_lookup_of({}))


def with_results(*values: str, raw: bytes = REPLY) -> bytes:
    return "".join(f"Authentication-Results: {value}\r\n" for value in values).encode() + raw


def test_published_sample_verifies() -> None:
    """Each signature of RFC 8463 holds alone, and fails after a changed word."""
    raw = (MAILS / "rfc8463.eml").read_bytes()
    for name, record in RFC8463_KEYS.items():
        found = by_dkim(raw, {name: record})
        assert (found.sender, found.by, found.why) == ("joe@football.example.com", "dkim", "")
        assert found.recipients == ("suzie@shopping.example.net",)
        assert by_dkim(raw.replace(b"lost", b"won!"), {name: record}).why


@table("algorithm", b"rsa-sha256", b"ed25519-sha256")
@table("body", b"simple", b"relaxed")
@table("header", b"simple", b"relaxed")
@table("text", "Yes", "a  \t b \n\n\nc\t\n\n", "", "\n\n", " \n ", " \n\n", "a\n ")
def test_signatures_of_another_library_verify(text: str, header: bytes, body: bytes, algorithm: bytes) -> None:
    raw = signed(mail(text), canonical=(header, body), algorithm=algorithm)
    form = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    ed = f"v=DKIM1; k=ed25519; p={base64.b64encode(ED.public_key().public_bytes(*form)).decode()}"
    key = public(RSA) if algorithm == b"rsa-sha256" else ed
    found = by_dkim(raw, {"s1._domainkey.example.org": [key]})
    assert found == Authenticity(ANA, "dkim", "", frozenset(name.decode() for name in COVERED), (TO,))


def test_signature_verifies_with_bare_line_feeds() -> None:
    assert by_dkim(signed().replace(b"\r\n", b"\n")).why == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Yes", b"No!"),
        (b"From: Ana <ana@example.org>", b"From: Bob <bob@example.org>"),
        (b"Subject: Re: Pay 300", b"Subject: Re: Pay 900"),
        (b"To: approvals+k7", b"To: approvals+k8"),
    ],
)
def test_changed_email_is_not_verified(old: bytes, new: bytes) -> None:
    raw = signed()
    assert old in raw
    assert by_dkim(raw.replace(old, new)).why == "the signature does not hold"


def test_second_signature_counts_if_the_first_fails() -> None:
    broken = signed(domain="example.org").partition(b"\r\nFrom:")[0].replace(b"bh=", b"bh=AAAA")
    assert by_dkim(broken + b"\r\n" + signed()).why == ""


@table(
    ("raw", "why"),
    (REPLY, "no signature of the sender's domain"),
    (signed(domain="example.net"), "no signature of the sender's domain"),
    (signed(domain="mail.example.org"), "no signature of the sender's domain"),
    (signed().replace(b"s=s1", b"s=s/1"), "the signature does not hold"),
    (signed().replace(b"d=example.org", b"d=x; d=example.org"), "no signature of the sender's domain"),
    (signed(covers=[*COVERED, *[b"x-not-there"] * 300]), "no signature of the sender's domain"),
    (signed(length=True), "the signature leaves the end of the mail open"),
    (signed().replace(b"a=rsa-sha256", b"a=rsa-sha1"), "the signature's algorithm proves nothing"),
    (signed().replace(b"h=from : ", b"h="), "the signature does not cover From"),
)
def test_signature_without_proof_of_the_sender_is_refused_with_a_reason(raw: bytes, why: str) -> None:
    assert by_dkim(raw, {**KEYS, "s1._domainkey.example.net": [public(RSA)]}).why == why


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [""],
        ["v=DKIM1; p="],
        ["v=DKIM1; k=rsa; p=AAAA"],
        ["v=DKIM1; k=unknown; p=AAAA"],
        ["p=" + "A" * 5_000],
        [public(WEAK)],
        [public(RSA), public(RSA)],
        [f"{public(RSA)}; n={'x' * 2_000}"],
        ["nonsense \u2603"],
        ["v=DKIM1; k=ed25519; p=AAAA"],
    ],
)
def test_unusable_key_verifies_nothing(keys: list[str]) -> None:
    assert by_dkim(signed(), {"s1._domainkey.example.org": keys}).why == "the signature does not hold"


@pytest.mark.parametrize("error", [OSError("no answer"), LookupError("none"), TimeoutError()])
def test_unavailable_dns_verifies_nothing(error: Exception) -> None:
    def silent(name: str) -> list[str]:
        raise error

    assert authenticate(signed()).judge(silent).why == "the key of the signature cannot be looked up now"


def test_parent_domain_may_sign_if_dmarc_is_relaxed() -> None:
    """Unless the domain's own record, or else its organisation's, has `adkim=s`."""
    raw = signed(mail("Yes", sender="ana@mail.example.org"))
    relaxed = {**KEYS, "_dmarc.example.org": ["other", "v=DMARC1; p=none"]}
    assert by_dkim(raw, relaxed).why == ""
    assert by_dkim(raw).why == "the sender's domain has no DMARC record that lets a domain above sign"
    for name in ("_dmarc.mail.example.org", "_dmarc.example.org"):
        assert (
            by_dkim(raw, relaxed | {name: ["v=DMARC1; p=none; adkim=s"]}).why == "the sender's domain must sign itself"
        )
    own = {**relaxed, "_dmarc.mail.example.org": ["v=DMARC1; p=none"], "_dmarc.example.org": ["v=DMARC1; adkim=s"]}
    assert by_dkim(raw, own).why == ""


def test_failed_dmarc_lookup_rejects_a_parent_domains_signature() -> None:
    def half(name: str) -> Sequence[str]:
        if name.startswith("_dmarc."):
            raise OSError("no answer")
        return KEYS.get(name, [])

    raw = signed(mail("Yes", sender="ana@mail.example.org"))
    assert authenticate(raw).judge(half).why == "the sender's DMARC record cannot be looked up now"
    assert authenticate(signed()).judge(half).why == ""


def test_only_parent_domains_cover_a_domain() -> None:
    assert reaches("example.org", "example.org")
    assert reaches("example.org", "a.b.example.org")
    assert not reaches("mail.example.org", "example.org")
    assert not reaches("ample.org", "example.org")
    assert not reaches("", "example.org")
    assert dns_name("org") == dns_name("a b.org") == dns_name("x" * 300 + ".org") == dns_name("a..org") == ""
    assert dns_name(" S1._DomainKey.Example.ORG ") == "s1._domainkey.example.org"


@table(
    ("sender", "why"),
    ("ana@example.org, bob@example.org", "From is not one plain address"),
    ("Team: ana@example.org;", "From is not one plain address"),
    ("<@relay.example.net:ana@example.org>", "From is not one plain address"),
    ('"a b"@example.org', "From is not one plain address"),
    ("ana@example.org <mallory@example.net>", "the name in From is another address"),
    ('"ana@example.org" <mallory@example.net>', "the name in From is another address"),
    ("=?utf-8?q?ana=40example=2Eorg?= <mallory@example.net>", "the name in From is another address"),
    ("(ana@example.org) mallory@example.net", "the name in From is another address"),
    ("<ana@example.org", "From is not one plain address"),
    ('"Ana <ana@example.org>', "From is not one plain address"),
    ("<ana@example.org> <bob@example.org>", "From is not one plain address"),
    ("ana@exämple.org", "From is not one plain address"),
    ("ana", "From is not one plain address"),
    ("", "From is not one plain address"),
    ("x" * 3_000 + " <ana@example.org>", "From is not one plain address"),
)
def test_ambiguous_sender_is_unknown(sender: str, why: str) -> None:
    found = authenticate(mail("Yes", sender=sender), provider=ProviderVerdict(dmarc="PASS", spf="PASS")).verdict
    assert found == Authenticity("", "", why)


@table(
    "sender",
    "ana@example.org",
    "<Ana@Example.ORG>",
    '"Ana, of Finance" <ana@example.org>',
    '"ana@example.org" <ana@example.org>',
    "ana@example.org (Ana)",
    "ana@example.org (Ana, of: Finance; (all of it))",
    "=?utf-8?q?An=C3=A4?= <ana@example.org>",
)
def test_sender_is_read_from_every_common_form(sender: str) -> None:
    assert by_results(with_results(PASSED, raw=mail("Yes", sender=sender))).sender == ANA


@table("field", "From: ana@example.org", "To: x@example.com", "Subject: x", "Content-Type: text/html")
def test_duplicate_header_fields_verify_nothing(field: str) -> None:
    raw = signed()
    assert by_dkim(field.encode() + b"\r\n" + raw).by == ""
    assert by_results(field.encode() + b"\r\n" + with_results(PASSED)).by == ""


def test_verdict_of_our_own_server_counts() -> None:
    found = by_results(with_results("MX.example.com 1; spf=none; DMARC=Pass (p=REJECT; x) header.from=Example.org"))
    assert (found.sender, found.by, found.why) == (ANA, "results", "")


@table(
    "values",
    (),
    ("mx.example.com; none",),
    ("mx.example.com; dmarc=fail header.from=example.org",),
    ("mx.example.com; dmarc=none header.from=example.org",),
    ("mx.example.com; dmarc=bestguesspass header.from=example.org",),
    ("mx.example.com; dmarc=pass",),
    ("mx.example.com; dmarc=pass header.from=example.net",),
    ("mx.example.com; dmarc=pass header.from=example.net header.from=example.org",),
    ("mx.example.com; dmarc=fail header.from=example.org; dmarc=pass header.from=example.org",),
    ("mx.example.com; dmarc=pass header.from=example.org; dmarc=fail header.from=example.org",),
    ("mx.example.com; spf=pass smtp.mailfrom=example.org; dkim=pass header.d=example.org",),
    ("mx.example.com; (dmarc=pass header.from=example.org)",),
    ('mx.example.com; x="; dmarc=pass header.from=example.org"',),
    ("mx.example.com; dmarc=pass header.from=example.org (open",),
    ("mx.example.com; dmarc=pass) header.from=example.org",),
    ("mx.example.com; dmarc=pass policy=x y header.from=example.org",),
    ("mx.example.com; dmarc pass header.from=example.org",),
    ("evil.example.net; dmarc=pass header.from=example.org",),
    ("mx.example.com.example.net; dmarc=pass header.from=example.org",),
    ("dmarc=pass header.from=example.org",),
    ("mx.example.com; dmarc=fail header.from=example.org", PASSED),
    ("mx.example.com; none", PASSED),
    (PASSED, "mx.example.com; dmarc=fail header.from=example.org"),
    (PASSED, "mx.example.com; dmarc=fail header.from=example.org header.from=example.org"),
    (PASSED, "mx.example.com; none"),
)
def test_only_one_clear_dmarc_pass_of_our_server_counts(values: tuple[str, ...]) -> None:
    assert by_results(with_results(*values)).by == ""


def test_our_verdict_counts_below_foreign_verdicts() -> None:
    assert by_results(with_results("inner.example.com; none", PASSED)).why == ""


def test_configured_method_decides_alone() -> None:
    raw = with_results(PASSED, raw=signed())
    assert authenticate(raw, dkim=False).verdict.why == "nothing is set up that proves who sends"
    denied = ProviderVerdict(dmarc="FAIL")
    assert authenticate(raw, provider=denied, server=OUR_SERVER).judge(records(KEYS)).by == ""
    assert authenticate(raw, server=ResultsServer("other.example.com")).judge(records(KEYS)).by == ""


@table("dmarc", "", "FAIL", "GRAY", "PROCESSING_FAILED", "unknown", "passed")
def test_only_a_providers_pass_counts(dmarc: str) -> None:
    assert authenticate(REPLY, provider=ProviderVerdict(dmarc=dmarc)).verdict.why == "DMARC did not pass"
    assert authenticate(REPLY, provider=ProviderVerdict(dmarc=" Pass ")).verdict.by == "provider"


def test_email_from_the_senders_own_server_is_trusted_completely() -> None:
    spf = "mx.example.com; spf=pass smtp.mailfrom=ana@example.org; dmarc=pass header.from=example.org"
    assert by_results(with_results(spf)).recipients == (TO,)
    verdict = ProviderVerdict(dmarc="PASS", spf="PASS", envelope_from="ana@example.org")
    assert authenticate(REPLY, provider=verdict).verdict.recipients == (TO,)


@pytest.mark.parametrize(
    "spf",
    [
        "spf=pass smtp.mailfrom=mallory@example.net; ",
        "spf=fail smtp.mailfrom=ana@example.org; ",
        "spf=pass smtp.mailfrom=x.example.org; ",
        "spf=pass smtp.mailfrom=ana@example.org; spf=pass smtp.mailfrom=mallory@example.net; ",
        "",
    ],
)
def test_replayed_email_is_trusted_only_in_its_signed_fields(spf: str) -> None:
    elsewhere = REPLY.replace(f"To: {TO}".encode(), b"To: bob@example.net")
    results = f"mx.example.com; {spf}dmarc=pass header.from=example.org"
    again = f"Cc: {TO}\r\n".encode() + signed(elsewhere)
    found = by_results(with_results(results, raw=again))
    assert found.why == ""
    assert found.recipients == ("bob@example.net",)
    uncovered = signed(REPLY, covers=(b"from", b"subject"))
    found = by_results(with_results(results, raw=uncovered))
    assert (found.recipients, "subject" in found.surely) == ((), True)
    both = b"DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=x; h=from:to:cc; bh=AAAA; b=AAAA\r\n" + uncovered
    assert by_results(with_results(results, raw=both)).recipients == ()
    near = b"DKIM-Signature: v=1; a=rsa-sha256; d=mail.example.org; s=x; h=from; bh=AAAA; b=AAAA\r\n" + signed()
    assert by_results(with_results(results, raw=near)).recipients == ()
    far = near.replace(b"mail.example.org", b"mail.example.net")
    assert by_results(with_results(results, raw=far)).recipients == (TO,)
    assert by_results(with_results(results)).surely == frozenset()


def test_email_changed_by_a_mailing_list_is_not_verified() -> None:
    listed = signed().replace(b"Subject: Re:", b"Subject: [finance] Re:") + b"\r\n____\r\nfinance mailing list\r\n"
    assert by_dkim(listed).why == "the signature does not hold"


@pytest.mark.parametrize(
    "body", ["a" + " " * 2_000_000 + "b", "\n" * 2_000_000, "a\n" * 1_000_000, " \t" * 1_000_000], ids=lambda b: b[:3]
)
def test_signature_over_a_pathological_body_is_checked_in_time(body: str) -> None:
    head = b"v=1; a=rsa-sha256; c=relaxed/relaxed; d=example.org; s=s1; h=from; bh=AAAA; b=AAAA"
    assert by_dkim(b"DKIM-Signature: " + head + b"\r\n" + mail(body)).why == "the signature does not hold"


@table("blank", b"\r\n ", b" ", b":", b";", b"=", b"b=", b"h=from;")
def test_pathological_signature_field_is_checked_in_time(blank: bytes) -> None:
    for size in (4_000, 120_000):
        field = b"DKIM-Signature: v=1; a=rsa-sha256; d=example.org; s=s1; h=from; bh=AAAA; b=AAAA" + blank * (
            size // len(blank)
        )
        assert by_dkim(field[:size] + b"x\r\n" + REPLY).by == ""


@pytest.mark.parametrize("text", ["(", '"', ";", "=", "a=b ", "\\(", "x;a=b;"])
def test_results_header_is_parsed_in_linear_time(text: str) -> None:
    once, twice = (work(lambda size=size: parse_results("mx; " + text * size)) for size in (1_000, 2_000))  # type: ignore[misc]
    assert twice <= 2.2 * once + 200


def test_results_header_is_parsed_as_in_the_standard() -> None:
    read = parse_results(
        'Example.com 1 (host) ; spf = pass (p q) smtp.mailfrom="a b@x.org" ;'
        'dkim/1=fail reason="b; = \\"c" header.d=x.org;'
    )
    assert read.authserv_id == "example.com"
    spf, dkim_result = read.results
    assert (spf.method, dkim_result.method) == ("spf", "dkim")
    assert (spf.value, spf.properties) == ("pass", {"smtp.mailfrom": "a b@x.org"})
    assert (dkim_result.value, dkim_result.properties["reason"]) == ("fail", 'b; = "c')


SIGNED = signed()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 900), st.booleans())
def test_arbitrary_bytes_neither_raise_nor_verify(put: bytes, at: int, whole: bool) -> None:
    raw = SIGNED
    forged = put if whole else raw[:at] + put + raw[at:]
    for found in (
        by_dkim(forged),
        by_results(forged),
        authenticate(forged, provider=ProviderVerdict(dmarc="fail")).verdict,
    ):
        if found.by:
            # Relaxed signatures allow added or removed blanks, and more fields above.
            assert found.sender == ANA
            assert b"Yes" in forged
