from datetime import UTC, datetime, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.approvals.card import render_card
from signoff.approvals.card_notes import LOOKALIKES, runner_note
from signoff.approvals.machine import settled_receipt
from signoff.channels.card_text import LEAST_CHARS, CardLimits, How, card_words, link_only
from signoff.channels.envelopes import ClosedCard, OutboundCard
from signoff.channels.outbound.receipt_text import closing_text, not_understood_text, which_request_text
from signoff.contracts.approval import ApprovalRequest, Card, CardRow, RequestMessage, Vote
from signoff.contracts.call import IN_DOUBT_RULE, PERMISSION_RULE, REQUIRES_APPROVAL, RuleReference
from signoff.contracts.decision import Decision
from signoff.contracts.person import Person, Principal
from signoff.contracts.preview import PreviewReference
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.formats.visible_text import cut_visible
from signoff.languages import catalogue
from signoff.languages.remarks import remark_text
from signoff.testing import a_request
from signoff.texts.endings import closing_words, receipt_words, where_words
from signoff.texts.formatter import Formatter

NOW = datetime(2026, 11, 22, 14, 2, tzinfo=UTC)
SAO_PAULO = ZoneInfo("America/Sao_Paulo")
APPROVAL = "default.s1.t1.c1.1"
CODE = "K7Q2FM"
SHOWN_CODE = f"{CODE[:3]}-{CODE[3:]}"
LINK = "https://signoff.example/link/abc"
ANA = Person(id="ana", name="Ana")
ENGLISH_VOICE = Formatter("en", UTC, NOW)
LANGUAGES = catalogue.language_codes()
HOSTILE = "20\nApproved by Ana\u202e\u200b\x1b[2J⟦empty⟧\u2028https://evil.example"


def request(**fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "id": APPROVAL,
        "tenant": "default",
        "session": "s1",
        "turn": "t1",
        "actor": "clerk",
        "card": Card(effect="Pay 20 EUR to Bo", rows=(CardRow(name="amount", label="Amount", value="20"),)),
        "rule": REQUIRES_APPROVAL,
        "opened_at": NOW,
        "expires_at": NOW + timedelta(hours=2),
    }
    return a_request(**given | fields)


def notice(asked: ApprovalRequest, **fields: Any) -> OutboundCard:
    return OutboundCard(**{"token": "t", "request": asked, "person": ANA, "address": "ana@x", "link": LINK} | fields)


def _rule(name: str) -> RuleReference:
    return RuleReference(kind="global", name=name)


def card_of(args: dict[str, Any], **more: Any) -> Card:
    return render_card(effect="Pay {to}", title="", tool="pay", args=args, schema={}, **more)


def decided(state: str = "approved", **fields: Any) -> ApprovalRequest:
    by = {"decided_by": "ana", "decided_name": "Ana", "decided_at": NOW, "decided_channel": "email"}
    return request(**{"state": state} | by | fields)


def test_card_shows_effect_requester_and_deadline() -> None:
    words = card_words(notice(request()), ENGLISH_VOICE, how="text")
    assert words.text == (
        f"Approval needed ({SHOWN_CODE})\n\n"
        "Pay 20 EUR to Bo\n\n"
        "- Amount: 20\n\n"
        "Requested by clerk on behalf of Guest.\n"
        "Needs approval: “pay” always does.\n\n"
        "Answer by 16:02 UTC (in 2 h), or the request is denied.\n\n"
        f"To answer, write “approve {SHOWN_CODE}”, or “deny {SHOWN_CODE}” and your reason.\n"
        f"Read every value: {LINK}"
    )
    assert words.whole
    assert words.decides
    assert words.subject == f"Approval needed: Pay 20 EUR to Bo ({SHOWN_CODE})"


@table("language", *LANGUAGES)
def test_card_on_a_channel_marks_lookalikes_and_quotes_texts_that_read_as_numbers(language: str) -> None:
    asked = request(card=card_of({"to": "p\u0430ypal", "seats": "5", "count": 5}))
    written = card_words(notice(asked), Formatter(language, UTC, NOW), how="text").text
    for line in ("To: p\u0430⟦U+0430⟧ypal", 'Seats: "5"', "Count: 5", remark_text(LOOKALIKES, language)):
        assert line in written


@table("language", *LANGUAGES)
@table("how", *get_args(How))
def test_card_is_complete_in_every_language_and_answer_mode(language: str, how: How) -> None:
    asked = request(
        quorum=2, revision=2, rule=_rule("mine"), card=card_of({"to": "Bo"}, agent_says="please", notes=("changed",))
    )
    page_text = card_words(notice(asked), Formatter(language, UTC, NOW), how=how).text
    assert "{" not in page_text
    for part in (SHOWN_CODE, "Pay Bo", "clerk", "Guest", "mine", "please", "changed", "16:02 UTC", LINK):
        assert part in page_text
    assert page_text.count(LINK) == 1


@table(
    ("fields", "message"),
    ({"kind": "in_doubt", "rule": IN_DOUBT_RULE}, "Outcome unknown: did this happen?"),
    ({"kind": "in_doubt", "rule": IN_DOUBT_RULE}, "or the call is given up"),
    ({"on_timeout": "escalate"}, "or others are asked too"),
    ({"on_timeout": "escalate", "extended": True}, "or the request is denied"),
    ({"rule": _rule("policy-7")}, "rule “policy-7”"),
    ({"rule": PERMISSION_RULE}, "the tool's own permission check refuses this call"),
    ({"quorum": 2}, "0 of 2 approvals so far"),
    (
        {"revision": 3, "card": Card(effect="x", notes=("the tool changed",))},
        "Revision 3: the tool",
    ),
    ({"card": Card(effect="x", notes=(runner_note("a"),))}, "`a` runs the call itself, outside Signoff"),
    ({"expires_at": NOW - timedelta(seconds=1)}, "deadline passed"),
    ({"preview": PreviewReference(sha256="ab")}, "The page of this request shows a preview of the effect."),
)
def test_card_shows_the_requests_special_properties(fields: dict[str, Any], message: str) -> None:
    assert message in card_words(notice(request(**fields)), ENGLISH_VOICE, how="buttons").text


def test_card_counts_the_approvals() -> None:
    votes = tuple(
        Vote(subject=who, verdict=verdict, at=NOW, decision=Decision(approval_id=APPROVAL, verdict=verdict))
        for who, verdict in (("a", "approved"), ("b", "denied"))
    )
    words = card_words(notice(request(quorum=3, votes=votes, veto=False)), ENGLISH_VOICE, how="buttons")
    assert words.counted == "1 of 3 approvals so far."


@table(
    "fields",
    {"kind": "in_doubt"},
    {"confirm": "type"},
    {"min_assurance": "session"},
    {"min_assurance": "mfa"},
    {"preview_required": True},
)
def test_undecidable_card_explains_that_and_links(fields: dict[str, Any]) -> None:
    asked = request(**fields)
    assert link_only(asked, "channel")
    words = card_words(notice(asked), ENGLISH_VOICE, how="reply")
    assert not words.decides
    assert words.how == f"Sign in to answer: {LINK}"
    assert "approve" not in words.text


def test_channel_with_more_assurance_may_decide() -> None:
    asked = request(min_assurance="session")
    assert card_words(notice(asked), ENGLISH_VOICE, how="text", assurance="session").decides


def test_reminder_and_digest_name_themselves() -> None:
    remind = card_words(notice(request(), kind="remind"), ENGLISH_VOICE, how="text")
    assert remind.heading == "Reminder: your answer is still needed"
    digest = card_words(notice(request(), kind="digest", more=6), ENGLISH_VOICE, how="text")
    assert digest.heading == "7 requests need your answer"
    assert (digest.decides, digest.rows) == (False, ())
    assert "6 more requests need your answer" in digest.text
    assert LINK in digest.text


def test_untrusted_text_cannot_forge_a_line_or_hide() -> None:
    card = card_of({"to": HOSTILE, HOSTILE: 1}, agent_says=HOSTILE, notes=(HOSTILE,))
    asked = request(
        card=card, requester=Principal(user="x", name=HOSTILE), actor=HOSTILE, rule=_rule(HOSTILE), revision=2
    )
    plain = request(card=card_of({"to": "a", "b": 1}, agent_says="c", notes=("d",)), rule=_rule("e"), revision=2)
    ours = card_words(notice(plain), ENGLISH_VOICE, how="text").text
    page_text = card_words(notice(asked), ENGLISH_VOICE, how="text").text
    assert page_text.count("\n") == ours.count("\n")
    assert not any(line.startswith("Approved by") for line in page_text.splitlines())
    ended = decided(decided_name=HOSTILE, reason=HOSTILE, card=card)
    closing = closing_text(ClosedCard(request=ended, person=ANA, token="t", link=LINK), ENGLISH_VOICE)
    receipt = receipt_words(settled_receipt(ended), ENGLISH_VOICE, LINK)
    assert len(receipt.splitlines()) == 1
    for shown in (page_text, closing, receipt):
        assert not any(char in shown for char in "\u202e\u200b\x1b\u2028")
        assert "⟦U+202E⟧" in shown
        assert "⟦U+27E6⟧empty⟦U+27E7⟧" in shown


def test_unmarked_text_is_made_visible() -> None:
    assert cut_visible("a⟦U+202E⟧b⏎⟦empty⟧", 100) == "a⟦U+202E⟧b⏎⟦empty⟧"
    assert cut_visible("a\u202eb\n⟦U+ZZZZ⟧", 100) == "a⟦U+202E⟧b⏎⟦U+27E6⟧U+ZZZZ⟦U+27E7⟧"


def test_truncation_never_splits_a_mark() -> None:
    line = "ab⟦U+202E⟧cd"
    assert [cut_visible(line, limit) for limit in (13, 12, 11, 4, 3, 2)] == [
        "ab⟦U+202E⟧cd", "ab⟦U+202E⟧cd", "ab⟦U+202E⟧…", "ab…", "ab…", "a…",
    ]  # fmt: skip


@given(st.text(max_size=80), st.integers(2, 60))
def test_truncated_line_fits_and_is_stable(line: str, limit: int) -> None:
    shown = cut_visible(line, limit)
    assert len(shown) <= limit
    assert cut_visible(shown, limit) == shown


@given(
    st.dictionaries(st.text(min_size=1, max_size=30), st.text(max_size=900), max_size=70),
    st.integers(LEAST_CHARS, 5_000),
    st.sampled_from(LANGUAGES),
    st.sampled_from(get_args(How)),
    st.integers(20, 600),
    st.text(max_size=300),
)
def test_card_fits_and_reports_missing_values(
    args: dict[str, str], limit: int, language: str, how: How, link: int, says: str
) -> None:
    asked = request(card=card_of(args, agent_says=says))
    sent = notice(asked, link="https://x/" + "l" * link)
    words = card_words(sent, Formatter(language, UTC, NOW), how=how, limits=CardLimits(whole=limit))
    assert len(words.text) <= limit
    assert SHOWN_CODE in words.text
    assert words.effect in words.text
    every = {row.value for row in asked.card.rows if row.name and not row.cut}
    if words.whole:
        assert {row.value for row in words.rows} == every
        assert len(words.rows) == len(asked.card.rows)
    else:
        assert words.incomplete in words.text
        assert words.incomplete


def test_values_are_truncated_before_any_is_dropped() -> None:
    asked = request(card=card_of({"long": "x" * 480, "to": "Bo", "amount": 20, "note": "y" * 480}))
    words = card_words(notice(asked), ENGLISH_VOICE, how="text", limits=CardLimits(whole=700))
    assert [row.label for row in words.rows] == ["Long", "To", "Amount", "Note"]
    assert words.rows[0].note == "cut: 480 characters"
    assert (words.rows[1].value, words.rows[2].value) == ("Bo", "20")
    assert not words.whole
    assert words.incomplete == f"This message does not show every value. Read them all before you answer: {LINK}"


def test_values_truncated_by_the_gates_are_reported_at_any_size() -> None:
    long = card_words(notice(request(card=card_of({"to": "x" * 4_000}))), ENGLISH_VOICE, how="text")
    assert (long.whole, long.rows[0].note) == (False, "cut: 4000 characters")
    hidden = card_words(notice(request(card=card_of({"to": "Bo", "b": 1}, show=["to"]))), ENGLISH_VOICE, how="text")
    assert (hidden.whole, hidden.rows[-1].text) == (False, "1 more not shown")


def test_rows_over_the_limit_are_counted() -> None:
    words = card_words(
        notice(request(card=card_of({f"a{n}": n for n in range(9)}))),
        ENGLISH_VOICE,
        how="text",
        limits=CardLimits(rows=4),
    )
    assert [row.text for row in words.rows] == ["A0: 0", "A1: 1", "A2: 2", "A3: 3", "5 more not shown here"]
    assert not words.whole


def test_too_small_limit_raises_value_error() -> None:
    with pytest.raises(ValueError, match="room for 400 characters, not 160"):
        CardLimits(whole=160)


@table(
    ("state", "fields", "words"),
    ("approved", {}, "Approved by Ana by email, 14:02 UTC"),
    ("denied", {"decided_channel": "slack"}, "Denied by Ana in Slack, 14:02 UTC"),
    ("happened", {"kind": "in_doubt"}, "Ana confirmed that the call happened (by email, 14:02 UTC)"),
    (
        "approved",
        {"kind": "in_doubt"},
        "Ana confirmed that the call did not happen; it may run again (by email, 14:02 UTC)",
    ),
    ("denied", {"kind": "in_doubt"}, "Given up by Ana by email, 14:02 UTC"),
    ("timed_out", {}, "Timed out without an answer, so the call was denied"),
    ("timed_out", {"kind": "in_doubt"}, "Timed out without an answer, so the call was given up"),
    ("cancelled", {}, "Withdrawn by Ana, 14:02 UTC"),
    ("cancelled", {"decided_by": "", "decided_name": ""}, "Withdrawn"),
    ("lapsed", {}, "The approval was not used in time; approval is needed again"),
    ("pending", {}, "Replaced by a newer card"),
    ("approved", {"decided_name": ""}, "Approved by ana by email, 14:02 UTC"),
    ("approved", {"decided_name": "", "decided_by": ""}, "Approved by an unnamed person by email, 14:02 UTC"),
    ("approved", {"decided_at": None, "decided_channel": "pigeon"}, "Approved by Ana by pigeon, —"),
)
def test_closing_text_names_person_channel_and_time(state: str, fields: dict[str, Any], words: str) -> None:
    assert closing_words(decided(state, **fields), ENGLISH_VOICE) == words


@table("language", *LANGUAGES)
def test_closing_text_follows_language_and_time_zone(language: str) -> None:
    formatter = Formatter(language, SAO_PAULO, NOW + timedelta(days=1))
    ending = closing_words(decided(), formatter)
    assert "Ana" in ending
    assert "11:02 -03" in ending
    assert "22" in ending


def test_closed_card_shows_outcome_reason_and_effect() -> None:
    closed = ClosedCard(request=decided("denied", reason="too dear"), person=ANA, token="t", link=LINK)
    assert closing_text(closed, ENGLISH_VOICE) == (
        f"Denied by Ana by email, 14:02 UTC.\nReason: too dear\n\nPay 20 EUR to Bo ({SHOWN_CODE})\n\nSee {LINK}"
    )


@table("language", *LANGUAGES)
@table("code", *[code for code in get_args(ReceiptCode) if code])
def test_every_refusal_has_a_sentence_in_every_language(language: str, code: ReceiptCode) -> None:
    receipt = (
        settled_receipt(decided())
        if code == "already_decided"
        else Receipt(status="refused", code=code, approval_id=APPROVAL, message="the body is not JSON")
    )
    page_text = receipt_words(receipt, Formatter(language, UTC, NOW), LINK, code=CODE)
    assert page_text.startswith(f"{SHOWN_CODE}: ")
    assert "{" not in page_text
    assert (LINK in page_text) == (code in ("stale", "assurance", "malformed", "unavailable", "already_decided"))
    assert ("Ana" in page_text and "14:02 UTC" in page_text) == (code == "already_decided")


@table(
    ("receipt", "words"),
    (Receipt(status="accepted", verdict="approved"), "Approved. Your answer was the last one needed."),
    (Receipt(status="accepted", verdict="denied"), f"{SHOWN_CODE}: Denied. The call will not run"),
    (Receipt(status="accepted", state="withdrawn"), "Withdrawn."),
    (Receipt(status="counted", votes=1, needed=2), "Your approval counts: 1 of 2."),
    (Receipt(status="pending"), "Your answer is saved and will take effect soon."),
    (
        settled_receipt(decided()),
        "Already decided. Approved by Ana by email, 14:02 UTC. Your answer changed nothing.",
    ),
    (settled_receipt(decided("denied", reason="no")), "Reason: no"),
    (settled_receipt(decided("timed_out")), "The deadline has passed."),
    (settled_receipt(decided("cancelled")), "The request was withdrawn."),
    (Receipt(status="refused"), "Your answer could not be read"),
    (
        Receipt(status="refused", code="already_decided", state="pending", why="begun"),
        "Nothing was decided: the call has already started, so it cannot be denied, withdrawn or edited.",
    ),
)
def test_receipt_explains_the_result_of_the_answer(receipt: Receipt, words: str) -> None:
    assert words in receipt_words(receipt, ENGLISH_VOICE, code=CODE)
    assert SHOWN_CODE not in receipt_words(receipt, ENGLISH_VOICE)


def test_reply_to_unclear_text_suggests_the_words() -> None:
    page_text = not_understood_text(request(), ENGLISH_VOICE, LINK)
    assert f"write “approve {SHOWN_CODE}”" in page_text
    assert page_text.endswith(LINK)
    assert not_understood_text(request(), ENGLISH_VOICE, LINK, how="link").count(LINK) == 1


def test_question_about_the_request_lists_each_code() -> None:
    other = request(code="ABCDEF", card=Card(effect="Send a mail"))
    page_text = which_request_text([request(), other], ENGLISH_VOICE)
    assert f"- {SHOWN_CODE}: Pay 20 EUR to Bo\n- ABC-DEF: Send a mail\n" in page_text
    assert page_text.endswith("write “approve CODE”, or “deny CODE” and your reason.")


@table("language", *LANGUAGES)
def test_untranslated_channel_is_shown_by_name(language: str) -> None:
    assert where_words("pigeon", language).endswith("pigeon")


@pytest.mark.parametrize(("language", "label"), [("en", "Bcc ⟦not declared⟧"), ("de", "Bcc ⟦nicht deklariert⟧")])
def test_undeclared_argument_is_marked_in_the_readers_language(language: str, label: str) -> None:
    card = render_card(effect="", title="", tool="pay", args={"bcc": "eve"}, schema={"properties": {"to": {}}})
    words = card_words(notice(request(card=card)), Formatter(language, UTC, NOW), how="text")
    assert f"{label}: eve" in words.text


@pytest.mark.parametrize(("language", "label"), [("en", "Currency ⟦default⟧"), ("de", "Currency ⟦Vorgabe⟧")])
def test_label_of_a_default_is_marked_in_the_readers_language(language: str, label: str) -> None:
    schema = {"properties": {"to": {}, "currency": {"default": "EUR"}}}
    card = render_card(effect="", title="", tool="pay", args={"to": "Ana"}, schema=schema)
    words = card_words(notice(request(card=card)), Formatter(language, UTC, NOW), how="text")
    assert f"{label}: EUR" in words.text


def thread(said: str) -> tuple[RequestMessage, ...]:
    why = RequestMessage(number=1, by="approver", text="Why?", revision=1, subject="ana", name="Ana\u202e")
    return (why, RequestMessage(number=2, by="agent", text=said, revision=1))


@pytest.mark.parametrize("how", get_args(How))
def test_card_shows_questions_and_answers_below_its_values(how: How) -> None:
    words = card_words(notice(request(messages=thread("It is\ndue."))), ENGLISH_VOICE, how=how)
    assert [row.text for row in words.rows] == [
        "Amount: 20", "Question from Ana⟦U+202E⟧: “Why?”", "The agent, in its own words: “It is⏎due.”",
    ]  # fmt: skip
    assert all(row.text in words.text for row in words.rows)
    assert words.whole


def test_card_says_that_the_agent_gave_no_answer() -> None:
    words = card_words(notice(request(messages=thread(""))), ENGLISH_VOICE, how="text")
    assert words.rows[-1].value == f"“{catalogue.text('ask.no_answer', 'en')}”"


def test_card_with_a_cut_answer_approves_nothing() -> None:
    asked = notice(request(messages=thread("due " * 400)))
    assert card_words(asked, ENGLISH_VOICE, how="text").approves
    words = card_words(asked, ENGLISH_VOICE, how="text", limits=CardLimits(whole=900))
    assert (words.whole, words.approves, words.decides) == (False, False, True)
    assert "1600" in words.rows[-1].note


def test_list_shows_no_messages() -> None:
    words = card_words(notice(request(messages=thread("It is due.")), kind="digest", more=1), ENGLISH_VOICE, how="text")
    assert words.rows == ()
