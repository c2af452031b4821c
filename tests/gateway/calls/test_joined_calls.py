import asyncio
import json
import uuid
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

import httpx2
import pytest
from call_rig import CallRig, second_gateway

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.store.call_joins import CallJoins, JoinedCall


async def test_twenty_equal_proposals_at_once_share_one_use(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proposer starts a second call because the first is already used."""
    everybody, join = asyncio.Barrier(20), CallJoins.join

    async def join_with_all(self: CallJoins, key: str, turn: str) -> JoinedCall:
        found = await join(self, key, turn)
        await everybody.wait()
        return found

    monkeypatch.setattr(CallJoins, "join", join_with_all)
    other = second_gateway(agent)
    async with other.http:
        fields: dict[str, Any] = {"session": uuid.uuid4().hex, "use": True}
        answers = await asyncio.gather(*(each.join(**fields) for each in (agent, other) for _ in range(10)))
    bodies = [each.json() for each in answers]
    assert sum("args" in each and each["state"] == "used" for each in bodies) == 1
    assert len({each["id"] for each in bodies if "id" in each}) == 1
    assert {each["code"] for each in bodies if "id" not in each} <= {"used"}


async def test_proposal_joined_before_the_use_starts_no_second_call(
    agent: CallRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, join = uuid.uuid4().hex, CallJoins.join
    joined, used = asyncio.Event(), asyncio.Event()

    async def join_and_wait(self: CallJoins, key: str, turn: str) -> JoinedCall:
        found = await join(self, key, turn)
        joined.set()
        await used.wait()
        return found

    call = (await agent.join(session=session)).json()["id"]
    monkeypatch.setattr(CallJoins, "join", join_and_wait)
    slow = asyncio.create_task(agent.join(session=session, use=True))
    await joined.wait()
    monkeypatch.undo()
    quick = (await agent.join(session=session, use=True)).json()
    used.set()
    late = (await slow).json()
    assert (quick["id"], quick["state"], "args" in quick) == (call, "used", True)
    assert (late["id"], late["state"], "args" in late) == (call, "used", False)


@pytest.mark.row("C11")
async def test_joined_approval_is_used_once(agent: CallRig) -> None:
    other, session = second_gateway(agent), uuid.uuid4().hex
    async with other.http:
        first = await agent.join(euro=200, session=session)
        call = first.json()["id"]
        assert (await other.join(euro=200, session=session)).json()["id"] == call
        await agent.decide(call)
        assert (await agent.show(call, wait=20))["state"] == "permitted"
        asked = (each.join(euro=200, session=session, use=True) for each in (agent, other) for _ in range(5))
        bodies = [each.json() for each in await asyncio.gather(*asked)]
    handed = Counter(each["id"] for each in bodies if "args" in each and each["state"] == "used")
    assert handed == {call: 1}
    # A proposal after the use starts a new request.
    assert {each["state"] for each in bodies if each.get("id", call) != call} <= {"waiting"}


@pytest.mark.parametrize("lost", [False, True])
async def test_used_permit_is_not_joined(agent: CallRig, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    session = uuid.uuid4().hex
    if lost:

        async def fail(self: CallJoins, key: str, turn: str) -> None:
            raise StoreUnavailable("the store is away")

        monkeypatch.setattr(CallJoins, "release", fail)
    first = (await agent.join(session=session)).json()
    assert (await agent.join(session=session)).json()["id"] == first["id"]
    assert (await agent.use(first["id"])).status_code == 200
    monkeypatch.undo()
    again = (await agent.join(session=session, use=True)).json()
    assert (again["id"] != first["id"], again["state"], "args" in again) == (True, "used", True)
    assert (await agent.report(first["id"])).json()["code"] == "ok"


async def test_result_waits_for_the_next_equal_proposal(agent: CallRig) -> None:
    fields: dict[str, Any] = {"tool": "pay", "args": {"amount": 90}, "session": uuid.uuid4().hex}
    ran = len(agent.rig.ledger.rows)
    call = (await agent.join(**fields)).json()["id"]
    await agent.decide(call)
    await agent.rig.turns.signoff.result(TurnKey(*call.split(".")))
    told = (await agent.join(**fields)).json()
    assert (told["id"], told["state"], told["result"]) == (call, "ended", "paid")
    anew = (await agent.join(**fields)).json()
    assert (anew["id"] != call, anew["state"]) == (True, "waiting")
    assert len(agent.rig.ledger.rows) == ran + 1


async def test_denial_is_returned_once_and_then_approval_is_requested_again(agent: CallRig) -> None:
    session = uuid.uuid4().hex
    call = (await agent.join(euro=200, session=session)).json()["id"]
    await agent.decide(call, verdict="denied", reason="not twice")
    await agent.rig.turns.signoff.result(TurnKey(*call.split(".")))
    told = (await agent.join(euro=200, session=session)).json()
    assert (told["id"], told["state"], told["reason"]) == (call, "denied", "not twice")
    assert (await agent.join(euro=200, session=session)).json()["id"] != call
    withdrawn = (await agent.join(euro=300, session=session)).json()["id"]
    assert (await agent.withdraw(withdrawn)).json()["state"] == "denied"
    assert (await agent.join(euro=300, session=session)).json()["id"] != withdrawn


async def test_only_an_equal_proposal_joins(agent: CallRig) -> None:
    session = uuid.uuid4().hex
    clerk: dict[str, Any] = {"agent": "clerk", "user": "ana"}
    first = (await agent.join(euro=200, session=session)).json()["id"]
    same = await agent.join(euro=200.0, session=session, says="charged twice", timeout="1h")
    assert same.json()["id"] == first
    others = [
        await agent.join(euro=201, session=session),
        await agent.join(euro=200, session=uuid.uuid4().hex),
        await agent.join(euro=200, session=session, tool="quick"),
        await agent.join(euro=200, session=session, **clerk),
        await agent.join(euro=200, session=session, **(clerk | {"user": "bo"})),
        await agent.propose(euro=200, session=session),
    ]
    found = [each.json()["id"] for each in others]
    assert len({first, *found}) == 7


async def test_unstarted_joined_call_is_started_by_the_next_proposal(
    agent: CallRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, join = uuid.uuid4().hex, CallJoins.join

    async def join_and_fail(self: CallJoins, key: str, turn: str) -> JoinedCall:
        await join(self, key, turn)
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(CallJoins, "join", join_and_fail)
    assert (await agent.join(euro=200, session=session)).status_code == 503
    monkeypatch.undo()
    first, again = [await agent.join(euro=200, session=session) for _ in range(2)]
    assert (first.json()["state"], first.json()["id"]) == ("waiting", again.json()["id"])


async def test_aborted_client_does_not_consume_the_result(agent: CallRig) -> None:
    fields: dict[str, Any] = {"tool": "pay", "args": {"amount": 95}, "session": uuid.uuid4().hex}
    call = (await agent.join(**fields)).json()["id"]
    await agent.decide(call)
    await agent.rig.turns.signoff.result(TurnKey(*call.split(".")))
    await _read_and_leave(agent, f"/v1/calls/{call}", "agent=coder")
    assert (await agent.join(**fields)).json()["result"] == "paid"
    await agent.show((await agent.join(**fields)).json()["id"])


async def _read_and_leave(agent: CallRig, path: str, query: str) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8300")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8300),
    }
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(message.get("status", 0))

    await agent.rig.app(scope, receive, send)
    assert statuses[:1] == [httpx2.codes.OK], json.dumps(statuses)
