from typing import Any, get_args

from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.limits import MAX_CALLS
from signoff.registry.catalog import build_catalog
from signoff.registry.gates.gate_trace import GateTraceEntry, gate_trace
from signoff.registry.gates.judged_call import GateName, JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.tool import Tool

GOOD = {"flight": "TP 531", "totalCost": 420}
GATES: tuple[GateName, ...] = get_args(GateName)


def found(tool: Tool, args: Any = GOOD, **fields: Any) -> JudgedCall:
    catalog = build_catalog(tools=(tool,), actors=(an_actor(),))
    return judge(catalog, pinned(), a_call(), args, fields.pop("tally", Tally()), **fields)


def answers(entries: tuple[GateTraceEntry, ...]) -> dict[str, str]:
    return {each.gate: each.answer for each in entries}


@table("with_arguments", True, False)
def test_trace_of_an_early_end_names_the_deciding_gate(with_arguments: bool) -> None:
    ended = found(a_tool(), tally=Tally(calls=MAX_CALLS))
    entries = gate_trace(ended, with_arguments=with_arguments, needs="nobody reads this")
    assert tuple(each.gate for each in entries) == GATES
    assert answers(entries) == {"shape": "passes", "caps": "decides"} | dict.fromkeys(GATES[2:], "unasked")
    assert [each.words for each in entries] == ["", ended.message, *[""] * (len(GATES) - 2)]


def test_trace_of_invalid_arguments_ends_at_the_schema() -> None:
    ended = found(a_tool(), {"flight": "TP 531"})
    entries = gate_trace(ended, with_arguments=True)
    at = GATES.index("schema")
    assert [each.answer for each in entries] == ["passes"] * at + ["decides"] + ["unasked"] * (len(GATES) - at - 1)
    assert entries[at].words == ended.message
    assert "totalCost" in entries[at].words


@table(
    ("tool", "words"),
    (a_tool(), "it runs without approval: "),
    (a_tool(requires_approval=True), "people are asked: "),
)
def test_trace_of_the_last_gate_names_the_rule(tool: Tool, words: str) -> None:
    decision = found(tool)
    assert decision.verdict is not None
    entries = gate_trace(decision, with_arguments=True)
    assert [each.answer for each in entries] == ["passes"] * (len(GATES) - 1) + ["decides"]
    assert entries[-1] == GateTraceEntry("approval", "decides", f"{words}{decision.verdict.why}")
    # Without a policy reason, no separator remains.
    assert decision.verdict.why != ""
    bare = gate_trace(decision._replace(verdict=None), with_arguments=True)
    assert bare[-1].words == words.removesuffix(": ")


def test_trace_without_arguments_leaves_dependent_gates_open() -> None:
    entries = gate_trace(found(a_tool(), {}), with_arguments=False, needs="asks if totalCost > 400")
    at = GATES.index("schema")
    assert tuple(each.gate for each in entries) == GATES
    assert [each.answer for each in entries] == ["passes"] * at + ["open"] * (len(GATES) - at)
    assert {each.words for each in entries[:at]} == {""}
    assert {each.words for each in entries[at:-1]} == {"depends on the arguments"}
    assert entries[-1].words == "asks if totalCost > 400"
    assert gate_trace(found(a_tool(), {}), with_arguments=False)[-1].words == ""
