import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tables import table

from signoff.channels.base import ChannelContext, Receive
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.channel_loader import read_options
from signoff.channels.envelopes import ChannelReply, ClosedCard, InboundBatch, InboundRequest, SentCard
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.formats.replace import replace
from signoff.keys.secrets import SecretProvider
from signoff.languages.catalogue import text
from signoff.plugins.telegram.cards import ALERT_UNITS, TEXT_UNITS, cut_words, read_button
from signoff.plugins.telegram.plugin import Telegram, TelegramBot
from signoff.testing.channel_cards import play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_telegram import HEADER, TOKEN, WEBHOOK_SECRET, FakeTelegram, fake_telegram
from signoff.testing.rig import ChannelRig
from signoff.testing.room_suite import RoomSuite
from signoff.testing.vendor import Vendor

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def telegram(**options: Any) -> Telegram:
    given = {"token": TOKEN, "webhook_secret": WEBHOOK_SECRET, **options}
    return Telegram(ChannelContext("telegram", given, "https://signoff.example", lambda: NOW, b"own"))


def fake(rig: ChannelRig) -> FakeTelegram:
    assert isinstance(rig.vendor, FakeTelegram)
    return rig.vendor


class TestTelegramRooms(RoomSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_telegram()

    @play_scenario
    async def test_show_sends_the_card_to_the_private_chat_of_its_presser(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        await rig.receive(vendor.press_room(vendor.room_cards()[0], rig.bo, "show"))
        assert [str(each.chat) for each in vendor.messages] == [vendor.room, rig.bo]
        assert vendor.alerts[0][0] == rig.bo
        await rig.receive(vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).decided_by == "bo"
        assert "Approved by Bo" in vendor.room_cards()[0].text
        assert vendor.refused == []


class TestTelegram(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_telegram()

    @play_scenario
    async def test_card_is_plain_text_whose_two_buttons_disappear_at_its_end(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask(args={"to": "<b>*Bo*</b>"})
        mine = [each for each in vendor.messages if str(each.chat) == rig.bo]
        token = (await rig.delivery(request, "bo")).token
        assert [each["callback_data"] for each in mine[0].buttons] == [f"a:{token}", f"d:{token}"]
        assert "<b>*Bo*</b>" in mine[0].text
        await rig.decide_elsewhere(request)
        assert len([each for each in vendor.messages if str(each.chat) == rig.bo]) == 1
        assert mine[0].buttons == []
        assert mine[0].text.startswith("Approved by Ana")
        assert vendor.refused == []
        assert not any("parse_mode" in body for _, body in vendor.calls)
        texts = [body for method, body in vendor.calls if method != "getMe"]
        assert all(body["link_preview_options"] == {"is_disabled": True} for body in texts)

    @play_scenario
    async def test_button_press_is_answered_once_by_an_alert(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask(quorum=2)
        await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert [who for who, _ in vendor.alerts] == [rig.bo]
        assert text("receipt.counted", "en", n=1, of=2) in vendor.alerts[0][1]
        assert vendor.queries == {}
        assert len(vendor.messages) == 2

    @play_scenario
    async def test_answer_too_long_for_an_alert_is_also_sent_as_a_message(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask()
        update = vendor.press_update(rig.card(rig.bo), rig.bo, "a")
        query = update["callback_query"]["id"]
        words = "🎉" * 150 + " See https://signoff.example/x"
        await rig.channel.answer({"query": query, "chat": int(rig.bo)}, ChannelReply(text=words))
        assert vendor.alerts[0][1].endswith("…")
        assert vendor.messages[-1].text == words

    @play_scenario
    async def test_late_answer_to_a_press_is_sent_as_a_message(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        raw = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        vendor.queries.clear()
        await rig.receive(raw)
        assert rig.request(request.id).state == "approved"
        assert text("receipt.accepted.approved", "en") in vendor.messages[-1].text
        assert (vendor.alerts, vendor.messages[-1].chat) == ([], int(rig.bo))

    @play_scenario
    async def test_press_in_a_group_counts_for_its_author(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        chat = {"message_id": 5, "date": 0, "chat": {"id": -100, "type": "supergroup"}}
        await rig.receive(vendor.update_request(vendor.press_update(card, rig.cy, "a", message=chat)))
        assert rig.request(request.id).votes == ()
        assert {who for who, _ in vendor.alerts} == {rig.cy}
        pressed_there = vendor.press_update(card, rig.bo, "a", message=chat)
        await rig.receive(vendor.update_request(pressed_there))
        assert rig.request(request.id).decided_by == "bo"

    @play_scenario
    async def test_reminder_replies_to_its_card_without_buttons(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        card = vendor.message_of(rig.card(rig.bo))
        await rig.report_event("reminded", replace(request, reminded=1))
        await rig.dispatch()
        mine = [each for each in vendor.messages if str(each.chat) == rig.bo]
        assert (mine[1].about, mine[1].buttons) == (card.number, [])
        vendor.messages.clear()
        await rig.report_event("reminded", replace(request, reminded=2))
        await rig.dispatch()
        assert len(vendor.messages) == 2

    @play_scenario
    async def test_repeated_end_of_a_card_is_accepted(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        await rig.decide_elsewhere(request)
        row = await rig.delivery(request, "bo")
        message = next(each for each in vendor.messages if str(each.chat) == rig.bo)
        card = await rig.outbound_card(row)
        closed = ClosedCard(request=row.request, person=card.person, token=row.token, link=card.link)
        sent = SentCard(vendor_id=row.vendor_id, handle=row.handle)
        await rig.channel.close(sent, closed)
        assert "not modified" in vendor.refused[-1]
        vendor.messages.remove(message)
        with pytest.raises(NotDelivered, match="not found") as caught:
            await rig.channel.close(sent, closed)
        assert not caught.value.again

    @play_scenario
    async def test_close_of_an_unacknowledged_card_sends_a_new_message(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        card = await rig.outbound_card(row)
        ended = replace(row.request, state="denied", decided_by="ana", decided_name="Ana")
        closed = ClosedCard(request=ended, person=card.person, token=row.token, link=card.link, address=row.address)
        before = len(vendor.messages)
        await rig.channel.close(SentCard(), closed)
        *_, message = vendor.messages
        assert len(vendor.messages) == before + 1
        assert str(message.chat) == rig.bo
        assert "Denied by Ana" in message.text

    @play_scenario
    async def test_person_who_blocked_the_bot_falls_to_the_next_channel(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        vendor.blocked.add(int(rig.bo))
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "403")
        assert "blocked by the user" in row.message
        card = await rig.outbound_card(row)
        for address, code in (("4242", "400"), ("@bo", "address"), ("-100123", "address"), ("1002 ", "address")):
            with pytest.raises(NotDelivered) as caught:
                await rig.channel.deliver(replace(card, address=address), None)
            assert (caught.value.code, caught.value.again) == (code, False)

    @play_scenario
    async def test_busy_vendor_gives_its_retry_delay(self, rig: ChannelRig) -> None:
        await rig.ask()
        rig.vendor.trouble = "busy"
        with pytest.raises(NotDelivered) as caught:
            await rig.channel.answer({"chat": int(rig.bo)}, ChannelReply(text="x"))
        assert (caught.value.after, caught.value.again) == (30.0, True)

    @play_scenario
    async def test_bot_command_decides_nothing(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        await rig.receive(rig.vendor.write(rig.bo, "/yes"), rig.vendor.write(rig.bo, "/approve"))
        assert rig.request(request.id).state == "pending"
        assert text("reply.not_understood", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_check_shows_the_webhook_address(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        before = await rig.channel.check()
        assert [finding.ok for finding in before] == [True, False]
        await rig.channel.listen(never)
        assert vendor.calls[-1][1]["secret_token"] == WEBHOOK_SECRET
        assert vendor.webhook["url"] == "https://signoff.example/channels/channel"
        assert vendor.webhook["allowed_updates"] == ["message", "edited_message", "callback_query"]
        after = await rig.channel.check()
        assert [finding.ok for finding in after] == [True, True]
        vendor.webhook["last_error_message"] = "Wrong response from the webhook: 502 Bad Gateway"
        assert "502" in (await rig.channel.check())[1].what

    @play_scenario
    async def test_token_is_never_logged(self, rig: ChannelRig) -> None:
        listener, root = Listener(), logging.getLogger()
        level, seen = root.level, listener.lines
        root.addHandler(listener)
        root.setLevel(logging.DEBUG)
        try:
            await rig.ask()
            rig.vendor.trouble = "down"
            for bot in (
                TelegramBot(TOKEN, fake(rig).url),
                TelegramBot(TOKEN, "http://127.0.0.1:9"),
                TelegramBot("1:wrong", fake(rig).url),
            ):
                with pytest.raises(NotDelivered) as caught:
                    await bot.call("getMe", {})
                seen.append(f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}")
                await bot.close()
        finally:
            root.removeHandler(listener)
            root.setLevel(level)
        assert any("HTTP Request" in each for each in seen)
        secret = TOKEN.partition(":")[2]
        assert not any(secret in each or "wrong" in each for each in seen)


class TestFetching:
    async def test_fetched_update_is_kept_and_not_fetched_again(self) -> None:
        async with polled() as (vendor, channel):
            vendor.webhook = {"url": "https://elsewhere.example"}
            for update in (press("q1"), {"callback_query": {"id": "", "data": "a:t"}}, press("q2")):
                vendor.queue_update(update)
            taken: list[InboundRequest] = []
            messages: list[str] = []

            async def take(raw: InboundRequest) -> InboundBatch:
                taken.append(raw)
                received = channel.receive(raw)
                messages.extend(each.key for each in received.actions)
                return received

            await listening(channel, take, lambda: vendor.updates == [])
            assert messages == ["press:q1", "press:q2"]
            assert len(taken) == 3
            asked = [body for method, body in vendor.calls if method == "getUpdates"]
            assert [body["offset"] for body in asked[:2]] == [0, 4]
            assert asked[0]["allowed_updates"] == ["message", "edited_message", "callback_query"]
            for forged in (dataclasses.replace(taken[0], body=taken[0].body + b" "), InboundRequest(taken[0].body, {})):
                with pytest.raises(Forged):
                    channel.verify(forged)

    async def test_update_that_could_not_be_kept_is_fetched_again(self) -> None:
        async with polled() as (vendor, channel):
            for name in ("q1", "q2"):
                vendor.queue_update(press(name))
            taken: list[str] = []

            async def fail(raw: InboundRequest) -> InboundBatch:
                received = channel.receive(raw)
                taken.extend(each.key for each in received.actions)
                if len(taken) == 2:
                    raise StoreUnavailable("gone")
                return received

            with pytest.raises(StoreUnavailable):
                await channel.listen(fail)
            assert len(vendor.updates) == 2
            await listening(channel, fail, lambda: vendor.updates == [])
            assert taken == ["press:q1", "press:q2", "press:q1", "press:q2"]

    async def test_second_fetcher_is_reported_as_a_conflict(self) -> None:
        async with polled() as (vendor, channel):
            vendor.clinging = True
            vendor.webhook = {"url": "https://elsewhere.example"}
            with pytest.raises(NotDelivered, match="Conflict") as caught:
                await channel.listen(never)
            assert (caught.value.code, caught.value.again) == ("409", True)

    async def test_check_shows_the_obstacle_to_fetching(self) -> None:
        async with polled() as (vendor, channel):
            assert [finding.ok for finding in await channel.check()] == [True, True]
            vendor.webhook = {"url": "https://elsewhere.example"}
            found = await channel.check()
            assert (found[1].ok, "elsewhere" in found[1].what) == (False, True)
            given = {"token": TOKEN, "webhook_secret": WEBHOOK_SECRET, "api_url": vendor.url}
            plain = Telegram(ChannelContext("telegram", given, "http://localhost:8300", lambda: NOW, b"own"))
            assert "TLS" in (await plain.check())[1].what
            with pytest.raises(NotDelivered, match="HTTPS"):
                await plain.listen(never)
            await plain.close_down()

    async def test_inbound_request_without_a_webhook_secret_is_forged(self) -> None:
        channel = telegram(webhook_secret="")
        for secret in ("", WEBHOOK_SECRET):
            with pytest.raises(Forged):
                channel.verify(InboundRequest(b"{}", {HEADER: secret}))


@table(
    ("group", "standing", "said"),
    ({}, {}, ""),
    ({}, {"status": "administrator"}, ""),
    ({"permissions": {"can_send_messages": False}}, {"status": "administrator"}, ""),
    ({"permissions": {"can_send_messages": False}}, {}, "may not write"),
    ({}, {"status": "restricted", "is_member": True, "can_send_messages": True}, ""),
    ({}, {"status": "restricted", "is_member": True, "can_send_messages": False}, "may not write"),
    ({}, {"status": "restricted", "is_member": False, "can_send_messages": True}, "may not write"),
    ({}, {"status": "kicked"}, "bot was kicked from the supergroup chat"),
    ({}, {"status": "left"}, "bot is not a member of the supergroup chat"),
    ({"username": "finance"}, {"status": "left"}, "no member"),
    ({"type": "group"}, {}, ""),
    ({"type": "group", "upgraded": True}, {}, "upgraded to a supergroup"),
    ({"type": "channel"}, {"status": "administrator", "can_post_messages": True}, ""),
    ({"type": "channel"}, {"status": "administrator"}, "may not write"),
)
async def test_check_of_a_room_reports_a_bot_that_cannot_write(
    group: dict[str, Any], standing: dict[str, Any], said: str
) -> None:
    async with polled() as (vendor, channel):
        vendor.group, vendor.standing = group, standing
        found = await channel.check_room(vendor.room)
        assert (found.ok, said in found.what, found.remedy != "") == (said == "", True, said != "")
        unknown = await channel.check_room("-100888")
        assert (unknown.ok, "chat not found" in unknown.what) == (False, True)
        vendor.trouble = "down"
        assert (await channel.check_room(vendor.room)).remedy == "try again"
        assert vendor.messages == []


@asynccontextmanager
async def polled() -> AsyncIterator[tuple[FakeTelegram, Telegram]]:
    async with fake_telegram(polled=True) as vendor:
        vendor.clock = lambda: NOW
        channel = telegram(webhook_secret="", api_url=vendor.url)
        yield vendor, channel
        await channel.close_down()


async def listening(channel: Telegram, take: Receive, done: Callable[[], bool]) -> None:
    task = asyncio.create_task(channel.listen(take))
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def never(raw: InboundRequest) -> InboundBatch:
    raise AssertionError("nothing was to be taken")


def press(name: str, **more: Any) -> dict[str, Any]:
    return {"callback_query": {"id": name, "from": {"id": 1002}, "data": "a:t"} | more}


def read(update: Any) -> InboundBatch:
    body = json.dumps(update).encode()
    return telegram().receive(InboundRequest(body, {"content-type": "application/json", HEADER: WEBHOOK_SECRET}))


def test_press_is_keyed_by_its_id_and_a_message_by_its_number() -> None:
    message = {"message_id": 7, "from": {"id": 1002}, "chat": {"id": 1002, "type": "private"}, "text": "yes"}
    about = {**message, "reply_to_message": {"message_id": 5}}
    for number in (1, 900):
        actions = [read({"update_id": number, **each}).actions[0] for each in (press("q"), {"message": message})]
        assert [each.key for each in actions] == ["press:q", "message:1002:7"]
        assert [each.identity for each in actions] == ["1002", "1002"]
    assert read({"message": about}).actions[0].vendor_ids == ("1002:5",)


@table(
    "update",
    press(""),
    press("q", id=7),
    press("q", **{"from": None}),
    press("q", **{"from": {"id": "1002"}}),
    press("q", **{"from": {"id": True}}),
    {"message": {"message_id": 1, "chat": {"id": 1, "type": "private"}, "text": "yes"}},
    {"message": {"from": {"id": 1}, "chat": {"id": 1, "type": "private"}, "text": "yes"}},
    {"message": {"message_id": 1, "from": {"id": 1}, "chat": {"type": "private"}, "text": "yes"}},
)
def test_update_without_an_author_is_malformed(update: Any) -> None:
    with pytest.raises(Malformed):
        read(update)


@table("data", "a:", "a:T", "x:t", "a:t ", "a:t\n", "a:" + "t" * 33, "at", "", "A:t")
def test_unknown_button_is_ignored(data: str) -> None:
    assert read_button(data) is None


def test_cut_text_fits_telegrams_count() -> None:
    for words in ("x" * 5_000, "🎉" * 3_000, "x🎉" * 2_000):
        for limit in (ALERT_UNITS, TEXT_UNITS):
            shown = cut_words(words, limit)
            assert limit - 4 < len(shown.encode("utf-16-le")) // 2 <= limit
            assert words.startswith(shown[:-1])
    assert cut_words("short", ALERT_UNITS) == "short"


@table(
    "options",
    {"token": ""},
    {"token": "123/../x"},
    {"token": "123:abc?x"},
    {"webhook_secret": "short"},
    {"webhook_secret": "a secret with spaces in it"},
    {"api_url": "ftp://x"},
)
async def test_invalid_option_is_refused_without_its_value(options: dict[str, Any]) -> None:
    given = {"token": TOKEN, **options}
    with pytest.raises(ConfigError) as caught:
        await read_options(Telegram, given, SecretProvider(environment={}))
    name, value = next(iter(options.items()))
    assert name in caught.value.message
    assert not value or value not in caught.value.message


class Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.exc_info}")


@table(
    ("more", "unclear"),
    ({"text": "yes"}, ""),
    ({"voice": {"file_id": "v"}}, "attachment"),
    ({"photo": [], "caption": "yes"}, "attachment"),
    ({"sticker": {"emoji": "👍"}}, "attachment"),
    ({"text": "yes", "via_bot": {"id": 9}}, "attachment"),
    ({"text": "yes", "forward_date": 1}, "attachment"),
)
def test_message_without_complete_text_is_asked_back(more: dict[str, Any], unclear: str) -> None:
    message = {"message_id": 5, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7}, **more}
    (action,) = read({"update_id": 1, "message": message}).actions
    assert (action.text, action.unclear) == ("" if unclear else "yes", unclear)


def test_service_message_is_ignored() -> None:
    message = {
        "message_id": 5,
        "date": 1,
        "chat": {"id": 7, "type": "private"},
        "from": {"id": 7},
        "pinned_message": {},
    }
    assert read({"update_id": 1, "message": message}) == InboundBatch()


def test_edited_message_names_the_message_it_changes() -> None:
    message = {
        "message_id": 7,
        "from": {"id": 1002},
        "chat": {"id": 1002, "type": "private"},
        "date": 100,
        "text": "yes",
    }
    found = []
    for update in ({"message": message}, {"edited_message": {**message, "text": "no", "edit_date": 160}}):
        found += read({"update_id": 1, **update}).actions
    first, second = found
    assert (second.changes, second.unclear, second.identity) == (first.key, "edited", first.identity)
    assert second.key != first.key
    assert second.said_at is not None
    assert second.said_at.timestamp() == 160
