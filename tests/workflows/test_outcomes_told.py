import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from polling import pauses
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    withdrawn,
    yes,
)

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey, parse_approval_id
from signoff.contracts.message import CallPart, Message, ResultPart
from signoff.contracts.turn import TurnResult
from signoff.registry.catalog import Catalog
from signoff.testing.scripted_model import ScriptedModel, calls, respond

Verdict = Literal["approved", "denied", "withdrawn"]
Tool = Literal["pay", "look", "hold"]
_ANSWERS = {"approved": yes, "denied": no, "withdrawn": withdrawn}
_LEDGER = Ledger()


def _catalog() -> Catalog:
    pay = pay_tool(_LEDGER, ApprovalPolicy(while_waiting="continue"))
    return catalog_of([pay, pay_tool(_LEDGER, name="hold"), pay_tool(_LEDGER, False, name="look")])


@dataclass
class Step:
    answered: list[tuple[int, Verdict]]
    proposed: list[tuple[Tool, int]]


@dataclass
class Plan:
    steps: list[Step]
    rest: list[Verdict]
    cancelled: bool


VERDICTS = st.sampled_from(["approved", "denied", "withdrawn"])
CALLS = st.tuples(st.sampled_from(["pay", "pay", "look", "hold"]), st.integers(1, 3))
"""Few amounts, so that calls repeat each other while they wait and after they are decided."""
STEPS = st.builds(
    Step,
    answered=st.lists(st.tuples(st.integers(0, 3), VERDICTS), max_size=2),
    proposed=st.lists(CALLS, min_size=1, max_size=3),
)
PLANS = st.builds(Plan, steps=st.lists(STEPS, min_size=1, max_size=4), rest=st.lists(VERDICTS), cancelled=st.booleans())


@dataclass
class Played:
    plan: Plan
    turns: RunningTurns | None = None
    key: TurnKey | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    approved: Counter[str] = field(default_factory=Counter)

    async def react(self, request: CompletionRequest) -> Completion:
        await self.started.wait()
        number = sum(message.role == "assistant" for message in request.messages)
        if number >= len(self.plan.steps):
            return respond(f"answer {number}")
        step = self.plan.steps[number]
        for place, verdict in step.answered:
            await self.answer(place, verdict)
        return calls(*((tool, {"amount": amount}) for tool, amount in step.proposed))

    async def answer(self, place: int, verdict: Verdict) -> bool:
        assert self.turns is not None
        assert self.key is not None
        view = await self.turns.signoff.view(self.key)
        open_calls = [each.call for each in view.calls if each.approval and each.approval.state == "pending"]
        if not open_calls:
            return False
        call = open_calls[place % len(open_calls)]
        decision = _ANSWERS[verdict](self.key, call)
        send = self.turns.signoff.withdraw if verdict == "withdrawn" else self.turns.signoff.decide
        receipt = await send(decision)
        self.approved[call] += verdict == "approved" and receipt.status == "accepted"
        return True

    async def play(self, turns: RunningTurns) -> TurnResult:
        self.turns, self.key = turns, await turns.start()
        self.started.set()
        ending = asyncio.create_task(turns.signoff.result(self.key))
        rest, waits = iter(self.plan.rest), pauses()
        while not ending.done():
            if self.plan.cancelled:
                await turns.until(self.key, lambda view: view.result is not None or bool(view.calls))
                await turns.signoff.cancel_turn(self.key)
                break
            if await self.answer(0, next(rest, "approved")):
                waits = pauses()
            # Each view is a query, which costs the worker a workflow task.
            await asyncio.wait((ending,), timeout=next(waits))
        return await ending


def _told(messages: list[Message]) -> dict[str, list[ResultPart]]:
    found: dict[str, list[ResultPart]] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ResultPart) and part.tool != "respond":
                found.setdefault(part.call, []).append(part)
    return found


def _place(messages: list[Message], call: str, *, late: bool = False) -> int:
    found = [
        number
        for number, message in enumerate(messages)
        for part in message.parts
        if isinstance(part, ResultPart) and (part.call, part.late) == (call, late)
    ]
    return found[0]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=PLANS)
async def test_outcomes_are_neither_lost_nor_repeated(plan: Plan, turn_rig: TurnRig) -> None:
    _LEDGER.rows.clear()
    played = Played(plan)
    async with turn_rig.running(_catalog(), ScriptedModel(played.react)) as turns:
        result = await played.play(turns)
        assert played.key is not None
        messages = await turns.signoff.transcript(played.key)
        view = await turns.signoff.view(played.key)
        await turns.replays(played.key)
    event(result.state)
    value = _told(messages)
    proposed = [
        part.call
        for message in messages
        for part in message.parts
        if isinstance(part, CallPart) and part.tool != "respond"
    ]
    # A cancellation may come before the calls of a completion were judged, but each still has its outcome.
    outcomes = {outcome.call: outcome for outcome in result.calls}
    assert sorted(outcomes) == sorted(proposed)
    assert sorted(value) == sorted(proposed)
    for call, parts in value.items():
        assert [part.late for part in parts] in ([False], [False, True]), (call, parts)
        assert parts[-1].code == outcomes[call].code
        assert (len(parts) == 2) == (parts[0].code == "waiting" and outcomes[call].code != "waiting")
        event(f"{parts[0].code} {'late ' + parts[-1].code if len(parts) == 2 else ''}")
    for outcome in result.calls:
        if outcome.code == "waiting":
            # The call repeats another one whose outcome the model had not read.
            named = parse_approval_id(outcome.approval_id)
            assert named is not None
            assert outcomes[named.call].code != "waiting"
            assert _place(messages, outcome.call) < _place(messages, named.call, late=True)
    assert not any(each.approval and each.approval.state == "pending" for each in view.calls)
    ran = Counter(tool for tool, *_ in _LEDGER.rows)
    assert sum(ran.values()) == sum(outcome.code == "ok" for outcome in result.calls)
    for outcome in result.calls:
        if outcome.code == "ok" and outcome.tool != "look":
            assert played.approved[outcome.call] == 1, outcome
