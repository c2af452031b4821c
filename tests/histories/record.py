"""Records the histories that every later version must replay, one file per scenario, under `tests/histories/<engine>/`.

Run by hand for a new engine number or scenario, and until the first release whenever a shape changes: `make histories
[SCENARIOS="SCENARIO ..."]`. A recorded file never changes after the first release: turns started years ago look like
it.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from histories.call_scenarios import CALL_SCENARIOS
from histories.kind_scenarios import KIND_SCENARIOS, history_of
from session_rig import Talk, react, talk
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, catalog_of, no, pay_tool, running_turns, withdrawn, yes

from signoff.contracts import names
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.turn import TurnView
from signoff.people.directory import Directory, development_directory
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.manifest.channel_sections import DeclaredChannel, RoutingRules
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.store import Store, open_store
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, respond

FOLDER = Path(__file__).parent / str(names.ENGINE)
PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]
BATCH = [calls(PAY, ("look", {"amount": 1}), ("pay", {"amount": "?"}), ("pay", {"amount": 3})), respond("done")]
FREE = ApprovalPolicy(auto_approve_if="args.amount < 50.0")
UNKEPT = ("stackTrace", "binaryChecksum")
"""Fields that name places on the recording machine and are not needed for a replay."""

Scenario = Callable[[Client, Store], Awaitable[TurnKey | SessionKey | WorkflowHistory]]
"""Returns the history itself if it must be read before its worker ends."""


async def _turn(
    client: Client,
    store: Store,
    tool: Tool,
    act: Callable[[RunningTurns, TurnKey], Awaitable[None]],
    people: Directory | None = None,
) -> TurnKey:
    async with running_turns(client, store, "recording", catalog_of([tool]), SCRIPT, people=people) as turns:
        key = await turns.start()
        await act(turns, key)
    return key


async def waiting(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)

    return await _turn(client, store, pay_tool(Ledger()), act)


async def approved_by_update(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        await turns.signoff.decide(yes(key))
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger()), act)


async def approved_by_signal(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        handle = turns.client.get_workflow_handle(key.workflow_id)
        await handle.signal(names.APPROVAL_RESPONSE, "approved")
        await handle.signal(names.APPROVAL_RESPONSE, {"approval_id": yes(key).approval_id, "verdict": "approved"})
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger()), act)


async def denied(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        await asyncio.gather(turns.signoff.decide(no(key)), turns.signoff.decide(yes(key)))
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger()), act)


async def answered(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        await turns.signoff.decide(yes(key, verdict="answered", answer={"amount": 3}))
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger(), answer_schema={"type": "object"}), act)


async def timed_out(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger(), ApprovalPolicy(timeout=1.0)), act)


async def cancelled(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger()), act)


async def auto(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger(), FREE), act)


async def asked_again(client: Client, store: Store) -> TurnKey:
    tool = pay_tool(Ledger())
    key = await waiting(client, store)
    async with running_turns(client, store, "recording", catalog_of([replace(tool, version="2")]), SCRIPT) as turns:
        await turns.signoff.decide(yes(key))
        await turns.until(key, _second_revision)
        await turns.signoff.decide(yes(key, revision=2))
        await turns.signoff.result(key)
    return key


def _second_revision(view: TurnView) -> bool:
    request = view.calls[0].approval
    return request is not None and (request.revision, request.state) == (2, "pending")


async def lapsed(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        await turns.signoff.decide(yes(key))
        await turns.until(key, _second_revision)
        await turns.signoff.withdraw(withdrawn(key, reason="too late"))
        await turns.signoff.result(key)

    return await _turn(client, store, pay_tool(Ledger(), ApprovalPolicy(grant_ttl=1.0), task_queue="nobody"), act)


async def _lost(turns: RunningTurns, key: TurnKey, **answer: Any) -> None:
    await turns.lose(key)
    await turns.until(key, _second_revision)
    await turns.signoff.decide(yes(key, revision=2, **answer))
    await turns.signoff.result(key)


async def in_doubt(client: Client, store: Store) -> TurnKey:
    return await _turn(client, store, pay_tool(Ledger()), partial(_lost, verdict="denied"))


async def happened(client: Client, store: Store) -> TurnKey:
    return await _turn(client, store, pay_tool(Ledger()), partial(_lost, verdict="happened", result="paid"))


async def ran_again(client: Client, store: Store) -> TurnKey:
    return await _turn(client, store, pay_tool(Ledger()), _lost)


async def edited(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.waiting(key)
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": "?"}))
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 10, "to": "Ana"}))
        await turns.signoff.decide(yes(key, subject="bo", revision=2))
        await turns.signoff.result(key)

    people = development_directory([a_person(name) for name in ("ana", "bo")])
    return await _turn(client, store, pay_tool(Ledger(), ApprovalPolicy(edit="approve", quorum=2)), act, people=people)


async def escalated(client: Client, store: Store) -> TurnKey:
    async def act(turns: RunningTurns, key: TurnKey) -> None:
        await turns.signoff.result(key)

    policy = ApprovalPolicy(
        timeout=3.0, remind_after=1.0, escalate_after=2.0, escalate_to=("role:cfo",), on_timeout="escalate"
    )
    return await _turn(client, store, pay_tool(Ledger(), policy), act)


async def repeated(client: Client, store: Store) -> TurnKey:
    async with running_turns(client, store, "recording", catalog_of([pay_tool(Ledger())]), [calls(PAY)] * 4) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key))
        await turns.signoff.result(key)
    return key


async def parallel(client: Client, store: Store) -> TurnKey:
    ledger = Ledger()
    tools = [pay_tool(ledger), pay_tool(ledger, False, name="look", effect="")]
    async with running_turns(client, store, "recording", catalog_of(tools), BATCH) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        await turns.signoff.decide(no(key, "c1.4"))
        await turns.signoff.decide(yes(key))
        await turns.signoff.result(key)
    return key


async def in_line(client: Client, store: Store) -> TurnKey:
    ledger = Ledger()
    tools = [
        pay_tool(ledger, name="pay", concurrency="exclusive"),
        pay_tool(ledger, False, name="move", effect="", concurrency="exclusive"),
        pay_tool(ledger, False, name="look", effect=""),
    ]
    looks = [("look", {"amount": number}) for number in range(12)]
    batch = [calls(PAY, *looks, ("move", {"amount": 1})), respond("done")]
    async with running_turns(client, store, "recording", catalog_of(tools), batch) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        await turns.signoff.result(key)
    return key


async def aborted(client: Client, store: Store) -> TurnKey:
    failing, reading, acting = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def held(gate: asyncio.Event, fails: bool = False) -> Any:
        async def run(args: dict[str, Any], ctx: ToolContext) -> str:
            await gate.wait()
            if fails:
                raise ValueError("no such account")
            return "done"

        return run

    ledger = Ledger()
    tools = [
        pay_tool(ledger, False, name="bad", effect="", handler=held(failing, fails=True)),
        pay_tool(ledger, False, name="look", effect="", handler=held(reading), read_only=True),
        pay_tool(ledger, False, name="act", effect="", handler=held(acting)),
        pay_tool(ledger),
    ]
    batch = [calls(*((name, {"amount": 1}) for name in ("bad", "look", "act")), PAY), respond("done")]
    catalog = catalog_of(tools, actors=[Actor(name="desk", model="scripted", on_failure="abort_siblings")])
    async with running_turns(client, store, "recording", catalog, batch) as turns:
        key = await turns.start_waiting()
        failing.set()
        await turns.until(key, lambda view: {view.calls[1].state, view.calls[3].state} == {"skipped"})
        acting.set()
        await turns.signoff.result(key)
    return key


async def stood_in(client: Client, store: Store) -> TurnKey:
    ledger = Ledger()

    def fail(args: dict[str, Any], ctx: ToolContext) -> ToolFailure:
        return ToolFailure("the market is shut")

    def reading(name: str, *fallbacks: str) -> Tool:
        handler = ledger.handler(name, fail)
        return pay_tool(ledger, False, name=name, effect="", read_only=True, fallbacks=fallbacks, handler=handler)

    tools = [reading("rates", "older", "pay"), reading("older"), pay_tool(ledger)]
    batch = [calls(("rates", PAY[1])), respond("done")]
    async with running_turns(client, store, "recording", catalog_of(tools), batch) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, "c1.2001"))
        await turns.signoff.result(key)
    return key


async def _talked(client: Client, store: Store) -> Talk:
    tool = pay_tool(Ledger())
    async with running_turns(client, store, "recording", catalog_of([tool]), ScriptedModel(react)) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await session.say("hello", "b")
        await session.say("hello", "b")
        await session.add("a", "late")
        await session.answer("b")
        await session.add("b", "later still")
        await session.answer("b-2")
        await turns.signoff.decide(yes(session.turn_key("a")))
        await session.answer("a")
        await turns.signoff.result(session.turn_key("a"))
    return session


async def session(client: Client, store: Store) -> SessionKey:
    return (await _talked(client, store)).key


async def turn_in_session(client: Client, store: Store) -> TurnKey:
    return (await _talked(client, store)).turn_key("a")


async def returned_directly(client: Client, store: Store) -> TurnKey:
    handler = Ledger().handler("look", "42 rows")
    look = pay_tool(Ledger(), False, name="look", effect="", handler=handler, read_only=True, return_direct=True)
    catalog = catalog_of([pay_tool(Ledger()), look])
    script = [calls(PAY, ("look", {"amount": 1})), respond("never asked")]
    async with running_turns(client, store, "recording", catalog, script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        await turns.signoff.result(key)
    return key


async def went_on(client: Client, store: Store) -> TurnKey:
    policy = ApprovalPolicy(while_waiting="continue")
    look = pay_tool(Ledger(), False, name="look", effect="", read_only=True)
    other = ("pay", {"amount": 3})
    script = [calls(PAY, other), calls(PAY, ("look", {"amount": 1})), respond("asked"), respond("one"), respond("both")]
    catalog = catalog_of([pay_tool(Ledger(), policy), look])
    async with running_turns(client, store, "recording", catalog, script) as turns:
        key = await turns.start()
        await turns.until(key, lambda view: sum(each.role == "assistant" for each in view.messages) == 3)
        await turns.signoff.decide(no(key, "c1.2"))
        await turns.until(key, lambda view: sum(each.role == "assistant" for each in view.messages) == 4)
        await turns.signoff.decide(yes(key, "c1.1"))
        await turns.signoff.result(key)
    return key


async def overridden(client: Client, store: Store) -> TurnKey:
    there = [False]

    async def available(context: HookContext) -> bool:
        return there[-1]

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return Permission.deny("over the limit", can_override=True)

    def model(request: CompletionRequest) -> Completion:
        there.append(True)
        return calls(PAY) if len(there) < 4 else respond("done")

    catalog = catalog_of([pay_tool(Ledger(), False, available=available, check_permissions=check)])
    async with running_turns(client, store, "recording", catalog, ScriptedModel(model)) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, "c2.1"))
        await turns.signoff.result(key)
    return key


async def updated(client: Client, store: Store) -> TurnKey:
    ledger = Ledger()

    def brings(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        return ToolResult("noted", data_update={"city" if args["amount"] < 2 else "words": "x" * int(args["amount"])})

    note = pay_tool(ledger, False, name="note", effect="", handler=ledger.handler("note", brings))
    tools = [replace(note, updates=("city", "words")), pay_tool(ledger)]
    step = Step(name="buy", tools=("pay",), requires=("city",), collect={"city": None, "words": None})
    route = Route(name="trip", steps=(step,))
    batch = [("note", {"amount": 5_000}), ("note", {"amount": 1}), ("note", {"amount": 9_000})]
    script = [calls(PAY, *batch), calls(PAY), respond("done")]
    catalog = catalog_of(tools, actors=[Actor(name="desk", model="scripted", routes=(route,))])
    async with running_turns(client, store, "recording", catalog, script) as turns:
        key = await turns.start_waiting(route="trip", step="buy", context={"data": {"date": "may"}})
        await turns.signoff.decide(yes(key, "c2.1"))
        await turns.signoff.result(key)
    return key


async def _moved(client: Client, store: Store) -> Talk:
    ledger = Ledger()
    handler = ledger.handler("book", ToolResult("booked", next="thank"))
    steps = (Step(name="ask", collect={"city": None}), Step(name="book", requires=("city",)), Step(name="thank"))
    actors = [Actor(name="desk", model="scripted", routes=(Route(name="trip", steps=steps),))]
    catalog = catalog_of([pay_tool(ledger, name="book", effect="", handler=handler)], actors=actors)
    script = iter([calls(("collect", {"city": "Porto"})), calls(("book", PAY[1])), respond("booked"), respond("bye")])
    model = ScriptedModel(lambda request: next(script))
    async with running_turns(client, store, "recording", catalog, model) as turns:
        session = talk(turns)
        await session.say("to Porto", "a", route="trip")
        await session.turn("a", "waiting")
        await turns.signoff.decide(yes(session.turn_key("a"), "c2.1"))
        await session.answer("a")
        await session.say("thanks", "b")
        await session.answer("b")
    return session


async def moved(client: Client, store: Store) -> TurnKey:
    return (await _moved(client, store)).turn_key("a")


async def conversation_moved(client: Client, store: Store) -> SessionKey:
    return (await _moved(client, store)).key


async def notified(client: Client, store: Store) -> TurnKey:
    policy = ApprovalPolicy(edit="approve", quorum=2, timeout=60.0, remind_after=1.0)
    tools = [pay_tool(Ledger(), policy), pay_tool(Ledger(), policy, name="buy")]
    catalog = catalog_of(tools, channels=[DeclaredChannel("chat", "slack")], routing=RoutingRules(("chat",)))
    people = development_directory([a_person(name) for name in ("ana", "bo")])
    script = [calls(PAY, ("buy", PAY[1])), respond("done")]
    async with running_turns(client, store, "recording", catalog, script, people=people) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 10, "to": "Ana"}))
        await turns.until(key, lambda view: view.calls[1].approval is not None and view.calls[1].approval.reminded == 1)
        await turns.signoff.decide(no(key, "c1.2", subject="bo"))
        await turns.signoff.decide(yes(key, subject="bo", revision=2))
        await turns.signoff.result(key)
    return key


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        waiting, approved_by_update, approved_by_signal, denied, answered, timed_out, cancelled, auto, asked_again,
        lapsed, in_doubt, parallel, happened, ran_again, edited, escalated, repeated,
        session, turn_in_session, returned_directly, in_line, aborted, stood_in,
        overridden, updated, moved, conversation_moved, notified, went_on,
    )
} | CALL_SCENARIOS | KIND_SCENARIOS  # fmt: skip


def scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: scrubbed(each) for name, each in value.items() if name not in UNKEPT}
    return [scrubbed(each) for each in value] if isinstance(value, list) else value


async def record(chosen: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True, parents=True)
    with tempfile.TemporaryDirectory() as folder:
        options = ServerOptions(Path(folder) / "temporal.db", port=free_port(), ui_port=None)
        async with run_server(options) as server:
            client = await Client.connect(server.options.address, identity="recorder", data_converter=DATA_CONVERTER)
            for name in chosen:
                async with open_store(f"sqlite:///{folder}/{name}.db") as store:
                    found = await SCENARIOS[name](client, store)
                known = isinstance(found, WorkflowHistory)
                history = found if known else await history_of(client, found.workflow_id)
                text = json.dumps(scrubbed(history.to_json_dict()), indent=1, sort_keys=True)
                (FOLDER / f"{name}.json").write_text(text + "\n")
                await _close_all(client)
                print(f"recorded {name}: {len(history.events)} events", flush=True)


async def _close_all(client: Client) -> None:
    """The next scenario's worker has another store and cannot run these workflows."""
    async for each in client.list_workflows("ExecutionStatus = 'Running'"):
        with suppress(RPCError):
            await client.get_workflow_handle(each.id).terminate()


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(SCENARIOS):
        sys.exit(f"unknown scenarios: {', '.join(sorted(unknown))}; known: {', '.join(SCENARIOS)}")
    print("Some scenarios fail on purpose and log their errors.", flush=True)
    asyncio.run(record(sys.argv[1:] or list(SCENARIOS)))
