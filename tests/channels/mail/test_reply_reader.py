from contextlib import suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mail_corpus import MAILS, TO, Reply, comment, first_line, mail, parted, read_by, replies, work
from tables import table

from signoff.channels.answer_text.quotes import find_new_text
from signoff.channels.channel_errors import Malformed
from signoff.channels.mail.reply_reader import MAX_MAIL, MailAnswer, read_mail

CORPUS = replies()
UNDECIDED = frozenset(
    {
        *("", "Sent from my iPhone", "Yes, but only until Friday", "Yes if the board agrees", "Yes but not today"),
        # Words or languages that decide nothing yet.
        *("OK", "Souhlasím", "同意", "承認", "Да"),
    }
)


@table("reply", *CORPUS, ids=str)
def test_first_new_line_of_each_client_is_read(reply: Reply) -> None:
    mail_answer = read_mail(reply.raw)
    assert (first_line(mail_answer), mail_answer.unclear) == (reply.first, reply.unclear)
    assert comment(mail_answer) == (reply.first if reply.comment is None else reply.comment)
    assert mail_answer.automatic == ""


@table("reply", *CORPUS, ids=str)
def test_corpus_decides_as_its_writers_meant(reply: Reply) -> None:
    verdict = read_by(read_mail(reply.raw), reply.language, "Ana Sousa").verdict
    asked = reply.asked or reply.first in UNDECIDED
    assert verdict == (None if asked else "denied" if reply.first in ("Nein",) else "approved")


def test_corpus_covers_the_promised_languages_and_clients() -> None:
    plain = [reply for reply in CORPUS if reply.case == "a reply"]
    assert len({reply.language for reply in plain}) >= 6
    assert len({reply.client for reply in plain}) >= 12


@table("encoding", "base64", "quoted-printable")
@table("reply", *CORPUS, ids=str)
def test_encoding_of_the_part_does_not_matter(reply: Reply, encoding: str) -> None:
    plain = read_mail(reply.raw)
    more = "; format=flowed" if reply.flowed else ""
    assert read_mail(mail(reply.body, type=reply.type + more, encoding=encoding)) == plain


def test_header_fields_of_an_email_are_read() -> None:
    mail_answer = read_mail(
        mail(
            "Yes",
            sender='"Ana =?utf-8?q?Mu=C3=B1oz?=" <Ana@Example.org>',
            more="Delivered-To: Inbox@example.com\nCc: a@x.org,\n Group: b@x.org;, (c@x.org) <d@x.org>\n",
        )
    )
    assert mail_answer.sender == "ana@example.org"
    assert mail_answer.recipients == (TO, "a@x.org", "b@x.org", "d@x.org")
    assert mail_answer.delivered == ("inbox@example.com",)
    assert mail_answer.message_id == "<r1@example.org>"
    assert mail_answer.references == ("<card@example.com>", "<old@example.com>")
    assert mail_answer.subject == "Re: Pay 300 EUR [K7Q2FM]"


def test_email_with_two_senders_has_none() -> None:
    assert read_mail(mail("Yes", more="From: bob@example.org\n")).sender == ""
    assert read_mail(mail("Yes", sender="ana@example.org, bob@example.org")).sender == ""


def test_text_above_and_below_a_quote_is_kept_apart() -> None:
    assert read_mail(mail("Yes\n\nsoon")).above == ("Yes", "", "soon")
    mail_answer = read_mail(mail("> card\n\nYes"))
    assert (mail_answer.above, mail_answer.below) == ((), ("Yes",))
    assert read_by(mail_answer, "en").verdict is None


@table(
    ("header", "sign"),
    ("Auto-Submitted: auto-replied (vacation)", "auto-submitted"),
    ("Auto-Submitted: auto-generated", "auto-submitted"),
    ("Return-Path: <>", "return-path"),
    ("X-Auto-Response-Suppress: All", "x-auto-response-suppress"),
    ("X-Autoreply: yes", "x-autoreply"),
    ("X-Autorespond: away", "x-autorespond"),
    ("X-Loop: approvals@example.com", "x-loop"),
    ("X-Failed-Recipients: ana@example.org", "x-failed-recipients"),
    ("Precedence: auto_reply", "precedence"),
    ("Precedence: Bulk", "precedence"),
    ("Precedence: list", "precedence"),
    ("List-Id: Finance <finance.lists.example.org>", "list-id"),
)
def test_automatic_email_is_recognised_by_its_header(header: str, sign: str) -> None:
    assert read_mail(mail("Yes", more=f"{header}\n")).automatic == sign


@table(
    ("header", "sign"),
    ("List-Id: Approvals <approvals.example.com>\nList-Post: <mailto:approvals@example.com>\nPrecedence: list", ""),
    ("List-Post: <https://lists.example.com>, <mailto:Approvals@example.com?subject=x>", ""),
    ("List-Id: <approvals.example.com>\nList-Id: <all.example.com>", "list-id"),
    ("List-Id: <approvals.example.com>\nPrecedence: bulk", "precedence"),
    ("Precedence: list", "precedence"),
    ("List-Id: <approvals.example.com>\nAuto-Submitted: auto-replied", "auto-submitted"),
)
def test_email_through_our_own_mailing_list_is_from_a_person(header: str, sign: str) -> None:
    raw = mail("Yes", more=f"{header}\n")
    assert read_mail(raw, ("signoff@example.com", "approvals@example.com")).automatic == sign


@table("value", "no", "No", "no (really)", "no; x=1")
def test_auto_submitted_no_is_from_a_person(value: str) -> None:
    assert read_mail(mail("Yes", more=f"Auto-Submitted: {value}\n")).automatic == ""


@table("sender", "MAILER-DAEMON@mx.example.org", "Post <postmaster@example.org>")
def test_email_of_a_mail_server_is_automatic(sender: str) -> None:
    assert read_mail(mail("Yes", sender=sender)).automatic == "from"


@table(
    "subject",
    "Automatic reply: Pay 300 EUR",
    "Out of Office: back on Monday",
    "Automatische Antwort: Pay",
    "=?utf-8?q?R=C3=A9ponse_automatique_:_Pay?=",
    "Respuesta automática: Pay",
    "Risposta automatica: Pay",
    "Resposta automática: Pay",
    "Automatisch antwoord: Pay",
    "Automatiskt svar: Pay",
    "自動返信: Pay",
    "Undeliverable: Pay",
)
def test_subject_identifies_automatic_email_without_headers(subject: str) -> None:
    raw = f"From: ana@example.org\nSubject: {subject}\n\nYes".encode()
    assert read_mail(raw).automatic == "subject"
    replied = f"From: ana@example.org\nSubject: Re: {subject}\n\nYes".encode()
    assert read_mail(replied).automatic == ""


def test_bounce_is_automatic_and_its_parts_are_no_answer() -> None:
    """The content type identifies a delivery report (RFC 3464)."""
    raw = parted(
        ("Content-Type: text/plain", "Your mail could not be delivered."),
        ("Content-Type: message/delivery-status", "Reporting-MTA: dns; mx.example.org"),
        ("Content-Type: message/rfc822", "Subject: card\n\nYes"),
        kind="report",
    )
    mail_answer = read_mail(raw)
    assert mail_answer.automatic == "content-type"
    assert first_line(mail_answer) == "Your mail could not be delivered."


@table(
    ("text", "charset", "declared"),
    ("Sí", "latin-1", "iso-8859-1"),
    ("Schön… ja", "cp1252", "windows-1252"),
    ("Да", "koi8-r", "koi8-r"),
    ("承認", "iso-2022-jp", "iso-2022-jp"),
    ("承認します", "shift_jis", "Shift_JIS"),
    ("同意", "gb18030", "gb2312"),
    ("同意", "utf-8", "big5"),
    ("Sí", "utf-8", "us-ascii"),
    ("Sí", "utf-8", "x-unknown"),
    ("Sí", "utf-8", "base64"),
    ("Sí", "utf-8", "punycode"),
    ("Ja", "utf-16", "utf-16"),
)
def test_charsets_are_read_even_if_wrongly_declared(text: str, charset: str, declared: str) -> None:
    body = text.encode(charset)
    head = f"From: a@b.org\nContent-Type: text/plain; charset={declared}\n\n".encode()
    assert first_line(read_mail(head + body)) == text


@table(
    ("body", "first"),
    ("WWVz", "Yes"),
    ("WWVzIQ", "Yes"),
    ("WWVz=IQ==", "Yes!"),
    ("W W*Vz\n", "Yes"),
    ("WWVzIA==", "Yes"),
    ("W", ""),
    ("=", ""),
)
def test_broken_base64_is_read_up_to_the_error(body: str, first: str) -> None:
    raw = f"From: a@b.org\nContent-Transfer-Encoding: base64\n\n{body}".encode()
    assert first_line(read_mail(raw)) == first


def test_broken_parts_are_left_out() -> None:
    head = "From: a@b.org\nContent-Type: multipart/mixed; boundary=b\n\n"
    assert first_line(read_mail(f"{head}--b\n\nYes".encode())) == "Yes"
    assert read_mail(f"{head}--b".encode()).unclear == "nothing"
    assert first_line(read_mail(f"{head}--b\n--b\n\nYes\n--b--\n--b\n\nNo".encode())) == "Yes"
    assert read_mail(f"{head}Yes".encode()).unclear == "nothing"


def test_broken_encoding_of_a_subject_is_read_without_an_error() -> None:
    for subject in ("=?utf-8?b?a?=", "=?x-none?q?S=C3=AD?=", "=?utf-8?q?=FF?="):
        assert read_mail(f"From: a@b.org\nSubject: {subject}\n\nYes".encode()).subject
    assert read_mail(b"From: a@b.org\nSubject: =?x-none?q?S=C3=AD?=\n\nYes").subject == "Sí"


def test_invalid_bytes_are_replaced() -> None:
    mail_answer = read_mail(mail(b"\xff\xfe\x00Yes\xed\xa0\x80"))
    comment(mail_answer).encode("utf-8")
    assert "\0" not in comment(mail_answer)
    assert first_line(mail_answer) != "Yes"


def test_blank_parts_and_attachments_are_no_answer() -> None:
    plain, blank = ("Content-Type: text/plain", "Yes"), ("Content-Type: text/plain", " \n")
    html = ("Content-Type: text/html", "<p>No</p>")
    attached = ('Content-Type: text/plain; name="a.txt"\nContent-Disposition: attachment', "Never")
    assert first_line(read_mail(parted(plain, attached, kind="mixed"))) == "Yes"
    assert first_line(read_mail(parted(blank, html))) == "No"
    assert first_line(read_mail(parted(attached, html, kind="mixed"))) == "No"
    assert read_mail(parted(attached, kind="mixed")).unclear == "nothing"


def test_nested_parts_are_read_up_to_a_depth() -> None:
    assert first_line(read_mail(_nested(5))) == "Yes"
    assert read_mail(_nested(2_000)).unclear == "too_long"


PLAIN, RICH = "Content-Type: text/plain", "Content-Type: text/html"
PICTURE = (
    "Content-Type: image/png\nContent-Disposition: inline; filename=a.png\nContent-Transfer-Encoding: base64",
    "iVBO",
)


@table("kind", "mixed", "related", "signed", "unknown")
@table("head", PLAIN, RICH, f"{PLAIN}\nContent-Disposition: inline", f"{PLAIN}; format=flowed", "X-Empty: 1")
def test_text_after_a_picture_belongs_to_the_answer(kind: str, head: str) -> None:
    raw = parted((PLAIN, "Approve"), PICTURE, (head, "but only if it is below 100"), kind=kind)
    answer = read_mail(raw)
    assert answer.above == ("Approve", "", "but only if it is below 100")
    assert read_by(answer, "en").verdict is None


@table("html", "<p>No, deny this</p>", "<p>Approve</p><p>if below 100</p>", "<p>Approve?</p>", "<p>Approve 👎</p>")
def test_email_with_different_html_and_text_decides_nothing(html: str) -> None:
    for order in (1, -1):
        parts = [(PLAIN, "Approve"), (RICH, html)][::order]
        answer = read_mail(parted(*parts))
        assert answer.unclear == "differs"
        assert read_by(answer, "en").verdict is None


@table(
    ("plain", "html"),
    (
        "Approve\n\n*Ana Sousa*\nwww.example.org <https://www.example.org/>",
        '<p>Approve</p><b>Ana Sousa</b><br><a href="https://www.example.org/">www.example.org</a>',
    ),
    ("Approve\n[cid:image001.png@01D9.1234]", '<p>Approve</p><img src="cid:image001.png@01D9.1234">'),
    ("Approve\n\n> Pay 300 EUR", "<p>Approve</p><blockquote>Pay 300 EUR</blockquote>"),
)
def test_email_with_merely_formatted_html_decides(plain: str, html: str) -> None:
    answer = read_mail(parted((PLAIN, plain), (RICH, html)))
    assert (answer.above[0], answer.unclear) == ("Approve", "")


def test_email_with_too_many_parts_decides_nothing() -> None:
    assert (
        read_mail(parted((PLAIN, "Approve"), *[PICTURE] * 200, (PLAIN, "if below 100"), kind="mixed")).unclear
        == "too_long"
    )


def test_invisible_html_is_not_read() -> None:
    html = (
        "<style>No</style><script>document.write('No')</script><!-- No --><title>No</title>"
        '<div style="display: none">No</div><p>Yes &lt;3</p>'
    )
    assert comment(read_mail(mail(html, type="text/html"))) == "Yes <3"


def test_too_long_email_is_refused_and_a_long_part_decides_nothing() -> None:
    long = mail("Yes\n" + "x" * 70 + "\n" * 2 + ("words " * 12 + "\n") * 140_000)
    assert 9_000_000 < len(long) < MAX_MAIL
    assert read_mail(long).unclear == "too_long"
    assert len(comment(read_mail(long))) <= 20_000
    with pytest.raises(Malformed):
        read_mail(long + b"x" * MAX_MAIL)


def test_word_after_many_blanks_on_the_first_line_counts() -> None:
    assert first_line(read_mail(mail("Yes" + " " * 300_000 + "but no"))) == "Yes but no"
    assert read_by(read_mail(mail("Yes" + "!" * 2_000 + " but no")), "en").verdict is None
    assert read_mail(mail("Yes" + " " * 2_000_000 + "but no")).unclear == "too_long"


def test_email_with_too_many_lines_decides_nothing() -> None:
    assert first_line(read_mail(mail("Yes" + "\n" * 19_000))) == "Yes"
    assert read_mail(mail("Yes" + "\n" * 21_000)).unclear == "too_long"


@table(
    "raw",
    b"",
    b"\r\n\r\nYes",
    b"Yes",
    b"From: a@b.org\rBcc: x\r\n\r\nYes",
    b"From : a@b.org\r\n\r\nYes",
    b"From: a@b.org\r\n \r\n\r\nYes",
    b"From: a@b\0.org\r\n\r\nYes",
    b" From: a@b.org\r\n\r\nYes",
    b"X: " + b"y" * 200_000 + b"\r\n\r\nYes",
    b"X: y\r\n" * 600 + b"\r\nYes",
)
def test_ambiguous_header_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_mail(raw)


HOSTILE = {
    "on": ("text/plain", lambda n: "On " * n),
    "on lines": ("text/plain", lambda n: "On 1\n" * n),
    "on colons": ("text/plain", lambda n: "On 1 wrote:\nx\n" * n),
    "almost attributions": ("text/plain", lambda n: "On 1 @ < wrot:\n" * n),
    "from lines": ("text/plain", lambda n: "From: x\n" * n),
    "quotes in turn": ("text/plain", lambda n: "> a\nb\n" * n),
    "dashes": ("text/plain", lambda n: "--" * n + "\n--\n" * n),
    "blank lines": ("text/plain", lambda n: "\n" * n + "Yes"),
    "flowed": ("text/plain; format=flowed", lambda n: "a \n" * n),
    "open tags": ("text/html", lambda n: "<a " * n),
    "open quotes": ("text/html", lambda n: "<a b='" * n),
    "closed quotes": ("text/html", lambda n: "<a b='>' " * n),
    "quotes without names": ("text/html", lambda n: "<a =" * n + ">"),
    "slashes": ("text/html", lambda n: "<a/" * n),
    "comments": ("text/html", lambda n: "<!--" * n),
    "declarations": ("text/html", lambda n: "<!x" * n),
    "end tags": ("text/html", lambda n: "</p" * n + "</p>" * n),
    "blank paragraphs": ("text/html", lambda n: "<p> " * n),
    "nested quotes": ("text/html", lambda n: "<blockquote>" * n + "x" + "</blockquote>" * n),
    "ends of what is far out": ("text/html", lambda n: "<b>" + "<i>" * 900 + "</b>" * n),
    "scripts": ("text/html", lambda n: "<script>" * n),
    "containers": ("text/html", lambda n: '<div class="gmail_quote">' * n + "<blockquote>" * n),
    "entities": ("text/html", lambda n: "&#" * n + "&amp" * n),
    "less thans": ("text/html", lambda n: "< " * n),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_email_takes_linear_time(name: str) -> None:
    kind, make = HOSTILE[name]
    small, large = (mail(make(size), type=kind) for size in (1_500, 3_000))
    once, twice = work(lambda: read_mail(small)), work(lambda: read_mail(large))
    assert twice <= 2.2 * once + 500


@pytest.mark.parametrize("name", HOSTILE)
def test_sixty_kilobytes_of_hostile_text_finish(name: str) -> None:
    kind, make = HOSTILE[name]
    size = 60_000 // max(1, len(make(100)) // 100)
    assert isinstance(read_mail(mail(make(size), type=kind)), MailAnswer)


@table(
    "field",
    "From",
    "To",
    "Subject",
    "References",
    "Content-Type",
    "Authentication-Results",
    "Auto-Submitted",
    "Message-ID",
)
@table("text", "(", "<", '"', "a@b.c,", "=?a?q?", "=?utf-8?b?a", "a=b;", "\\", ":;", "x" * 50)
def test_header_fields_with_any_text_are_read(field: str, text: str) -> None:
    value = text * (60_000 // len(text))
    raw = f"{field}: {value}\r\n\r\nYes".encode()
    assert isinstance(read_mail(raw), MailAnswer)


ANY_BYTES = st.binary(max_size=400)
LIKE_MAIL = st.lists(
    st.sampled_from(
        b"From: |To: |Content-Type: |multipart/mixed; boundary=b|text/html|; charset=|utf-7|base64|quoted-printable"
        b'|\r\n|\n|Content-Transfer-Encoding: |\r\n\r\n|--b|--b--| |\t|a@b.org|<|>|"|(|=?utf-8?b?|?=|=|&#0;|\xff|\0'
        b"|On 1 |wrote:|> |<p>|<blockquote>|</p>|-- |Yes|Subject: |unknown-8bit|References: ".split(b"|")
    ),
    max_size=60,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(ANY_BYTES | LIKE_MAIL | LIKE_MAIL.map(lambda body: b"From: a@b.org\r\nContent-Type: text/html\r\n\r\n" + body))
def test_arbitrary_bytes_are_read_or_malformed(raw: bytes) -> None:
    try:
        mail_answer = read_mail(raw)
    except Malformed:
        return
    assert bool(mail_answer.above or mail_answer.below) or mail_answer.unclear
    assert not any("\n" in line for line in (*mail_answer.above, *mail_answer.below))
    for text in (
        comment(mail_answer),
        mail_answer.name,
        mail_answer.subject,
        mail_answer.sender,
        *mail_answer.recipients,
        mail_answer.message_id,
    ):
        text.encode("utf-8")
        assert "\0" not in text


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=200),
    st.sampled_from(["quoted-printable", "base64", "8bit"]),
    st.text(alphabet='abcß承 ,<>@"', max_size=120).map(lambda words: " ".join(words.split())),
    st.sampled_from([0, 1, 2]),
)
def test_email_written_by_the_standard_library_is_read(text: str, encoding: str, subject: str, wrapped: int) -> None:
    message = EmailMessage(policy=SMTP)
    message["From"] = "Ana <ana@example.org>"
    message["Subject"] = subject
    message.set_content(text, cte=encoding)
    if wrapped:
        message.add_alternative("<p>Never</p>", subtype="html")
    if wrapped == 2:
        message.add_attachment(b"Never", maintype="text", subtype="plain", filename="a.txt")
    raw = message.as_bytes()
    # The library loses spaces when it folds encoded words (python/cpython#92081).
    assume(message_from_bytes(raw, policy=SMTP)["Subject"].split() == subject.split())
    mail_answer = read_mail(raw)
    expected = find_new_text(text.split("\n"))
    if text.strip() or not wrapped:
        assert (mail_answer.above, mail_answer.below) == (expected.above, expected.below)
        assert mail_answer.unclear == expected.unclear or wrapped
    assert mail_answer.subject.split() == subject.split()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CORPUS), st.integers(0, 2_000), st.binary(max_size=4))
def test_corpus_with_inserted_bytes_is_read_or_malformed(reply: Reply, at: int, put: bytes) -> None:
    raw = reply.raw[:at] + put + reply.raw[at + len(put) :]
    with suppress(Malformed):
        assert isinstance(read_mail(raw), MailAnswer)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CORPUS), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_text_below_a_quote_never_decides(reply: Reply, below: str) -> None:
    mail_answer = read_mail(mail(f"> card\n{below}"))
    assert first_line(mail_answer) == ""


def test_published_sample_is_read() -> None:
    mail_answer = read_mail((MAILS / "rfc8463.eml").read_bytes())
    assert (mail_answer.sender, first_line(mail_answer), mail_answer.automatic) == (
        "joe@football.example.com",
        "Hi.",
        "",
    )


def _nested(depth: int) -> bytes:
    heads = "".join(f"Content-Type: multipart/mixed; boundary=b{n}x\n\n--b{n}x\n" for n in range(depth))
    return f"From: a@b.org\n{heads}Content-Type: text/plain\n\nYes\n".encode()
