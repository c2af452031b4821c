import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from call_rig import RULES, CallRig, call_catalog, call_rig, refund_tool
from mcp_rig import modern_request
from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger, pay_tool

from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.registry.catalog import Catalog
from signoff.store.store import Store

CallScenario = Callable[[CallRig], Awaitable[str]]
"""Returns the id of the call."""
ASKED, FREE, FORBIDDEN = 200, 20, 2_000
"""Amounts in EUR: approvers are asked, a rule approves, a rule denies."""
YEARS = 50 * 365 * 86_400.0
"""The time to answer, use a permit and report: as long as versions exist."""
# A policy allows at most a year; a copy is not validated.
_LONG = {"timeout": YEARS, "grant_ttl": YEARS}
_LOOK_SECONDS = 0.1


def catalog(ledger: Ledger) -> Catalog:
    free = ApprovalPolicy(auto_approve_if="args.amount < 50.0")
    return call_catalog(
        ledger,
        refund_tool(replace(RULES, **_LONG), name="lasting", timeout=YEARS),
        pay_tool(ledger, replace(free, **_LONG), name="wire"),
        refund_tool(ApprovalPolicy(grant_ttl=1.0), name="fleeting"),
    )


async def _propose(agent: CallRig, state: str, euro: float = ASKED, tool: str = "lasting") -> str:
    proposed = await agent.propose(euro, tool=tool)
    assert proposed.is_success, proposed.text
    return await _until(agent, proposed.json()["id"], state)


async def _until(agent: CallRig, call: str, state: str) -> str:
    while (shown := await agent.show(call))["state"] != state:
        assert shown["state"] not in ("denied", "ended"), shown
        await asyncio.sleep(_LOOK_SECONDS)
    return call


def turn_of(call: str) -> TurnKey:
    return TurnKey(*call.split("."))


async def _approved(agent: CallRig) -> str:
    call = await _propose(agent, "waiting")
    await agent.decide(call)
    return await _until(agent, call, "permitted")


async def call_proposed(agent: CallRig) -> str:
    return await _propose(agent, "waiting")


async def call_permitted(agent: CallRig) -> str:
    return await _approved(agent)


async def call_used(agent: CallRig) -> str:
    call = await _approved(agent)
    await agent.use(call, "try-one-1")
    await agent.use(call, "try-two-2")
    return await _until(agent, call, "used")


async def call_reported(agent: CallRig) -> str:
    call = await _propose(agent, "permitted", FREE)
    await agent.use(call)
    await agent.report(call)
    return await _ended(agent, call)


async def call_failed(agent: CallRig) -> str:
    call = await _approved(agent)
    await agent.use(call)
    await agent.report(call, "execution_failed", "the card was refused")
    return await _ended(agent, call)


async def call_unreported(agent: CallRig) -> str:
    call = await _propose(agent, "permitted", FREE, tool="quick")
    await agent.use(call)
    return await _ended(agent, call)


async def call_doubted(agent: CallRig) -> str:
    call = await _propose(agent, "permitted", FREE, tool="asked")
    await agent.use(call)
    await _until(agent, call, "waiting")
    await agent.decide(call, verdict="happened", result="refunded")
    return await _ended(agent, call)


async def call_withdrawn(agent: CallRig) -> str:
    call = await _propose(agent, "waiting")
    await agent.withdraw(call)
    return await _ended(agent, call)


async def call_withdrawn_permitted(agent: CallRig) -> str:
    call = await _approved(agent)
    await agent.withdraw(call)
    return await _ended(agent, call)


async def call_lapsed(agent: CallRig) -> str:
    call = await _propose(agent, "waiting", tool="fleeting")
    await agent.decide(call)
    return await _ended(agent, call)


async def call_denied(agent: CallRig) -> str:
    call = await _propose(agent, "waiting")
    await agent.decide(call, verdict="denied", reason="too much")
    return await _ended(agent, call)


async def call_forbidden(agent: CallRig) -> str:
    return await _propose(agent, "denied", FORBIDDEN)


async def call_expired(agent: CallRig) -> str:
    return await _ended(agent, await _propose(agent, "waiting", tool="brief"))


async def call_run(agent: CallRig) -> str:
    proposed = await agent.propose(tool="wire", args={"amount": FREE, "to": "Ana"})
    return await _ended(agent, proposed.json()["id"])


async def call_task(agent: CallRig) -> str:
    task = await ask_mcp(agent, "tools/call", name="wire", arguments={"amount": ASKED, "to": "Ana"})
    return await _until(agent, str(task["taskId"]), "waiting")


async def ask_mcp(agent: CallRig, method: str, **params: Any) -> dict[str, Any]:
    body, headers = modern_request(method, **params)
    headers["accept"] = "application/json, text/event-stream"
    answer = await agent.http.post("/mcp/coder", json=body, headers=headers)
    found: dict[str, Any] = answer.json()["result"]
    return found


async def _ended(agent: CallRig, call: str) -> str:
    await agent.rig.turns.signoff.result(turn_of(call))
    return call


def _alone(scenario: CallScenario) -> Callable[[Client, Store], Awaitable[TurnKey]]:
    async def play(client: Client, store: Store) -> TurnKey:
        async with call_rig(client, store, "recording", catalog_of_ledger=catalog) as agent:
            return turn_of(await scenario(agent))

    return play


CALLS: dict[str, CallScenario] = {
    scenario.__name__: scenario
    for scenario in (
        call_proposed, call_permitted, call_used, call_reported, call_failed, call_unreported, call_doubted,
        call_withdrawn, call_withdrawn_permitted, call_lapsed, call_denied, call_forbidden, call_expired, call_run,
        call_task,
    )
}  # fmt: skip
CALL_SCENARIOS = {name: _alone(scenario) for name, scenario in CALLS.items()}
