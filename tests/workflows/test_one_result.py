import asyncio
import contextlib
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, no, pay_tool, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart, ResultPart
from signoff.contracts.turn import TurnResult
from signoff.registry.actor import Actor
from signoff.registry.hooks import HookContext
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.questions.request_lists import RequestLists
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond

ACTORS = [
    Actor(name=f"{mode}_{on_failure}", model="scripted", mode=mode, on_failure=on_failure)
    for mode in ("parallel", "sequential")
    for on_failure in ("continue", "abort_siblings")
]  # fmt: skip
HASTY = ApprovalPolicy(timeout=0.5, grant_ttl=60)
TOOLS = (
    "read", "act", "alone", "fails", "fails_reading", "flaky", "slow", "asks", "asks_alone", "asks_hastily",
    "stood_in", "asked_for", "stood_in_badly", "gone", "nowhere",
)  # fmt: skip
"""The tools that models propose. The last one does not exist."""


def handled(ledger: Ledger, name: str, chance: random.Random) -> Any:
    async def run(args: dict[str, Any], ctx: ToolContext) -> str:
        ledger.rows.append((ctx.turn_id, {"call": ctx.call_id}, name))
        if name == "slow":
            await asyncio.Event().wait()
        await asyncio.sleep(chance.random() * 0.05)
        if "fail" in name or name.startswith(("stood", "asked")):
            raise ValueError(f"{name} failed")
        if name == "flaky" and ctx.attempt == 1 and args["amount"] < 0.5:
            raise ConnectionError("reset")
        return name

    return run


def toolbox(ledger: Ledger, chance: random.Random) -> list[Tool]:
    async def never(context: HookContext) -> bool:
        return False

    def a_tool(name: str, asks: Any = False, **fields: Any) -> Tool:
        return pay_tool(ledger, asks, name=name, effect="", handler=handled(ledger, name, chance), **fields)

    return [
        a_tool("read", read_only=True),
        a_tool("act"),
        a_tool("alone", concurrency="exclusive"),
        a_tool("fails"),
        a_tool("fails_reading", read_only=True),
        a_tool("flaky", idempotent=True, attempts=2),
        a_tool("slow", read_only=True, timeout=0.2, attempts=1),
        a_tool("asks", True),
        a_tool("asks_alone", True, concurrency="exclusive"),
        a_tool("asks_hastily", HASTY),
        a_tool("stood_in", read_only=True, fallbacks=("fails_reading", "read")),
        a_tool("asked_for", idempotent=True, fallbacks=("asks",)),
        a_tool("stood_in_badly", read_only=True, fallbacks=("fails", "read")),
        a_tool("gone", read_only=True, available=never, fallbacks=("read",)),
    ]


@dataclass(frozen=True)
class Deal:
    batches: tuple[tuple[tuple[str, Any], ...], ...]
    actor: str
    approve: float
    cancel_after: float | None


def dealt(chance: random.Random) -> Deal:
    def batch() -> tuple[tuple[str, Any], ...]:
        return tuple((chance.choice(TOOLS), {"amount": chance.choice([chance.random(), "?"])}) for _ in range(7))

    cancel = chance.choice([None, None, chance.random()])
    return Deal((batch(), batch()), chance.choice(ACTORS).name, chance.random(), cancel)


async def lived(turns: RunningTurns, deal: Deal, number: int, chance: random.Random) -> tuple[TurnKey, TurnResult]:
    key = await turns.start(str(number), actor=deal.actor)
    result = asyncio.create_task(turns.signoff.result(key))
    began = asyncio.get_running_loop().time()
    cancelled, answered = False, set[tuple[str, int]]()
    while not result.done():
        for request, revision in await _asked(turns, key):
            if (request, revision) not in answered:
                answered.add((request, revision))
                answer = yes if chance.random() < deal.approve else no
                await turns.signoff.decide(answer(key, approval_id=request, revision=revision))
        late = asyncio.get_running_loop().time() - began
        if deal.cancel_after is not None and not cancelled and late > deal.cancel_after:
            cancelled = True
            await turns.signoff.cancel_turn(key)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(result), 0.1)
    return key, await result


async def _asked(turns: RunningTurns, key: TurnKey) -> list[tuple[str, int]]:
    """Read from the store, without querying the worker."""
    asked = (await RequestLists(turns.store).of_turns([key])).get(key, ())
    return [(request.id, request.revision) for request in asked]


@pytest.mark.row("N03", "E25", "F52")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_each_call_has_one_result_in_proposal_order(seed: int, turn_rig: TurnRig, ledger: Ledger) -> None:
    chance = random.Random(seed)
    deals = [dealt(chance) for _ in range(4)]

    def react(request: CompletionRequest) -> Completion:
        done = sum(message.role == "assistant" for message in request.messages)
        batches = deals[int(last_user_text(request))].batches
        return calls(*batches[done]) if done < len(batches) else respond("done")

    catalog = catalog_of(toolbox(ledger, chance), actors=[replace(actor) for actor in ACTORS])
    async with turn_rig.running(catalog, ScriptedModel(react)) as turns:
        lives = await asyncio.gather(
            *(lived(turns, deal, number, random.Random(f"{seed}.{number}")) for number, deal in enumerate(deals))
        )
        for key, result in lives:
            messages = await turns.signoff.transcript(key)
            proposed = [part for each in messages for part in each.parts if isinstance(part, CallPart)]
            entries = [part for each in messages for part in each.parts if isinstance(part, ResultPart)]
            named = [(part.call, part.provider_call, part.tool) for part in proposed if part.tool != "respond"]
            assert [(part.call, part.provider_call, part.tool) for part in entries] == named
            assert [(each.call, each.tool) for each in result.calls] == [(call, tool) for call, _, tool in named]
            assert [each.code for each in result.calls] == [part.code for part in entries]
            assert all(part.value.inline not in ("", None) for part in entries)
            await turns.replays(key)
    began = [
        (turn, each["call"], name) for turn, each, name in ledger.rows if name in ("act", "alone", "fails", "asks")
    ]
    assert len(began) == len(set(began)), "what has effects ran twice"
