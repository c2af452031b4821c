import json

from call_rig import CallRig, call_token, second_gateway
from gateway_login import bearer, locked_rig


async def test_agent_reads_the_steps_of_its_call(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    first = await _events(agent, call)
    assert [each["type"] for each in first["events"]] == ["turn.started", "tool_call.proposed", "approval.requested"]
    await agent.decide(call)
    await agent.show(call, wait=20)
    await agent.use(call)
    await agent.report(call)
    later = await _events(agent, call, after=first["next"])
    types = [each["type"] for each in later["events"]]
    wanted = ("approval.decided", "tool_call:refund", "tool_call.executed")
    assert [each for each in types if each in wanted] == list(wanted)
    assert {each["source"] for each in later["events"] if each["type"] == "tool_call:refund"} == {"actor:coder"}
    assert not [each for each in (*first["events"], *later["events"]) if call not in json.dumps(each)]


async def test_steps_are_streamed_if_the_client_accepts_that(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    path, params = f"/v1/calls/{call}/events", {"agent": "coder"}
    headers = {"accept": "text/event-stream", "last-event-id": "x"}
    assert (await agent.http.get(path, params=params, headers=headers)).status_code == 422
    # Stop the gateway's streams, because a stream has no other end. Events so far are sent anyway.
    stopping = second_gateway(agent)
    stopping.rig.app.state.live.close()
    async with stopping.http as http:
        answer = await http.get(path, params=params, headers={"accept": "text/event-stream"})
    assert "approval.requested" in answer.text
    assert answer.text.count("\nid: ") == 3


async def test_steps_are_hidden_from_other_agents(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    locked = locked_rig(agent.rig)
    async with locked.http as http:
        http.headers.update(bearer(await call_token(agent.rig, "clerk")))
        assert (await http.get(f"/v1/calls/{call}/events")).status_code == 404
        http.headers.update(bearer(await call_token(agent.rig, "coder")))
        locked_call = await http.post(
            "/v1/calls", json={"tool": "refund", "args": {"order": "A7", "euro": 200}}, headers={"idempotency-key": "e"}
        )
        answer = await http.get(f"/v1/calls/{locked_call.json()['id']}/events")
        assert (answer.status_code, len(answer.json()["events"])) == (200, 3)
        assert (await http.get("/v1/events", params={"turn": call})).status_code == 403


async def _events(agent: CallRig, call: str, **params: int) -> dict[str, list[dict[str, str]]]:
    answer = await agent.http.get(f"/v1/calls/{call}/events", params={"agent": "coder", **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, list[dict[str, str]]] = answer.json()
    return found
