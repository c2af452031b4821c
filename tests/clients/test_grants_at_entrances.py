import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from a2a.types.a2a_pb2 import GetTaskRequest, TaskState
from aap_rig import adapter
from aap_rig import asking as aap_request
from app_server import running_app
from authzen_rig import asking as authzen_request
from authzen_rig import enforcement_point
from call_rig import CallRig, call_rig, call_token, refund_tool
from client_rig import ClientRig
from gated_workflows import Refunds
from gateway_login import locked_rig
from mcp_rig import MODERN, McpRig
from peer_rig import PEERS, SCHEMA, PeerRig
from polling import pauses
from temporal_rig import Workers
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Callbacks, ExternalAgent
from signoff.registry.catalog import Catalog
from signoff.store.store import open_store
from signoff.temporal.embedded_server import free_port
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

_SECOND: Final = timedelta(seconds=1)


@dataclass
class Entrances:
    agent: CallRig
    client: ClientRig
    mcp: McpRig
    peers: PeerRig
    workers: Workers

    async def requests(self, order: str) -> list[str]:
        params = {"as": "approver", "limit": 500}
        listed = (await self.agent.http.get("/v1/approvals", params=params)).json()["approvals"]
        return [str(each["id"]) for each in listed if order in each["effect"]]

    async def approve(self, approval: str, order: str, scope: str) -> None:
        request = await self.agent.rig.request(approval)
        name = "to" if request.tool == "alike" else "order"
        remember = {"scope": scope, "where": f"args.{name} == '{order}'", "uses": 5}
        shown = {"revision": request.revision, "question_hash": request.question_hash}
        answer = await self.agent.rig.decide(approval, verdict="approved", remember=remember, **shown)
        assert answer.json()["status"] == "accepted", answer.text

    async def asked(self, order: str) -> str:
        for pause in pauses():
            if found := await self.requests(order):
                [only] = found
                return only
            await asyncio.sleep(pause)
        raise AssertionError("pauses end")


def catalog(ledger: Ledger) -> Catalog:
    remembers = ApprovalPolicy(allow_remember=True)
    callbacks = Callbacks(workflows=("gated-*",))
    actors = [
        Actor(name="desk", model="scripted", description="Pays."),
        Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",), callbacks=callbacks)),
        Actor(name="roamer", model="", external=ExternalAgent(acts_for=("user:guest",))),
    ]
    tools = [
        pay_tool(ledger, remembers, name="alike", peer_exposed=True, input_schema=SCHEMA),
        refund_tool(remembers),
    ]
    return catalog_of(tools, actors=actors, people=PEERS)


def react(request: CompletionRequest) -> Completion:
    return respond("done") if results(request) else calls(("alike", {"amount": 420, "to": last_user_text(request)}))


@pytest.fixture(scope="module")
async def entrances(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Entrances]:
    """Each test uses its own order."""
    folder, port = tmp_path_factory.mktemp("entrances"), free_port()
    url = f"http://127.0.0.1:{port}"
    given: dict[str, Any] = {"catalog_of_ledger": catalog, "model": ScriptedModel(react)}
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        call_rig(client, store, f"entrances-{uuid.uuid4().hex}", people=FixedDirectory(PEERS), **given) as agent,
    ):
        locked, secret = locked_rig(agent.rig, people=PEERS, public_url=url), await call_token(agent.rig, "coder")
        async with running_app(locked.app, port):
            rig = ClientRig(agent, locked.app, secret, url)
            yield Entrances(agent, rig, McpRig(locked, url, secret), PeerRig(locked, url), Workers(rig, client))


async def by_hook(site: Entrances, order: str, session: str) -> bool:
    body = {
        "hook_event_name": "PreToolUse",
        "session_id": session,
        "tool_name": "refund",
        "tool_input": {"order": order, "euro": 200},
        "tool_use_id": uuid.uuid4().hex,
    }
    sent = {"agent": "coder", "hold": 600}
    answer = (await site.agent.http.post("/v1/hooks/claude-code", json=body, params=sent)).json()
    return bool(answer["hookSpecificOutput"]["permissionDecision"] == "allow")


async def by_mcp(site: Entrances, order: str, session: str) -> bool:
    async with site.mcp.client(MODERN) as client:
        result = await client.call_tool("alike", {"amount": 420, "to": order})
    return not result.is_error


async def by_peer(site: Entrances, order: str, session: str) -> bool:
    async with site.peers.agent() as client:
        task = await client.send(order)
        while task.status.state != TaskState.TASK_STATE_COMPLETED:
            await asyncio.sleep(0.1)
            task = await client.sdk.get_task(GetTaskRequest(id=task.id))
    return True


async def by_aap(site: Entrances, order: str, session: str) -> bool:
    async with adapter(site.agent) as coder:
        found = await coder.until_settled(await coder.ask(aap_request(200, order)))
    return bool(found.status == "approved")


async def by_authzen(site: Entrances, order: str, session: str) -> bool:
    async with enforcement_point(site.agent) as point:
        body = authzen_request(200, order)
        task = (await point.submit(body, await point.evaluate(body))).json()["task"]
        for pause in pauses():
            if task["status"] != "pending":
                break
            await asyncio.sleep(pause)
            task = (await point.show(task))["task"]
    return bool(task["status"] == "approved")


async def by_client(site: Entrances, order: str, session: str) -> bool:
    async with site.client.call({"order": order, "euro": 200}) as call:
        return bool(call)


async def by_gated_activity(site: Entrances, order: str, session: str) -> bool:
    async with site.workers.work(site.workers.gated(look_up=_SECOND)) as queue:
        handle = await site.workers.start(queue, Refunds.run, [(order, 200.0)])
        return bool(await handle.result() == [f"refunded 200 EUR for {order}"])


async def by_own_turn(site: Entrances, order: str, session: str) -> bool:
    key = await site.agent.rig.start(order, session=session)
    return (await site.agent.rig.turns.signoff.result(key)).calls[0].code == "ok"


async def by_call(site: Entrances, order: str, agent: str, tool: str, session: str) -> None:
    args = {"order": order, "euro": 200} if tool == "refund" else {"amount": 420, "to": order}
    answer = await site.agent.propose(agent=agent, tool=tool, args=args, session=session)
    assert answer.json()["state"] == "waiting", answer.text


Entrance = Callable[[Entrances, str, str], Awaitable[bool]]
ROAMER, DESK, CODER = "roamer", "desk", "coder"


@pytest.mark.parametrize(
    ("entrance", "given_for", "scope"),
    [
        (by_hook, ROAMER, "tenant"),
        (by_hook, ROAMER, "session"),
        (by_mcp, DESK, "tenant"),
        (by_peer, DESK, "tenant"),
        (by_aap, ROAMER, "tenant"),
        (by_authzen, ROAMER, "tenant"),
        (by_client, ROAMER, "tenant"),
        (by_gated_activity, ROAMER, "tenant"),
        (by_own_turn, CODER, "tenant"),
        (by_own_turn, CODER, "session"),
    ],
)
async def test_approval_remembered_for_another_agent_is_not_used_but_the_own_one_is(
    entrances: Entrances, entrance: Entrance, given_for: str, scope: str
) -> None:
    site, order, session = entrances, f"o{uuid.uuid4().hex[:8]}", str(uuid.uuid4())
    if given_for == DESK:
        await site.agent.rig.start(order, session=session)
    else:
        await by_call(site, order, given_for, "alike" if entrance is by_own_turn else "refund", session)
    await site.approve(await site.asked(order), order, scope)
    assert order in (await site.agent.http.get("/v1/grants")).text
    first = asyncio.ensure_future(entrance(site, order, session))
    request = asyncio.ensure_future(site.asked(order))
    await asyncio.wait({first, request}, return_when=asyncio.FIRST_COMPLETED)
    if not (was_asked := await site.requests(order)):
        request.cancel()
    assert was_asked, "another agent's approval was used"
    await site.approve(await request, order, "tenant")
    assert await first
    assert await entrance(site, order, session)
    assert await site.requests(order) == []
