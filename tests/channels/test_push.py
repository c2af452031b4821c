import dataclasses
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import ChannelReply, ClosedCard, InboundRequest, SentCard
from signoff.channels.outbound.dispatcher import Dispatcher
from signoff.channels.push.push import Push
from signoff.channels.push.push_messages import PushMessage
from signoff.channels.push.push_options import PushOptions, decode, encode
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import show_code
from signoff.contracts.person import ContactPreferences, PushSubscription
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.messages.push_subscriptions import PushSubscriptions
from signoff.testing.builders import a_person
from signoff.testing.channel_cards import play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_push import CONTACT, PRIVATE_KEY, FakeBrowser, FakePush, PushRefusal, fake_push
from signoff.testing.recording_channel import recording_channel
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor

HIDDEN: Final = ("Payee", "pay", "clerk", "Guest")


def fake(rig: ChannelRig) -> FakePush:
    assert isinstance(rig.vendor, FakePush)
    return rig.vendor


def browsers(rig: ChannelRig) -> PushSubscriptions:
    return PushSubscriptions(rig.store)


async def known(rig: ChannelRig, person: str) -> Sequence[PushSubscription]:
    return await browsers(rig).list_of("main", person, fake(rig).server_key)


class TestPush(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_push()

    @play_scenario
    async def test_notification_has_no_content_and_its_end_replaces_it(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        await rig.decide_elsewhere(request, "denied", "no such Payee")
        asked, ended = (each for each in vendor.messages if each.to == "bo")
        assert asked.content == {
            "card": row.token,
            "text": "A request waits for you.",
            "deny": "Deny",
            "denied": "You denied this",
            "ended": False,
        }
        assert ended.content == {
            "card": row.token,
            "text": "The request has ended: Denied",
            "deny": "",
            "denied": "",
            "ended": True,
        }
        for secret in (request.id, show_code(request.code), *HIDDEN):
            assert secret not in f"{asked.content} {ended.content}"
        # The service reads the topic, and learns no token from it.
        assert asked.headers["topic"] == ended.headers["topic"]
        assert row.token not in f"{asked.headers} {ended.headers}"
        assert asked.size == ended.size
        assert (await rig.delivery(request, "bo")).state == "closed"
        assert vendor.refusals == []

    @play_scenario
    async def test_denial_with_a_reason_or_a_passkey_has_no_button(self, rig: ChannelRig) -> None:
        await rig.ask(1, require_reason=True)
        await rig.ask(2, min_assurance="present")
        assert {each.content["deny"] for each in fake(rig).messages} == {""}

    @play_scenario
    async def test_notification_waits_for_a_browser_until_the_deadline(self, rig: ChannelRig) -> None:
        await rig.ask(timeout=600.0)
        asked = next(each for each in fake(rig).messages if each.to == "bo")
        assert 500 < int(asked.headers["ttl"]) <= 600
        assert asked.headers["urgency"] == "high"

    @play_scenario
    async def test_reminder_and_digest_have_different_texts(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        await rig.report_event("reminded", replace(request, reminded=1))
        await rig.dispatch()
        assert fake(rig).reads("bo") == ["A request still waits for you."]
        for number in range(2, 10):
            await rig.ask(number, notify=False, approvers=("user:bo",))
        await rig.dispatch()
        digest = fake(rig).messages[-1].content
        assert (digest["text"], digest["card"]) == ("8 requests wait for you.", "")

    @play_scenario
    async def test_notification_is_in_the_language_of_its_person(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        card = await rig.outbound_card(await rig.delivery(request, "bo"))
        await rig.channel.deliver(replace(card, person=replace(card.person, locale="de-CH")), None)
        assert fake(rig).reads("bo") == ["Eine Anfrage wartet auf Sie."]

    @play_scenario
    async def test_person_without_a_browser_gets_no_card(self, rig: ChannelRig) -> None:
        for name in ("ana", "bo"):
            await browsers(rig).forget("main", name, (await known(rig, name))[0])
        request = await rig.ask()
        assert await rig.cards.of_request(request.id) == []
        assert fake(rig).posts == 0

    @play_scenario
    async def test_card_without_a_browser_fails_for_good(self, rig: ChannelRig) -> None:
        request = await rig.ask(notify=False)
        card = await rig.outbound_card(await self._planned(rig, request.id))
        await browsers(rig).forget("main", "bo", (await known(rig, "bo"))[0])
        with pytest.raises(NotDelivered) as caught:
            await rig.channel.deliver(card, None)
        assert (caught.value.code, caught.value.again) == ("no_browser", False)
        over = replace(card.request, state="denied")
        closed = ClosedCard(request=over, person=card.person, token=card.token, link=card.link)
        with pytest.raises(NotDelivered) as caught:
            await rig.channel.close(SentCard(), closed)
        assert not caught.value.again

    @play_scenario
    async def test_unknown_browser_of_the_service_is_removed_and_its_card_fails(self, rig: ChannelRig) -> None:
        for status in (404, 410):
            browser = fake(rig).open_browser("bo")
            await self._add(rig, "bo", browser)
            browser.status = status
            request = await rig.ask(status)
            row = await rig.delivery(request, "bo")
            assert (row.state, row.code) == ("failed", str(status))
            assert await known(rig, "bo") == []
            assert (await rig.delivery(request, "ana")).state == "sent"

    @play_scenario
    async def test_second_browser_gets_the_card_after_the_first_was_removed(self, rig: ChannelRig) -> None:
        fake(rig).browsers["bo"].status = 410
        await self._add(rig, "bo", fake(rig).open_browser("bo2"))
        request = await rig.ask()
        assert (await rig.delivery(request, "bo")).state == "sent"
        assert [each.endpoint for each in await known(rig, "bo")] == [fake(rig).browsers["bo2"].endpoint]

    @play_scenario
    async def test_gone_browser_hands_the_card_to_the_next_channel(self, rig: ChannelRig) -> None:
        """The person's order counts, as with every channel."""
        mail = recording_channel("mail", identity="email")
        reach = ContactPreferences(channels=("channel", "mail"))
        bo = a_person("bo", identities={"email": ("bo@example.com",)}, reach=reach)
        deps = dataclasses.replace(rig.dispatcher._deps, people=FixedDirectory([bo]))
        dispatcher = Dispatcher(rig.events, {"channel": rig.channel, "mail": mail}, RoutingRules(), deps)
        request = replace(await rig.ask(notify=False), notify=("mail", "channel"))
        await rig.events.poll()
        await rig.report_event("opened", request)
        await dispatcher.step()
        states = {row.channel: row.state for row in await rig.cards.of_request(request.id)}
        assert (states, mail.cards) == ({"channel": "sent", "mail": "planned"}, [])
        fake(rig).browsers["bo"].status = 410
        another = replace(await rig.ask(2, notify=False), notify=("mail", "channel"))
        await rig.events.poll()
        await rig.report_event("opened", another)
        while await dispatcher.step():
            pass
        states = {row.channel: row.state for row in await rig.cards.of_request(another.id)}
        assert states == {"channel": "failed", "mail": "sent"}
        assert [card.request.id for card, _ in mail.cards] == [another.id]

    @play_scenario
    async def test_retry_after_pauses_its_own_browser_alone(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        vendor.trouble = "busy"
        card = await rig.outbound_card(await self._planned(rig, (await rig.ask(notify=False)).id))
        for _ in range(2):
            with pytest.raises(NotDelivered) as caught:
                await rig.channel.deliver(card, None)
            # A pause of the whole channel would let one browser stop all others.
            assert (caught.value.code, caught.value.again, caught.value.after) == ("429", True, 0.0)
        assert vendor.posts == 1
        vendor.trouble = ""
        ana = rig.people.find("ana", "main")
        assert ana is not None
        await rig.channel.deliver(replace(card, person=ana), None)
        rig.time.ahead = timedelta(seconds=vendor.busy_seconds + 1)
        await rig.channel.deliver(card, None)
        assert {each.to for each in vendor.messages} == {"ana", "bo"}

    @play_scenario
    async def test_other_refusal_of_the_service_is_final(self, rig: ChannelRig) -> None:
        fake(rig).browsers["bo"].status = 413
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "413")
        assert len(await known(rig, "bo")) == 1

    @play_scenario
    async def test_service_refuses_a_proof_of_another_key(self, rig: ChannelRig) -> None:
        fake(rig).server_key = "another"
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "403")
        assert fake(rig).refusals[0] == "the browsers were added for another key"

    @play_scenario
    async def test_stored_endpoint_outside_the_options_gets_nothing(self, rig: ChannelRig) -> None:
        """An operator may narrow `services` later."""
        browser = FakeBrowser("http://127.0.0.2:1/push/bo")
        await browsers(rig).forget("main", "bo", (await known(rig, "bo"))[0])
        await self._add(rig, "bo", browser)
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        assert (row.state, row.code) == ("failed", "service")

    @play_scenario
    async def test_any_inbound_request_is_forged(self, rig: ChannelRig) -> None:
        await rig.ask()
        raw = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        assert await rig.receive(raw, InboundRequest(b"{}")) == [Forged, Forged]
        with pytest.raises(Malformed):
            rig.channel.parse(raw)
        with pytest.raises(NotDelivered):
            await rig.channel.answer({}, ChannelReply(text="x"))
        assert rig.decisions.answers == []

    async def _add(self, rig: ChannelRig, person: str, browser: FakeBrowser) -> None:
        key = fake(rig).server_key
        assert await browsers(rig).add("main", person, key, browser.subscription, lambda connection: None)

    async def _planned(self, rig: ChannelRig, approval: str) -> Any:
        await rig.dispatcher.read()
        return next(row for row in await rig.cards.of_request(approval) if row.person == "bo")


async def test_service_in_a_private_network_is_refused_without_the_option() -> None:
    """A name of `services` may lead into a private network."""
    channel = push(services=["localhost"])
    browser = FakeBrowser("https://localhost/push/bo")
    assert channel.problem(browser.subscription) == ""
    with pytest.raises(NotDelivered) as caught:
        await channel._http.post(browser.endpoint, b"", {})
    assert (caught.value.code, caught.value.again) == ("address", False)
    await channel.close_down()


@table(
    ("endpoint", "allowed"),
    ("https://fcm.googleapis.com/fcm/send/abc", True),
    ("https://updates.push.services.mozilla.com/wpush/v2/abc", True),
    ("https://web.push.apple.com/abc", True),
    ("https://wns2-par02p.notify.windows.com/w/?token=abc", True),
    ("https://fcm.googleapis.com:443/abc", True),
    ("https://fcm.googleapis.com:8443/abc", False),
    ("http://fcm.googleapis.com/abc", False),
    ("https://fcm.googleapis.com.evil.example/abc", False),
    ("https://evil.example/fcm.googleapis.com", False),
    ("https://evilpush.apple.com/abc", False),
    ("https://push.apple.com/abc", False),
    ("https://fcm.googleapis.com@127.0.0.1/abc", False),
    ("https://127.0.0.1/abc", False),
    ("https://[::1]/abc", False),
    ("https://169.254.169.254/latest/meta-data", False),
    ("https://fcm.googleapis.com:x/abc", False),
    ("ftp://fcm.googleapis.com/abc", False),
    ("https://fcm.googleapis.com/é", False),
    ("", False),
)
def test_only_endpoints_of_known_services_are_allowed(endpoint: str, allowed: bool) -> None:
    assert (options().problem(FakeBrowser(endpoint).subscription) == "") == allowed


@table(
    "changes",
    {"p256dh": ""},
    {"p256dh": encode(b"\x04" + bytes(64))},
    {"p256dh": "é"},
    {"auth": encode(bytes(15))},
    {"auth": "!"},
)
def test_subscription_with_invalid_keys_is_refused(changes: dict[str, str]) -> None:
    subscription = replace(FakeBrowser("https://fcm.googleapis.com/x").subscription, **changes)
    assert options().problem(subscription) == "its keys are invalid"


@table(
    ("changes", "field"),
    ({"private_key": "short"}, "private_key"),
    ({"private_key": encode(bytes(32))}, "private_key"),
    ({"contact": "mailto:ops@"}, ""),
    ({"contact": "https://exa mple"}, ""),
    ({"allow_networks": ["here"]}, ""),
    ({"services": []}, ""),
)
def test_unusable_option_is_refused_without_revealing_the_key(changes: dict[str, Any], field: str) -> None:
    with pytest.raises((ConfigError, ValueError)) as caught:
        push(**changes)
    assert PRIVATE_KEY not in str(caught.value)
    assert not field or (isinstance(caught.value, ConfigError) and caught.value.context["field"] == field)


def test_fake_decrypts_the_example_of_rfc_8291() -> None:
    """The example of appendix A, so that fake and channel cannot share a mistake."""
    browser = FakeBrowser(
        "https://push.example",
        ec.derive_private_key(int.from_bytes(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")), ec.SECP256R1()),
        decode("BTBZMqHH6r4Tts7J_aSIgg"),
    )
    body = (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert browser.decrypt(decode(body)) == b"When I grow up, I want to be a watermelon"
    with pytest.raises(PushRefusal, match="not encrypted for this browser"):
        FakeBrowser("https://push.example").decrypt(decode(body))


def test_each_message_has_its_own_key_and_fits_one_browser() -> None:
    message, browser = PushMessage("t", "A request waits for you."), FakeBrowser("https://push.example")
    first, second = (message.encrypt(browser.subscription) for _ in range(2))
    assert browser.decrypt(first) == browser.decrypt(second)
    assert first[21:86] != second[21:86]
    with pytest.raises(PushRefusal, match="not encrypted for this browser"):
        FakeBrowser("https://push.example").decrypt(first)


def options(**changes: Any) -> PushOptions:
    return PushOptions.model_validate({"private_key": PRIVATE_KEY, "contact": CONTACT} | changes)


def push(**changes: Any) -> Push:
    given = {"private_key": PRIVATE_KEY, "contact": CONTACT} | changes
    return Push(ChannelContext("phone", given, "https://signoff.example", lambda: datetime.now(UTC), b"own"))
