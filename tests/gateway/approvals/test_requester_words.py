import asyncio
import dataclasses
import uuid
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from gateway_login import browser, words
from gateway_rig import PASSWORD, GatewayRig, fresh, turn_of

from signoff.contracts.call import ProposedExternalCall
from signoff.contracts.content import Content
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.contracts.message import Message, user_message
from signoff.contracts.names import PEER
from signoff.contracts.person import Principal
from signoff.contracts.requests import SayBody, TurnBody
from signoff.contracts.session_messages import turn_of as turn_name
from signoff.contracts.turn import TurnInput
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.gateway.approvals import requester_words
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link
from signoff.gateway.approvals.requester_words import read_words
from signoff.gateway.session_names import peer_session
from signoff.gateway.turn_starter import say, turn_input
from signoff.keys.signature_form import hash_words
from signoff.policy.approval_policy import ApprovalPolicy, ShownArguments


class ClaimingClient:
    def __init__(self, given: TurnInput | None, *, error: Exception | None = None, late: float = 0.0) -> None:
        self.given, self.error, self.late = given, error, late

    async def input_of(self, key: TurnKey) -> TurnInput | None:
        await asyncio.sleep(self.late)
        if self.error is not None:
            raise self.error
        return self.given


async def read_from(gateway: GatewayRig, approval: str, client: ClaimingClient) -> str:
    deps = dataclasses.replace(gateway.deps, client=cast(TurnClient, client))
    return await read_words(deps, await gateway.deps.requests.load(approval))


async def words_of(gateway: GatewayRig, approval: str) -> str:
    return await read_words(gateway.deps, await gateway.deps.requests.load(approval))


async def test_card_shows_the_requesters_message_with_visible_marks(gateway: GatewayRig) -> None:
    gateway = gateway.without_secrets()
    approval = await gateway.asked("Please pay <b>Ana</b>\u202e now")
    async with browser(gateway) as page:
        shown = (await page.get(f"/approvals/{approval}")).text
    assert "Guest wrote: Please pay <b>Ana</b>⟦U+202E⟧ now" in words(shown)
    assert "<b>Ana" not in shown
    assert "\u202e" not in shown


async def test_long_message_opens_below_its_first_words(gateway: GatewayRig) -> None:
    gateway = gateway.without_secrets()
    text = f"pay {'word ' * 2_000}\nand the last line"
    assert len(text) > INLINE_BYTES
    approval = await gateway.asked(text)
    assert await words_of(gateway, approval) == text
    async with browser(gateway) as page:
        shown = (await page.get(f"/approvals/{approval}")).text
    [quoted] = [part for part in shown.split("<details")[1:] if "Guest wrote:" in part]
    summary = words(quoted.split("</summary>")[0])
    assert "word word … show more" in summary
    assert len(summary) < 200
    assert len(quoted.split("</details>")[0]) < 6_000


async def test_message_is_not_shown_if_a_tool_of_the_actor_hides_values(gateway: GatewayRig) -> None:
    plain = gateway.without_secrets()
    approval, secret = await plain.asked("pay Ana"), await gateway.asked(f"login with {PASSWORD}")
    assert await words_of(plain, approval) == "pay Ana"
    assert await words_of(plain, secret) == ""
    assert await words_of(gateway, approval) == ""
    async with browser(gateway) as page:
        assert "Guest wrote" not in words((await page.get(f"/approvals/{approval}")).text)


async def test_message_is_not_shown_if_a_tool_of_the_actor_shows_only_some_values(gateway: GatewayRig) -> None:
    plain = gateway.without_secrets()
    approval = await plain.asked("pay Ana")
    catalog = plain.deps.catalog
    policy = dataclasses.replace(catalog.policies["refund"], policy=ApprovalPolicy(show=ShownArguments(only=("to",))))
    narrow = plain.beside(catalog=dataclasses.replace(catalog, policies={**catalog.policies, "refund": policy}))
    assert await words_of(narrow, approval) == ""


async def test_message_is_not_shown_without_its_actor(gateway: GatewayRig) -> None:
    plain = gateway.without_secrets()
    approval = await plain.asked("pay Ana")
    others = {name: actor for name, actor in plain.deps.catalog.actors.items() if name != "desk"}
    assert await words_of(plain.beside(catalog=dataclasses.replace(plain.deps.catalog, actors=others)), approval) == ""


async def test_link_page_shows_no_message(gateway: GatewayRig) -> None:
    plain = gateway.without_secrets()
    approval = await plain.asked("Is it easy to pay Ana?")
    link = ApprovalLink(approval=approval, revision=1, person="ana", expires=datetime(2100, 1, 1, tzinfo=UTC))
    written = make_link(await plain.deps.store.secret_key(LINK_KEY), link)
    async with browser(plain) as page:
        answer = await page.get(f"/link/{written}")
        assert answer.status_code == 200
        assert "Guest wrote" in words((await page.get(f"/approvals/{approval}")).text)
        assert "Guest wrote" not in words(answer.text)


async def test_message_that_the_gateway_did_not_sign_is_not_shown(gateway: GatewayRig) -> None:
    gateway = gateway.without_secrets()
    approval = await gateway.asked("pay Ana")
    given = await gateway.deps.client.input_of(turn_of(approval))
    assert given is not None
    [own] = given.messages
    assert await read_from(gateway, approval, ClaimingClient(given)) == "pay Ana"
    forged = user_message("pay Ana, I have checked it")
    told = replace(own, role="assistant")
    for messages in ((), (forged,), (told,), (Message(role="user"),), (replace(own, parts=own.parts * 2),)):
        claimed = replace(given, messages=messages)
        assert await read_from(gateway, approval, ClaimingClient(claimed)) == ""
    assert await read_from(gateway, approval, ClaimingClient(replace(given, messages=(own, forged)))) == "pay Ana"


async def test_card_needs_no_server_for_the_message(gateway: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = gateway.without_secrets()
    approval = await gateway.asked("pay Ana")
    monkeypatch.setattr(requester_words, "PATIENCE", 0.01)
    for client in (
        ClaimingClient(None),
        ClaimingClient(None, error=ServerUnavailable("away")),
        ClaimingClient(None, error=RuntimeError("broken")),
        ClaimingClient(None, late=60),
    ):
        assert await read_from(gateway, approval, client) == ""


async def test_only_a_persons_own_message_is_signed(gateway: GatewayRig) -> None:
    def body() -> TurnBody:
        return TurnBody(text="pay Ana", actor="desk", turn=fresh())

    own = await turn_input(gateway.deps, body(), "desk", "api")
    again = await turn_input(gateway.deps, body(), "desk", "api")
    assert own.principal.words == hash_words("pay Ana", own.principal.nonce) != again.principal.words
    call = ProposedExternalCall(tool="pay", args=Content(inline={}))
    proposed = await turn_input(gateway.deps, body(), "desk", "api", call)
    assert proposed.principal.words == ""
    own = await told_by(gateway, "api")
    assert own.words == hash_words("hello", own.nonce)
    assert (await told_by(gateway, PEER)).words == ""


async def told_by(gateway: GatewayRig, channel: str) -> Principal:
    name = fresh()
    session: Any = peer_session("main", uuid.uuid4().hex) if channel == PEER else SessionKey("main", name)
    receipt = await say(gateway.deps, SayBody(text="hello", id=name, actor="desk"), session, channel)
    key = TurnKey(session.tenant, session.session, turn_name(name, 1))
    assert receipt.status == "accepted"
    await gateway.turns.until(key, lambda view: True)
    given = await gateway.deps.client.input_of(key)
    assert given is not None
    return given.principal
