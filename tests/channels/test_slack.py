import asyncio
import dataclasses
import json
import urllib.parse
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.models.blocks import Block as SlackBlock
from slack_sdk.models.views import View
from tables import table
from websockets.asyncio.server import ServerConnection, serve

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import InboundBatch, InboundRequest
from signoff.channels.slack.payloads import event, interaction, read_payload
from signoff.channels.slack.slack import Slack
from signoff.contracts.errors import ConfigError, StoreUnavailable
from signoff.contracts.ids import show_code
from signoff.languages.catalogue import text
from signoff.testing.channel_cards import open_rig, play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_slack import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, FakeSlack, fake_slack
from signoff.testing.rig import ChannelRig
from signoff.testing.room_suite import RoomSuite
from signoff.testing.vendor import Vendor


def slack(at: datetime, **options: Any) -> Slack:
    given = {"token": "xoxb-fake", "signing_secret": SIGNING_SECRET, **options}
    return Slack(ChannelContext("slack", given, "https://signoff.example", lambda: at, b"own"))


def fake(rig: ChannelRig) -> FakeSlack:
    assert isinstance(rig.vendor, FakeSlack)
    return rig.vendor


def buttons(vendor: FakeSlack) -> list[dict[str, Any]]:
    blocks = (block for message in vendor.messages for block in message.blocks)
    return [element for block in blocks for element in block.get("elements", ())]


class TestSlack(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_slack()

    @play_scenario
    async def test_sent_blocks_match_slacks_schema(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        first = [list(message.blocks) for message in vendor.messages]
        await rig.decide_elsewhere(request)
        for blocks in (*first, *(message.blocks for message in vendor.messages)):
            parsed = SlackBlock.parse_all(blocks)
            assert len(parsed) == len(blocks)
            for block in parsed:
                block.validate_json()
        assert vendor.refused == []

    @play_scenario
    async def test_editable_request_has_an_edit_link(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask(1, edit="approve")
        await rig.ask(2)
        links = [each["url"] for each in buttons(vendor) if each["action_id"] == "signoff.change"]
        assert links == [f"https://signoff.example/approvals/{request.id}/edit"] * 2

    @play_scenario
    async def test_denial_asks_for_a_reason_in_a_window_and_decides_with_it(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        await rig.receive(vendor.press_request(card, rig.bo, "signoff.deny"))
        assert rig.decisions.answers == []
        assert text("button.why", "en") in rig.text_read_by(rig.bo)
        view = vendor.windows[0]
        View(**{name: value for name, value in view.items() if name != "user"}).validate_json()
        assert json.loads(view["private_metadata"])["token"] == card.token
        await rig.receive(vendor.press(card, rig.bo, "denied", "too expensive"))
        assert (rig.request(request.id).state, rig.request(request.id).reason) == ("denied", "too expensive")

    @play_scenario
    async def test_button_opens_a_window_for_a_question_to_the_agent(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        await rig.receive(vendor.press_request(card, rig.bo, "signoff.ask"))
        assert rig.request(request.id).messages == ()
        view = vendor.windows[0]
        View(**{name: value for name, value in view.items() if name != "user"}).validate_json()
        assert (view["callback_id"], view["submit"]["text"]) == ("signoff.ask", text("ask.send", "en"))
        await rig.receive(vendor.submit(card, rig.bo, "signoff.ask", " ok, &lt;why&gt;? "))
        asked = rig.request(request.id)
        assert [(each.by, each.subject, each.text) for each in asked.messages] == [("approver", "bo", "ok, <why>?")]
        assert (asked.state, rig.decisions.answers) == ("pending", [])

    @play_scenario
    async def test_empty_question_asks_nothing(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        await rig.receive(fake(rig).submit(rig.card(rig.bo), rig.bo, "signoff.ask", "  "))
        assert (rig.request(request.id).messages, rig.request(request.id).state) == ((), "pending")

    @play_scenario
    async def test_card_of_a_request_that_takes_no_questions_has_no_button_for_one(self, rig: ChannelRig) -> None:
        await rig.ask(1)
        await rig.ask(2, kind="in_doubt")
        asks = [each for each in buttons(fake(rig)) if each["action_id"] == "signoff.ask"]
        assert len(asks) == 2

    @play_scenario
    async def test_denial_window_requires_a_reason_only_if_the_policy_does(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        for number, required in enumerate((True, False), 1):
            request = await rig.ask(number, require_reason=required)
            card = rig.card(rig.bo, show_code(request.code))
            await rig.receive(vendor.press_request(card, rig.bo, "signoff.deny"))
        fields = [block["optional"] for view in vendor.windows for block in view["blocks"]]
        assert fields == [False, True]

    @play_scenario
    async def test_expired_trigger_gets_a_text_reply(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask()
        pressed = vendor.press_request(rig.card(rig.bo), rig.bo, "signoff.deny")
        vendor._triggers.clear()
        await rig.receive(pressed)
        assert vendor.windows == []
        assert "deny" in vendor.messages[-1].text
        assert vendor.messages[-1].ephemeral

    @play_scenario
    async def test_closed_card_has_only_the_link_button(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        count = len(vendor.messages)
        await rig.decide_elsewhere(request)
        assert len(vendor.messages) == count
        assert {each["action_id"] for each in buttons(vendor)} == {"signoff.open"}


class TestSlackRooms(RoomSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_slack()

    @play_scenario
    async def test_approver_decides_in_the_dialog_that_the_room_opened(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        await rig.receive(vendor.press_room(vendor.room_cards()[0], rig.bo, "show"))
        view = vendor.windows[0]
        View(**{name: value for name, value in view.items() if name != "user"}).validate_json()
        assert vendor.messages == []
        await rig.receive(vendor.press_view(rig.bo, "signoff.approve"))
        assert rig.request(request.id).decided_by == "bo"
        assert "Approved" in rig.text_read_by(rig.bo)
        assert "Approved by Bo" in vendor.room_cards()[0].text
        assert vendor.refused == []

    @play_scenario
    async def test_denial_in_the_dialog_asks_for_a_reason_on_top_of_it(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        await rig.receive(vendor.press_room(vendor.room_cards()[0], rig.bo, "show"))
        await rig.receive(vendor.press_view(rig.bo, "signoff.deny"))
        assert len(vendor.windows) == 2
        await rig.receive(vendor.submit_view(rig.bo, "too expensive"))
        assert (rig.request(request.id).state, rig.request(request.id).reason) == ("denied", "too expensive")
        assert "Payee 1" not in vendor.room_cards()[0].text
        assert vendor.refused == []

    @play_scenario
    async def test_question_in_the_dialog_is_written_on_top_of_it(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        await rig.receive(vendor.press_room(vendor.room_cards()[0], rig.bo, "show"))
        await rig.receive(vendor.press_view(rig.bo, "signoff.ask"))
        assert [view["callback_id"] for view in vendor.windows] == ["signoff.open", "signoff.ask"]
        await rig.receive(vendor.submit_view(rig.bo, "Why?"))
        assert [each.text for each in rig.request(request.id).messages] == ["Why?"]
        assert (rig.request(request.id).state, vendor.refused) == ("pending", [])

    @play_scenario
    async def test_dialog_of_another_person_decides_only_for_its_presser(self, rig: ChannelRig) -> None:
        """A forged or copied button value counts as its presser's answer."""
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        card = vendor.room_cards()[0]
        await rig.receive(vendor.press_room(card, rig.bo, "show"))
        pressed = vendor.press_view(rig.bo, "signoff.approve")
        for identity in (rig.stranger, rig.cy, "T2:UBO"):
            form = urllib.parse.parse_qs(pressed.body.decode())
            payload = json.loads(form["payload"][0])
            team, _, user = identity.partition(":")
            payload["user"] = {"id": user, "team_id": team}
            await rig.receive(vendor.interaction(payload))
        assert rig.request(request.id).votes == ()

    @play_scenario
    async def test_token_of_a_room_card_decides_nothing(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        card = vendor.room_cards()[0]
        await rig.receive(vendor.press(card, rig.bo, "denied", "no"))
        payload = json.loads(urllib.parse.parse_qs(vendor.press_room(card, rig.bo, "take").body.decode())["payload"][0])
        payload["actions"][0]["action_id"] = "signoff.approve"
        await rig.receive(vendor.interaction(payload))
        assert (rig.request(request.id).state, rig.decisions.answers) == ("pending", [])

    @play_scenario
    async def test_late_trigger_gets_the_link_in_words_to_its_presser_alone(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        pressed = vendor.press_room(vendor.room_cards()[0], rig.bo, "show")
        vendor._triggers.clear()
        await rig.receive(pressed)
        assert vendor.windows == []
        assert [each.ephemeral for each in vendor.messages] == [True]
        assert request.id in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_dialog_without_every_value_takes_no_approval(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False, args={"items": [{"pieces": number} for number in range(40)]})
        await rig.receive(vendor.press_room(vendor.room_cards()[0], rig.bo, "show"))
        with pytest.raises(StopIteration):
            vendor.press_view(rig.bo, "signoff.approve")
        pressed = vendor.press_view(rig.bo, "signoff.deny")
        payload = json.loads(urllib.parse.parse_qs(pressed.body.decode())["payload"][0])
        payload["actions"][0]["action_id"] = "signoff.approve"
        await rig.receive(vendor.interaction(payload))
        assert rig.request(request.id).votes == ()
        assert text("reply.unseen", "en") in rig.text_read_by(rig.bo)


def test_published_slack_signature_verifies() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    then = datetime.fromtimestamp(1531420618, UTC)
    channel = slack(then, signing_secret="8f742231b10e8888abcd99yyyzzz85a5")
    channel.verify(InboundRequest(body, headers))
    late = slack(datetime.fromtimestamp(1531420618 + 301, UTC))
    for wrong in (late, slack(then, signing_secret="other"), slack(then, signing_secret="", app_token="xapp-1")):
        with pytest.raises(Forged):
            wrong.verify(InboundRequest(body, headers))


@table(
    "headers",
    {},
    {"x-slack-request-timestamp": "x", "x-slack-signature": "v0=1"},
    {"x-slack-request-timestamp": "١٥٣١٤٢٠٦١٨", "x-slack-signature": "v0=1"},
    {"x-slack-request-timestamp": "9" * 400, "x-slack-signature": "v0=1"},
    {"x-slack-request-timestamp": "1531420618", "x-slack-signature": "v0=ä\ud800"},
    {"x-signoff-fetched": "ä"},
    {"x-signoff-fetched": ""},
)
def test_malformed_signature_is_forged(headers: dict[str, str]) -> None:
    with pytest.raises(Forged):
        slack(datetime.fromtimestamp(1531420618, UTC)).verify(InboundRequest(b"\xff", headers))


def test_channel_without_a_signing_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="signing_secret"):
        slack(datetime.now(UTC), signing_secret="")


def test_guest_is_identified_by_their_own_workspace() -> None:
    payload = {
        "type": "block_actions",
        "team": {"id": "T1"},
        "user": {"id": "UBO", "team_id": "T9"},
        "actions": [{"action_id": "signoff.approve", "value": "t", "action_ts": "1.1"}],
    }
    assert [each.identity for each in interaction(payload).actions] == ["T9:UBO"]


def test_interaction_without_a_user_is_malformed() -> None:
    with pytest.raises(Malformed):
        interaction({"type": "block_actions", "actions": [{"action_id": "signoff.approve"}]})
    with pytest.raises(Malformed):
        event({"type": "event_callback", "event": {"type": "message", "channel_type": "im", "text": "yes"}})


def test_url_verification_returns_the_challenge() -> None:
    raw = InboundRequest(b'{"type": "url_verification", "challenge": "3eZ"}', {"content-type": "application/json"})
    assert read_payload(raw).body == b"3eZ"


@table("body", b"payload=", b"payload=%7B", b"payload=1&payload=2", b"x=1", b"", b"\xff")
def test_form_without_one_payload_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_payload(InboundRequest(body, {"content-type": "application/x-www-form-urlencoded"}))


class TestSocket:
    async def test_socket_message_is_stored_and_then_acknowledged(self) -> None:
        entries: list[Any] = []

        async def bring(socket: ServerConnection) -> None:
            await socket.send(json.dumps({"type": "hello"}))
            for number, payload in enumerate((_PRESS, _PRESS, {"type": "view_closed"})):
                envelope = {"envelope_id": f"e{number}", "type": "interactive", "payload": payload}
                await socket.send(json.dumps(envelope))
            await socket.send("not JSON")
            async for answer in socket:
                entries.append(json.loads(answer))
                if len(entries) == 2:
                    await socket.send(json.dumps({"type": "disconnect", "reason": "refresh_requested"}))

        taken: list[InboundRequest] = []

        async def take(raw: InboundRequest) -> InboundBatch:
            taken.append(raw)
            if len(taken) == 2:
                raise StoreUnavailable("gone")
            return channel.receive(raw)

        async with fake_slack() as vendor, serve(bring, "127.0.0.1", 0) as server:
            vendor.clock = lambda: datetime.now(UTC)
            port = server.sockets[0].getsockname()[1]
            vendor.socket_url = f"ws://127.0.0.1:{port}"
            channel = slack(datetime.now(UTC), app_token=APP_TOKEN, token=BOT_TOKEN, api_url=f"{vendor.url}/api")
            listening = asyncio.create_task(channel.listen(take))
            async with asyncio.timeout(30):
                while len(entries) < 2:
                    await asyncio.sleep(0.01)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await channel.close_down()
        assert [each["envelope_id"] for each in entries[:2]] == ["e0", "e2"]
        assert [each.token for each in channel.receive(taken[0]).actions] == ["t"]
        with pytest.raises(Forged):
            channel.verify(dataclasses.replace(taken[0], body=taken[0].body + b" "))

    async def test_broken_socket_is_reported(self) -> None:
        async with fake_slack() as vendor:
            vendor.clock = lambda: datetime.now(UTC)
            vendor.socket_url = "ws://127.0.0.1:9"
            channel = slack(datetime.now(UTC), app_token=APP_TOKEN, token=BOT_TOKEN, api_url=f"{vendor.url}/api")
            with pytest.raises(NotDelivered, match="socket"):
                await channel.listen(_never)
            assert [finding.ok for finding in await channel.check()] == [True, True]
            await channel.close_down()

    async def test_nothing_is_fetched_without_an_app_token(self) -> None:
        async with asyncio.timeout(60) as bounded:
            await slack(datetime.now(UTC)).listen(_never)
        assert not bounded.expired()


@table(
    ("standing", "scopes", "ok", "remedy"),
    ({}, {"channels:read"}, True, ""),
    ({"is_private": True}, {"groups:read"}, True, ""),
    ({"is_member": False}, {"channels:read"}, False, "invite the app there: /invite @signoff"),
    ({"is_archived": True}, {"channels:read"}, False, "name another channel in `rooms`"),
    (
        {"is_member": False, "is_private": True},
        {"groups:read"},
        False,
        "check the id, or invite the app there: /invite @signoff",
    ),
    ({}, {"chat:write"}, False, "give the app the scopes `channels:read` and `groups:read`"),
)
async def test_check_of_a_room_names_the_remedy(
    standing: dict[str, bool], scopes: set[str], ok: bool, remedy: str
) -> None:
    async with fake_slack() as vendor:
        vendor.clock = lambda: datetime.now(UTC)
        vendor.standing |= standing
        vendor.scopes = scopes
        channel = slack(datetime.now(UTC), token=BOT_TOKEN, api_url=f"{vendor.url}/api")
        found = await channel.check_room(vendor.room)
        assert (found.ok, found.remedy, vendor.room in found.what) == (ok, remedy, True)
        assert vendor.rooms == {vendor.room: []}
        vendor.trouble = "down"
        down = await channel.check_room(vendor.room)
        assert (down.ok, down.remedy) == (False, "try again")
        await channel.close_down()


async def test_check_of_a_room_by_a_wrong_token_does_not_blame_the_room() -> None:
    async with fake_slack() as vendor:
        vendor.clock = lambda: datetime.now(UTC)
        channel = slack(datetime.now(UTC), token="xoxb-wrong", api_url=f"{vendor.url}/api")
        found = await channel.check_room(vendor.room)
        assert (found.ok, "invalid_auth" in found.what, found.remedy) == (False, True, "")
        await channel.close_down()


async def _never(raw: InboundRequest) -> InboundBatch:
    raise AssertionError("nothing was to be taken")


_PRESS = {
    "type": "block_actions",
    "user": {"id": "UBO", "team_id": "T1"},
    "actions": [{"action_id": "signoff.approve", "value": "t", "action_ts": "1.1"}],
}


@table(
    ("more", "unclear"),
    ({"subtype": "thread_broadcast", "thread_ts": "1.0"}, ""),
    ({"subtype": "me_message"}, ""),
    ({"subtype": "file_share", "files": [{"id": "F1"}]}, "attachment"),
    ({"attachments": [{"is_share": True, "text": "but only below 100"}]}, "attachment"),
    ({"channel_type": "mpim"}, "group"),
)
def test_message_is_read_only_if_its_text_is_complete_and_never_dropped(more: dict[str, Any], unclear: str) -> None:
    inner = {"type": "message", "channel_type": "im", "channel": "D1", "user": "U1", "text": "yes", "ts": "2.0", **more}
    (action,) = event({"type": "event_callback", "team_id": "T1", "event_id": "E1", "event": inner}).actions
    assert (action.text, action.unclear) == ("yes", unclear)
    assert ("thread" in action.where) == (unclear != "group")


def _change(subtype: str, message: dict[str, Any], more: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    earlier = {"type": "message", "user": "U1", "text": "yes", "ts": "2.0", "team": "T1"}
    inner = {
        "type": "message",
        "subtype": subtype,
        "channel_type": "im",
        "channel": "D1",
        "previous_message": earlier | (more or {}),
        "message": message,
        "event_ts": "9.0",
        "ts": "9.0",
    }
    actions = event({"type": "event_callback", "team_id": "T1", "event_id": "E1", "event": inner}).actions
    return [each.model_dump() for each in actions]


def test_edited_and_deleted_messages_name_the_original() -> None:
    first = {"type": "message", "channel_type": "im", "channel": "D1", "user": "U1", "text": "yes", "ts": "2.0"}
    (action,) = event({"type": "event_callback", "team_id": "T1", "event_id": "E1", "event": first}).actions
    edited = {"user": "U1", "text": "no", "ts": "2.0", "edited": {"user": "U1", "ts": "8.0"}}
    changes = (
        _change("message_changed", edited),
        _change("message_deleted", {}),
        _change("message_changed", {"subtype": "tombstone", "ts": "2.0"}),
    )
    for (change,), unclear in zip(changes, ("edited", "deleted", "deleted"), strict=True):
        assert (change["changes"], change["identity"], change["unclear"]) == (action.key, "T1:U1", unclear)
        assert change["said_at"].timestamp() == 9.0


def test_changes_by_others_are_ignored() -> None:
    preview = {"user": "U1", "text": "yes", "ts": "2.0", "attachments": [{"title": "a page"}]}
    assert _change("message_changed", preview) == []
    edited = {"text": "over", "ts": "2.0", "edited": {"ts": "8.0"}}
    assert _change("message_changed", edited, {"bot_id": "B1"}) == []


async def test_denial_window_is_in_the_persons_language(tmp_path: Path) -> None:
    async with open_rig(TestSlack(), tmp_path, "de") as rig:
        await rig.ask()
        await rig.receive(fake(rig).press_request(rig.card(rig.bo), rig.bo, "signoff.deny"))
        assert text("button.why", "de") in rig.text_read_by(rig.bo)
