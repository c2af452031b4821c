from typing import Any

from session_rig import Talk, talk
from tables import table
from temporalio.worker import Replayer
from turn_fixtures import Ledger, RunningTurns, TurnRig, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import ResultPart
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.tool_result import ToolResult
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond
from signoff.worker import SignoffPlugin

TEXT = {"type": "string"}
ROUTE = {"route": "checkout"}
BOTH = {"address": "Rua 1", "card": "1234"}
STEPS = (
    Step(name="gather", instructions="Ask for address and card.", collect={"address": TEXT, "card": TEXT}),
    Step(name="process", instructions="Take the payment.", requires=("address", "card"), tools=("pay",), mode="only"),
)


def shop(ledger: Ledger, policy: Any = False, steps: tuple[Step, ...] = STEPS) -> Catalog:
    route = Route(name="checkout", steps=steps)
    pay = pay_tool(ledger, policy)
    return build_catalog(tools=[pay], actors=[Actor(name="desk", model="scripted", tools=("pay",), routes=(route,))])


def kept(**args: Any) -> Completion:
    return calls(("collect", args))


class Script:
    def __init__(self, *script: Completion) -> None:
        self._left = list(script)
        self.told: list[tuple[str, list[str]]] = []

    @property
    def model(self) -> ScriptedModel:
        return ScriptedModel(self._react)

    def _react(self, request: CompletionRequest) -> Completion:
        self.told.append((request.instructions, [tool.name for tool in request.tools]))
        return self._left.pop(0)


GATHER = ("Ask for address and card.", ["collect", "pay", "respond"])
PROCESS = ("Take the payment.", ["pay", "respond"])
PAY = calls(("pay", {"amount": 20}))


async def moves(turns: RunningTurns, key: TurnKey) -> list[tuple[str, str, str]]:
    """Each move: completion, from, to."""
    entries = [each.facts for each in await AuditLog(turns.store).stream(key.workflow_id) if "moved" in each.facts]
    return [(str(each["completion"]), str(each.get("from", "")), str(each["moved"])) for each in entries]


async def test_turn_moves_on_once_its_step_has_all_data(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = Script(kept(address="Rua 1"), kept(card="1234"), PAY, respond("paid"))
    async with turn_rig.running(shop(ledger), script.model) as turns:
        key = await turns.start(**ROUTE)
        result = await turns.signoff.result(key)
        await turns.replays(key)
        view = await turns.signoff.view(key)
        assert await moves(turns, key) == [("1", "", "gather"), ("3", "gather", "process")]
    assert [(each.tool, each.code) for each in result.calls] == [("collect", "ok"), ("collect", "ok"), ("pay", "ok")]
    assert "Still to collect: `card`." in str(result.calls[0].value.inline)
    assert "Nothing more" in str(result.calls[1].value.inline)
    assert script.told == [GATHER, GATHER, PROCESS, PROCESS]
    assert (view.route, view.step) == ("checkout", "process")


async def test_session_stays_at_the_step_of_its_turn(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = Script(respond("Where to?"), kept(**BOTH), respond("Shall I?"), PAY, respond("paid"))
    async with turn_rig.running(shop(ledger), script.model) as turns:
        found = talk(turns)
        places = []
        for name in "abc":
            await found.say(name, name, **(ROUTE if name == "a" else {}))
            await found.answer(name)
            view = await turns.sessions.session(found.key)
            places.append((view.route, view.step))
        await replay(turn_rig, turns, found)
        records = [await AuditLog(turns.store).stream(found.turn_key(name).workflow_id) for name in "abc"]
    begun = [(stream[0].facts.get("route"), stream[0].facts.get("step", "")) for stream in records]
    assert begun == [("checkout", ""), ("checkout", "gather"), ("checkout", "process")]
    assert places == [("checkout", "gather"), ("checkout", "process"), ("checkout", "process")]
    assert [(turn.route, turn.step) for turn in view.turns] == [
        ("checkout", ""),
        ("checkout", "gather"),
        ("checkout", "process"),
    ]
    assert script.told == [GATHER, GATHER, PROCESS, PROCESS, PROCESS]
    assert [row[0] for row in ledger.rows] == ["pay"]


async def replay(rig: TurnRig, turns: RunningTurns, found: Talk) -> None:
    replayer = Replayer(
        workflows=[],
        plugins=[SignoffPlugin(turns.deps)],
        data_converter=rig.client.data_converter,
        namespace=rig.client.namespace,
    )
    await replayer.replay_workflow(await found.handle.fetch_history())


async def test_data_of_the_caller_moves_a_turn_before_its_first_completion(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = Script(PAY, respond("paid"))
    async with turn_rig.running(shop(ledger), script.model) as turns:
        key = await turns.start(**ROUTE, context={"data": BOTH})
        result = await turns.signoff.result(key)
        assert await moves(turns, key) == [("1", "", "process")]
    assert [each.code for each in result.calls] == ["ok"]
    assert script.told == [PROCESS, PROCESS]


@table(
    ("args", "code"),
    ({"address": 7, "card": "1234"}, "input_invalid"),
    ({"phone": "1", **BOTH}, "input_invalid"),
    ({"address": "Rua 1"}, "ok"),
)
async def test_turn_stays_while_data_is_missing(
    turn_rig: TurnRig, ledger: Ledger, args: dict[str, Any], code: str
) -> None:
    script = Script(kept(**args), PAY, respond("no"))
    async with turn_rig.running(shop(ledger), script.model) as turns:
        result = await turns.signoff.result(await turns.start(**ROUTE))
    assert [each.code for each in result.calls] == [code, "ok"]
    assert script.told == [GATHER] * 3


async def test_step_with_missing_data_is_not_entered(turn_rig: TurnRig, ledger: Ledger) -> None:
    steps = (Step(name="gather", collect={"address": TEXT}), Step(name="late", collect={"card": TEXT}))
    waits = Step(name="process", requires=("card",), tools=("pay",))
    script = Script(kept(address="Rua 1"), respond("done"))
    async with turn_rig.running(shop(ledger, steps=(steps[0], waits, steps[1])), script.model) as turns:
        key = await turns.start(**ROUTE)
        await turns.signoff.result(key)
        assert (await turns.signoff.view(key)).step == "gather"


async def test_step_named_by_the_requester_is_kept_for_one_completion(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = Script(kept(address="Rua 2"), respond("ok"))
    start: dict[str, Any] = {"step": "gather", "context": {"data": {"card": "1234"}}}
    async with turn_rig.running(shop(ledger), script.model) as turns:
        found = talk(turns)
        await found.say("x", "a", **ROUTE, **start)
        await found.answer("a")
        # The session does not keep the caller's own data.
        assert (await turns.sessions.session(found.key)).step == "process"
    assert script.told == [GATHER, PROCESS]


async def test_waiting_call_runs_at_the_step_where_it_was_proposed(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = Script(kept(**BOTH), PAY, respond("paid"))
    async with turn_rig.running(shop(ledger, True), script.model) as turns:
        key = await turns.start_waiting(**ROUTE)
        await turns.signoff.decide(yes(key, call="c2.1"))
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert [each.code for each in result.calls] == ["ok", "ok"]


async def test_reset_turn_moves_the_session_once(turn_rig: TurnRig, ledger: Ledger) -> None:
    def react(request: CompletionRequest) -> Completion:
        told = any(isinstance(part, ResultPart) for part in request.messages[-1].parts)
        return kept(**BOTH) if last_user_text(request) == "collect" and not told else respond(request.instructions)

    async with turn_rig.running(shop(ledger), ScriptedModel(react)) as turns:
        found = talk(turns)
        await found.say("collect", "a", **ROUTE)
        assert await found.answer("a") == PROCESS[0]
        key = found.turn_key("a")
        before = await moves(turns, key)
        await turns.reset(key)
        await turns.signoff.result(key)
        assert await moves(turns, key) == before == [("1", "", "gather"), ("2", "gather", "process")]
        await found.say("hello", "b")
        assert await found.answer("b") == PROCESS[0]
        assert (await turns.sessions.session(found.key)).step == "process"


async def quoted(args: dict[str, Any], ctx: Any) -> ToolResult:
    forget = {"card": None} if args["to"] == "gather" else None
    return ToolResult("quoted", data_update=forget, next=args["to"])


def quoting(ledger: Ledger, policy: Any = False) -> Catalog:
    quote = pay_tool(ledger, policy, name="quote", effect="", handler=quoted, updates=("card",))
    steps = (
        STEPS[0],
        Step(name="process", instructions="Take the payment."),
        Step(name="thank", instructions="Thank."),
    )
    route = Route(name="checkout", steps=steps)
    return build_catalog(tools=[quote], actors=[Actor(name="desk", model="scripted", routes=(route,))])


def quote(*steps: str) -> Completion:
    return calls(*(("quote", {"amount": 1, "to": step}) for step in steps))


@table(
    ("named", "told"),
    (("process",), ["gather", "process"]),
    (("thank",), ["gather", "thank"]),
    (("thank", "process"), ["gather", "thank"]),
    (("gather",), ["gather", "gather"]),
    (("gone",), ["gather", "gather"]),
)
async def test_next_step_of_a_result_moves_the_turn(
    turn_rig: TurnRig, ledger: Ledger, named: tuple[str, ...], told: list[str]
) -> None:
    script = Script(quote(*named), respond("done"))
    words = {"Ask for address and card.": "gather", "Take the payment.": "process", "Thank.": "thank"}
    async with turn_rig.running(quoting(ledger), script.model) as turns:
        found = talk(turns)
        await found.say("x", "a", **ROUTE)
        await found.answer("a")
        await turns.replays(found.turn_key("a"))
        assert (await turns.sessions.session(found.key)).step == told[-1]
        ends = [
            each.facts.get("next_step", "")
            for each in await AuditLog(turns.store).stream(found.turn_key("a").workflow_id)
            if each.kind == "outcome"
        ]
    assert [words[each[0]] for each in script.told] == told
    assert ends == [step if step in ("process", "thank") else "" for step in named]


async def test_conversation_goes_back_and_collects_again(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = Script(kept(**BOTH), quote("gather"), kept(card="5678"), respond("done"))
    async with turn_rig.running(quoting(ledger), script.model) as turns:
        key = await turns.start(**ROUTE)
        await turns.signoff.result(key)
        assert await moves(turns, key) == [("1", "", "gather"), ("2", "gather", "process"), ("4", "gather", "process")]
    assert [each[0] for each in script.told] == [
        "Ask for address and card.",
        "Take the payment.",
        "Ask for address and card.",
        "Take the payment.",
    ]


async def test_late_result_does_not_move_a_turn_that_has_moved(turn_rig: TurnRig, ledger: Ledger) -> None:
    # The call was proposed at the step `gather`, which the turn left while the approvers decided.
    policy = {"approvers": ["role:approvers"], "while_waiting": "continue"}
    script = Script(quote("thank"), kept(**BOTH), respond("moved"), respond("done"))
    async with turn_rig.running(quoting(ledger, ApprovalPolicy.model_validate(policy)), script.model) as turns:
        key = await turns.start_waiting(**ROUTE)
        await turns.until(key, lambda view: view.step == "process")
        await turns.signoff.decide(yes(key))
        result = await turns.signoff.result(key)
        await turns.replays(key)
        assert (await turns.signoff.view(key)).step == "process"
    assert [each.code for each in result.calls] == ["ok", "ok"]


async def test_reset_turn_follows_the_recorded_result(turn_rig: TurnRig, ledger: Ledger) -> None:
    def result(args: dict[str, Any], ctx: Any) -> ToolResult:
        return ToolResult("quoted", next="process" if len(ledger.rows) == 1 else "thank")

    def react(request: CompletionRequest) -> Completion:
        told = any(isinstance(part, ResultPart) for part in request.messages[-1].parts)
        return respond(request.instructions) if told else calls(("quote", {"amount": 1}))

    quote = pay_tool(ledger, False, name="quote", effect="", handler=ledger.handler("quote", result))
    steps = (
        STEPS[0],
        Step(name="process", instructions="Take the payment."),
        Step(name="thank", instructions="Thank."),
    )
    actor = Actor(name="desk", model="scripted", routes=(Route(name="checkout", steps=steps),))
    async with turn_rig.running(build_catalog(tools=[quote], actors=[actor]), ScriptedModel(react)) as turns:
        found = talk(turns)
        await found.say("quote", "a", **ROUTE)
        assert await found.answer("a") == "Take the payment."
        key = found.turn_key("a")
        await turns.reset(key)
        result_again = await turns.signoff.result(key)
        assert (result_again.text, len(ledger.rows)) == ("Take the payment.", 1)
        assert (await turns.sessions.session(found.key)).step == "process"
