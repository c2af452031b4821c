import asyncio

import httpx2
from gateway_login import answered, browser, hidden, words
from gateway_rig import GatewayRig, turn_of
from polling import pauses

from signoff.approvals.request_thread import QUESTIONS
from signoff.gateway.vendors.channel_tasks import card_links
from signoff.store.delivery_queue import DeliveryQueue, NewDelivery


async def asked(page: httpx2.AsyncClient, approval: str, question: str = "Why?") -> httpx2.Response:
    path = f"/approvals/{approval}/ask"
    form = hidden((await page.get(f"/approvals/{approval}")).text, path)
    return await page.post(path, data={**form, "question": question}, follow_redirects=True)


async def heard(page: httpx2.AsyncClient, approval: str) -> str:
    async with asyncio.timeout(60):
        for pause in pauses():
            card = (await page.get(f"/approvals/{approval}")).text
            if "The agent, in its own words" in words(card):
                return card
            await asyncio.sleep(pause)
    raise AssertionError


async def test_approver_asks_on_the_card_and_approves_after_the_answer(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        assert f"Your question to the agent ({QUESTIONS} left)" in words(card)
        stale = hidden(card, f"/approvals/{approval}/decide")
        assert stale["thread"] == ""
        after = await asked(page, approval, "Why\r\n<i>now</i>?")
        assert after.status_code == 200
        assert "<p><bdi>&lt;i&gt;now&lt;/i&gt;?</bdi></p>" in after.text
        card = await heard(page, approval)
        assert "It is &lt;b&gt;due&lt;/b&gt;" in card
        assert f"Your question to the agent ({QUESTIONS - 1} left)" in words(card)
        refused = await page.post(f"/approvals/{approval}/decide", data={**stale, "verdict": "approved"})
        assert refused.status_code == 409
        assert "Nothing was decided: there is a newer message between the approvers and the agent" in words(
            refused.text
        )
        assert await gateway.runs(approval) == 0
        assert (await answered(page, approval, verdict="approved")).status_code == 200
    result = await gateway.turns.signoff.result(turn_of(approval))
    assert [call.code for call in result.calls] == ["ok"]


async def test_card_has_no_form_while_a_question_has_no_answer(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        card = (await asked(page, approval, "Are you busy?")).text
        assert "The agent has not answered yet." in words(card)
        assert " data-asked" in card
        assert f'action="/approvals/{approval}/ask"' not in card


async def test_question_by_a_form_of_another_page_is_not_asked(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        answer = await page.post(f"/approvals/{approval}/ask", data={"question": "Why?", "token": "x"})
    assert answer.status_code == 403
    assert (await gateway.request(approval)).messages == ()


async def test_requests_with_questions_are_decided_alone(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        assert "approvers asked the agent" not in words((await page.get("/batch", params={"pick": approval})).text)
        await asked(page, approval)
        assert "approvers asked the agent about it" in words((await page.get("/batch", params={"pick": approval})).text)


async def test_edit_pages_show_the_messages_and_refuse_an_older_thread(gateway: GatewayRig) -> None:
    approval = await gateway.asked("typed")
    path = f"/approvals/{approval}/edit"
    async with browser(gateway) as page:
        stale = hidden((await page.get(path)).text, path)
        await asked(page, approval)
        await heard(page, approval)
        refused = await page.post(path, data={**stale, "step": "review"})
        assert refused.status_code == 409
        assert "there is a newer message" in words(refused.text)
        form = (await page.get(path)).text
        assert "It is &lt;b&gt;due&lt;/b&gt;" in form
        assert hidden(form, path)["thread"] == (await gateway.request(approval)).thread


async def test_link_shows_the_messages_and_binds_its_approval_to_them(gateway: GatewayRig) -> None:
    approval = await gateway.asked("easy")
    request = await gateway.request(approval)
    cards = DeliveryQueue(gateway.deps.store)
    await cards.plan([NewDelivery(request=request, person="ana", channel="chat", address="ana")])
    (row,) = await cards.of_request(approval)
    link = await card_links(gateway.deps.store, "", {})(row)
    async with browser(gateway) as page:
        await asked(page, approval)
        await heard(page, approval)
    async with browser(gateway) as mail:
        card = (await mail.get(link)).text
        assert "It is &lt;b&gt;due&lt;/b&gt;" in card
        assert 'id="ask"' not in card
        form = hidden(card, link)
        refused = await mail.post(link, data={**form, "thread": "", "verdict": "approved"})
        assert (refused.status_code, "there is a newer message" in words(refused.text)) == (409, True)
        assert (await mail.post(link, data={**form, "verdict": "approved"})).status_code == 303
    assert (await gateway.request(approval)).state == "approved"
