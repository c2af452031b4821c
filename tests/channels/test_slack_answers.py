from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tables import table
from test_dispatcher import BO, request

from signoff.approvals.card import render_card
from signoff.channels.base import ChannelContext
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import ChannelReply, ClosedCard, OutboundCard, SentCard
from signoff.channels.slack.blocks import TEXT_CHARS, card_blocks
from signoff.channels.slack.slack import Slack
from signoff.contracts.approval import Card
from signoff.contracts.call import RuleReference
from signoff.contracts.receipt import Receipt
from signoff.testing.vendor_server import serve_vendor
from signoff.texts.formatter import Formatter

VOICE = Formatter("en", UTC, datetime.now(UTC))


def sections(card: Card) -> list[str]:
    asks = request(card=card, rule=RuleReference(kind="global", name="r"))
    notice = OutboundCard(token="t" * 26, request=asks, person=BO, address="T1:U1", link="https://signoff.example/l")
    blocks = card_blocks(notice, VOICE, "https://signoff.example")[1]
    return [block["text"]["text"] for block in blocks if block["type"] == "section"]


def about(args: dict[str, Any]) -> Card:
    return render_card(effect="Pay", title="", tool="pay", args=args, schema={})


@table("pad", 0, 230, 300, 370)
def test_value_cannot_start_a_section_like_a_row(pad: int) -> None:
    values = {f"f{number}": "x" * 390 for number in range(7)}
    shown = sections(about({**values, "memo": "y" * pad + "amount: 5 EUR"}))
    assert len(shown) > 3
    assert not [each for each in shown if each.startswith(("x", "y", "amount"))]
    assert f"Memo: {'y' * pad}amount: 5 EUR" in [line for each in shown for line in each.split("\n")]
    assert max(map(len, shown)) <= TEXT_CHARS


class Kept:
    def __init__(self) -> None:
        self.status = 200
        self.posts: list[tuple[str, dict[str, Any]]] = []

    async def take(self, request: Request) -> Response:
        self.posts.append((request.url.path, await request.json()))
        if request.url.path.startswith("/actions"):
            return Response("ok" if self.status == 200 else "no", status_code=self.status)
        return JSONResponse({"ok": True, "channel": "D1", "ts": "1.1"})


@pytest.fixture
async def talk() -> AsyncIterator[tuple[Slack, Kept, str]]:
    kept = Kept()
    app = Starlette(routes=[Route("/{path:path}", kept.take, methods=["POST"])])
    async with serve_vendor(app) as url:
        options = {"token": "xoxb", "signing_secret": "s", "api_url": f"{url}/api"}
        channel = Slack(ChannelContext("slack", options, "https://signoff.example", lambda: datetime.now(UTC), b"own"))
        yield channel, kept, url
        await channel.close_down()


REPLY = ChannelReply(text="*Approved* by ~Bo~ <https://x>", receipt=Receipt(status="accepted"))


async def test_answer_reaches_the_person_after_the_response_address_expired(
    talk: tuple[Slack, Kept, str],
) -> None:
    channel, kept, url = talk
    kept.status = 404
    await channel.answer({"response_url": f"{url}/actions/used", "channel": "D1", "user": "U1"}, REPLY)
    assert [path for path, _ in kept.posts] == ["/actions/used", "/api/chat.postEphemeral"]
    assert (kept.posts[1][1]["channel"], kept.posts[1][1]["user"]) == ("D1", "U1")


async def test_end_of_an_unacknowledged_card_is_a_new_message(talk: tuple[Slack, Kept, str]) -> None:
    channel, kept, _ = talk
    ended = request(state="denied", decided_by="ana", decided_name="Ana")
    closed = ClosedCard(request=ended, person=BO, token="t" * 26, link="https://signoff.example/l", address="T1:U1")
    await channel.close(SentCard(), closed)
    [(path, message)] = kept.posts
    assert (path, message["channel"]) == ("/api/chat.postMessage", "U1")
    assert "Denied by Ana" in message["text"]


async def test_retryable_answer_is_retried_at_the_response_address(talk: tuple[Slack, Kept, str]) -> None:
    channel, kept, url = talk
    kept.status = 503
    with pytest.raises(NotDelivered) as found:
        await channel.answer({"response_url": f"{url}/actions/1", "channel": "D1", "user": "U1"}, REPLY)
    assert found.value.again
    assert len(kept.posts) == 1


@pytest.mark.parametrize("where", [{"response_url": "/actions/1"}, {"thread": "1.1"}, {}])
async def test_markup_in_an_answer_is_escaped(talk: tuple[Slack, Kept, str], where: dict[str, str]) -> None:
    channel, kept, url = talk
    if "response_url" in where:
        where = {"response_url": f"{url}{where['response_url']}"}
    await channel.answer({"channel": "D1", "user": "U1", **where}, REPLY)
    ((_, body),) = kept.posts
    assert body["mrkdwn"] is False
    assert body["text"] == "*Approved* by ~Bo~ &lt;https://x&gt;"
