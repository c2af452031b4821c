# ruff: noqa: RUF001 (other alphabets look alike)

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table

from signoff.channels.answer_text.quotes import CUT, END, MARK, SIGNED, WrittenText, find_new_text

WHO = [
    "On Nov 22, 2026, at 14:00, Approvals <a@example.com> wrote:",
    "On Sun, Nov 22, 2026 at 2:00 PM, Approvals <\na@example.com> wrote:",
    "On Sunday, 22 November 2026 at 14:00,\nApprovals Desk of the Finance Department\n<a@example.com> wrote:",
    "Am So., 22. Nov. 2026 um 14:00 Uhr schrieb Approvals <a@example.com>:",
    "Am 22.11.26 um 14:00 schrieb Approvals:",
    "Le dim. 22 nov. 2026 à 14:00, Approvals <a@example.com> a\nécrit :",
    "El dom, 22 nov 2026 a las 14:00, Approvals (<a@example.com>) escribió:",
    "Il giorno dom 22 nov 2026 alle ore 14:00 Approvals <a@example.com> ha scritto:",
    "Em dom., 22 de nov. de 2026 às 14:00, Approvals <a@example.com>\nescreveu:",
    "Op zo 22 nov 2026 om 14:00 schreef Approvals <a@example.com>:",
    "Approvals schreef op 22-11-2026 14:00:",
    "W dniu 22.11.2026 o 14:00, Approvals pisze:",
    "niedz., 22 lis 2026 o 14:00 Approvals <a@example.com> napisał(a):",
    "Den sön 22 nov. 2026 kl 14:00 skrev Approvals <a@example.com>:",
    "søn. 22. nov. 2026 kl. 14:00 skrev Approvals <a@example.com>:",
    "su 22.11.2026 klo 14.00 Approvals (a@example.com) kirjoitti:",
    "ne 22. 11. 2026 v 14:00 odesílatel Approvals <a@example.com> napsal:",
    "Approvals <a@example.com>, 22 Kas 2026 Paz, 14:00 tarihinde şunu yazdı:",
    "вс, 22 нояб. 2026 г. в 14:00, Approvals <a@example.com>:",
    "2026年11月22日(日) 14:00 Approvals <a@example.com>:",
    "Approvals <a@example.com> 于2026年11月22日周日 14:00写道：",
    "2026년 11월 22일 (일) 오후 2:00, Approvals <a@example.com>님이 작성:",
    "tir. 18. apr. 2017 kl. 13:09 skrev Approvals <a@example.com\n>:",
    "---- On Sun, 22 Nov 2026 14:00:00 +0000 a@example.com wrote ----",
    "-----Original Message-----",
    "---- Original Message ----",
    "-----Ursprüngliche Nachricht-----",
    "-------- Message d'origine --------",
    "________________________________\nFrom: A\nSent: Sunday\nTo: B\nSubject: C",
    "From: A\nDate: Sunday\nTo: B\nSubject: C",
    "*From:* A <a@example.com>\n*Sent:* Sunday\n*To:* B\n*Subject:* C",
    "Gesendet: Sonntag\nVon: A\nAn: B\nBetreff: C",
    "De : A\nEnvoyé : dimanche\nÀ : B\nObjet : C",
    "差出人: A\n送信日時: 2026年\n宛先: B\n件名: C",
    "发件人：A\n发送时间：2026年\n收件人：B\n主题：C",
    "Begin forwarded message:",
    f"{MARK} Write above this line -##",
    CUT,
]
SIGNATURES = [
    "-- ",
    "--",
    "Sent from my iPhone",
    "*Sent from my Pixel*",
    "Von meinem iPhone gesendet",
    "Envoyé de mon iPad",
    "Enviado desde mi iPhone",
    "Inviato da iPhone",
    "Verzonden vanaf mijn iPhone",
    "Wysłane z iPhone'a",
    "Skickat från min iPhone",
    "iPhone'umdan gönderildi",
    "Отправлено с iPhone",
    "iPhoneから送信",
    "发自我的iPhone",
    "Get Outlook for iOS <https://aka.ms/o0ukef>",
]


@table("who", *WHO)
def test_attribution_line_of_a_client_ends_the_new_text(who: str) -> None:
    for quote in ("> Pay\n> No", "Pay\nNo"):
        ended = f"{quote}\n{END}" if who.startswith(MARK) else quote
        assert find_new_text(f"Yes\n\nSoon.\n\n{who}\n\n{ended}".split("\n")) == WrittenText(("Yes", "", "Soon."))
        assert find_new_text(f"Approve K7Q2FM\n{who}\n{ended}".split("\n")) == WrittenText(("Approve K7Q2FM",))
        assert find_new_text(f"{who}\n{ended}".split("\n")) == WrittenText(unclear="nothing")


@table("who", *WHO)
def test_text_below_our_quoted_email_is_new(who: str) -> None:
    for below in ("but only half", "> quoted\nbut only half"):
        text = f"Yes\n\n{who}\n\nPay 300 EUR\n{END}\n\n{below}"
        assert find_new_text(text.split("\n")) == WrittenText(("Yes",), ("but only half",))


def test_quoted_email_without_its_end_mark_may_contain_new_text() -> None:
    read = find_new_text(["Yes", f"{MARK} Write above this line -##", "but only half"])
    assert read == WrittenText(("Yes",), ("but only half",))


@table("signature", *SIGNATURES)
def test_signature_is_kept_in_its_place(signature: str) -> None:
    shown = " ".join(signature.split())
    assert find_new_text(["Yes", signature, "Ana", "> Pay"]) == WrittenText(("Yes", shown, "Ana"))
    assert find_new_text(["Yes", "> Pay", "", signature, "Ana"]) == WrittenText(("Yes",), (shown, "Ana"))


def test_marked_signature_begins_with_dashes() -> None:
    read = find_new_text(["Yes", f"{SIGNED}Ana", f"{SIGNED}", "and more"])
    assert read == WrittenText(("Yes", "--", "Ana", "", "and more"))


@table(
    "line",
    "On it.",
    "On 5 May we agreed, and Bob wrote it down",
    "See https://example.com/a:",
    "From: the lake",
    "Original message attached",
    "Sent from the heart" + " and so on" * 20,
    "3 > 2",
    "Two rooms: 12 and 14",
    "To: them\nDate: Friday\nSubject: as before",
)
def test_text_similar_to_a_quote_is_new(line: str) -> None:
    assert find_new_text(["Yes", *line.split("\n")]).above == ("Yes", *line.split("\n"))


def test_answers_below_and_between_quotes_are_kept_apart() -> None:
    assert find_new_text(["> Pay", "", "Yes"]) == WrittenText((), ("Yes",))
    read = find_new_text(["Yes", "> Pay", "not that", "> or this", "nor that"])
    assert read == WrittenText(("Yes",), ("not that", "nor that"))


def test_too_long_text_is_truncated_visibly_and_decides_nothing() -> None:
    read = find_new_text(["Yes", *["word " * 100] * 100])
    assert read.unclear == "too_long"
    text = "\n".join(read.above)
    assert len(text) == 20_000
    assert text.endswith("…")


def test_flowed_lines_are_joined() -> None:
    """RFC 3676: a trailing blank continues the line. Quotes, blank lines and signatures end it."""
    read = find_new_text(["Yes ", "if ", "> Pay ", "and ", "", "-- ", "Ana "], flowed=True)
    assert read == WrittenText(("Yes if",), ("and", "", "--", "Ana"))
    assert find_new_text(["Yes ", "if"]).above == ("Yes", "if")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*(line for who in WHO for line in who.split("\n")), *SIGNATURES, "", "Yes", "> q", "x:"]))
)
def test_new_text_consists_of_written_lines(lines: list[str]) -> None:
    read = find_new_text(lines)
    assert bool(read.above or read.below) != (read.unclear == "nothing")
    written = {" ".join(line.split()) for line in lines} | {""}
    assert {*read.above, *read.below} <= written
    if read.above:
        assert read.above[0] == next(" ".join(line.split()) for line in lines if line.split())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=20))
def test_lines_of_any_text_are_read(lines: list[str]) -> None:
    read = find_new_text(lines)
    for part in (read.above, read.below):
        assert not part or (part[0] and part[-1])
        assert all(one or two for one, two in pairwise(part))
