from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import pytest

from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import ChannelReply, InboundRequest
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import show_code
from signoff.formats.replace import replace
from signoff.plugins.apprise.plugin import Apprise
from signoff.testing.channel_cards import play_scenario
from signoff.testing.channels import ChannelSuite
from signoff.testing.fake_apprise import KEY, SCHEME, FakeApprise, fake_apprise
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def apprise(url: str) -> Apprise:
    context = ChannelContext("pager", {"url_secret": url}, "https://signoff.example", lambda: datetime.now(UTC), b"own")
    return Apprise(context)


def fake(rig: ChannelRig) -> FakeApprise:
    assert isinstance(rig.vendor, FakeApprise)
    return rig.vendor


class TestApprise(ChannelSuite):
    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        return fake_apprise()

    @play_scenario
    async def test_card_and_its_end_are_separate_pages_with_title_and_text(self, rig: ChannelRig) -> None:
        vendor = fake(rig)
        request = await rig.ask(args={"to": "**Bo** <b> {{ env }} \\n"})
        await rig.decide_elsewhere(request)
        card, end = (page for page in vendor.pages if page.to == rig.bo)
        assert card.title == f"Approval needed ({show_code(request.code)})"
        assert "**Bo** <b> {{ env }} \\n" in card.body
        assert (card.format, end.format) == ("text", "text")
        assert end.title == show_code(request.code)
        assert end.body.startswith("Approved by Ana")

    @play_scenario
    async def test_any_inbound_request_is_forged(self, rig: ChannelRig) -> None:
        await rig.ask()
        raw = rig.vendor.press(rig.card(rig.bo), rig.bo, "approved")
        assert await rig.receive(raw, InboundRequest(b"{}")) == [Forged, Forged]
        assert rig.decisions.answers == []
        with pytest.raises(Malformed):
            rig.channel.parse(raw)
        with pytest.raises(NotDelivered) as caught:
            await rig.channel.answer({}, ChannelReply(text="x"))
        assert not caught.value.again

    @play_scenario
    async def test_refusal_of_the_service_is_retried(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        row = await rig.delivery(request, "bo")
        card = await rig.outbound_card(row)
        with pytest.raises(NotDelivered) as caught:
            await rig.channel.deliver(replace(card, address="not there"), None)
        assert (caught.value.code, caught.value.again) == ("refused", True)

    @play_scenario
    async def test_address_impossible_for_the_service_is_not_retried(self, rig: ChannelRig) -> None:
        request = await rig.ask()
        card = await rig.outbound_card(await rig.delivery(request, "bo"))
        channel = apprise("tgram://no-hush-token/{identity}")
        with pytest.raises(NotDelivered) as caught:
            await channel.deliver(replace(card, address="1002"), None)
        assert (caught.value.code, caught.value.again) == ("address", False)
        assert "hush" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("pager", "no address"),
        (f"{SCHEME}://{KEY}@host/all", "one place"),
        ("ntfz://{identity}", "no service `ntfz`"),
    ],
)
def test_invalid_url_is_refused_without_revealing_it(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        apprise(url)
    assert KEY not in caught.value.message
