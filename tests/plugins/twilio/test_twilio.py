import dataclasses
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from documents import page
from pydantic import ValidationError
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import ChannelReply, InboundRequest
from signoff.channels.vendor_http import VendorAnswer
from signoff.channels.whatsapp.messages import units
from signoff.contracts.ids import show_code
from signoff.languages.catalogue import text
from signoff.plugins.twilio.errors import ERRORS
from signoff.plugins.twilio.forms import list_spellings, read_form, signature
from signoff.plugins.twilio.messages import EXTENDED, GSM, check_template, is_address, text_fields
from signoff.plugins.twilio.plugin import Twilio
from signoff.testing.channel_cards import play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_twilio import (
    ACCOUNT,
    ACTIONS,
    AUTH_TOKEN,
    BODY,
    CALLED,
    CONTENT,
    OURS,
    FakeSms,
    FakeTwilio,
    fake_twilio,
)
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
EXAMPLE = "https://mycompany.com/myapp.php?foo=1&bar=2"
PUBLISHED = [
    # From Twilio's security documentation and its libraries' tests.
    ("+14158675310", "GvWf1cFY/Q7PnoempGyD5oXAezc="),
    ("+14158675309", "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
]


def twilio(public_url: str = "https://signoff.example", **options: Any) -> Twilio:
    given = {"via": "whatsapp", "account_sid": ACCOUNT, "auth_token": AUTH_TOKEN, "sender": OURS, **options}
    return Twilio(ChannelContext("channel", given, public_url, lambda: NOW, b"own"))


def fake(rig: ChannelRig) -> FakeTwilio:
    assert isinstance(rig.vendor, FakeTwilio)
    return rig.vendor


def alone(vendor: FakeTwilio) -> FakeTwilio:
    vendor.clock = lambda: NOW
    return vendor


class TestSms(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_twilio(FakeSms())

    @play_scenario
    async def test_older_card_does_not_decide_a_newer_revision(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        await rig.receiver.take("channel", rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        await rig.revise(request)
        await rig.process_inbound()
        assert rig.request(request.id).votes == ()
        assert text("receipt.stale", "en") in rig.text_read_by(rig.bo)
        # Twilio reports whole seconds: an answer in its card's second could be about the previous card.
        await rig.backdate(request)
        await rig.backdate(rig.request(request.id), minutes=1)
        await rig.receive(rig.vendor.press(rig.card(rig.bo, "Somebody else"), rig.bo, "approved"))
        assert rig.request(request.id).state == "approved"

    @play_scenario
    async def test_person_without_permission_is_refused(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.cy, "approved"))
        assert (rig.decisions.answers, rig.request(request.id).votes) == ([], ())
        found = rig.text_read_by(rig.cy)
        assert text("receipt.unknown", "en") in found
        assert not any(part in found for part in (request.card.effect, "Payee"))

    @play_scenario
    async def test_card_shows_the_answer_format_and_requests_a_status_callback(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        code = show_code(request.code)
        assert f'write "approve {code}", or "deny {code}" and your reason' in rig.card(rig.bo).text
        sent = fake(rig).bubble(rig.card(rig.bo)).sent
        assert (sent["From"], sent["To"], sent["StatusCallback"]) == (OURS, rig.bo, CALLED)
        assert set(sent) == {"From", "To", "StatusCallback", "Body"}
        await rig.receive(rig.vendor.write(rig.bo, f"DENY {code.lower()} too dear"))
        assert (rig.request(request.id).state, rig.request(request.id).reason) == ("denied", "too dear")

    @play_scenario
    async def test_card_in_english_takes_three_segments(self, rig: ChannelRig) -> None:
        await rig.ask()
        body = rig.card(rig.bo).text
        assert set(body) <= GSM
        assert len(body) + sum(each in EXTENDED for each in body) <= 3 * 153
        assert '"approve ' in body

    @play_scenario
    async def test_card_with_letters_beyond_gsm_keeps_its_text(self, rig: ChannelRig) -> None:
        await rig.ask(args={"to": "Łódź"})
        assert "“approve " in rig.card(rig.bo).text

    @play_scenario
    async def test_decider_on_this_channel_is_notified_once(self, rig: ChannelRig) -> None:
        first, second = await rig.ask(1), await rig.ask(2)
        await rig.receive(rig.vendor.write(rig.bo, f"approve {first.code}"))
        assert [len(rig.vendor.reads(who)) for who in (rig.bo, rig.ana)] == [3, 3]
        await rig.receiver.take(rig.channel.name, rig.vendor.write(rig.bo, f"approve {second.code}"))
        rig.vendor.trouble = "down"
        await rig.process_inbound()
        rig.vendor.trouble, rig.time.ahead = "", timedelta(minutes=11)
        await rig.make_due()
        await rig.dispatch()
        assert "Approved by Bo" in rig.vendor.reads(rig.bo)[-1]

    @play_scenario
    async def test_person_who_sent_stop_gets_no_message(self, rig: ChannelRig) -> None:
        fake(rig).stopped.add(rig.bo)
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "21610")
        assert "STOP" in row.message

    @play_scenario
    async def test_opt_in_message_decides_nothing(self, rig: ChannelRig) -> None:
        await rig.ask()
        await rig.receive(fake(rig).message(rig.bo, Body="YES", OptOutType="START"))
        assert rig.decisions.answers == []
        count = len(rig.vendor.reads(rig.bo))
        assert count == 2
        await rig.receive(fake(rig).message(rig.bo, Body="HELP", OptOutType="HELP"))
        assert len(rig.vendor.reads(rig.bo)) == count

    @play_scenario
    async def test_check_shows_whether_twilio_calls_us(self, rig: ChannelRig) -> None:
        assert all(finding.ok for finding in await rig.channel.check())
        fake(rig).called = "https://demo.twilio.com/welcome/sms/reply"
        findings = await rig.channel.check()
        assert [finding.ok for finding in findings] == [True, False]
        assert CALLED in findings[1].remedy


class TestWhatsApp(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_twilio()

    @play_scenario
    async def test_word_replied_to_a_card_decides_that_card(self, rig: ChannelRig) -> None:
        first, second = await rig.ask(1), await rig.ask(2)
        card = rig.card(rig.bo, show_code(first.code))
        raw = rig.vendor.reply(card, rig.bo, "no\ntoo expensive")
        assert raw is not None
        await rig.receive(raw)
        assert [rig.request(each.id).state for each in (first, second)] == ["denied", "pending"]

    @play_scenario
    async def test_silent_person_is_not_reached_without_a_template(self, rig: ChannelRig) -> None:
        """Twilio accepts the card and reports its failure later, so the next channel takes over."""
        fake(rig).silent.add(rig.bo)
        request = await rig.ask()
        assert (await rig.delivery(request, "bo")).state == "sent"
        await rig.receive(*fake(rig).late)
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code, row.message) == ("failed", "63016", ERRORS.meaning(63016))

    @play_scenario
    async def test_silent_person_refused_at_once_is_not_reached(self, rig: ChannelRig) -> None:
        fake(rig).prompt = True
        fake(rig).silent.add(rig.bo)
        request = await rig.ask(timeout=200_000.0)
        assert (await rig.delivery(request, "bo")).code == "63016"
        rig.time.ahead = timedelta(hours=25)
        count = len(fake(rig).bubbles)
        await rig.decide_elsewhere(request)
        assert (len(fake(rig).bubbles), (await rig.delivery(request, "ana")).state) == (count, "closed")

    @play_scenario
    async def test_message_with_media_or_forward_is_asked_back(self, rig: ChannelRig) -> None:
        await rig.ask()
        await rig.receive(
            fake(rig).message(rig.bo, Body="approve", NumMedia="1", MessageType="image"),
            fake(rig).message(rig.bo, Body="approve", NumMedia="1"),
            fake(rig).message(rig.bo, Body="", NumMedia="1", MessageType="audio"),
            fake(rig).message(rig.bo, Body="approve", MessageType="text", Forwarded="true"),
        )
        assert rig.decisions.answers == []
        assert rig.text_read_by(rig.bo).count(text("reply.not_understood", "en")) == 4

    @play_scenario
    async def test_reaction_and_message_of_an_unknown_type_are_asked_back(self, rig: ChannelRig) -> None:
        await rig.ask()
        sid = fake(rig).bubble(rig.card(rig.bo)).sid
        await rig.receive(
            fake(rig).message(rig.bo, Body="👍", MessageType="reaction", OriginalRepliedMessageSid=sid),
            fake(rig).message(rig.bo, Body="Approve", MessageType="poll"),
            fake(rig).message(rig.bo, Body="Approve", ButtonText="Approve", ButtonPayload="of another program"),
        )
        assert rig.decisions.answers == []
        assert rig.text_read_by(rig.bo).count(text("reply.not_understood", "en")) == 3

    @play_scenario
    async def test_sms_sender_is_unknown_on_whatsapp(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        forged = fake(rig).message(rig.ana.removeprefix("whatsapp:"), Body=f"approve {request.code}")
        await rig.receive(forged, fake(rig).message(rig.ana, Body=f"approve {request.code}", To=OURS))
        assert rig.decisions.answers == []

    @play_scenario
    async def test_check_warns_of_missing_templates(self, rig: ChannelRig) -> None:
        findings = await rig.channel.check()
        assert all(finding.ok for finding in findings)
        page_text = " ".join(finding.what for finding in findings)
        assert all(part in page_text for part in ("Acme", CALLED, "content_sids"))


class TestTemplates(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_twilio(FakeTwilio(template=True))

    @play_scenario
    async def test_silent_person_gets_the_template_and_answers_by_its_button(self, rig: ChannelRig) -> None:
        fake(rig).silent.update((rig.bo, rig.ana))
        request = await rig.ask()
        bubble = fake(rig).bubble(rig.card(rig.bo))
        assert (bubble.sent["ContentSid"], "Body" in bubble.sent) == (CONTENT, False)
        await rig.receive(fake(rig).press_request(bubble, rig.bo, "Deny", OriginalRepliedMessageSid=""))
        assert rig.request(request.id).state == "denied"
        assert text("receipt.accepted.denied", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_template_carries_any_characters(self, rig: ChannelRig) -> None:
        await rig.ask(args={f"n{number}": "🎉 \n\t     " * 40 for number in range(9)}, note="x")
        assert (fake(rig).refused, len(rig.vendor.cards())) == ([], 2)

    @play_scenario
    async def test_mismatched_template_fails_with_its_code(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        assert all(finding.ok for finding in await rig.channel.check())
        vendor.contents = {CONTENT: ("Only {{1}} here.", ACTIONS)}
        first, other = await rig.ask(1), await rig.channel.check()
        vendor.contents = {}
        second, missing = await rig.ask(2), await rig.channel.check()
        rows = [await rig.delivery(request, "bo") for request in (first, second)]
        assert [(row.state, row.code) for row in rows] == [("failed", "21656"), ("failed", "21655")]
        assert [[finding.ok for finding in each] for each in (other, missing)] == [[True, True, False]] * 2


def example(caller: str) -> list[tuple[str, str]]:
    fields = {"To": "+18005551212", "Digits": "1234", "CallSid": "CA1234567890ABCDE", "From": caller, "Caller": caller}
    return list(fields.items())


@table(("caller", "published"), *PUBLISHED)
def test_published_example_has_the_published_signature(caller: str, published: str) -> None:
    assert signature("12345", EXAMPLE, example(caller)) == published
    assert signature("12345", EXAMPLE, example(caller)[::-1] + example(caller)) == published
    assert signature("12346", EXAMPLE, example(caller)) != published
    assert signature("12345", EXAMPLE, [*example(caller), ("New", "")]) != published


def test_repeated_field_is_signed_in_order_of_its_values() -> None:
    several = [("b", "2"), ("a", "9"), ("b", "1")]
    assert signature("12345", EXAMPLE, several) == signature("12345", EXAMPLE + "a9b1b2", [])


@table(
    ("url", "others"),
    ("https://a.example/c/x?y=1", ["https://a.example:443/c/x?y=1"]),
    ("https://a.example:443/c", ["https://a.example/c"]),
    ("https://a.example:8443/c", ["https://a.example/c"]),
    ("http://a.example/c", ["http://a.example:80/c"]),
    ("https://[2001:db8::1]:8443/c", ["https://[2001:db8::1]/c"]),
)
def test_address_is_signed_with_or_without_its_port(url: str, others: list[str]) -> None:
    assert list(list_spellings(url)) == [url, *others]


@table(
    ("public_url", "called"),
    ("https://signoff.example", CALLED),
    ("https://signoff.example", "https://signoff.example:443/channels/channel"),
    ("https://signoff.example:443", CALLED),
    ("https://signoff.example:8443", "https://signoff.example:8443/channels/channel"),
    ("https://signoff.example/desk", "https://signoff.example/desk/channels/channel"),
    ("https://signoff.example", f"{CALLED}?a=1&b=%20x"),
)
def test_signed_address_is_the_public_one(public_url: str, called: str) -> None:
    raw = alone(FakeTwilio()).sign(b"MessageSid=SM1&Body=yes", called)
    query = called.partition("?")[2]
    inside = f"http://10.0.0.7:8300/channels/channel{'?' if query else ''}{query}"
    seen = dataclasses.replace(raw, url=inside, headers={**raw.headers, "host": "10.0.0.7:8300"})
    twilio(public_url).verify(seen)
    with pytest.raises(Forged):
        twilio("https://elsewhere.example").verify(seen)


@table(
    "called",
    "https://evil.example/channels/channel",
    "https://signoff.example/channels/other",
    f"{CALLED}?a=1",
    CALLED + "/",
)
def test_signature_for_another_address_is_forged(called: str) -> None:
    raw = alone(FakeTwilio()).sign(b"MessageSid=SM1&Body=yes", called)
    with pytest.raises(Forged):
        twilio().verify(dataclasses.replace(raw, url=CALLED))


def test_request_signed_as_json_is_forged() -> None:
    """For JSON only the address is signed, with a digest of the body, so form fields would be unsigned."""
    url = f"{CALLED}?bodySHA256={'0' * 64}"
    raw = dataclasses.replace(alone(FakeTwilio()).sign(b"", url), body=b'{"MessageSid": "SM1"}')
    for each in (raw, dataclasses.replace(raw, body=b""), dataclasses.replace(raw, query={"bodySHA256": "0"}, url="")):
        with pytest.raises(Forged):
            twilio().verify(each)


@table("body", b"\xff", b"a=%FF", b"&".join(b"a=1" for _ in range(600)))
def test_malformed_form_is_forged(body: bytes) -> None:
    with pytest.raises(Forged):
        twilio().verify(alone(FakeTwilio()).sign(body))


@table(
    ("options", "named"),
    ({"auth_token": ""}, "auth_token"),
    ({"account_sid": "SK" + "0" * 32}, "account_sid"),
    ({"sender": "whatsapp:+14155238886"}, "sender"),
    ({"sender": "Acme"}, "sender"),
    ({"via": "rcs"}, "via"),
    ({"content_sids": {"en": "HX1"}}, "content_sids"),
    ({"via": "sms", "content_sids": {"en": CONTENT}}, "no buttons"),
)
def test_impossible_options_are_named(options: Mapping[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        twilio(**options)


def _read(sender: str = OURS, kind: str = "application/x-www-form-urlencoded", **fields: str) -> Any:
    return read_form(InboundRequest(urlencode(fields).encode(), {"content-type": kind}), sender, "whatsapp")


def test_messages_to_another_number_are_ignored_except_for_a_service() -> None:
    fields = {"MessageSid": "SM1", "From": "whatsapp:+351912345678", "To": "whatsapp:+1999", "Body": "yes"}
    assert _read(**fields).actions == ()
    action = _read("MG" + "0" * 32, **fields).actions[0]
    assert (action.key, action.identity, action.text) == ("SM1", "whatsapp:+351912345678", "yes")


def test_twilio_gets_an_empty_response() -> None:
    """Twilio would forward a bare text to the sender."""
    received = _read(MessageSid="SM1", From="whatsapp:+351912345678", To=f"whatsapp:{OURS}", Body="yes")
    assert (received.body, received.media_type) == (b'<?xml version="1.0" encoding="UTF-8"?><Response/>', "text/xml")


@table("fields", {}, {"CallSid": "CA1"}, {"MessageSid": ""})
def test_request_without_a_message_id_is_malformed(fields: dict[str, str]) -> None:
    for kind in ("application/x-www-form-urlencoded", "application/json"):
        with pytest.raises(Malformed):
            _read(kind=kind, **fields)


@table(
    ("expected", "code", "known"),
    ("queued", "", ("sent", "", "")),
    ("undelivered", "30005", ("failed", "30005", ERRORS.meaning(30005))),
    ("failed", "odd", ("failed", "", "")),
    ("canceled", "", ("failed", "", "")),
    ("read", "", ("read", "", "")),
    ("partially_delivered", "", ("unknown", "partially_delivered", "")),
)
def test_each_delivery_state_is_reported_once(expected: str, code: str, known: tuple[str, str, str]) -> None:
    status = _read(MessageSid="SM1", MessageStatus=expected, ErrorCode=code).statuses[0]
    assert (status.state, status.code, status.message) == known
    assert (status.key, status.vendor_id) == (f"SM1:{expected}", "SM1")


@table(
    ("code", "status", "again", "after"),
    (20003, 401, False, 0.0),
    (20429, 429, True, 5.0),
    (63018, 429, True, 5.0),
    (63038, 429, True, 600.0),
    (63016, 400, False, 0.0),
    (21610, 400, False, 0.0),
    (20500, 500, True, 0.0),
    (99999, 400, False, 0.0),
    (99999, 500, True, 0.0),
    (None, 503, True, 0.0),
    (None, 404, False, 0.0),
)
def test_error_codes_select_retry_and_delay(code: int | None, status: int, again: bool, after: float) -> None:
    found = {} if code is None else {"code": code}
    error = ERRORS.refusal(VendorAnswer(status, found))
    assert error is not None
    assert (error.code, error.again, error.after) == (str(code or status), again, after)
    assert error.message
    later = ERRORS.refusal(VendorAnswer(status, found, 900.0))
    assert later is not None
    assert later.after == (900.0 if again else 0.0)


async def test_refusal_of_twilio_is_reported_by_its_code() -> None:
    async with fake_twilio() as vendor:
        alone(vendor)
        channel = twilio(api_url=vendor.url)
        for code, again in ((20003, False), (20429, True)):
            vendor.refuse_with = code
            with pytest.raises(NotDelivered) as caught:
                await channel.answer({"to": vendor.identities[0]}, ChannelReply(text="x"))
            assert (caught.value.code, caught.value.again) == (str(code), again)
        vendor.refuse_with = 0
        await channel.answer({"to": vendor.identities[0]}, ChannelReply(text="x" * 9_000))
        assert units(vendor.bubbles[0].text) == 1_600
        others = (
            ("auth_token", "another", "20003"),
            ("api_url", "http://127.0.0.1:9", "connection"),
            ("sender", "+15550001111", "21606"),
        )
        for name, value, found in others:
            wrong = twilio(**{"api_url": vendor.url, name: value})
            with pytest.raises(NotDelivered) as caught:
                await wrong.answer({"to": vendor.identities[0]}, ChannelReply(text="x"))
            assert caught.value.code == found
            await wrong.close_down()
        service = twilio(api_url=vendor.url, sender="MG" + "0" * 32)
        await service.answer({"to": vendor.identities[0]}, ChannelReply(text="x"))
        assert "From" not in vendor.bubbles[-1].sent
        await service.close_down()
        await channel.close_down()


@table("address", "+15550000001", "whatsapp:15550000001", "whatsapp:", "whatsapp:us.1", "", "whatsapp:+1555000000\n")
async def test_invalid_address_is_sent_nothing(address: str) -> None:
    assert not is_address(address, "whatsapp")
    with pytest.raises(NotDelivered) as caught:
        await twilio().answer({"to": address}, ChannelReply(text="x"))
    assert (caught.value.code, caught.value.again) == ("address", False)


def test_formatting_marks_are_replaced_only_for_whatsapp() -> None:
    assert text_fields("~500~", "sms") == {"Body": "~500~"}
    assert text_fields("~500~", "whatsapp") == {"Body": "∼500∼"}  # noqa: RUF001
    for words in ("x" * 2_000, "🎉" * 2_000, "x🎉" * 2_000):
        body = text_fields(words, "sms")["Body"]
        assert 1_500 < units(body) <= 1_600
        assert body.endswith("…")


def test_template_matches_the_documented_one() -> None:
    found = page("docs/channels.md")
    assert f"```text\n{BODY}\n```" in found
    assert all(f"`{name}`" in found for _, name in ACTIONS)


@table(
    ("template", "status", "ok"),
    ({}, "approved", True),
    ({}, "pending", False),
    ({"actions": [{"id": "yes"}, {"id": "no"}]}, "approved", False),
    ({"actions": "odd"}, "approved", False),
    ({"body": "Only {{1}}."}, "approved", False),
)
def test_template_is_checked_by_its_form(template: Mapping[str, Any], status: str, ok: bool) -> None:
    reply = {"body": BODY, "actions": [{"title": title, "id": name} for title, name in ACTIONS], **template}
    finding = check_template(CONTENT, {"types": {"twilio/quick-reply": reply}}, {"whatsapp": {"status": status}})
    assert finding.ok == ok
    assert finding.ok or finding.remedy
    assert not check_template(CONTENT, json.loads('{"types": []}'), {}).ok


def test_sms_sender_counts_only_like_a_link() -> None:
    """An SMS can carry any sender number."""
    given = {"account_sid": "AC" + "0" * 32, "auth_token": "t", "sender": "+15005550006"}

    def channel(via: str) -> Twilio:
        return Twilio(
            ChannelContext("phone", {**given, "via": via}, "https://signoff.example", lambda: datetime.now(UTC), b"k")
        )

    assert (channel("sms").assurance, channel("whatsapp").assurance) == ("link", "channel")
