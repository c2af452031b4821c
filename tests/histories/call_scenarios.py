"""Histories of external calls, one in each state that an agent is told and in each way to get there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from call_rig import CallRig, call_catalog, call_rig, refund_tool
from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger

from signoff.contracts.ids import TurnKey
from signoff.registry.catalog import Catalog
from signoff.store.store import Store

ASKED, FREE, FORBIDDEN = 200, 20, 2_000
"""Amounts in EUR: people are asked, a rule approves, a rule denies."""
_LOOK_SECONDS = 0.1


def catalog(ledger: Ledger) -> Catalog:
    """The tools of external calls, and one whose permit lapses after a second."""
    return call_catalog(ledger, refund_tool(ApprovalPolicy(grant_ttl=1.0), name="fleeting"))


@asynccontextmanager
async def _agent(client: Client, store: Store) -> AsyncIterator[CallRig]:
    async with call_rig(client, store, "recording", catalog_of_ledger=catalog) as agent:
        yield agent


async def _propose(agent: CallRig, state: str, euro: float = ASKED, **fields: str) -> str:
    proposed = await agent.propose(euro, **fields)
    assert proposed.is_success, proposed.text
    return await _until(agent, proposed.json()["id"], state)


async def _until(agent: CallRig, call: str, state: str) -> str:
    """The id of a call once it is in a state."""
    while (shown := await agent.show(call))["state"] != state:
        assert shown["state"] not in ("denied", "ended"), shown
        await asyncio.sleep(_LOOK_SECONDS)
    return call


def _key(call: str) -> TurnKey:
    return TurnKey(*call.split("."))


async def _approved(agent: CallRig) -> str:
    call = await _propose(agent, "waiting")
    await agent.decide(call)
    return await _until(agent, call, "permitted")


async def call_proposed(client: Client, store: Store) -> TurnKey:
    """A call that people are asked about."""
    async with _agent(client, store) as agent:
        return _key(await _propose(agent, "waiting"))


async def call_permitted(client: Client, store: Store) -> TurnKey:
    """An approved call whose permit the agent has not used."""
    async with _agent(client, store) as agent:
        return _key(await _approved(agent))


async def call_used(client: Client, store: Store) -> TurnKey:
    """A used call without a report; another try is refused."""
    async with _agent(client, store) as agent:
        call = await _approved(agent)
        await agent.use(call, "try-one-1")
        await agent.use(call, "try-two-2")
        return _key(await _until(agent, call, "used"))


async def call_reported(client: Client, store: Store) -> TurnKey:
    """A call by rule that was used and reported."""
    async with _agent(client, store) as agent:
        call = await _propose(agent, "permitted", FREE)
        await agent.use(call)
        await agent.report(call)
        return _key(await _ended(agent, call))


async def call_failed(client: Client, store: Store) -> TurnKey:
    """An approved call whose agent reports a failure."""
    async with _agent(client, store) as agent:
        call = await _approved(agent)
        await agent.use(call)
        await agent.report(call, "execution_failed", "the card was refused")
        return _key(await _ended(agent, call))


async def call_unreported(client: Client, store: Store) -> TurnKey:
    """A used call without a report in time; the record says that its outcome is unknown."""
    async with _agent(client, store) as agent:
        call = await _propose(agent, "permitted", FREE, tool="quick")
        await agent.use(call)
        return _key(await _ended(agent, call))


async def call_doubted(client: Client, store: Store) -> TurnKey:
    """A used call without a report in time; a person says that it happened."""
    async with _agent(client, store) as agent:
        call = await _propose(agent, "permitted", FREE, tool="asked")
        await agent.use(call)
        await _until(agent, call, "waiting")
        await agent.decide(call, verdict="happened", result="refunded")
        return _key(await _ended(agent, call))


async def call_withdrawn(client: Client, store: Store) -> TurnKey:
    """A call that its agent withdraws while people are asked."""
    async with _agent(client, store) as agent:
        call = await _propose(agent, "waiting")
        await agent.withdraw(call)
        return _key(await _ended(agent, call))


async def call_withdrawn_permitted(client: Client, store: Store) -> TurnKey:
    """A call that its agent withdraws after the approval."""
    async with _agent(client, store) as agent:
        call = await _approved(agent)
        await agent.withdraw(call)
        return _key(await _ended(agent, call))


async def call_lapsed(client: Client, store: Store) -> TurnKey:
    """An approved call whose permit was not used in time."""
    async with _agent(client, store) as agent:
        call = await _propose(agent, "waiting", tool="fleeting")
        await agent.decide(call)
        return _key(await _ended(agent, call))


async def call_denied(client: Client, store: Store) -> TurnKey:
    """A call that a person denies."""
    async with _agent(client, store) as agent:
        call = await _propose(agent, "waiting")
        await agent.decide(call, verdict="denied", reason="too much")
        return _key(await _ended(agent, call))


async def call_forbidden(client: Client, store: Store) -> TurnKey:
    """A call that a rule denies."""
    async with _agent(client, store) as agent:
        return _key(await _propose(agent, "denied", FORBIDDEN))


async def call_expired(client: Client, store: Store) -> TurnKey:
    """A call whose question nobody answers in time."""
    async with _agent(client, store) as agent:
        return _key(await _ended(agent, await _propose(agent, "waiting", tool="brief")))


async def call_run(client: Client, store: Store) -> TurnKey:
    """A call whose tool Signoff runs for the agent."""
    async with _agent(client, store) as agent:
        proposed = await agent.propose(tool="pay", args={"amount": FREE, "to": "Ana"})
        return _key(await _ended(agent, proposed.json()["id"]))


async def _ended(agent: CallRig, call: str) -> str:
    """The id of a call once its workflow has ended."""
    await agent.rig.turns.signoff.result(_key(call))
    return call


CALL_SCENARIOS: dict[str, Callable[[Client, Store], Awaitable[TurnKey]]] = {
    scenario.__name__: scenario
    for scenario in (
        call_proposed, call_permitted, call_used, call_reported, call_failed, call_unreported, call_doubted,
        call_withdrawn, call_withdrawn_permitted, call_lapsed, call_denied, call_forbidden, call_expired, call_run,
    )
}  # fmt: skip
