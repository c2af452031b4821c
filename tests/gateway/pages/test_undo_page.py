import asyncio
import uuid
from collections.abc import AsyncIterator

import httpx2
import pytest
from gateway_login import answered, as_person, browser, hidden, words
from gateway_rig import SIGNER, GatewayRig, gateway_rig, turn_of
from some import some
from temporalio.client import Client
from turn_fixtures import GUEST

from signoff.activities.answers_activity import AnswersActivity
from signoff.activities.run_right import rows_of_turn
from signoff.approvals import request_state
from signoff.contracts.activity_messages import AnswersTask
from signoff.contracts.call import CallContext
from signoff.formats.replace import replace
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.repair_task import AnswerDispatcher
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions, end_by_turn
from signoff.store.store import Store
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import formatter_for

ALREADY = "the 5 seconds for an undo have passed"
OTHERS = "only the approver who denied this can undo it"


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    """The test hands over the answers."""
    async with gateway_rig(client, store, f"undo-{uuid.uuid4().hex[:12]}", dispatches=False) as found:
        yield found


@pytest.fixture(autouse=True)
def _long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of any speed, `over` ends the undo period."""
    monkeypatch.setattr(request_state, "UNDO_SECONDS", 60.0)


def over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_state, "UNDO_SECONDS", 0.001)


async def denied(page: httpx2.AsyncClient, approval: str, **fields: str) -> str:
    answer = await answered(page, approval, verdict="denied", **fields)
    assert answer.status_code == 200, answer.text
    return answer.text


async def undone(page: httpx2.AsyncClient, approval: str, shown: str) -> httpx2.Response:
    path = f"/approvals/{approval}/undo"
    return await page.post(path, data=hidden(shown, path), follow_redirects=True)


async def rows_of(rig: GatewayRig, approval: str) -> ApprovalRows:
    rows = await Questions(rig.deps.store).read(approval)
    assert rows is not None
    return rows


async def test_undone_denial_leaves_the_request_waiting_and_can_be_approved(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        shown = await denied(page, approval, reason="too much")
        assert "Denied. Undo" in words(shown)
        assert (await rig.request(approval)).state == "denied"
        assert await AnswerDispatcher(rig.deps).step(older_than=0) == 1
        assert some((await rig.turns.signoff.view(turn_of(approval))).calls[0].approval).state == "pending"
        done = await undone(page, approval, shown)
        assert (done.status_code, "Undo" in words(done.text)) == (200, False)
        assert (await rig.request(approval)).state == "pending"
        assert "Pay 420 EUR to Ana" in words((await page.get("/")).text)
        assert await AnswerDispatcher(rig.deps).step(older_than=0) == 0
        assert (await rig.decide(approval, verdict="approved", revision=1)).json()["status"] == "accepted"
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["ok"]


async def test_undo_after_its_period_is_refused_and_the_denial_remains(
    rig: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        shown = await denied(page, approval)
        over(monkeypatch)
        late = await undone(page, approval, shown)
    assert late.status_code == 409
    assert ALREADY in words(late.text)
    assert "Denied. Undo" not in words(late.text)
    assert (await rig.request(approval)).state == "denied"
    assert await AnswerDispatcher(rig.deps).step(older_than=0) == 0
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["denied"]


async def test_undo_once_the_turn_has_the_denial_is_refused(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        shown = await denied(page, approval)
        with monkeypatch.context() as patch:
            over(patch)
            assert await AnswerDispatcher(rig.deps).step(older_than=0) == 0
        assert [each.handed for each in (await rows_of(rig, approval)).answers] == [True]
        late = await undone(page, approval, shown)
    assert (late.status_code, ALREADY in words(late.text)) == (409, True)
    assert (await rig.request(approval)).state == "denied"


async def test_undo_by_another_person_or_browser_session_is_refused(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    path = f"/approvals/{approval}/undo"
    async with browser(rig) as page, browser(rig) as second:
        shown = await denied(page, approval)
        assert "Denied. Undo" not in words((await second.get(f"/approvals/{approval}")).text)
        stolen = await second.post(path, data=hidden(shown, path))
        assert (stolen.status_code, "out of date" in words(stolen.text)) == (403, True)
        await as_person(page, "ana")
        stolen = await page.post(path, data=hidden(shown, path))
        assert (stolen.status_code, "out of date" in words(stolen.text)) == (403, True)
    denial = (await rows_of(rig, approval)).answers[0].vote.decision
    for person, mark in (("approver", "f" * 16), ("approver", ""), ("ana", request_state.browser_of(denial))):
        found = rig.deps.people.find(person, "main")
        assert found is not None
        receipt = await DecisionService(rig.deps).undo_denial(approval, found, mark)
        assert (receipt.status, receipt.code) == ("refused", "not_allowed")
        assert OTHERS in receipt_words(receipt, formatter_for(replace(found, locale="en"), rig.deps.clock()))
    assert (await rig.request(approval)).state == "denied"
    records = await rig.records(approval)
    refused = [each.subject for each in records if each.facts.get("status") == "refused"]
    assert refused == ["approver", "approver", "ana"]


async def test_approval_refused_before_an_undo_stays_refused(rig: GatewayRig) -> None:
    approval = await rig.asked("both")
    async with browser(rig) as page:
        await as_person(page, "bo")
        shown = await denied(page, approval)
        refused = await rig.decide(approval, verdict="approved", revision=1, **{"as": "ana"})
        assert refused.json()["code"] == "already_decided"
        assert (await undone(page, approval, shown)).status_code == 200
    request = await rig.request(approval)
    assert (request.state, request.votes) == ("pending", ())
    assert (await rig.turns.signoff.request(approval)).votes == ()


async def test_second_click_on_undo_changes_nothing(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        shown = await denied(page, approval)
        both = await asyncio.gather(undone(page, approval, shown), undone(page, approval, shown))
        assert [each.status_code for each in both] == [200, 200]
        assert [each.vote.verdict for each in (await rows_of(rig, approval)).answers] == ["denied", "retracted"]
        again = await denied(page, approval)
        assert "Denied. Undo" in words(again)
        assert (await undone(page, approval, again)).status_code == 200
    assert (await rig.request(approval)).state == "pending"


async def test_undo_is_stored_signed_and_recorded(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        await undone(page, approval, await denied(page, approval))
    denial, taken_back = (await rows_of(rig, approval)).answers
    assert (denial.void, taken_back.void, taken_back.settles) == (True, True, False)
    assert SIGNER.verifier().check_decision(taken_back.vote.decision)
    records = await rig.records(approval)
    found = [each for each in records if each.kind == "attempt" and each.facts.get("verdict") == "retracted"]
    assert [(each.subject, each.facts["status"], bool(each.facts["signature"])) for each in found] == [
        ("approver", "counted", True)
    ]


async def test_denial_of_the_api_reaches_its_turn_at_once(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    assert (await rig.decide(approval, verdict="denied", revision=1)).json()["status"] == "accepted"
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["denied"]


async def test_turn_that_reads_the_store_waits_until_a_denial_cannot_be_undone(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    answers, store = AnswersActivity(rig.turns.deps), rig.deps.store
    key = turn_of(approval)
    ctx = CallContext(actor="desk", session=key.session, turn=key.turn, tenant=key.tenant, channel="api", user=GUEST)
    async with browser(rig) as page:
        shown = await denied(page, approval)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answers.read_answers(AnswersTask(approval=approval, revision=1)), 0.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rows_of_turn(store, ctx), 0.5)
        await undone(page, approval, shown)
    after = await answers.read_answers(AnswersTask(approval=approval, revision=1))
    assert (after.settlement.state, after.edits) == ("pending", ())
    assert [each.state for each in (await rows_of_turn(store, ctx)).requests] == ["pending"]


async def test_undo_after_the_turns_end_is_refused(rig: GatewayRig) -> None:
    """Otherwise the request would wait for a turn that has ended."""
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        shown = await denied(page, approval)
        assert await rig.deps.store.run(lambda connection: end_by_turn(connection, approval, 1, "cancelled"))
        late = await undone(page, approval, shown)
    assert (late.status_code, ALREADY in words(late.text)) == (409, True)
    assert (await rig.request(approval)).state == "denied"


async def test_remembered_denial_has_no_undo(rig: GatewayRig) -> None:
    approval = await rig.asked("alike")
    async with browser(rig) as page:
        wish = {"remember": "on", "which": "same", "scope": "session", "uses": "3", "span": "1h"}
        assert "Undo" not in words(await denied(page, approval, **wish))
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert [call.code for call in result.calls] == ["denied"]


async def test_denials_of_a_batch_can_be_undone_one_by_one(rig: GatewayRig) -> None:
    approvals = [await rig.asked("pay"), await rig.asked("pay")]
    async with browser(rig) as page:
        shown = (await page.get("/batch", params={"pick": approvals})).text
        form = hidden(shown, "/batch")
        fields = {name: value for name, value in form.items() if name != "shown"}
        done = await page.post("/batch", data={**fields, "shown": approvals, "pick": approvals, "verdict": "denied"})
        assert words(done.text).count("Denied. Undo") == 2
        assert (await undone(page, approvals[1], done.text)).status_code == 200
    assert [(await rig.request(each)).state for each in approvals] == ["denied", "pending"]
