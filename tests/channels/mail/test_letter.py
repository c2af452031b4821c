import re
from email import message_from_bytes
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mail_kit import Delivered
from mail_rig import APPROVALS, BO, LINK, NOW, TOKEN, MailRig, a_closing, a_notice, mail_rig
from tables import table

from signoff.channels.answer_text.answer_parser import AnswerSender, parse_answer
from signoff.channels.answer_text.quotes import MARK
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import ChannelReply, SentCard
from signoff.channels.mail.letter import LetterSender
from signoff.channels.mail.reply_addresses import ReplyAddresses
from signoff.channels.mail.reply_reader import read_mail
from signoff.contracts.call import RuleReference
from signoff.contracts.receipt import Receipt
from signoff.languages.catalogue import language_codes

HOSTILE = "=?utf-8?q?=E2=80=AE=0AX?= Bo\r\nBcc: eve@else.example\r\n\r\n<script>x()</script> \u202e\u200b <b>yes</b>"
ONCE = ("From", "To", "Reply-To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Auto-Response-Suppress")


class Text(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self._said: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self._said.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self._said).split())


@pytest.mark.parametrize("locale", sorted(language_codes()))
async def test_text_and_html_match_in_every_language(locale: str) -> None:
    async with mail_rig() as rig:
        card = await rig.card(locale=locale, quorum=2, revision=2)
    page = Text(card.html)
    for line in card.plain.split("\n"):
        for part in re.split(r": |^- | \(|\)|[“”]", line):
            assert part.strip() in page.words
    assert page.links == [LINK]
    assert not page.tags & {"script", "form", "img", "iframe", "object", "link"}
    assert f'lang="{locale}"' in card.html


async def test_card_has_the_headers_of_automatic_email() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
    assert [name for name in ONCE if len(card.mail.get_all(name, [])) != 1] == []
    assert card.mail["Auto-Submitted"] == "auto-generated"
    assert card.mail["X-Auto-Response-Suppress"] == "OOF, AutoReply"
    assert str(card.mail["From"]) == "Signoff <signoff@signoff.example>"
    assert card.mail["Date"].datetime == NOW
    assert not {"Precedence", "List-Unsubscribe", "Bcc", "In-Reply-To"} & set(card.mail.keys())
    assert [part.get_content_type() for part in card.mail.iter_parts()] == ["text/plain", "text/html"]


async def test_reply_address_is_valid_on_any_server() -> None:
    replies = ReplyAddresses(f"{'a' * 14}@signoff.example", b"key")
    address = replies.address("z" * 32)
    assert len(address.partition("@")[0]) == 64
    assert address == address.lower()
    assert replies.tokens([address, address.upper(), "a@signoff.example"]) == ("z" * 32,)
    assert replies.tokens_of_ids([replies.message_id("z" * 32), replies.message_id("z", "closed.2")]) == ("z" * 32, "z")


async def test_messages_of_one_request_form_one_thread() -> None:
    async with mail_rig() as rig:
        notice = a_notice()
        sent = await rig.channel.deliver(notice, None)
        assert await rig.channel.deliver(notice, None) == sent
        reminder = a_notice(kind="remind", reminded=1)
        assert (await rig.channel.deliver(reminder, sent)).vendor_id == sent.vendor_id
        await rig.channel.close(*a_closing(notice, sent, reason="it is fine"))
        card, again, reminded, over = rig.server.taken
    assert card.mail["Message-ID"] == again.mail["Message-ID"] == sent.vendor_id
    for later in (reminded, over):
        assert later.mail["In-Reply-To"] == later.mail["References"] == sent.vendor_id
        assert later.mail["Subject"] == f"Re: {card.mail['Subject']}"
        assert later.mail["Reply-To"] == card.mail["Reply-To"]
    assert len({each.mail["Message-ID"] for each in rig.server.taken}) == 3
    assert "Reminder: your answer is still needed" in reminded.plain
    assert "Approved by Ana in Slack, 14:00 UTC.\nReason: it is fine" in over.plain
    assert "Approved by Ana in Slack, 14:00 UTC. Reason: it is fine" in Text(over.html).words


async def test_reply_is_in_the_thread_and_has_an_empty_sender() -> None:
    async with mail_rig() as rig:
        where = {
            "to": BO, "token": TOKEN, "subject": "Re: x", "message_id": "<2@people.example>",
            "references": ["<1@signoff.example>"],
        }  # fmt: skip
        await rig.channel.answer(where, ChannelReply(text="We found no decision.\nTo answer, ..."))
        [answer] = rig.server.taken
    assert answer.sender == ""
    assert answer.mail["Auto-Submitted"] == "auto-replied"
    assert (answer.mail["In-Reply-To"], answer.mail["Subject"]) == ("<2@people.example>", "Re: x")
    assert str(answer.mail["References"]).split() == ["<1@signoff.example>", "<2@people.example>"]
    assert answer.mail["Reply-To"] == ReplyAddresses(APPROVALS, b"k" * 32).address(TOKEN)
    assert "We found no decision. To answer, ..." in Text(answer.html).words


@pytest.mark.parametrize("token", [TOKEN, ""])
async def test_message_id_of_a_reply_depends_on_its_id_and_not_on_its_text(token: str) -> None:
    async with mail_rig() as rig:
        for name, words in (("a1", "Approved."), ("a2", "Approved."), ("a1", "Approved, 14:00.")):
            await rig.channel.answer(
                {"to": BO, "token": token}, ChannelReply(id=name, text=words, receipt=Receipt(status="accepted"))
            )
        first, other, again = (each.mail["Message-ID"] for each in rig.server.taken)
    assert first == again
    assert first != other


async def test_untrusted_text_cannot_add_a_header_or_a_tag() -> None:
    async with mail_rig() as rig:
        card = a_notice(
            args={"to": HOSTILE, "amount": HOSTILE},
            agent_says=HOSTILE,
            actor=HOSTILE,
            rule=RuleReference(kind="global", name=HOSTILE),
        )
        sent = await rig.channel.deliver(card, None)
        await rig.channel.close(*a_closing(card, sent, decided_name=HOSTILE, reason=HOSTILE))
        where = {
            "to": BO, "token": TOKEN, "subject": HOSTILE, "message_id": "<1@x>\r\nBcc: eve@else.example",
            "references": [HOSTILE, "<" + "x" * 900 + ">", "<é@x.example>", 3],
        }  # fmt: skip
        await rig.channel.answer(where, ChannelReply(text=f"{HOSTILE}\nmore"))
    assert len(rig.server.taken) == 3
    for each in rig.server.taken:
        assert each.to == (BO,)
        assert "bcc" not in {name.lower() for name in message_from_bytes(each.content).keys()}  # noqa: SIM118
        assert "script" not in Text(each.html).tags
        assert "b" not in Text(each.html).tags
    for each in rig.server.taken[:2]:
        assert not re.search("[\u202e\u200b]", each.plain + each.html + str(each.mail["Subject"]))


@given(st.text(max_size=300), st.text(max_size=300))
@example("größere Übungen für überall", "日本 語 שלום עולם")
@example("", "\x1f\U0002ebe1 \x1f")
def test_any_text_survives_the_email_format(value: str, name: str) -> None:
    paper = LetterSender("a@signoff.example", "Signoff", ReplyAddresses(APPROVALS, b"k"), answers=True, bounces=True)
    value, name = (each.encode("utf-8", "replace").decode() for each in (value, name))
    letter = paper.card(a_notice(args={"to": value, "amount": name}, actor=name), None, NOW)
    delivered = Delivered("", (), letter.content)
    assert [field.lower() for field in delivered.mail.keys()] == [  # noqa: SIM118
        "from", "to", "reply-to", "subject", "date", "message-id", "auto-submitted", "x-auto-response-suppress",
        "mime-version", "content-type",
    ]  # fmt: skip
    assert str(delivered.mail["Subject"]) == letter.subject
    assert max(map(len, letter.content.split(b"\r\n"))) < 998


async def test_long_message_ids_are_not_encoded() -> None:
    """The standard library would turn them into encoded words."""
    async with mail_rig(reply_to=f"approvals@{'long.' * 12}signoff.example") as rig:
        notice = a_notice()
        sent = await rig.channel.deliver(notice, None)
        await rig.channel.close(*a_closing(notice, sent))
        card, over = rig.server.taken
    assert len(sent.vendor_id) > 100
    assert f"Message-ID: {sent.vendor_id}\r\n".encode() in card.content
    assert f"References: {sent.vendor_id}\r\n".encode() in over.content


@pytest.mark.parametrize("locale", sorted(language_codes()))
async def test_quoted_text_of_ours_never_decides(locale: str) -> None:
    async with mail_rig() as rig:
        card = a_notice(locale=locale)
        sent = await rig.channel.deliver(card, None)
        await rig.channel.close(*a_closing(card, sent))
        await rig.channel.answer({"to": BO, "token": TOKEN}, ChannelReply(text="Write “approve”."))
        for each in rig.server.taken:
            assert each.plain.startswith(MARK)
            assert read_mail(each.content).unclear == "nothing"
            for line in (*each.plain.split("\n"), *Text(each.html).words.split("  ")):
                assert parse_answer(line, AnswerSender(locale)).verdict is None, line


async def test_card_without_inbound_options_is_answered_by_its_link() -> None:
    async with mail_rig(inbound=None, reply_to="") as rig:
        card = await rig.card()
    assert card.mail["Reply-To"] is None
    assert MARK not in card.plain + card.html
    assert f"Sign in to answer: {LINK}" in card.plain


async def test_digest_shows_the_number_of_open_requests() -> None:
    async with mail_rig() as rig:
        sent = await rig.channel.deliver(a_notice(kind="digest", more=6), None)
        [digest] = rig.server.taken
    assert "7 requests need your answer" in digest.plain
    assert ".digest@" in sent.vendor_id


@table("address", "", "nobody", "a@b@c.example", "a b@c.example", "a@c.example\r\nRCPT TO:<x@y.example>")
async def test_invalid_address_fails_at_once(address: str) -> None:
    async with mail_rig() as rig:
        with pytest.raises(NotDelivered) as caught:
            await rig.channel.deliver(a_notice(address=address), None)
        with pytest.raises(NotDelivered):
            await rig.channel.close(*a_closing(a_notice(), SentCard(vendor_id="<1@x.example>", handle={"to": address})))
        assert rig.server.taken == []
    assert (caught.value.code, caught.value.again) == ("address", False)


async def test_check_reports_the_inbound_path() -> None:
    secret = "whsec_" + "c2lnbmVkIGJ5IG91ciBtYWlsIHNlcnZlciwgMzIgYnl0ZXM="
    for inbound, found in (
        (None, "no `inbound`: approvers decide through the link"),
        ({"lmtp": {"port": 24}}, "answers are expected at 127.0.0.1:24 by lmtp"),
        ({"webhook": {"secret": secret}}, "answers are expected at https://signoff.example/channels/email, as raw"),
    ):
        async with mail_rig(inbound=inbound) as rig:
            assert await told_by(rig, found) == [True, True]
            rig.server.trouble = "down"
            assert await told_by(rig, found) == [False, True]


async def told_by(rig: MailRig, found: str) -> list[bool]:
    findings = await rig.channel.check()
    assert found in findings[1].what
    return [each.ok for each in findings]
