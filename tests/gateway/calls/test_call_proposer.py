import asyncio
from datetime import timedelta
from typing import Any

import pytest
from call_rig import CallRig, call_token
from gateway_login import bearer, locked_rig, token_of
from tables import table

from signoff.contracts.errors import Refused
from signoff.store.tokens import Tokens


@pytest.mark.row("C09")
async def test_same_key_and_content_return_the_same_call(agent: CallRig) -> None:
    first = (await agent.propose(euro=200, key="key-01")).json()
    again = await asyncio.gather(*(agent.propose(euro=200, key="key-01") for _ in range(10)))
    assert {(each.json()["id"], each.json()["code"]) for each in again} == {(first["id"], first["code"])}


@pytest.mark.row("C10")
async def test_same_key_with_other_content_is_a_conflict(agent: CallRig) -> None:
    first = (await agent.propose(euro=20, key="key-02")).json()["id"]
    for _ in range(2):
        refused = await agent.propose(euro=21, key="key-02")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        await agent.withdraw(first)
    other = await agent.propose(euro=21, key="key-02", session="s-1")
    assert other.json()["id"] != first
    clerk = await agent.propose(euro=22, key="key-02", agent="clerk", user="bo")
    assert clerk.status_code == 200


@pytest.mark.parametrize("euro", [20, 200])
async def test_same_attempt_that_proposes_again_gets_the_same_permit(agent: CallRig, euro: float) -> None:
    key, sent = f"try-{euro}", {"euro": euro, "use": "process-1-try-1", "wait": 50}
    call = (await agent.propose(key=key, **sent | {"wait": 0})).json()["id"]
    if euro == 200:
        assert (await agent.decide(call)).json()["status"] == "accepted"
    first, again = (await agent.propose(key=key, **sent)).json(), (await agent.propose(key=key, **sent)).json()
    assert (first["state"], first["args"]["euro"], first["key"]) == ("used", euro, again["key"])
    assert again == first
    for other in ("process-2-try-1", True):
        refused = (await agent.propose(key=key, **sent | {"use": other})).json()
        assert (refused["state"], "args" in refused) == ("used", False)
    assert (await agent.use(call, key="process-1-try-1")).json()["key"] == first["key"]
    await agent.report(call)
    ended = (await agent.propose(key=key, **sent)).json()
    assert (ended["state"], "args" in ended) == ("ended", False)


async def test_twenty_requests_of_one_attempt_get_the_same_permit(agent: CallRig) -> None:
    answers = await asyncio.gather(*(agent.propose(key="key-05", use="one-and-the-same") for _ in range(20)))
    handed = [each.json() for each in answers]
    assert {(each["state"], each["key"]) for each in handed} == {("used", handed[0]["key"])}


async def test_tool_run_by_signoff_returns_its_result_to_the_proposer(agent: CallRig) -> None:
    answer = await agent.propose(tool="pay", args={"amount": 20})
    assert (answer.status_code, answer.json()["state"], answer.json()["result"]) == (200, "ended", "paid")
    assert (await agent.use(answer.json()["id"])).json()["code"] in ("used", "ended")


@table(
    ("fields", "status", "words"),
    ({"tool": "reefund"}, 200, "Unknown tool"),
    ({"args": {"order": "A7"}}, 200, "euro"),
    ({"args": {"order": "A7", "euro": 1, "x": "y" * 70_000}}, 413, "larger than 64 KiB"),
    ({"agent": "codr"}, 404, "did you mean `coder`"),
    ({"agent": "desk"}, 404, "the gateway's manifest declares no external agent `desk`"),
    ({"user": "ana"}, 403, "may not act for `ana`"),
    ({"user": "nobody"}, 403, "may not act for `nobody`"),
    ({"agent": "clerk"}, 422, "name the `user`"),
    ({"agent": "clerk", "user": "guest"}, 403, "may not act for `guest`"),
    ({"wait": 51}, 422, "`wait`"),
    ({"use": "short"}, 422, "`use"),
    ({"timeout": "0s"}, 422, "`timeout`"),
    ({"timeout": "31d"}, 422, "`timeout`"),
    ({"model": "x"}, 422, "`model` is not known here"),
    ({"tier": "trusted"}, 422, "directory"),
)
async def test_invalid_proposal_is_refused_in_one_sentence(
    agent: CallRig, fields: dict[str, Any], status: int, words: str
) -> None:
    answer = await agent.propose(**fields)
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert words in (body["reason"] if status == 200 else body["message"])


async def test_external_agent_takes_no_messages(agent: CallRig) -> None:
    answer = await agent.http.post("/v1/turns", json={"text": "hello", "actor": "coder"})
    assert (answer.status_code, "is an external agent" in answer.json()["message"]) == (422, True)


@pytest.mark.row("C12")
async def test_token_of_scope_call_cannot_do_anything_else(agent: CallRig) -> None:
    locked = locked_rig(agent.rig)
    secret = await call_token(agent.rig, "coder")
    async with locked.http as http:
        http.headers.update(bearer(secret))
        key = {"idempotency-key": "locked-1"}
        body = {"tool": "refund", "args": {"order": "A7", "euro": 200}}
        proposed = await http.post("/v1/calls", json=body, headers=key)
        assert (proposed.status_code, proposed.json()["state"]) == (201, "waiting"), proposed.text
        call = proposed.json()["id"]
        assert (await http.get(f"/v1/calls/{call}")).json()["state"] == "waiting"
        foreign = await http.post("/v1/calls", json=body | {"agent": "clerk"}, headers=key)
        assert (foreign.status_code, foreign.json()["code"]) == (403, "not_allowed")
        for method, path in (
            ("GET", "/v1/turns"),
            ("GET", "/v1/approvals"),
            ("POST", "/v1/turns"),
            ("POST", f"/v1/approvals/{call}.c1.1/decide"),
            ("POST", "/v1/freezes"),
        ):
            answer = await http.request(method, path, json={} if method == "POST" else None)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope"), path
        http.headers.update(bearer(await call_token(agent.rig, "clerk")))
        assert (await http.get(f"/v1/calls/{call}")).status_code == 404
        assert (await http.post(f"/v1/calls/{call}/use", json={})).status_code == 404


async def test_persons_token_cannot_propose_and_agents_token_has_one_scope(agent: CallRig) -> None:
    locked = locked_rig(agent.rig)
    async with locked.http as http:
        http.headers.update(bearer(await token_of(agent.rig, "ana")))
        answer = await http.post("/v1/calls", json={"tool": "refund"}, headers={"idempotency-key": "p"})
        assert (answer.status_code, answer.json()["code"]) == (403, "scope")
        http.headers.update(bearer(await call_token(agent.rig, "desk")))
        assert (await http.post("/v1/calls", json={"tool": "refund"})).status_code == 401
    store, now, day = agent.rig.deps.store, agent.rig.deps.clock(), timedelta(days=1)
    for holder, scopes in (("ana", ("call",)), ("actor:coder", ("call", "decide")), ("actor:coder", ("read",))):
        with pytest.raises(Refused, match="token with it alone"):
            await Tokens(store).create("main", holder, scopes, lifetime=day, now=now)  # type: ignore[arg-type]


async def test_conflict_names_the_agents_own_key_or_call(agent: CallRig) -> None:
    call = (await agent.propose(euro=20, key="order-7", use=True)).json()["id"]
    named = [
        (await agent.propose(euro=21, key="order-7"), "`Idempotency-Key` `order-7`"),
        (await agent.use(call), f"call `{call}`"),
        (await agent.use("main.a.b"), "call `main.a.b`"),
    ]
    for refused, own in named:
        assert (refused.status_code in (404, 409), own in refused.json()["message"]) == (True, True), refused.text
