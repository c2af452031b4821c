import dataclasses
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from documents import page
from mail_corpus import work
from pydantic import ValidationError
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import ChannelReply, InboundBatch, InboundRequest
from signoff.channels.vendor_http import VendorAnswer
from signoff.channels.whatsapp.messages import plain, read_button, recipient, text_message, units
from signoff.channels.whatsapp.templates import check_templates, template_language
from signoff.channels.whatsapp.whatsapp import ERRORS, ServiceWindow, WhatsApp, read_payload
from signoff.contracts.ids import show_code
from signoff.formats.replace import replace
from signoff.languages.catalogue import language_codes, text
from signoff.testing.channel_cards import play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_whatsapp import (
    APP_SECRET,
    BODY,
    NUMBER_ID,
    TEMPLATE,
    TOKEN,
    VERIFY_TOKEN,
    FakeWhatsApp,
    fake_whatsapp,
)
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SENT = int(NOW.timestamp())


def whatsapp(**options: Any) -> WhatsApp:
    given = {"phone_number_id": NUMBER_ID, "token": TOKEN, "app_secret": APP_SECRET, "verify_token": VERIFY_TOKEN}
    return WhatsApp(ChannelContext("whatsapp", {**given, **options}, "https://signoff.example", lambda: NOW, b"own"))


def fake(rig: ChannelRig) -> FakeWhatsApp:
    assert isinstance(rig.vendor, FakeWhatsApp)
    return rig.vendor


class TestWhatsApp(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_whatsapp()

    @play_scenario
    async def test_card_has_two_buttons_and_no_message_is_refused(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        await rig.report_event("reminded", replace(request, reminded=1))
        await rig.dispatch()
        await rig.decide_elsewhere(request)
        await rig.receive(rig.vendor.write(rig.bo, "hello"))
        assert fake(rig).refused == []
        kinds = [bubble.kind for bubble in fake(rig).bubbles if bubble.person == rig.bo]
        assert kinds == ["interactive", "interactive", "text", "text"]

    @play_scenario
    async def test_business_scoped_id_is_sent_as_recipient(self, rig: ChannelRig) -> None:
        """Treated as a number, it would be lost without an error."""
        await rig.ask()
        to = {bubble.person: bubble.sent for bubble in fake(rig).bubbles}
        assert (to[rig.bo]["recipient"], "to" in to[rig.bo]) == (rig.bo, False)
        assert (to[rig.ana]["to"], "recipient" in to[rig.ana]) == (rig.ana, False)

    @play_scenario
    async def test_person_with_a_hidden_number_is_recognised_and_answered(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        fake(rig).hidden.add(rig.bo)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).decided_by == "bo"
        entries = [bubble for bubble in fake(rig).bubbles if bubble.person == rig.bo][-1]
        assert entries.sent["recipient"] == rig.bo

    @play_scenario
    async def test_decider_gets_one_message(self, rig: ChannelRig) -> None:
        await rig.ask()
        cards = {card.to: fake(rig).bubble(card).name for card in rig.vendor.cards()}
        pressed_by_bo = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        await rig.receive(pressed_by_bo)
        bo, ana = ([each for each in fake(rig).bubbles if each.person == who] for who in (rig.bo, rig.ana))
        assert len(bo) == 2
        assert bo[1].about == json.loads(pressed_by_bo.body)["entry"][0]["changes"][0]["value"]["messages"][0]["id"]
        assert (len(ana), ana[1].about) == (2, cards[rig.ana])
        assert "Approved by Bo by WhatsApp" in ana[1].text

    @play_scenario
    async def test_silent_person_is_unreachable_without_a_template(self, rig: ChannelRig) -> None:
        """The card fails permanently with Meta's code, so that the next channel follows."""
        fake(rig).silent.add(rig.bo)
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "131047")
        assert "template" in row.message
        assert (await rig.delivery(request, "ana")).state == "sent"

    @play_scenario
    async def test_closing_message_outside_the_window_is_skipped(self, rig: ChannelRig) -> None:
        request = await rig.ask(timeout=200_000.0)
        rig.time.ahead = timedelta(hours=25)
        count = len(fake(rig).bubbles)
        await rig.decide_elsewhere(request)
        assert (len(fake(rig).bubbles), set(fake(rig).refused)) == (count, {131047})
        assert (await rig.delivery(request, "bo")).state == "closed"

    @play_scenario
    async def test_delivery_states_arrive_in_any_order_and_never_go_back(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        bubble = fake(rig).bubble(rig.card(rig.bo))
        entries = [fake(rig).status_body(bubble, state) for state in ("read", "delivered", "sent", "played", "read")]
        await rig.receive(fake(rig).body_request(*entries))
        assert (await rig.delivery(request, "bo")).state == "read"

    @play_scenario
    async def test_later_failure_is_stored_with_the_card(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        failed = fake(rig).status_body(fake(rig).bubble(rig.card(rig.bo)), "failed", 131026)
        await rig.receive(fake(rig).body_request(failed))
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code, row.message) == ("failed", "131026", ERRORS.meaning(131026))

    @play_scenario
    async def test_every_message_of_a_batch_is_processed(self, rig: ChannelRig) -> None:
        request = await rig.ask(quorum=2)
        vendor, bo, ana = fake(rig), rig.card(rig.bo), rig.card(rig.ana)
        parts: list[Mapping[str, Any]] = []
        for card, who in ((bo, rig.bo), (ana, rig.ana)):
            reply = {"type": "button_reply", "button_reply": {"id": f"signoff.approve.{card.token}", "title": "x"}}
            message = {"id": vendor.wamid(), "type": "interactive", "interactive": reply}
            parts += [vendor.value(who, message), {"messages": ["odd", {"id": 3}, {"type": "text"}]}]
        await rig.receive(vendor.body_request(*parts, vendor.status_body(vendor.bubble(bo), "delivered")))
        assert {vote.subject for vote in rig.request(request.id).votes} == {"bo", "ana"}

    @play_scenario
    async def test_message_to_another_number_is_ignored(self, rig: ChannelRig) -> None:
        await rig.ask()
        value = fake(rig).value(rig.bo, {"id": "wamid.x", "type": "text", "text": {"body": "approve"}})
        await rig.receive(fake(rig).body_request(value, number="1"), fake(rig).body_request(value, name="statuses"))
        assert rig.decisions.answers == []

    @play_scenario
    async def test_message_without_text_and_forwarded_message_decide_nothing(self, rig: ChannelRig) -> None:
        await rig.ask()
        name = fake(rig).bubble(rig.card(rig.bo)).name
        context = {"id": name, "forwarded": True}
        await rig.receive(
            fake(rig).message(rig.bo, "audio", audio={"id": "1", "formatter": True}),
            fake(rig).message(rig.bo, "image", image={"caption": "approve"}, context={"id": name}),
            fake(rig).message(rig.bo, "text", text={"body": "approve"}, context=context),
        )
        assert rig.decisions.answers == []
        assert rig.text_read_by(rig.bo).count(text("reply.not_understood", "en")) == 3

    @play_scenario
    async def test_approval_in_a_group_is_asked_back(self, rig: ChannelRig) -> None:
        await rig.ask()
        await rig.receive(fake(rig).message(rig.bo, "text", text={"body": "approve"}, group_id="g"))
        assert rig.decisions.answers == []
        assert text("reply.not_understood", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_reaction_to_an_open_card_is_asked_back(self, rig: ChannelRig) -> None:
        first, second = await rig.ask(1), await rig.ask(2)
        name = fake(rig).bubble(rig.card(rig.bo, show_code(first.code))).name
        await rig.receive(fake(rig).message(rig.bo, "reaction", reaction={"message_id": name, "emoji": "👍"}))
        assert rig.decisions.answers == []
        found = fake(rig).reads(rig.bo)[-1]
        assert text("reply.not_understood", "en") in found
        assert show_code(second.code) not in found

    @play_scenario
    async def test_removed_reaction_and_reaction_to_a_closed_card_get_no_reply(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        name = fake(rig).bubble(rig.card(rig.bo)).name
        before = len(fake(rig).reads(rig.bo))
        await rig.receive(fake(rig).message(rig.bo, "reaction", reaction={"message_id": name}))
        assert len(fake(rig).reads(rig.bo)) == before
        await rig.decide_elsewhere(request)
        before = len(fake(rig).reads(rig.bo))
        await rig.receive(fake(rig).message(rig.bo, "reaction", reaction={"message_id": name, "emoji": "👍"}))
        assert len(fake(rig).reads(rig.bo)) == before

    @play_scenario
    async def test_message_that_the_api_cannot_deliver_is_asked_back(self, rig: ChannelRig) -> None:
        await rig.ask()
        kinds = {
            "unsupported": {"errors": [{"code": 131051, "title": "Unsupported"}]},
            "button": {"button": {"payload": "Approve", "text": "Approve"}},
            "interactive": {"interactive": {"type": "nfm_reply", "nfm_reply": {"name": "flow"}}},
        }
        await rig.receive(*(fake(rig).message(rig.bo, kind, **content) for kind, content in kinds.items()))
        assert rig.decisions.answers == []
        assert rig.text_read_by(rig.bo).count(text("reply.not_understood", "en")) == len(kinds)

    @play_scenario
    async def test_check_names_the_number_and_the_address(self, rig: ChannelRig) -> None:
        findings = await rig.channel.check()
        assert all(finding.ok for finding in findings)
        page_text = " ".join(finding.what for finding in findings)
        assert all(part in page_text for part in ("Acme", "https://signoff.example/channels/channel", "template"))
        fake(rig).trouble = "down"
        assert [finding.ok for finding in await rig.channel.check()] == [False]


class TestTemplates(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_whatsapp(template=True)

    @play_scenario
    async def test_silent_person_gets_the_template_and_answers_with_it(self, rig: ChannelRig) -> None:
        """Its button opens the window, so that the reply can be sent."""
        fake(rig).silent.update((rig.bo, rig.ana))
        request = await rig.ask()
        bubble = fake(rig).bubble(rig.card(rig.bo))
        assert bubble.kind == "template"
        await rig.receive(fake(rig).press_request(bubble, rig.bo, "Deny", context=False))
        assert (rig.request(request.id).state, fake(rig).refused) == ("denied", [131047])
        assert text("receipt.accepted.denied", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_recent_writer_gets_buttons(self, rig: ChannelRig) -> None:
        await rig.receive(rig.vendor.write(rig.bo, "hello"))
        await rig.ask(1)
        rig.time.ahead = timedelta(hours=25)
        await rig.ask(2)
        kinds = [bubble.kind for bubble in fake(rig).bubbles if bubble.person == rig.bo and bubble.is_card]
        assert (kinds, fake(rig).refused) == (["interactive", "template"], [])

    @play_scenario
    async def test_template_is_sent_if_the_window_proves_closed(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.receive(rig.vendor.write(rig.bo, "hello"))
        vendor.silent.add(rig.bo)
        del vendor._wrote[rig.bo]
        await rig.ask(1)
        assert (vendor.bubbles[-1].kind, vendor.refused) == ("template", [131047])
        await rig.receive(rig.vendor.write(rig.bo, "hello again"))
        await rig.receive(vendor.body_request(vendor.status_body(vendor.bubble(rig.card(rig.bo)), "failed", 131047)))
        await rig.ask(2)
        assert vendor.refused == [131047]
        assert vendor.bubble(rig.card(rig.bo)).kind == "template"

    @play_scenario
    async def test_invalid_template_fails_with_its_code(self, rig: ChannelRig) -> None:
        fake(rig).templates = {(TEMPLATE, "en_US"): "Only {{1}} here."}
        first = await rig.ask(1)
        fake(rig).templates = {}
        second = await rig.ask(2)
        rows = [await rig.delivery(request, "bo") for request in (first, second)]
        assert [(row.state, row.code) for row in rows] == [("failed", "132000"), ("failed", "132001")]
        assert [finding.ok for finding in await rig.channel.check()] == [True, True, False]

    @play_scenario
    async def test_value_of_a_template_cannot_look_like_two(self, rig: ChannelRig) -> None:
        await rig.ask(args={"to": "Ana \u25aa Amount: 1", "amount": 9_000})
        rest = fake(rig).bubbles[-1].sent["template"]["components"][0]["parameters"][2]["text"]
        assert rest.split(" \u25aa ")[:2] == ["To: Ana \u25ab Amount: 1", "Amount: 9000"]

    @play_scenario
    async def test_template_accepts_any_letters(self, rig: ChannelRig) -> None:
        await rig.ask(args={f"n{number}": "🎉 \n\t     " * 40 for number in range(9)}, note="x")
        assert fake(rig).refused == []
        assert rig.vendor.cards()
        assert all(finding.ok for finding in await rig.channel.check())


def test_metas_address_check_returns_its_challenge() -> None:
    query = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}
    received = whatsapp().receive(InboundRequest(b"", query=query, method="GET"))
    assert (received.status, received.body, received.actions) == (200, b"1158201444", ())


@table(
    "query",
    {},
    {"hub.mode": "subscribe", "hub.challenge": "1"},
    {"hub.mode": "subscribe", "hub.verify_token": "another word", "hub.challenge": "1"},
    {"hub.mode": "unsubscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1"},
    {"hub.mode": "subscribe", "hub.verify_token": "é\udcff", "hub.challenge": "1"},
)
def test_foreign_address_check_is_forged(query: dict[str, str]) -> None:
    with pytest.raises(Forged):
        whatsapp().receive(InboundRequest(b"", query=query, method="GET"))


def test_signature_covers_the_original_bytes() -> None:
    """The same JSON in another notation is another body."""
    vendor = FakeWhatsApp()
    vendor.clock = lambda: NOW
    raw = vendor.write(vendor.identities[0], "naïve 🎉")
    assert b"\\u" in raw.body
    assert whatsapp().receive(raw).actions[0].text == "naïve 🎉"
    rewritten = json.dumps(json.loads(raw.body), ensure_ascii=False).encode()
    with pytest.raises(Forged):
        whatsapp().verify(dataclasses.replace(raw, body=rewritten))


@table("missing", "token", "app_secret", "verify_token", "phone_number_id")
def test_no_secret_may_be_empty(missing: str) -> None:
    with pytest.raises(ValidationError, match=missing):
        whatsapp(**{missing: ""})


def _read(messages: list[Mapping[str, Any]], contacts: Any = ()) -> InboundBatch:
    value = {"metadata": {"phone_number_id": NUMBER_ID}, "contacts": list(contacts), "messages": messages}
    entry = [{"changes": [{"field": "messages", "value": value}]}]
    body = json.dumps({"object": "whatsapp_business_account", "entry": entry}).encode()
    return read_payload(
        InboundRequest(body, {"content-type": "application/json; charset=utf-8"}), NUMBER_ID, ServiceWindow()
    )


@table(("kind", "unclear"), ("edit", "edited"), ("revoke", "deleted"))
def test_edited_and_revoked_messages_name_the_original(kind: str, unclear: str) -> None:
    change = {"original_message_id": "wamid.1", "message": {"type": "text", "text": {"body": "no"}}}
    message = {"id": "wamid.2", "from": "15550000002", "timestamp": "100", "type": kind, kind: change}
    (action,) = _read([message]).actions
    assert (action.key, action.changes, action.unclear) == ("wamid.2", "wamid.1", unclear)
    assert action.where == {"to": "15550000002"}


def _heard(message: Mapping[str, Any], contacts: Any = ()) -> tuple[str, str]:
    received = _read([message], contacts)
    return next(((each.identity, each.where["to"]) for each in received.actions), ("", ""))


def test_forwarded_button_decides_nothing() -> None:
    token = "a" * 26
    press = {"id": "m1", "from": "155", "type": "button", "button": {"payload": f"signoff.approve.{token}"}}
    [true] = _read([press]).actions
    assert (true.verdict, true.token) == ("approved", token)
    for sign in ("forwarded", "frequently_forwarded"):
        [action] = _read([press | {"context": {"id": "m0", sign: True}}]).actions
        assert (action.verdict, action.token, action.text, action.vendor_ids) == (None, "", "", ("m0",))


@table(
    ("sender", "contacts", "known"),
    ({"from": "155"}, [], ("155", "155")),
    ({"from": "155", "from_user_id": "US.1"}, [], ("US.1", "155")),
    ({"from": "155"}, [{"wa_id": "156", "user_id": "US.2"}, {"wa_id": "155", "user_id": "US.1"}], ("US.1", "155")),
    ({"from": "155"}, [{"wa_id": "156", "user_id": "US.2"}, {"wa_id": "157"}], ("155", "155")),
    ({"from": "155"}, [{"wa_id": "156", "user_id": "US.2"}], ("155", "155")),
    ({"from": "155"}, [{"user_id": "US.1"}], ("US.1", "155")),
    ({}, [{"user_id": "US.1"}], ("US.1", "US.1")),
    ({}, [{"wa_id": "155"}], ("155", "155")),
    ({}, [{"user_id": "US.1"}, {"user_id": "US.2"}], ("", "")),
    ({"from": 155, "from_user_id": ["US.1"]}, ["odd"], ("", "")),
)
def test_sender_is_identified_by_the_scoped_id_first(
    sender: Mapping[str, Any], contacts: list[Any], known: tuple[str, str]
) -> None:
    """Otherwise by the number. An ambiguous sender is unknown."""
    message = {"id": "wamid.1", "type": "text", "text": {"body": "yes"}, **sender}
    assert _heard(message, contacts) == known


def test_batch_is_read_in_linear_time() -> None:
    def read(size: int) -> None:
        messages = [{"id": f"m{n}", "from": f"1{n}", "type": "text", "text": {"body": "y"}} for n in range(size)]
        assert len(_read(messages, [{"wa_id": f"1{n}"} for n in range(size)]).actions) == size

    once, twice = (work(lambda size=size: read(size)) for size in (100, 200))  # type: ignore[misc]
    assert twice <= 2.2 * once


@table("body", b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000)
def test_body_without_an_object_is_malformed(body: bytes) -> None:
    for kind in ("application/json", "text/plain"):
        with pytest.raises(Malformed):
            read_payload(InboundRequest(body, {"content-type": kind}), NUMBER_ID, ServiceWindow())


@table(
    ("code", "status", "again", "after"),
    (190, 401, False, 0.0),
    (0, 401, False, 0.0),
    (10, 403, False, 0.0),
    (200, 403, False, 0.0),
    (299, 403, False, 0.0),
    (4, 400, True, 60.0),
    (80007, 400, True, 60.0),
    (130429, 400, True, 5.0),
    (131056, 400, True, 6.0),
    (131047, 400, False, 0.0),
    (131026, 400, False, 0.0),
    (131030, 400, False, 0.0),
    (131048, 400, False, 0.0),
    (131049, 400, False, 0.0),
    (132000, 400, False, 0.0),
    (132015, 400, False, 0.0),
    (131000, 500, True, 0.0),
    (131016, 503, True, 0.0),
    (999, 400, False, 0.0),
    (999, 500, True, 0.0),
    (None, 503, True, 0.0),
    (None, 404, False, 0.0),
    (None, 429, True, 1.0),
)
def test_error_codes_are_classified(code: int | None, status: int, again: bool, after: float) -> None:
    found = {} if code is None else {"error": {"code": code}}
    error = ERRORS.refusal(VendorAnswer(status, found))
    assert error is not None
    assert (error.code, error.again, error.after) == (str(code or (0 if code == 0 else status)), again, after)
    assert error.message
    later = ERRORS.refusal(VendorAnswer(status, found, 300.0))
    assert later is not None
    assert later.after == (300.0 if again else 0.0)


async def test_each_error_code_of_meta_is_a_delivery_error() -> None:
    async with fake_whatsapp() as vendor:
        vendor.clock = lambda: NOW
        channel = whatsapp(graph_url=vendor.url)
        for code, again in ((190, False), (130429, True), (131016, True)):
            vendor.refuse_with = code
            with pytest.raises(NotDelivered) as caught:
                await channel.answer({"to": vendor.identities[0]}, ChannelReply(text="x"))
            assert (caught.value.code, caught.value.again) == (str(code), again)
        vendor.refuse_with = 0
        await channel.answer({"to": vendor.identities[0]}, ChannelReply(text="x" * 9_000))
        assert units(vendor.bubbles[0].text) == 4_096
        for wrong in (whatsapp(graph_url=vendor.url, token="other"), whatsapp(graph_url="http://127.0.0.1:9")):
            with pytest.raises(NotDelivered):
                await wrong.answer({"to": vendor.identities[0]}, ChannelReply(text="x"))
            await wrong.close_down()
        await channel.close_down()


@table("address", "+15550000001", "1555 000", "US.", "us.1", "US.1.2", "", "\u0665" * 6, "15550000001\n")
async def test_invalid_address_gets_no_message(address: str) -> None:
    assert recipient(address) is None
    with pytest.raises(NotDelivered) as caught:
        await whatsapp().answer({"to": address}, ChannelReply(text="x"))
    assert (caught.value.code, caught.value.again) == ("address", False)


def test_markup_of_whatsapp_is_escaped() -> None:
    found = plain("~500~ *bold* _x_ `a`b ```c``` snake_case 2*3 https://e.example/a_b_?c=*~ **")
    assert "∼500∼ ∗bold∗ ˍxˍ ˋaˋb" in found  # noqa: RUF001
    assert "snake_case 2*3 https://e.example/a_b_?c=*~ ∗∗" in found  # noqa: RUF001


def test_long_text_is_truncated_to_the_limit() -> None:
    for words in ("x" * 5_000, "🎉" * 5_000, "x🎉" * 5_000):
        body = text_message(words)["text"]["body"]
        assert 4_000 < units(body) <= 4_096
        assert body.endswith("…")


def test_button_titles_fit_in_every_language() -> None:
    for language in language_codes():
        titles = {text(key, language) for key in ("button.approve", "button.deny")}
        assert len(titles) == 2
        assert all(0 < units(title) <= 20 for title in titles)


@table("payload", "", "signoff.approve.", "signoff.approve.UP", "approve", "signoff.open.a", "Deny")
def test_foreign_buttons_are_ignored(payload: str) -> None:
    assert read_button(payload) is None
    assert read_button("signoff.deny.abc2") == ("denied", "abc2")


def test_service_window_is_open_for_a_day_and_drops_the_oldest() -> None:
    window = ServiceWindow()
    window.note_message("a", SENT)
    window.note_message("a", SENT - 90_000)
    assert window.is_open("a", SENT + 80_000)
    assert not window.is_open("a", SENT + 86_400)
    assert not window.is_open("b", SENT)
    for number in range(20_000):
        window.note_message(str(number), SENT)
    assert not window.is_open("a", SENT)
    window.shut("7")
    window.shut("nobody")
    assert [window.is_open(name, SENT) for name in ("6", "7")] == [True, False]


def test_template_language_follows_the_person_with_a_fallback() -> None:
    languages = {"en": "en_US", "de": "de", "pt-BR": "pt_BR"}
    entries = [template_language(languages, locale) for locale in ("pt_br", "de-AT", "pt-PT", "")]
    assert entries == ["pt_BR", "de", "en_US", "en_US"]


def test_template_equals_the_documented_one() -> None:
    assert f"```text\n{BODY}\n```" in page("docs/channels.md")


@table(
    ("changes", "ok"),
    ({}, True),
    ({"status": "PAUSED"}, False),
    ({"language": "de"}, False),
    ({"components": [{"type": "BODY", "text": BODY}]}, False),
    ({"components": "odd"}, False),
)
def test_template_is_checked_by_status_language_and_form(changes: Mapping[str, Any], ok: bool) -> None:
    buttons = [{"type": "QUICK_REPLY"}, {"type": "QUICK_REPLY"}]
    parts = [{"type": "BODY", "text": BODY}, {"type": "BUTTONS", "buttons": buttons}]
    template = {"name": "t", "language": "en", "status": "APPROVED", "components": parts, **changes}
    findings = check_templates("t", ["en", "en"], {"data": [template, "odd"]})
    assert [finding.ok for finding in findings] == [ok]
    assert check_templates("t", ["en"], {"data": "odd"})[0].remedy
