import asyncio
import uuid

import pytest
from gateway_login import browser, hidden, words
from gateway_rig import GatewayRig, fresh, turn_of
from temporalio.client import Client

from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.receipt import Receipt
from signoff.engine.turn_client import TurnClient
from signoff.store.grants import Grants
from signoff.store.questions.answers import OwedAnswer
from signoff.store.store import Store


async def batch_item(rig: GatewayRig, approval: str, **fields: object) -> dict[str, object]:
    request = await rig.turns.signoff.request(approval)
    given: dict[str, object] = {
        "approval_id": approval,
        "revision": request.revision,
        "question_hash": request.question_hash,
        "verdict": "approved",
    }
    return given | fields


async def test_batch_returns_a_receipt_for_each_answer(rig: GatewayRig) -> None:
    yes, no, stale, own = [await rig.asked(word) for word in ("pay", "pay", "pay", "both")]
    items = [
        await batch_item(rig, yes),
        await batch_item(rig, no, verdict="denied", reason="too much"),
        await batch_item(rig, stale, revision=7),
        await batch_item(rig, own),
        {"approval_id": "main.s.t.c1.1", "revision": 1, "question_hash": "a" * 64, "verdict": "approved"},
        {"approval_id": yes, "revision": 1, "verdict": "approved"},
        {"approval_id": yes, "revision": 1, "question_hash": "a" * 64, "verdict": "perhaps"},
        "nonsense",
    ]
    answer = await rig.http.post("/v1/approvals/decide", json={"decisions": items})
    assert answer.status_code == 200, answer.text
    receipts = answer.json()["receipts"]
    assert receipts[-1]["message"] == "this must be a JSON object"
    assert [(each["status"], each["code"]) for each in receipts] == [
        ("accepted", ""),
        ("accepted", ""),
        ("refused", "stale"),
        ("refused", "not_allowed"),
        ("refused", "unknown"),
        ("refused", "malformed"),
        ("refused", "malformed"),
        ("refused", "malformed"),
    ]
    assert [each["approval_id"] for each in receipts[:6]] == [yes, no, stale, own, "main.s.t.c1.1", yes]
    assert "`question_hash`" in receipts[5]["message"]
    assert (await rig.turns.signoff.request(stale)).state == "pending"
    assert (await rig.turns.signoff.request(no)).reason == "too much"


class Together(TurnClient):
    """Each wake waits until all wait."""

    def __init__(self, client: Client, wanted: int) -> None:
        super().__init__(client)
        self.wanted, self.all_wait = wanted, asyncio.Event()

    async def wake(self, owed: OwedAnswer) -> Receipt:
        self.wanted -= 1
        if not self.wanted:
            self.all_wait.set()
        try:
            await self.all_wait.wait()
        finally:
            self.wanted += 1
        raise ServerUnavailable("the Temporal server did not answer")


async def test_decisions_of_a_batch_wait_for_their_turns_together(rig: GatewayRig) -> None:
    asked = [await rig.asked("pay") for _ in range(4)]
    items = [await batch_item(rig, approval) for approval in asked]
    client = Together(rig.turns.client, len(items))
    answer = await rig.beside(client=client).http.post("/v1/approvals/decide", json={"decisions": items})
    assert client.all_wait.is_set()
    receipts = answer.json()["receipts"]
    assert [(each["approval_id"], each["status"]) for each in receipts] == [(name, "accepted") for name in asked]


async def test_decisions_of_a_batch_about_one_request_are_taken_in_order(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    other = await rig.asked("pay")
    first, *more = [await batch_item(rig, approval, verdict=verdict) for verdict in ("denied", "approved", "approved")]
    items = [first, await batch_item(rig, other), *more]
    answer = await rig.http.post("/v1/approvals/decide", json={"decisions": items})
    assert [each["status"] for each in answer.json()["receipts"]] == ["accepted", "accepted", "refused", "refused"]
    assert (await rig.request(approval)).state == "denied"


async def test_repeated_batch_counts_once(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    body = {"decisions": [await batch_item(rig, approval)]}
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    first = await rig.http.post("/v1/approvals/decide", json=body, headers=headers)
    again = await rig.http.post("/v1/approvals/decide", json=body, headers=headers)
    assert first.json()["receipts"][0]["status"] == "accepted"
    assert again.json() == first.json() or again.json()["receipts"][0]["code"] == "duplicate"
    await rig.turns.signoff.result(turn_of(approval))
    assert await rig.runs(approval) == 1


@pytest.mark.parametrize("body", [{}, {"decisions": []}, {"decisions": [1] * 101}, {"decisions": 1}])
async def test_malformed_batch_is_refused_whole(rig: GatewayRig, body: dict[str, object]) -> None:
    answer = await rig.http.post("/v1/approvals/decide", json=body)
    assert answer.status_code == 422
    assert "decisions" in answer.json()["message"]


async def test_remembered_answer_is_listed_used_and_revoked(rig: GatewayRig) -> None:
    approval = await rig.asked("alike")
    remember = {"scope": "tenant", "where": "args.amount <= 500.0", "seconds": 600, "uses": 3}
    receipt = (await rig.decide(approval, verdict="approved", remember=remember)).json()
    assert receipt["status"] == "accepted", receipt
    await rig.turns.signoff.result(await rig.start("alike"))
    (grant,) = (await rig.http.get("/v1/grants")).json()["grants"]
    assert (grant["verdict"], grant["people"], grant["uses"], grant["uses_left"]) == ("approved", ["approver"], 3, 2)
    assert (grant["like"]["where"], grant["approval_id"]) == ("args.amount <= 500.0", approval)
    stranger = await rig.http.request("DELETE", f"/v1/grants/{grant['id']}?as=bo", json={})
    assert (stranger.status_code, stranger.json()["code"]) == (403, "not_allowed")
    gone = await rig.http.request("DELETE", f"/v1/grants/{grant['id']}", json={})
    assert (gone.status_code, gone.json()["revoked_by"]) == (200, "approver")
    assert (await rig.http.get("/v1/grants")).json() == {"grants": []}
    assert len((await rig.http.get("/v1/grants?every=true")).json()["grants"]) == 1
    await rig.asked("alike")
    missing = await rig.http.request("DELETE", "/v1/grants/nobody", json={})
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown")


async def test_digest_of_exact_arguments_is_hidden(rig: GatewayRig, store: Store) -> None:
    """Without this, masked arguments could be guessed."""
    approval = await rig.asked("alike")
    assert (await rig.decide(approval, verdict="approved", remember={"scope": "tenant"})).json()["status"] == "accepted"
    await rig.turns.signoff.result(await rig.start("alike"))
    (grant,) = (await rig.http.get("/v1/grants")).json()["grants"]
    (kept,) = await Grants(store).all(DEFAULT_TENANT)
    assert (grant["like"]["exact"], len(kept.like.exact)) == ("these arguments", 64)


@pytest.mark.parametrize(
    ("remember", "says"),
    [
        ({"where": "args.amount < 1.0"}, "not true of the arguments"),
        ({"where": "args.amuont < 1.0"}, "amuont"),
        ({"seconds": 0}, "remember.seconds"),
        ({"uses": 5_000}, "remember.uses"),
        ({"scope": "world"}, "remember.scope"),
    ],
)
async def test_invalid_grant_wish_is_refused_before_it_is_sent(
    rig: GatewayRig, remember: dict[str, object], says: str
) -> None:
    approval = await rig.asked("alike")
    answer = await rig.decide(approval, verdict="approved", remember=remember)
    assert (answer.status_code, answer.json()["code"]) == (422, "malformed")
    assert says in answer.json()["message"]
    assert (await rig.turns.signoff.request(approval)).state == "pending"


@pytest.mark.usefixtures("nothing_waits")
async def test_freeze_withdraws_open_requests_and_denies_new_calls(rig: GatewayRig) -> None:
    waiting = [await rig.asked("pay") for _ in range(3)]
    answer = await rig.http.post("/v1/freezes", json={"reason": "a stolen laptop"})
    assert answer.status_code == 200, answer.text
    answer_body = answer.json()
    assert (answer_body["freeze"]["reason"], answer_body["freeze"]["by"]) == ("a stolen laptop", "approver")
    assert set(waiting).isdisjoint(answer_body["swept"]["waiting"])
    states = [(await rig.turns.signoff.request(each)).state for each in waiting]
    assert states == ["cancelled"] * 3
    assert (await rig.http.get("/v1/freezes")).json()["freezes"][0]["tenant"] == "main"
    # A turn that was running when the tenant was frozen.
    late = await rig.turns.start("small")
    (outcome,) = (await rig.turns.signoff.result(late)).calls
    assert outcome.denied is not None
    assert (outcome.code, outcome.denied.reason) == ("denied", "frozen: a stolen laptop")
    assert rig.ledger.rows == []
    assert (await rig.http.request("DELETE", "/v1/freezes/main", json={})).status_code == 200
    again = await rig.http.request("DELETE", "/v1/freezes/main", json={})
    assert (again.status_code, (await rig.http.get("/v1/freezes")).json()) == (404, {"freezes": []})
    await rig.turns.signoff.result(await rig.start("small"))
    assert len(rig.ledger.rows) == 1


@pytest.mark.usefixtures("nothing_waits")
async def test_frozen_tenant_starts_nothing_new(rig: GatewayRig) -> None:
    session = fresh()
    await rig.http.post("/v1/freezes", json={"reason": "a stolen laptop"})
    for path, body in (
        ("/v1/turns", {"text": "small", "actor": "desk", "turn": session}),
        (f"/v1/sessions/{session}/messages", {"text": "small", "actor": "desk"}),
        (f"/v1/sessions/{session}/results", {"turn": "t", "text": "done"}),
    ):
        answer = await rig.http.post(path, json=body)
        assert (answer.status_code, answer.json()) == (
            403,
            {
                "code": "frozen",
                "message": "the tenant `main` is frozen: a stolen laptop; nothing new starts until it is unfrozen",
            },
        )
    async with browser(rig) as page:
        form = hidden((await page.get("/new")).text, "/sessions")
        shown = await page.post("/sessions", data={**form, "text": "small", "actor": "desk"})
    assert (shown.status_code, "nothing new starts until it is unfrozen" in words(shown.text)) == (403, True)
    for path in (f"/v1/turns/{session}", f"/v1/sessions/{session}"):
        assert (await rig.http.get(path)).status_code == 404
    await rig.http.request("DELETE", "/v1/freezes/main", json={})
    assert (await rig.http.post("/v1/turns", json={"text": "hello", "actor": "desk"})).status_code == 201


async def test_only_an_operator_freezes_and_unfreezes(rig: GatewayRig) -> None:
    for answer in (
        await rig.http.post("/v1/freezes?as=guest", json={"reason": "r"}),
        await rig.http.request("DELETE", "/v1/freezes/main?as=guest", json={}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
        assert "`admin`" in answer.json()["message"]
    assert (await rig.http.post("/v1/freezes", json={})).status_code == 422
    assert (await rig.http.get("/v1/freezes")).json() == {"freezes": []}
