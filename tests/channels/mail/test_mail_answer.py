import re
from email.message import EmailMessage

import pytest
from mail_kit import Delivered, judged, replied, signed, written
from mail_rig import APPROVALS, BO, NOW, OTHER, TOKEN, mail_rig

from signoff.channels.channel_errors import Forged
from signoff.channels.envelopes import ChannelReply, InboundAction, InboundBatch, InboundRequest
from signoff.channels.mail.answer import UNNAMED
from signoff.channels.mail.reply_addresses import ReplyAddresses
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace

TAKEN = "Received: by mx.signoff.example\r\nAuthentication-Results: mx.signoff.example; "
"""The lines of our mail server above an email, up to its results."""


def only_action(received: InboundBatch) -> InboundAction:
    [found] = received.actions
    return found


async def test_signed_reply_gives_sender_card_and_answer() -> None:
    async with mail_rig() as rig:
        found = only_action(await rig.hear(signed(replied(await rig.card(), BO, "Deny\ntoo expensive"))))
    assert (found.identity, found.token) == (BO, TOKEN)
    assert len(found.vendor_ids) == 1
    assert found.vendor_ids[0].startswith(f"<{TOKEN}.")
    assert found.text == "Deny\ntoo expensive"
    assert found.where["to"] == BO
    assert found.verdict is None


async def test_reference_to_the_card_must_be_signed() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        loose = replied(card, BO, "approve")
        for left_out in ((b"to",), (b"to", b"in-reply-to", b"references")):
            found = only_action(await rig.hear(signed(loose, leaving_out=left_out), str(card.mail["Reply-To"])))
            assert (found.identity, found.token, found.vendor_ids) == (BO, "", (UNNAMED,))


async def test_old_approval_cannot_be_replayed_for_another_card() -> None:
    async with mail_rig() as rig:
        first = await rig.card()
        wanted = str((await rig.card(OTHER)).mail["Reply-To"])
        old = signed(replied(first, BO, "yes"))
        tries = (
            (old, wanted),
            (f"Delivered-To: {wanted}\r\nX-Original-To: {wanted}\r\n".encode() + old, wanted),
            (f"Cc: {wanted}\r\n".encode() + old, wanted),
        )
        for raw, envelope in tries:
            assert only_action(await rig.hear(raw, envelope)).token == TOKEN
        twice = f"To: {wanted}\r\n".encode() + old
        found = only_action(await rig.hear(twice, wanted))
        assert (found.token, found.identity) == ("", f"{BO} (not proved)")


async def test_approval_addressed_to_another_person_does_not_count() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        for to in ("ana@people.example", "approvals@else.example"):
            found = only_action(await rig.hear(signed(replied(card, BO, "yes", to=to)), str(card.mail["Reply-To"])))
            assert (found.token, found.vendor_ids) == ("", (UNNAMED,))


async def test_email_to_two_cards_counts_for_neither() -> None:
    async with mail_rig() as rig:
        one, two = await rig.card(), await rig.card(OTHER)
        both = f"{one.mail['Reply-To']}, {two.mail['Reply-To']}"
        found = only_action(await rig.hear(signed(replied(one, BO, "yes", to=both))))
        assert (found.token, found.vendor_ids) == ("", (UNNAMED,))


async def test_forged_card_token_is_ignored() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        true = str(card.mail["Reply-To"])
        others = (
            true.replace(TOKEN, OTHER),
            ReplyAddresses(APPROVALS, b"another key").address(TOKEN),
            true.replace("@", "a@"),
            true.replace("signoff.example", "else.example"),
            APPROVALS.replace("@", f"+{TOKEN}@"),
        )
        for to in others:
            assert only_action(await rig.hear(signed(written(BO, to, "yes")))).token == "", to


async def test_reply_to_the_general_address_is_matched_by_its_references() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        found = only_action(await rig.hear(signed(replied(card, BO, "yes", to=APPROVALS))))
        assert (found.token, found.vendor_ids) == (TOKEN, (str(card.mail["Message-ID"]),))
        found = only_action(
            await rig.hear(signed(replied(card, BO, "yes", to=APPROVALS), leaving_out=(b"references",)))
        )
        assert (found.token, found.vendor_ids) == ("", (UNNAMED,))
        fresh = only_action(await rig.hear(signed(written(BO, APPROVALS, "approve K7Q-2FM"))))
        assert (fresh.token, fresh.vendor_ids, fresh.text) == ("", (UNNAMED,), "approve K7Q-2FM")


async def test_email_without_a_card_needs_a_code_and_a_signed_message_id() -> None:
    own = TAKEN + "{spf}dmarc=pass header.from=people.example\r\n"
    by_spf, by_signature = (own.format(spf=spf).encode() for spf in (f"spf=pass smtp.mailfrom={BO}; ", ""))
    bogus = b"DKIM-Signature: v=1; a=rsa-sha256; d=people.example; s=x; h=from:to; bh=AA==; b=AA==\r\n"
    words = written(BO, APPROVALS, "approve K7Q-2FM")
    async with mail_rig() as rig:
        loose = signed(words, leaving_out=(b"message-id",))
        for raw in (loose, loose + b"\r\n"):
            found = only_action(await rig.hear(raw))
            assert (found.identity, found.text, found.vendor_ids) == (f"{BO} (not proved)", "", (UNNAMED,))
    async with mail_rig(authserv_id="mx.signoff.example") as rig:
        first = only_action(await rig.hear(by_spf + signed(words)))
        assert (first.identity, first.vendor_ids) == (BO, (UNNAMED,))
        assert only_action(await rig.hear(by_signature + signed(words))).key == first.key
        assert only_action(await rig.hear(by_signature + bogus + signed(words))).identity == f"{BO} (not proved)"


async def test_reply_stripped_of_its_references_is_the_same_email() -> None:
    own = TAKEN + "{spf}dmarc=pass header.from=people.example\r\n"
    async with mail_rig(authserv_id="mx.signoff.example") as rig:
        reply = replied(await rig.card(), BO, "yes", to=APPROVALS)
        raw = signed(reply, leaving_out=(b"in-reply-to", b"references"))
        first = only_action(await rig.hear(own.format(spf=f"spf=pass smtp.mailfrom={BO}; ").encode() + raw))
        assert first.token == TOKEN
        bare = re.sub(rb"(?m)^(In-Reply-To|References):[^\r\n]*\r\n", b"", raw)
        assert bare != raw
        again = only_action(await rig.hear(own.format(spf="").encode() + bare))
        assert (again.key, again.token, again.vendor_ids) == (first.key, "", (UNNAMED,))


async def test_invalid_card_address_is_not_the_general_address() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        for named in (f"{TOKEN}.aaaaaaaaaaaaaaaa", "staging"):
            found = only_action(
                await rig.hear(signed(replied(card, BO, "yes", to=APPROVALS.replace("@", f"+{named}@"))))
            )
            assert (found.token, found.vendor_ids) == ("", (UNNAMED,))


async def test_reply_to_a_foreign_email_is_about_no_card() -> None:
    lunch = {"In-Reply-To": "<lunch@people.example>", "References": "<lunch@people.example>"}
    async with mail_rig() as rig:
        card = await rig.card()
        for headers in (lunch, {**lunch, "References": f"{card.mail['Message-ID']} <lunch@people.example>"}):
            found = only_action(await rig.hear(signed(replied(card, BO, "Yes!", headers=headers))))
            assert (found.identity, found.token, found.vendor_ids) == (BO, "", (UNNAMED,))
        assert only_action(await rig.hear(signed(written(BO, str(card.mail["Reply-To"]), "Yes!")))).token == TOKEN
        smtp = {**rig.channel.context.options["smtp"], "rewrites_ids": True}
    async with mail_rig(smtp=smtp) as rig:
        assert only_action(await rig.hear(signed(replied(card, BO, "Yes!", headers=lunch)))).token == TOKEN


async def test_same_email_keeps_its_key_and_others_differ() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        raw = signed(replied(card, BO, "yes"))
        again = b"Received: from a by b; Sun, 22 Nov 2026 14:00:00 +0000\r\nDelivered-To: x@people.example\r\n" + raw
        key = only_action(await rig.hear(raw)).key
        assert only_action(await rig.hear(again, APPROVALS)).key == key
        assert only_action(await rig.hear(signed(replied(card, BO, "yes")))).key != key
        loose = replied(card, BO, "yes")
        unsigned_id = signed(loose, leaving_out=(b"message-id",))
        altered = unsigned_id.replace(b"Message-ID: <", b"Message-ID: <x")
        assert altered != unsigned_id
        assert only_action(await rig.hear(altered)).key == only_action(await rig.hear(unsigned_id)).key


async def test_stranger_cannot_use_up_another_emails_key() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        true = replied(card, BO, "yes")
        key = only_action(await rig.hear(signed(true))).key
        named = {"Message-ID": str(true["Message-ID"])}
        own = only_action(await rig.hear(signed(replied(card, "mallory@else.example", "yes", headers=named))))
        unproved = only_action(await rig.hear(replied(card, BO, "yes", headers=named).as_bytes()))
        assert len({key, own.key, unproved.key}) == 3


async def test_dmarc_pass_without_signed_content_is_unverified_and_has_its_own_key() -> None:
    async with mail_rig(authserv_id="mx.signoff.example") as rig:
        mail = written(BO, APPROVALS, "approve K7Q-2FM").as_bytes()
        verdict = TAKEN.encode() + b"dmarc=%s header.from=people.example\r\n"
        found, copied = [only_action(await rig.hear(verdict % result + mail)) for result in (b"pass", b"fail")]
        assert found.identity == copied.identity == f"{BO} (not proved)"
        assert (found.token, found.vendor_ids) == ("", (UNNAMED,))
        assert found.key != copied.key


async def test_unverified_sender_decides_nothing_and_gets_one_reply_about_a_card() -> None:
    """Otherwise we would write to an address that a stranger chooses."""
    async with mail_rig() as rig:
        card = await rig.card()
        held = only_action(await rig.hear(replied(card, BO, "approve").as_bytes()))
        assert (held.identity, held.token, held.verdict, held.text) == (f"{BO} (not proved)", "", None, "")
        before = len(rig.server.taken)
        await rig.channel.answer(held.where, ChannelReply(text="This address belongs to no account."))
        [value] = rig.server.taken[before:]
        assert value.to == (BO,)
        assert "could not verify that this email is from you" in value.plain
        assert "https://signoff.example" in value.plain
        without = only_action(await rig.hear(written(BO, APPROVALS, "approve").as_bytes(), APPROVALS))
        await rig.channel.answer(without.where, ChannelReply(text="This address belongs to no account."))
        assert len(rig.server.taken) == before + 1


async def test_verdict_of_our_own_server_is_trusted_if_configured() -> None:
    async with mail_rig(authserv_id="mx.signoff.example") as rig:
        card = await rig.card()
        reply = replied(card, BO, "approve")
        assert only_action(await rig.hear(judged(reply))).token == TOKEN
        for raw in (signed(reply), judged(reply, result="fail"), judged(reply, by="mx.else.example")):
            assert only_action(await rig.hear(raw)).identity == f"{BO} (not proved)"


def away(card: Delivered) -> EmailMessage:
    return replied(card, BO, "yes", headers={"Auto-Submitted": "auto-replied"})


async def test_automatic_email_is_ignored() -> None:
    """Otherwise we would reply to ourselves forever."""
    async with mail_rig() as rig:
        card = await rig.card()
        for mail in (
            away(card),
            replied(card, BO, "yes", headers={"Precedence": "bulk"}),
            replied(card, BO, "yes", headers={"List-Id": "<l.people.example>"}),
            replied(card, "signoff@signoff.example", "yes"),
            replied(card, APPROVALS, "yes"),
            replied(card, str(card.mail["Reply-To"]), "yes"),
        ):
            assert await rig.hear(signed(mail)) == InboundBatch()


REPORT = """\
Return-Path: <>
From: Mail Delivery System <mailer-daemon@mx.people.example>
To: {to}
Subject: Undelivered Mail Returned to Sender
Message-ID: <1@mx.people.example>
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

It could not be delivered.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.people.example

Final-Recipient: rfc822; bo@people.example
Action: {action}
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 no such user

--b--
"""


async def test_bounced_card_is_marked_failed() -> None:
    async with mail_rig() as rig:
        card = await rig.card()
        assert card.sender == str(card.mail["Reply-To"])
        report = REPORT.format(to=card.sender, action="failed").encode()
        [status] = (await rig.hear(report, card.sender)).statuses
        assert (status.vendor_id, status.state, status.code) == (str(card.mail["Message-ID"]), "failed", "5.1.1")
        assert status.message == "smtp; 550 5.1.1 no such user"
        for other in (
            REPORT.format(to=card.sender, action="delayed"),
            REPORT.format(to=APPROVALS, action="failed"),
            REPORT.format(to=card.sender, action="failed").replace("multipart/report", "multipart/mixed"),
        ):
            assert await rig.hear(other.encode()) == InboundBatch()


async def test_cards_without_bounce_handling_use_the_general_sender() -> None:
    for options in ({"inbound": None}, {"bounces_come_back": False}):
        async with mail_rig(**options) as rig:
            assert (await rig.card()).sender == "signoff@signoff.example"


async def test_mailbox_channel_refuses_http() -> None:
    async with mail_rig() as rig:
        raw = signed(replied(await rig.card(), BO, "approve"))
        with pytest.raises(Forged):
            await rig.receive(InboundRequest(raw, headers={"content-type": "message/rfc822"}, at=NOW))


@pytest.mark.parametrize("answers", [1, 3])
async def test_unclear_replies_to_one_card_get_one_question(answers: int) -> None:
    """The limit holds for any number of unclear emails, so that two machines stop."""
    async with mail_rig() as rig:
        card = await rig.card()
        where = only_action(await rig.hear(signed(replied(card, BO, "hm")))).where
        for number in range(answers):
            await rig.channel.answer(where, ChannelReply(text=f"Which one do you mean? {number}"))
        other = only_action(await rig.hear(signed(replied(await rig.card(OTHER), BO, "hm")))).where
        await rig.channel.answer(other, ChannelReply(text="Which one do you mean?"))
        assert len([each for each in rig.server.taken if each.mail["Auto-Submitted"] == "auto-replied"]) == 2


async def test_every_decision_gets_its_receipt() -> None:
    async with mail_rig() as rig:
        where = {"to": BO, "token": "", "subject": "Approvals"}
        accepted = Receipt(status="accepted", verdict="approved", approval_id="a")
        refused = Receipt(status="refused", code="stale", approval_id="a")
        other = replace(refused, approval_id="b")
        for receipt in (accepted, accepted, refused, refused, other):
            await rig.channel.answer(where, ChannelReply(text="Told.", receipt=receipt))
        assert len(rig.server.taken) == 4
