import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from cli_kit import Cli, assert_one_sentence, run_in_thread
from served_stack import MANIFEST, PROJECT
from standardwebhooks.webhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from signoff.audit.log import AuditLog
from signoff.channels.push.push_messages import VapidKey
from signoff.channels.slack.slack import Slack
from signoff.contracts.clock import system_clock
from signoff.settings import load_settings
from signoff.store.messages.push_subscriptions import PushSubscriptions
from signoff.store.store import open_store
from signoff.testing.fake_push import CONTACT, PRIVATE_KEY, fake_push
from signoff.testing.fake_slack import BOT_TOKEN, SIGNING_SECRET, fake_slack
from signoff.testing.vendor_server import serve_vendor

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CHANNELS = """\
path: ['{desk}']
channels:
  desk:
    kind: webhook
    url: {url}/hook
    secret: env:DESK_SECRET
    allow_networks: [127.0.0.0/8]
  lost:
    kind: webhook
    url: https://lost.example.com
    secret: env:LOST_SECRET
routing:
  default: [desk]
"""
PEOPLE = """\
- {id: ana, name: Ana, roles: [approvers], identities: {webhook: [U-ana]}}
- {id: gone, active: false, identities: {webhook: [U-gone]}}
- {id: rui, name: Rui}
"""

Site = Callable[..., Awaitable[None]]


class Receiver:
    def __init__(self) -> None:
        self.status = 202
        self.messages: list[dict[str, Any]] = []

    async def take(self, request: Request) -> Response:
        self.messages.append(Webhook(SECRET).verify(await request.body(), dict(request.headers)))
        return Response(status_code=self.status)


@pytest.fixture
async def receiver(clean_env: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Receiver]:
    there = Receiver()
    app = Starlette(routes=[Route("/hook", there.take, methods=["POST"])])
    async with serve_vendor(app) as url:
        manifest = tmp_path / "signoff.yaml"
        manifest.write_text(CHANNELS.format(desk=PROJECT, url=url) + MANIFEST.read_text())
        people = tmp_path / "people.yaml"
        people.write_text(PEOPLE)
        clean_env.setenv("SIGNOFF_MANIFEST", str(manifest))
        clean_env.setenv("SIGNOFF_PEOPLE", str(people))
        clean_env.setenv("DESK_SECRET", SECRET)
        yield there


async def test_list_shows_kinds_order_and_reachable_people(receiver: Receiver, cli: Cli) -> None:
    rows = {row["name"]: row for row in (await cli("channels", "list", "--json")).data}
    assert list(rows) == ["desk", "lost"]
    assert rows["desk"]["reaches"] == ["ana"]
    assert (rows["desk"]["kind"], rows["desk"]["default"], rows["desk"]["answers"]) == ("webhook", 1, True)
    assert rows["lost"]["problem"] == "it needs the environment variable `LOST_SECRET`, which is not set"
    shown = await cli("channels", "list")
    assert shown.code == 0
    for words in ("desk", "by default, 1.", "yes, as `channel`", "ana", "not there: it needs the environment"):
        assert words in shown.out
    assert SECRET not in shown.out
    assert receiver.messages == []


async def test_check_contacts_each_vendor(receiver: Receiver, cli: Cli) -> None:
    shown = await cli("channels", "check", "desk")
    assert shown.code == 0
    assert "acknowledges what is signed" in shown.out
    assert "✓ desk: reaches 1 active person" in shown.out
    assert [message["type"] for message in receiver.messages] == ["ping"]
    everything = await cli("channels", "check")
    assert everything.code == 1
    assert "✗ lost: it needs the environment variable `LOST_SECRET`" in everything.out
    receiver.status = 500
    found = await cli("channels", "check", "desk", "--json")
    assert found.code == 1
    wrong = [each for each in found.data if not each["ok"]]
    assert [each["remedy"] for each in wrong] == ["check `url`, and the receiver"]


async def test_check_asks_about_each_room_once(cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with fake_slack() as vendor:
        vendor.clock = system_clock
        vendor.standing["is_member"] = False
        manifest = tmp_path / "signoff.yaml"
        rooms = f"[{{channel: chat, room: {vendor.room}}}]"
        chat = f"{{kind: slack, token: 'env:BOT', signing_secret: 'env:SIGNING', api_url: '{vendor.url}/api'}}"
        manifest.write_text(
            f"path: ['{PROJECT}']\nchannels: {{chat: {chat}}}\n"
            f"rooms: {{role:approvers: {rooms}, role:finance: {rooms}}}\n" + MANIFEST.read_text()
        )
        clean_env.setenv("SIGNOFF_MANIFEST", str(manifest))
        clean_env.setenv("BOT", BOT_TOKEN)
        clean_env.setenv("SIGNING", SIGNING_SECRET)
        found = await cli("channels", "check", "--json")
        about = [each for each in found.data if vendor.room in each["what"]]
        assert (found.code, len(about)) == (1, 1)
        assert about[0]["remedy"] == "invite the app there: /invite @signoff"
        vendor.standing["is_member"] = True
        shown = await cli("channels", "check")
        assert f"✓ chat: room {vendor.room}: the app is a member" in shown.out
        for error, said in ((TimeoutError, "the vendor does not answer"), (KeyError, "failed: KeyError")):
            clean_env.setattr(Slack, "check_room", AsyncMock(side_effect=error))
            shown = await cli("channels", "check")
            assert (f"✗ chat: room {vendor.room}: " in shown.out, said in shown.out) == (True, True)


async def test_channels_test_command_sends_a_card_marked_as_a_test(
    receiver: Receiver, cli: Cli, tmp_path: Path
) -> None:
    shown = await cli("channels", "test", "ana", "--channel", "desk")
    assert shown.code == 0, shown.err
    assert "✓ desk: sent to U-ana" in shown.out
    data = receiver.messages[0]["data"]
    assert data["to"] == "U-ana"
    assert data["effect"] == "Test of this channel: your answer has no effect"
    async with open_store(load_settings().store_url) as store:
        written = [each.facts for each in await AuditLog(store).stream("admin/main")]
    assert [(each["act"], each["person"], each["channels"]) for each in written] == [("channels test", "ana", ["desk"])]


async def test_undelivered_test_card_is_reported(receiver: Receiver, cli: Cli) -> None:
    receiver.status = 410
    shown = await cli("channels", "test", "ana")
    assert shown.code == 1
    assert "✗ desk: the receiver reports that it no longer exists (410)" in shown.out
    assert "✗ lost: it needs the environment variable" in shown.out


async def test_unknown_channel_or_person_is_reported_in_one_sentence(receiver: Receiver, cli: Cli) -> None:
    message = assert_one_sentence(await cli("channels", "check", "dsek"))
    assert message == "there is no channel `dsek`; did you mean `desk`?"
    message = assert_one_sentence(await cli("channels", "test", "anna"))
    assert message == "there is no person `anna`; did you mean `ana`?"
    message = assert_one_sentence(await cli("channels", "test", "rui", "--channel", "desk"))
    assert message == "no channel reaches `rui`: give them one of `identities.webhook`"


async def test_manifest_without_channels_leaves_the_inbox_only(cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    shown = await run_in_thread("channels", "list")
    assert (shown.code, shown.out.startswith("the manifest declares no channels")) == (0, True)
    assert (await cli("channels", "check")).code == 0
    message = assert_one_sentence(await cli("channels", "test", "guest"))
    assert message == "no channel reaches `guest`: the manifest declares none"


async def test_notifications_reach_people_who_switched_them_on(
    clean_env: pytest.MonkeyPatch, cli: Cli, tmp_path: Path
) -> None:
    async with fake_push() as vendor:
        vendor.clock = system_clock
        manifest = tmp_path / "signoff.yaml"
        options = json.dumps({"kind": "push", **vendor.options})
        manifest.write_text(f"path: ['{PROJECT}']\nchannels:\n  phone: {options}\n" + MANIFEST.read_text())
        people = tmp_path / "people.yaml"
        people.write_text(PEOPLE)
        clean_env.setenv("SIGNOFF_MANIFEST", str(manifest))
        clean_env.setenv("SIGNOFF_PEOPLE", str(people))
        clean_env.setenv("PUSH_KEY", vendor.environment["PUSH_KEY"])
        message = assert_one_sentence(await cli("channels", "test", "ana"))
        assert message == "no channel reaches `ana`: give them one of `phone` (in the inbox)"
        assert "people switch it on in the inbox" in (await cli("channels", "check")).out
        vendor.server_key = VapidKey(PRIVATE_KEY, CONTACT).public
        browser = vendor.open_browser("ana").subscription
        async with open_store(load_settings().store_url) as store:
            known = PushSubscriptions(store)
            assert await known.add("main", "ana", vendor.server_key, browser, lambda connection: None)
        (row,) = (await cli("channels", "list", "--json")).data
        assert (row["reaches"], row["answers"]) == (["ana"], False)
        shown = await cli("channels", "test", "ana")
        assert (shown.code, "✓ phone: sent to ana" in shown.out) == (0, True), shown.err
        assert [each.content["text"] for each in vendor.messages] == ["A request waits for you."]
