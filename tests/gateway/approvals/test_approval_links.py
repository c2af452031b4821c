import base64
import json
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from gateway_login import browser, hidden, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.errors import Refused
from signoff.formats.replace import replace
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link, read_link
from signoff.gateway.signed_state import seal

KEY = b"k" * 32
NOW = datetime(2030, 1, 2, 12, tzinfo=UTC)
LINK = ApprovalLink(approval="main.s.t.c1.1", revision=1, person="ana", expires=NOW + timedelta(hours=1))


def test_link_round_trip_keeps_all_its_fields() -> None:
    link = replace(LINK, verb="denied", channel="email", revision=3)
    assert read_link(KEY, make_link(KEY, link), NOW) == link


def test_link_expires() -> None:
    written = make_link(KEY, LINK)
    read_link(KEY, written, LINK.expires - timedelta(seconds=1))
    with pytest.raises(Refused, match="expired") as refused:
        read_link(KEY, written, LINK.expires)
    assert refused.value.code == "expired"


@given(st.data())
def test_changed_character_makes_a_link_invalid(data: st.DataObject) -> None:
    written = make_link(KEY, LINK)
    at = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.sampled_from("ABYZabyz019-_.= /é").filter(lambda char: char != written[at]))
    for changed in (
        written[:at] + other + written[at + 1 :],
        written[:at],
        written + other,
        written[at:] + written[:at],
    ):
        if changed == written:
            continue
        with pytest.raises(Refused, match="this link is invalid"):
            read_link(KEY, changed, NOW)


@table("written", "", ".", "..", "a.b", "e30.e30", "x" * 5_000, "\ud800.a", "{}", "null")
def test_malformed_link_is_refused(written: str) -> None:
    with pytest.raises(Refused, match="this link is invalid"):
        read_link(KEY, written, NOW)


def test_link_is_sealed_with_the_stores_key_and_its_kind() -> None:
    fields = ["main.s.t.c1.1", 1, "ana", "", "link", int(LINK.expires.timestamp())]
    foreign = make_link(b"x" * 32, LINK)
    other_kind = seal(KEY, "sign-in 1", fields)
    body = base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()
    for written in (foreign, other_kind, f"{body}.", f"{body}.{body}"):
        with pytest.raises(Refused, match="this link is invalid"):
            read_link(KEY, written, NOW)
    for odd in (
        [],
        fields[:-1],
        [*fields, 1],
        [1, *fields[1:]],
        [*fields[:3], "maybe", *fields[4:]],
        [*fields[:5], "x"],
    ):
        with pytest.raises(Refused, match="another version"):
            read_link(KEY, seal(KEY, "approval link 1", odd), NOW)


@pytest.fixture
def locked(gateway: GatewayRig) -> GatewayRig:
    return locked_rig(gateway)


async def link_for(rig: GatewayRig, approval: str, person: str = "ana", **fields: object) -> str:
    key = await rig.deps.store.secret_key(LINK_KEY)
    given: dict[str, object] = {
        "approval": approval,
        "revision": 1,
        "person": person,
        "expires": rig.deps.clock() + timedelta(hours=1),
    } | fields
    return f"/link/{make_link(key, ApprovalLink.model_validate(given))}"


async def state_of(rig: GatewayRig, approval: str) -> str:
    return (await rig.turns.signoff.request(approval)).state


async def test_link_page_decides_the_request(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("easy")
    url = await link_for(locked, approval, channel="email")
    async with browser(locked) as page:
        opened = await page.get(url)
        assert opened.status_code == 200
        text = words(opened.text)
        assert "Pay 420 EUR to Ana" in text
        assert "This was sent to Ana" in text
        assert "Signed in" not in text
        sent = await page.post(url, data={**hidden(opened.text, url), "verdict": "approved"})
        assert (sent.status_code, sent.headers["location"]) == (303, url)
        assert "Approved by Ana (you)" in words((await page.get(url)).text)
    decision = (await gateway.turns.signoff.request(approval)).votes[0].decision
    assert (decision.subject, decision.channel, decision.assurance) == ("ana", "email", "link")
    assert decision.revision == 1


async def test_opening_a_link_decides_nothing(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("easy")
    url = await link_for(locked, approval)
    async with browser(locked) as page, browser(locked) as other:
        form = hidden((await page.get(url)).text, url)
        theirs = hidden((await other.get(url)).text, url)
        for method in ("GET", "HEAD"):
            for headers in ({}, {"purpose": "prefetch"}, {"sec-purpose": "prefetch;prerender"}):
                looked = await page.request(method, url, params={**form, "verdict": "approved"}, headers=headers)
                assert looked.status_code == 200
        attempts: list[dict[str, str]] = [{}, {"token": ""}, theirs, {**form, "token": form["token"][:-1] + "é"}]
        for attempt in attempts:
            answer = await page.post(url, data={**attempt, "verdict": "approved"})
            assert answer.status_code == 403
            assert "Nothing was decided" in words(answer.text)
        foreign = await page.post(url, data={**form, "verdict": "approved"}, headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await page.request(method, url)).status_code == 405
        scanner = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=locked.app), base_url=page.base_url)
        assert (await scanner.post(url, data={**form, "verdict": "approved"})).status_code == 403
    assert await state_of(gateway, approval) == "pending"


async def test_form_is_valid_for_its_own_link_only(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval, second = await gateway.asked("easy"), await gateway.asked("easy")
    url = await link_for(locked, approval)
    others = [
        await link_for(locked, second),
        await link_for(locked, approval, "approver"),
        await link_for(locked, approval, verb="approved"),
        await link_for(locked, approval, revision=2),
    ]
    async with browser(locked) as page:
        for other in others:
            opened = (await page.get(other)).text
            form = hidden(opened, other) if f'action="{other}"' in opened else {}
            assert (await page.post(url, data={**form, "verdict": "approved"})).status_code == 403
        for verdict in ("", "yes", "APPROVED", "happened"):
            form = hidden((await page.get(url)).text, url)
            assert (await page.post(url, data={**form, "verdict": verdict})).status_code == 422
        denying = await link_for(locked, approval, verb="denied")
        shown = (await page.get(denying)).text
        assert 'value="approved"' not in shown
        form = hidden(shown, denying)
        assert (await page.post(denying, data={**form, "verdict": "approved"})).status_code == 422
    assert await state_of(gateway, approval) == "pending"


async def test_link_of_an_earlier_revision_leads_to_the_current_card(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("easy")
    url = await link_for(locked, approval, revision=2)
    async with browser(locked) as page:
        opened = (await page.get(url)).text
    assert "has a newer revision than this link" in words(opened)
    assert 'id="decide"' not in opened
    assert f'href="/approvals/{approval}"' in opened


async def test_link_is_insufficient_if_the_policy_requires_a_sign_in(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = await link_for(locked, approval)
    async with browser(locked) as page:
        opened = (await page.get(url)).text
        assert "A link is not enough" in words(opened)
        assert 'id="decide"' not in opened
        led = await page.get(f"/approvals/{approval}")
        assert led.headers["location"].startswith("/login?next=")
        await sign_in(page, await token_of(locked, "ana"), f"/approvals/{approval}")
        assert 'id="decide"' in (await page.get(f"/approvals/{approval}")).text
    assert await state_of(gateway, approval) == "pending"


async def test_refused_link_shows_its_reason(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("easy")
    key = await locked.deps.store.secret_key(LINK_KEY)
    expired = ApprovalLink(
        approval=approval, revision=1, person="ana", expires=locked.deps.clock() - timedelta(seconds=1)
    )
    good = await link_for(locked, approval)
    cases = {
        f"/link/{make_link(key, expired)}": (410, "expired"),
        good[:-1]: (404, "incomplete"),
        f"{good}x": (404, "incomplete"),
        "/link/x": (404, "incomplete"),
        await link_for(locked, approval, "gone"): (403, "not in the directory"),
        await link_for(locked, approval, "zoe"): (403, "not in the directory"),
        await link_for(locked, "nonsense"): (403, "not in the directory"),
        await link_for(locked, "main.a.b.c1.1"): (404, "no request"),
    }
    async with browser(locked) as page:
        for url, (status, why) in cases.items():
            for answer in (await page.get(url), await page.post(url, data={"verdict": "approved"})):
                assert answer.status_code == status, url
                assert why in words(answer.text)
                assert "Pay 420" not in answer.text
    assert await state_of(gateway, approval) == "pending"


async def test_person_without_permission_cannot_decide_by_link(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval, own = await gateway.asked("easy"), await gateway.asked("easy", user="ana")
    async with browser(locked) as page:
        for url in (await link_for(locked, approval, "bo"), await link_for(locked, own, "ana")):
            assert 'id="decide"' not in (await page.get(url)).text
    assert [await state_of(gateway, each) for each in (approval, own)] == ["pending", "pending"]


async def test_link_answers_once(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("easy")
    url = await link_for(locked, approval)
    async with browser(locked) as page:
        form = hidden((await page.get(url)).text, url)
        for verdict in ("denied", "denied", "approved"):
            await page.post(url, data={**form, "verdict": verdict, "reason": "no"})
        assert "Denied by Ana (you)" in words((await page.get(url)).text)
    request = await gateway.turns.signoff.request(approval)
    assert (request.state, len(request.votes)) == ("denied", 1)
    assert await gateway.runs(approval) == 0


async def test_link_cannot_settle_an_unknown_outcome(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.doubted("easy")
    url = await link_for(locked, approval, revision=(await gateway.turns.signoff.request(approval)).revision)
    async with browser(locked) as page:
        opened = (await page.get(url)).text
        assert "A link cannot settle an unknown outcome" in words(opened)
        assert 'id="decide"' not in opened


async def test_link_expires_a_day_after_its_request(gateway: GatewayRig) -> None:
    """A link may stay in a mailbox for years. Before the fix it opened 30 days later."""
    ahead = timedelta(0)
    rig = locked_rig(gateway, clock=lambda: datetime.now(UTC) + ahead)
    approval = await gateway.asked("easy")
    url = await link_for(rig, approval, expires=datetime.now(UTC) + timedelta(days=60))
    async with browser(rig) as page:
        form = hidden((await page.get(url)).text, url)
        assert (await page.post(url, data={**form, "verdict": "denied"})).status_code == 303
        ahead = timedelta(hours=23)
        assert (await page.get(url)).status_code == 200
        ahead = timedelta(hours=25)
        over = await page.get(url)
        sent = await page.post(url, data={**form, "verdict": "approved"})
    assert (over.status_code, sent.status_code) == (410, 410)
    assert "Pay" not in words(over.text)
