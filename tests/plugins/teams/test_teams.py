import dataclasses
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, NotDelivered
from signoff.channels.channel_loader import read_options
from signoff.channels.envelopes import ChannelReply, ClosedCard, SentCard
from signoff.contracts.errors import ConfigError
from signoff.formats.replace import replace
from signoff.keys.secrets import SecretProvider
from signoff.languages.catalogue import text
from signoff.plugins.teams.clouds import CLOUDS, Cloud
from signoff.plugins.teams.plugin import Teams
from signoff.testing.channel_cards import play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_teams import (
    APP_ID,
    APP_SECRET,
    CARD_TYPE,
    MESSAGE_TYPE,
    OTHER_TENANT,
    TENANT,
    FakeTeams,
    conversation_of,
    fake_teams,
)
from signoff.testing.rig import ChannelRig
from signoff.testing.room_suite import RoomSuite
from signoff.testing.vendor import Vendor

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
OPTIONS = {"app_id": APP_ID, "app_secret": APP_SECRET, "tenant_id": TENANT}


def teams(**options: Any) -> Teams:
    return Teams(ChannelContext("teams", {**OPTIONS, **options}, "https://signoff.example", lambda: NOW, b"own"))


def fake(rig: ChannelRig) -> FakeTeams:
    assert isinstance(rig.vendor, FakeTeams)
    return rig.vendor


def latest_response(vendor: FakeTeams) -> Any:
    return list(vendor.responses.values())[-1][1]


class TestTeamsRooms(RoomSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_teams()

    @play_scenario
    async def test_show_sends_the_card_to_the_own_conversation_of_its_presser(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask(personal=False)
        await rig.receive(vendor.press_room(vendor.room_cards()[0], rig.bo, "show"))
        assert [each.conversation for each in vendor.messages] == [vendor.room, conversation_of(rig.bo)]
        assert text("room.sent", "en") in latest_response(vendor)["value"]
        await rig.receive(vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert rig.request(request.id).decided_by == "bo"
        assert "Approved by Bo" in vendor.room_cards()[0].text
        assert vendor.refused == []

    @play_scenario
    async def test_press_of_an_older_client_counts_and_is_answered_in_private(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        await rig.ask(personal=False)
        press = vendor.room_press(vendor.room_cards()[0], rig.bo, "take")
        older = {**press, "type": "message", "value": press["value"]["action"]["data"]}
        await rig.receive(vendor.request(older))
        assert "Bo has taken it" in vendor.room_cards()[0].text
        assert [each.conversation for each in vendor.messages] == [vendor.room, conversation_of(rig.bo)]

    @play_scenario
    async def test_press_from_another_tenant_is_forged(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        await rig.ask(personal=False)
        card = vendor.room_cards()[0]
        other = f"{OTHER_TENANT}:{rig.bo.partition(':')[2]}"
        assert await rig.receive(vendor.press_room(card, other, "take")) == [Forged]
        assert "has taken it" not in vendor.room_cards()[0].text

    @play_scenario
    async def test_decision_in_a_room_decides_nothing(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        request = await rig.ask()
        press = vendor.room_press(vendor.room_cards()[0], rig.bo, "take")
        for token in (vendor.room_cards()[0].token, rig.card(rig.bo).token):
            press["value"]["action"]["data"] = {"signoff": {"token": token, "verdict": "approved"}}
            await rig.receive(vendor.request({**press, "id": f"f:{token}"}))
        assert rig.request(request.id).votes == ()

    @play_scenario
    async def test_room_is_unknown_until_its_team_installs_the_bot(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        rig.open_room()
        removed = vendor.room_activity(rig.ana, type="installationUpdate", action="remove")
        await rig.receive(vendor.request(removed))
        request = await rig.ask(personal=False)
        rows = await rig.cards.of_request(request.id)
        assert [(row.state, row.code) for row in rows] == [("failed", "no_conversation")]
        assert vendor.messages == []


class TestTeams(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_teams()

    @play_scenario
    async def test_card_is_updated_in_place_at_its_end(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask(args={"to": "**Bo** [a](https://x)"})
        card = vendor.message_of(rig.card(rig.bo))
        assert "**Bo** [a](https://x)" in card.text_shown
        assert [each["title"] for each in (card.card or {})["actions"]] == ["Approve", "Deny", "Ask the agent", "Open"]
        await rig.decide_elsewhere(request)
        assert len([each for each in vendor.messages if each.conversation == conversation_of(rig.bo)]) == 1
        assert card.text_shown.startswith("Approved by Ana")
        assert [each["title"] for each in (card.card or {})["actions"]] == ["Open"]
        assert vendor.refused == []

    @play_scenario
    async def test_editable_request_links_to_its_edit_page(self, rig: ChannelRig) -> None:
        request = await rig.ask(edit="approve")
        assert f"[Change](https://signoff.example/approvals/{request.id}/edit)" in rig.card(rig.bo).text

    @play_scenario
    async def test_deciding_press_is_answered_by_a_card_without_buttons(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask()
        await rig.receive(vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        body = latest_response(vendor)
        assert (body["statusCode"], body["type"]) == (200, CARD_TYPE)
        assert body["value"]["actions"] == []
        assert text("receipt.accepted.approved", "en") in json.dumps(body)
        # The reply is in the response alone.
        assert all(each.card is not None for each in vendor.messages)

    @play_scenario
    async def test_counted_press_is_answered_by_words_and_keeps_the_card(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask(quorum=2)
        await rig.receive(vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        body = latest_response(vendor)
        assert body["type"] == MESSAGE_TYPE
        assert text("receipt.counted", "en", n=1, of=2) in body["value"]
        card = vendor.message_of(rig.card(rig.bo)).card or {}
        assert [each["title"] for each in card["actions"]] == ["Approve", "Deny", "Ask the agent", "Open"]

    @play_scenario
    async def test_second_press_is_answered_and_changes_nothing(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        presses = [vendor.press(card, rig.bo, "approved"), vendor.press(card, rig.bo, "approved")]
        await rig.receive(*presses)
        decided = rig.request(request.id)
        assert (decided.state, len(decided.votes)) == ("approved", 1)
        await rig.receive(vendor.press(card, rig.bo, "denied", "no"))
        assert rig.request(request.id).state == "approved"
        assert len(vendor.responses) == 3

    @play_scenario
    async def test_replayed_press_gets_a_response_and_no_effect(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask(quorum=2)
        raw = vendor.press(rig.card(rig.bo), rig.bo, "approved")
        await rig.receive(raw)
        again = await rig.receiver.take(rig.channel.name, raw, waits=True)
        assert json.loads(again.body)["value"] == text("receipt.pending", "en")
        assert len(rig.request(request.id).votes) == 1

    @play_scenario
    async def test_reply_to_a_press_without_a_waiting_request_is_a_message(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask()
        received = await rig.receiver.take(rig.channel.name, vendor.press(rig.card(rig.bo), rig.bo, "approved"))
        assert json.loads(received.body)["type"] == MESSAGE_TYPE
        await rig.process_inbound()
        words = [each.text for each in vendor.messages if each.conversation == conversation_of(rig.bo)]
        assert any(text("receipt.accepted.approved", "en") in each for each in words)

    @play_scenario
    async def test_press_of_an_older_client_counts(self, rig: ChannelRig) -> None:
        """It sends the data of the fallback as a message."""
        vendor = fake(rig)
        request = await rig.ask()
        press = vendor.press_activity(rig.card(rig.bo), rig.bo, "denied", "too expensive")
        data = press["value"]["action"]["data"]
        await rig.receive(vendor.request(vendor.activity(rig.bo, type="message", value=data)))
        assert (rig.request(request.id).state, rig.request(request.id).reason) == ("denied", "too expensive")
        assert text("receipt.accepted.denied", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_denial_with_a_required_reason_has_a_required_input(self, rig: ChannelRig) -> None:
        await rig.ask(require_reason=True)
        card = fake(rig).message_of(rig.card(rig.bo)).card or {}
        deny = next(each for each in card["actions"] if each["type"] == "Action.ShowCard")
        (field,) = deny["card"]["body"]
        assert (field["isRequired"], field["label"]) == (True, text("receipt.reason", "en"))

    @play_scenario
    async def test_question_in_the_card_asks_the_agent_and_decides_nothing(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        card = rig.card(rig.bo)
        words = text("ask.send", "en")
        ask = next(each for each in (vendor.message_of(card).card or {})["actions"] if each["title"] == words)
        press = vendor.press_activity(card, rig.bo, "approved")
        press["value"]["action"]["data"] = {**ask["card"]["actions"][0]["data"], "question": " Ok, why? "}
        await rig.receive(vendor.request(press))
        asked = rig.request(request.id)
        assert [(each.by, each.subject, each.text) for each in asked.messages] == [("approver", "bo", "Ok, why?")]
        assert (asked.state, rig.decisions.answers) == ("pending", [])
        for data in ({"question": " "}, {"question": 5}, {}):
            press["value"]["action"]["data"] = {**ask["card"]["actions"][0]["data"], **data}
            await rig.receive(vendor.request({**press, "id": f"empty {data}"}))
        assert len(rig.request(request.id).messages) == 1

    @play_scenario
    async def test_press_in_a_group_decides_nothing(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        press = vendor.press_activity(rig.card(rig.bo), rig.bo, "approved")
        group = {"id": "19:g@thread.v2", "conversationType": "groupChat", "isGroup": True, "tenantId": TENANT}
        await rig.receive(vendor.request({**press, "conversation": group}))
        assert rig.request(request.id).votes == ()

    @play_scenario
    async def test_card_reaches_the_conversation_of_the_latest_activity(self, rig: ChannelRig) -> None:
        """A person who removes the bot and installs it again has another conversation."""
        vendor = fake(rig)
        await rig.receive(vendor.request(vendor.installation(rig.bo, "remove")))
        request = await rig.ask(1)
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "no_conversation")
        await rig.receive(vendor.request(vendor.installation(rig.bo)))
        assert (await rig.delivery(await rig.ask(2), "bo")).state == "sent"

    @play_scenario
    async def test_contact_is_kept_only_from_verified_activities_of_the_tenant(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        person = "12121212-1212-4121-8121-121212121212"
        ours, other = f"{TENANT}:{person}", f"{OTHER_TENANT}:{person}"
        activity = vendor.installation(ours)
        evil = {**activity, "serviceUrl": "https://smba.evil.example/teams/"}
        team = {"id": "19:t@thread.tacv2", "conversationType": "channel", "tenantId": TENANT}
        refused = [
            vendor.request(vendor.installation(other)),
            vendor.request(activity, exp=1),
            vendor.request(evil),
            vendor.request(evil, serviceurl=evil["serviceUrl"]),
        ]
        assert set(await rig.receive(*refused)) == {Forged}
        await rig.receive(
            vendor.request({**activity, "conversation": team}),
            dataclasses.replace(vendor.request(activity), method="GET"),
        )
        contacts = rig.channel.context.contacts
        assert (await contacts.find(ours), await contacts.find(other)) == (None, None)
        await rig.receive(vendor.request(activity))
        assert (await contacts.find(ours) or {})["conversation"] == conversation_of(ours)

    @play_scenario
    async def test_bearer_is_never_sent_to_a_service_off_the_list(self, rig: ChannelRig) -> None:
        """Also if the place was stored while the service was on the list."""
        vendor = fake(rig)
        request = await rig.ask()
        card = await rig.outbound_card(await rig.delivery(request, "bo"))
        logins, posted = vendor.logins, len(vendor.posted)
        for service in (
            f"{vendor.url}.evil.example/teams/",
            vendor.url.replace("://", "://x@") + "/",
            vendor.url.replace("127.0.0.1", "localhost"),
            f"{vendor.url}/teams?x=",
            "https://smba.trafficmanager.net@evil.example/",
            "//[",
            "",
        ):
            place = {"service": service, "conversation": conversation_of(rig.bo), "user": "29:x"}
            closed = ClosedCard(request=card.request, person=card.person, token=card.token, link=card.link)
            for attempt in (
                rig.channel.answer(place, ChannelReply(text="x")),
                rig.channel.close(SentCard(handle={**place, "activity": "1"}), closed),
            ):
                with pytest.raises(NotDelivered) as caught:
                    await attempt
                assert (caught.value.code, caught.value.again) == ("service", False)
        assert (vendor.logins, len(vendor.posted)) == (logins, posted)

    @play_scenario
    async def test_token_is_reused_until_shortly_before_its_end(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask(1)
        assert vendor.logins == 1
        rig.time.ahead = timedelta(minutes=54)
        await rig.ask(2)
        assert vendor.logins == 1
        rig.time.ahead = timedelta(minutes=56)
        await rig.ask(3)
        assert vendor.logins == 2

    @play_scenario
    async def test_revoked_token_is_replaced_at_once(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask(1)
        vendor.bearers.clear()
        request = await rig.ask(2)
        assert (await rig.delivery(request, "bo")).state == "sent"
        assert vendor.logins == 2

    @play_scenario
    async def test_refusal_has_the_vendors_code(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        for number, (code, words) in enumerate(
            (("ConversationBlockedByUser", "blocked the bot"), ("BotNotInConversationRoster", "removed the bot")), 1
        ):
            vendor.gone = {conversation_of(rig.bo): code}
            row = await rig.delivery(await rig.ask(number), "bo")
            assert (row.state, row.code, words in row.message) == ("failed", code, True)

    @play_scenario
    async def test_identity_in_another_form_is_refused(self, rig: ChannelRig) -> None:
        card = await rig.outbound_card(await rig.delivery(await rig.ask(), "bo"))
        for address in (rig.bo.replace("7c9e", "7C9E"), rig.bo.partition(":")[2], f"{rig.bo} ", ""):
            with pytest.raises(NotDelivered) as caught:
                await rig.channel.deliver(replace(card, address=address), None)
            assert (caught.value.code, caught.value.again) == ("address", False)

    @play_scenario
    async def test_unacknowledged_card_is_closed_by_a_new_message(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        card = await rig.outbound_card(row)
        ended = replace(row.request, state="denied", decided_by="ana", decided_name="Ana")
        closed = ClosedCard(request=ended, person=card.person, token=row.token, link=card.link, address=row.address)
        before = len(vendor.messages)
        await rig.channel.close(SentCard(), closed)
        assert len(vendor.messages) == before + 1
        assert "Denied by Ana" in vendor.messages[-1].text_shown

    @play_scenario
    async def test_date_function_in_a_value_is_shown_as_written(self, rig: ChannelRig) -> None:
        """Teams would show another value than the tool gets."""
        value = "{{DATE(2030-01-01T00:00:00Z, SHORT)}} {{time(2030-01-01T00:00:00Z)}}"
        await rig.ask(args={"to": value})
        message = fake(rig).message_of(rig.card(rig.bo))
        assert value in message.text_shown
        runs = [run["text"] for block in (message.card or {})["body"] for run in block["inlines"]]
        assert not any(part in run.upper() for run in runs for part in ("{{DATE(", "{{TIME("))

    @play_scenario
    async def test_card_of_many_long_values_fits_teams(self, rig: ChannelRig) -> None:
        """The fake refuses a message that is too long for Teams."""
        for number, filling in enumerate(("🎉", '"', "{{date(", "x"), 1):
            args = {f"argument {row}": filling * 500 for row in range(60)}
            request = await rig.ask(number, args=args)
            assert (await rig.delivery(request, "bo")).state == "sent"
        assert fake(rig).refused == []

    @play_scenario
    async def test_edit_and_deletion_name_the_message_that_they_change(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        first = vendor.message_activity(rig.bo, "<p>yes</p>", "yes")
        edit = {**first, "type": "messageUpdate", "channelData": {**first["channelData"], "eventType": "editMessage"}}
        deletion = {**first, "type": "messageDelete", "text": ""}
        actions = [rig.channel.receive(vendor.request(each)).actions[0] for each in (first, edit, deletion)]
        assert [each.unclear for each in actions] == ["", "edited", "deleted"]
        assert {each.changes for each in actions[1:]} == {actions[0].key}
        assert len({each.key for each in actions}) == 3

    @play_scenario
    async def test_message_with_an_attachment_is_asked_back(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        await rig.ask()
        picture = {"contentType": "image/png", "contentUrl": "https://x.example"}
        message = vendor.message_activity(rig.bo, "<p>yes</p>", "yes")
        await rig.receive(vendor.request({**message, "attachments": [*message["attachments"], picture]}))
        assert rig.decisions.answers == []
        assert text("reply.not_understood", "en") in rig.text_read_by(rig.bo)

    @play_scenario
    async def test_check_names_each_wrong_option(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        assert [each.ok for each in await rig.channel.check()] == [True, True, True]
        wrong = {"app_id": OTHER_TENANT, "app_secret": "wrong", "tenant_id": OTHER_TENANT}
        given = {**vendor.options, "app_secret": APP_SECRET}
        for name, value in wrong.items():
            context = ChannelContext("t", {**given, name: value}, "http://signoff.example", vendor.clock, b"own")
            channel = Teams(context)
            found = await channel.check()
            await channel.close_down()
            assert [each.ok for each in found] == [False, False, True]
            assert f"`{name}`" in found[1].what
            assert APP_SECRET not in str(found)

    @play_scenario
    async def test_check_of_a_room_names_a_missing_installation(self, rig: ChannelRig) -> None:
        vendor, channel = fake(rig), rig.channel
        found = await channel.check_room(vendor.room)
        assert found is not None
        assert (found.ok, vendor.room in found.what) == (True, True)
        vendor.gone[vendor.room] = "BotNotInConversationRoster"
        removed = await channel.check_room(vendor.room)
        unknown = await channel.check_room("19:other@thread.tacv2")
        vendor.trouble = "down"
        down = await channel.check_room(vendor.room)
        assert removed is not None
        assert unknown is not None
        assert down is not None
        assert (removed.ok, unknown.ok, down.ok) == (False, False, False)
        assert "no longer has the bot" in removed.what
        assert "does not know" in unknown.what
        assert "502" in down.what
        assert "mention it" in removed.remedy == unknown.remedy
        assert down.remedy == "try again"
        assert vendor.messages == []

    @play_scenario
    async def test_bot_of_a_government_cloud_signs_in_and_believes_only_its_own_tokens(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        options = {**vendor.options, "app_secret": APP_SECRET}
        raw = vendor.request(vendor.installation(rig.bo))
        public, government = CLOUDS["public"], CLOUDS["gcc_high"]
        vendor.issuer, vendor.scope = government.issuer, government.scope
        own = vendor.request(vendor.installation(rig.bo))
        context = ChannelContext("t", {**options, "cloud": "gcc_high"}, "https://signoff.example", vendor.clock, b"own")
        channel = Teams(context)
        assert [each.ok for each in await channel.check()] == [True, True, True]
        with ThreadPoolExecutor(1) as threads:
            assert (await channel.read(own, threads)).contacts
            with pytest.raises(Forged):
                await channel.read(raw, threads)
        # Keys of another cloud are not taken either.
        vendor.issuer = public.issuer
        assert [each.ok for each in await channel.check()] == [True, True, False]
        await channel.close_down()

    @play_scenario
    async def test_secrets_are_never_logged(self, rig: ChannelRig) -> None:
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            await rig.ask(1)
            await rig.receive(rig.vendor.press(rig.card(rig.bo), rig.bo, "approved"))
            rig.vendor.trouble = "down"
            await rig.ask(2)
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
        assert lines
        hidden = (APP_SECRET, *fake(rig).bearers)
        assert not any(secret in line for line in lines for secret in hidden)


@table(
    "options",
    {"app_id": "APP"},
    {"tenant_id": TENANT.upper()},
    {"app_secret": ""},
    {"service_urls": ["http://smba.trafficmanager.net"]},
    {"service_urls": ["https://smba.trafficmanager.net/teams/"]},
    {"service_urls": ["https://me@smba.trafficmanager.net"]},
    {"login_url": "http://login.example"},
    {"metadata_url": "ftp://login.example"},
    {"cloud": "china"},
    {"login_url": "https://login.microsoftonline.us"},
    {"login_url": "https://login.microsoftonline.us/"},
    {"login_url": "https://LOGIN.microsoftonline.us"},
    {"login_url": "https://login.microsoftonline.us.:443"},
    {"metadata_url": "https://Login.botframework.azure.us/other"},
    {"service_urls": ["https://smba.infra.gov.teams.microsoft.us"]},
    {"service_urls": ["https://smba.trafficmanager.net"], "cloud": "dod"},
    {"metadata_url": CLOUDS["public"].metadata_url, "cloud": "gcc_high"},
)
async def test_invalid_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        await read_options(Teams, {**OPTIONS, **options}, SecretProvider(environment={}))
    assert next(iter(options)) in caught.value.message


@table("cloud", *CLOUDS)
async def test_each_cloud_trusts_its_own_services_alone(cloud: Cloud) -> None:
    channel = teams(cloud=cloud)
    for name, addresses in CLOUDS.items():
        trusted = [channel._connector.trusts(f"{each}/teams/") for each in addresses.services]
        assert trusted == [name == cloud] * len(addresses.services)
    await channel.close_down()


async def test_default_options_trust_microsofts_services_alone() -> None:
    channel = teams()
    trusted = [
        channel._connector.trusts(each)
        for each in (
            "https://smba.trafficmanager.net/emea/",
            "https://smba.trafficmanager.net/amer/abc/",
            "http://smba.trafficmanager.net/emea/",
            "https://smba.trafficmanager.net:444/emea/",
            "https://smba.trafficmanager.net.evil.example/",
            "https://trafficmanager.net/",
            "https://evil.trafficmanager.net/",
        )
    ]
    assert trusted == [True, True, False, False, False, False, False]
    await channel.close_down()
