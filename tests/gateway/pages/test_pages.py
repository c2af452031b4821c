import asyncio
import re
from typing import Any

import httpx2
import pytest
from gateway_login import as_person, browser, hidden, words
from gateway_rig import BUSY, PASSWORD, GatewayRig, fresh
from tables import table

from signoff.contracts.ids import show_code


async def opened(page: httpx2.AsyncClient, approval: str) -> dict[str, str]:
    answer = await page.get(f"/approvals/{approval}")
    assert answer.status_code == 200
    return hidden(answer.text, f"/approvals/{approval}/decide")


async def send(page: httpx2.AsyncClient, approval: str, form: dict[str, Any], **more: str) -> httpx2.Response:
    return await page.post(f"/approvals/{approval}/decide", data={**form, **more}, follow_redirects=True)


async def state_of(gateway: GatewayRig, approval: str) -> str:
    return (await gateway.turns.signoff.request(approval)).state


async def test_card_shows_the_effect_and_becomes_a_receipt_after_approval(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        page_text = words(card)
        assert "<h1" in card
        for part in ("Pay 420 EUR to Ana", "420.00 EUR", "Payee", "on behalf of Guest", "” always does"):
            assert part in page_text
        assert "otherwise denied" in page_text
        answer = await send(page, approval, hidden(card, f"/approvals/{approval}/decide"), verdict="approved")
    assert answer.status_code == 200
    assert "Approved by Approver (you)" in words(answer.text)
    assert "in the inbox" in words(answer.text)
    assert 'id="decide"' not in answer.text
    vote = (await gateway.turns.signoff.request(approval)).votes[0]
    assert (vote.channel, vote.subject) == ("inbox", "approver")
    assert vote.decision.question_hash == (await gateway.turns.signoff.request(approval)).question_hash


async def test_denial_keeps_its_reason(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        form = await opened(page, approval)
        answer = await send(page, approval, form, verdict="denied", reason="too <b>expensive</b>")
        assert "too <b>expensive</b>" in words(answer.text)
        assert "<b>expensive" not in answer.text
        talk = words((await page.get(f"/turns/{approval.rsplit('.', 2)[0]}")).text)
    assert "Denied by Approver “too <b>expensive</b>”" in talk


async def test_denial_without_a_reason_shows_no_quotation(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        answer = await send(page, approval, await opened(page, approval), verdict="denied", reason="")
        talk = words((await page.get(f"/turns/{approval.rsplit('.', 2)[0]}")).text)
    assert "Denied by Approver (you)" in words(answer.text)
    assert "“" not in talk.partition("Denied by Approver")[2][:20]
    assert "Denied by user" not in words(answer.text)


async def test_decision_needs_the_token_of_an_opened_page(gateway: GatewayRig) -> None:
    approval, other = await gateway.asked("pay"), await gateway.asked("pay")
    async with browser(gateway) as page, browser(gateway) as stranger:
        form = await opened(page, approval)
        foreign = await opened(page, other)
        theirs = await opened(stranger, approval)
        attempts: list[dict[str, str]] = [
            {},
            {"token": ""},
            {**form, "token": "0" * 64},
            {**form, "token": foreign["token"]},
            {**form, "token": theirs["token"]},
            {**form, "token": "é"},
        ]
        for attempt in attempts:
            answer = await send(page, approval, attempt, verdict="approved")
            assert answer.status_code == 403
            assert "Nothing was decided" in words(answer.text)
        await as_person(page, "ana")
        assert (await send(page, approval, form, verdict="approved")).status_code == 403
    assert await state_of(gateway, approval) == "pending"


async def test_reading_never_decides(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        form = await opened(page, approval)
        for method in ("GET", "HEAD"):
            for path in (f"/approvals/{approval}", f"/approvals/{approval}/decide"):
                await page.request(method, path, params={**form, "verdict": "approved"})
    assert await state_of(gateway, approval) == "pending"


@table("verdict", {}, {"verdict": ""}, {"verdict": "yes"}, {"verdict": "APPROVED"})
async def test_unclear_verdict_decides_nothing(gateway: GatewayRig, verdict: dict[str, str]) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        answer = await send(page, approval, await opened(page, approval), **verdict)
    assert answer.status_code == 422
    assert await state_of(gateway, approval) == "pending"


@pytest.mark.row("E58")
async def test_second_window_shows_the_first_decider(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        form = await opened(page, approval)
        await gateway.decide(approval, verdict="denied", reason="no budget", **{"as": "ana"})
        answer = await send(page, approval, form, verdict="approved")
    assert answer.status_code == 409
    page_text = words(answer.text)
    assert "Already decided" in page_text
    assert "Denied by Ana" in page_text
    assert "over the API" in page_text


async def test_form_sent_twice_is_one_answer(gateway: GatewayRig) -> None:
    approval = await gateway.asked("both", user="guest")
    async with browser(gateway) as page:
        await as_person(page, "ana")
        form = await opened(page, approval)
        first = await send(page, approval, form, verdict="approved")
        again = await send(page, approval, form, verdict="approved")
    assert "1 of 2 approvals" in words(first.text)
    assert "1 of 2 approvals" in words(again.text)
    assert len((await gateway.turns.signoff.request(approval)).votes) == 1


async def test_card_and_turn_name_both_approvers(gateway: GatewayRig) -> None:
    approval = await gateway.asked("both", user="guest")
    await gateway.decide(approval, verdict="approved", **{"as": "ana"})
    await gateway.decide(approval, verdict="approved", **{"as": "bo"})
    async with browser(gateway) as page:
        await as_person(page, "ana")
        card = words((await page.get(f"/approvals/{approval}")).text)
        turn = words((await page.get(f"/turns/{approval.rpartition('.c')[0]}")).text)
    assert "Approved by Ana (you), Bo" in card
    assert "Ana, Bo" in turn


async def test_stale_card_is_shown_again(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        form = await opened(page, approval)
        for change in ({"revision": "2"}, {"question_hash": "0" * 64}):
            answer = await send(page, approval, {**form, **change}, verdict="approved")
            assert answer.status_code == 409
            assert "Read it and answer again" in words(answer.text)
    assert await state_of(gateway, approval) == "pending"


async def test_typed_confirmation_is_required_for_high_risk(gateway: GatewayRig) -> None:
    approval = await gateway.asked("typed")
    async with browser(gateway) as page:
        form = await opened(page, approval)
        for typed in ("", "yes", "42000"):
            answer = await send(page, approval, form, verdict="approved", typed=typed)
            assert answer.status_code == 422
            assert "420.00" in words(answer.text)
        assert await state_of(gateway, approval) == "pending"
        done = await send(page, approval, form, verdict="approved", typed=" 420.00 ")
    assert "Approved by Approver" in words(done.text)


async def test_person_who_cannot_decide_sees_the_reason(gateway: GatewayRig) -> None:
    approval = await gateway.asked("both")
    own = await gateway.asked("pay", user="approver")
    async with browser(gateway) as page:
        card = await page.get(f"/approvals/{approval}")
        assert 'id="decide"' not in card.text
        assert "Approvers: Ana, Bo (finance)" in words(card.text)
        mine = await page.get(f"/approvals/{own}")
        assert "You requested this yourself" in words(mine.text)
        withdraw = hidden(mine.text, f"/approvals/{own}/withdraw")
        assert (await page.post(f"/approvals/{own}/withdraw", data={"token": "x"})).status_code == 403
        gone = await page.post(f"/approvals/{own}/withdraw", data=withdraw, follow_redirects=True)
    assert "Withdrawn by" in words(gone.text)
    assert await state_of(gateway, own) == "cancelled"


async def test_secrets_are_on_no_page(gateway: GatewayRig) -> None:
    approval = await gateway.asked("login")
    digest = (await gateway.turns.signoff.request(approval)).digest
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        talk = (await page.get(f"/turns/{approval.rsplit('.', 2)[0]}")).text
        home = (await page.get("/")).text
    assert "hidden, 13 characters" in words(card)
    assert not any(PASSWORD in text or digest in text for text in (card, talk, home))


async def test_long_text_hides_a_repeated_secret(gateway: GatewayRig) -> None:
    approval = await gateway.asked("repeat")
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        values = (await page.get(f"/approvals/{approval}/values")).text
    assert "show all" in words(card)
    assert card.count("of=[hidden]") == 2, "once below the value, once in the raw view"
    assert "of=[hidden]" in values
    assert PASSWORD not in card + values


async def test_untrusted_text_is_escaped_and_visible(gateway: GatewayRig) -> None:
    approval = await gateway.asked("strange")
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
    assert "⟦U+202E⟧" in card
    assert "\u202e" not in card
    assert "<b>&" not in card
    assert "&lt;b&gt;&amp;" in card


async def test_only_long_values_are_truncated_with_their_length(gateway: GatewayRig) -> None:
    approval = await gateway.asked("long")
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
    assert "show all 2,000 characters" in words(card)
    assert card.count("word ") > 400


async def test_list_filters_and_counts(gateway: GatewayRig) -> None:
    approval = await gateway.asked("login")
    async with browser(gateway) as page:
        # Other tests' requests wait here, too.
        while f'data-key="{approval}"' not in (home := (await page.get("/?all=1")).text):
            await asyncio.sleep(0.05)
        count = re.search(r'data-count="(\d+)"', home)
        assert count is not None
        assert f"<title>({count[1]}) Waiting for you" in home
        assert f"/icon.svg?n={count[1]}" in home
        logins = (await page.get("/", params={"tool": "login"})).text
        assert f'data-key="{approval}"' in logins
        assert "Pay 420" not in words(logins)
        nothing = words((await page.get("/", params={"actor": "other"})).text)
        assert "No requests match these filters" in nothing
        assert "<circle" in (await page.get("/icon.svg?n=3")).text


async def test_empty_list_explains_how_to_fill_it(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        await as_person(page, "guest")
        home = await page.get("/")
    assert "No requests wait for you" in words(home.text)
    assert "signoff ask pay" in words(home.text)
    assert 'href="/new"' in home.text


async def test_empty_list_makes_a_sample_request_with_one_press(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        await as_person(page, "guest")
        begun = await page.post("/sessions", data=hidden((await page.get("/")).text, "/sessions"))
        assert begun.status_code == 303
        # A missing request lets the time limit of the test end.
        while "Pay 420 EUR to Ana" not in words((await page.get(begun.headers["location"])).text):
            await asyncio.sleep(0.05)


async def test_message_starts_a_turn(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        form = hidden((await page.get("/new")).text, "/sessions")
        bad = await page.post("/sessions", data={"text": "pay", "actor": "desk", "user": "guest"})
        assert bad.status_code == 403
        assert "pay</textarea>" in bad.text
        assert (await page.post("/sessions", data={**form, "text": " ", "actor": "desk"})).status_code == 422
        unknown = await page.post("/sessions", data={**form, "text": "pay", "actor": "desc", "user": "guest"})
        assert unknown.status_code == 404
        assert "did you mean `desk`" in words(unknown.text)
        sent = await page.post("/sessions", data={**form, "text": "small refund", "actor": "desk", "user": "guest"})
        assert sent.status_code == 303
        talk = ""
        while "Finished" not in talk:
            await asyncio.sleep(0.05)
            talk = words((await page.get(sent.headers["location"])).text)
    assert "Ran, approved by rule" in talk
    assert "args.amount < 50.0" in talk
    assert "Denied by rule" in talk


async def test_conversation_shows_every_state_of_a_call(gateway: GatewayRig) -> None:
    approval = await gateway.asked("fail")
    await gateway.decide(approval, verdict="approved")
    name = approval.rsplit(".", 2)[0]
    async with gateway.http.stream("GET", f"/v1/turns/{name}/events") as stream:
        await stream.aread()
    wrong = ".".join(await gateway.start("wrong"))
    async with gateway.http.stream("GET", f"/v1/turns/{wrong}/events") as stream:
        await stream.aread()
    waits = await gateway.asked("pay")
    waiting = waits.rsplit(".", 2)[0]
    async with browser(gateway) as page:
        assert "Failed the bank is closed" in words((await page.get(f"/turns/{name}")).text)
        assert "Rejected: wrong arguments" in words((await page.get(f"/turns/{wrong}")).text)
        talk = (await page.get(f"/turns/{waiting}")).text
        assert "Waiting for approvers Open the request" in words(talk)
        assert f"/approvals/{waits}" in talk
        assert (await page.post(f"/turns/{waiting}/cancel", data={"token": "x"})).status_code == 403
        token = hidden(talk, f"/turns/{waiting}/cancel")
        await page.post(f"/turns/{waiting}/cancel", data=token)
        async with gateway.http.stream("GET", f"/v1/turns/{waiting}/events") as stream:
            await stream.aread()
        assert "Cancelled" in words((await page.get(f"/turns/{waiting}")).text)


async def test_turns_are_found_by_state_and_person(gateway: GatewayRig) -> None:
    await gateway.asked("pay")
    async with browser(gateway) as page:
        everything = await page.get("/turns")
        assert everything.status_code == 200
        none = await page.get("/turns", params={"person": "asks-nothing"})
        assert "No conversations match" in words(none.text)
        odd = await page.get("/turns", params={"state": '"', "actor": "' OR", "since": "x"})
        assert odd.status_code == 200


async def test_tool_pages_explain_rules_without_running_the_tool(gateway: GatewayRig) -> None:
    before = len(gateway.ledger.rows)
    async with browser(gateway) as page:
        listed = words((await page.get("/tools")).text)
        assert "Needs approval, unless a rule approves it" in listed
        form = hidden((await page.get("/tools/small")).text, "/tools/small")
        base = {**form, "actor": "desk", "user": "guest"}
        found = {
            args: words((await page.post("/tools/small", data={**base, "args": args})).text)
            for args in ('{"amount": 20, "to": "Bo"}', '{"amount": 80, "to": "Bo"}', '{"amount": "x"}', "[1]", "{")
        }
        refused = await page.post("/tools/small", data={"args": "{}"})
        missing = await page.get("/tools/smal")
    ran, asks, wrong, listing, broken = found.values()
    assert "The call would run without approval" in ran
    assert "cel-expr-python" in ran
    assert "The call would need approval from approvers" in asks
    assert "The call would not run" in wrong
    assert "not a JSON object" in listing
    assert "not a JSON object" in broken
    assert refused.status_code == 403
    assert missing.status_code == 404
    assert "did you mean small" in words(missing.text)
    assert len(gateway.ledger.rows) == before


async def test_not_found_page_leads_back_to_the_requests(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        for path in (
            "/approvals/main.a.b.c1.1",
            "/approvals/nonsense",
            "/turns/a.b",
            "/nothing",
            "/turns/nobody-there",
        ):
            answer = await page.get(path)
            assert answer.status_code == 404, path
            assert "text/html" in answer.headers["content-type"]
            assert "Back to the requests" in answer.text
            assert "Traceback" not in answer.text


async def test_code_redirects_to_its_card(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    code = show_code((await gateway.turns.signoff.request(approval)).code)
    async with browser(gateway) as page:
        while (answer := await page.get(f"/approvals/{code}")).status_code == 404:
            await asyncio.sleep(0.05)
    assert answer.headers["location"] == f"/approvals/{approval}"


async def test_pages_are_small_and_not_cached(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        card = await page.get(f"/approvals/{approval}")
        parts = [(await page.get(f"/static/inbox.{kind}")).content for kind in ("css", "js")]
    assert len(card.content) + sum(map(len, parts)) < 100_000
    assert card.headers["cache-control"] == "no-store"
    assert "httponly" in card.headers["set-cookie"].lower()
    assert "samesite=lax" in card.headers["set-cookie"].lower()
    assert "<script>" not in card.text
    assert " style=" not in card.text


async def test_conversation_shows_a_model_retry(gateway: GatewayRig) -> None:
    key = await gateway.start(BUSY)
    async with browser(gateway) as page, asyncio.timeout(60):
        address = f"/turns/{key.tenant}.{key.session}.{key.turn}"
        while "try 2: " not in (page_text := words((await page.get(address)).text)):
            await asyncio.sleep(0.05)
    assert "try 2: the model's provider answered 503" in page_text
    await gateway.turns.signoff.cancel_turn(key)


async def test_late_result_is_shown_under_its_own_name(gateway: GatewayRig) -> None:
    session = f"main.{fresh()}"
    response = await gateway.http.post(
        f"/v1/sessions/{session}/messages", json={"text": "hello", "actor": "desk", "id": "a"}
    )
    session = response.json()["id"]
    late = await gateway.http.post(
        f"/v1/sessions/{session}/results", json={"turn": "a", "text": "it arrived", "id": "r"}
    )
    assert late.status_code == 201
    page = ""
    while "You said: it arrived" not in page:
        await asyncio.sleep(0.1)
        page = (await gateway.http.get(f"/sessions/{session}")).text
    entries = re.findall(r'<p class="speaker">(.*?)</p>\s*<div class="words" dir="auto">(.*?)</div>', page)
    assert entries == [
        ("Guest", "hello"),
        ("desk", "You said: hello"),
        ("Late result", "it arrived"),
        ("desk", "You said: it arrived"),
    ]
