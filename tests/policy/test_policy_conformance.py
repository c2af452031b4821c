import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from cel_expr_python import cel
from celpy import celtypes
from policy_samples import arguments, compiled, context
from tables import table

from signoff.policy.answer import EngineOutcome
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.first_engine import FirstProgram
from signoff.policy.operators import equal
from signoff.policy.second_engine import second_program
from signoff.policy.syntax import text_problem

HERE = Path(__file__).parent
SPECIFICATION = HERE / "data" / "cel_conformance.jsonl"
OWN = yaml.safe_load((HERE / "cases" / "approval.yaml").read_text())
TRUE = {"value": {"t": "bool", "v": True}}


@pytest.mark.row("B69")
@table("case", *OWN, ids=[case["name"] for case in OWN])
def test_each_written_case_has_its_verdict(case: dict[str, Any]) -> None:
    policy = compiled(ApprovalPolicy.model_validate(case["policy"]))
    verdict = policy.judge(arguments(**case["args"]), context(**case.get("user", {})))
    assert (verdict.verdict, verdict.rule.label) == (case["expect"], case["rule"]), verdict.why


def _value(bound: dict[str, Any], wrap: bool) -> Any:
    kinds: dict[str, tuple[Any, Any]] = {
        "bool": (bool, celtypes.BoolType),
        "int": (int, celtypes.IntType),
        "uint": (int, celtypes.UintType),
        "double": (float, celtypes.DoubleType),
        "string": (str, celtypes.StringType),
        "bytes": (base64.b64decode, lambda text: celtypes.BytesType(base64.b64decode(text))),
    }
    if bound["t"] in kinds:
        return kinds[bound["t"]][wrap](kinds[bound["t"]][0](bound["v"]) if bound["t"] != "bytes" else bound["v"])
    match bound["t"]:
        case "null":
            return None
        case "list":
            items = [_value(item, wrap) for item in bound["v"]]
            return celtypes.ListType(items) if wrap else items
        case "map":
            entries = {_value(key, wrap): _value(item, wrap) for key, item in bound["v"]}
            return celtypes.MapType(entries) if wrap else entries
    raise ValueError(bound["t"])


def _first(case: dict[str, Any], data: dict[str, Any]) -> EngineOutcome:
    names = dict.fromkeys({**case.get("vars", {}), **data}, cel.Type.DYN)
    try:
        program = cel.NewEnv(variables=names, container=case.get("container")).compile(case["expr"])
    except RuntimeError as error:
        return EngineOutcome("error", str(error))
    return FirstProgram(program).run(data)


def _second(case: dict[str, Any], data: dict[str, Any]) -> tuple[EngineOutcome, Any]:
    try:
        program = second_program(case["expr"])
        value = program.runner.evaluate(data)
    except Exception as error:
        return EngineOutcome("error", type(error).__name__), None
    return program.run(data), value


def _as_expected(expect: dict[str, Any], outcome: EngineOutcome, value: Any) -> bool:
    if "error" in expect:
        return outcome.kind == "error"
    if outcome.kind == "error":
        return False
    if expect["value"]["t"] == "type":
        return isinstance(value, type)
    wanted = _value(expect["value"], True)
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(value, float) and math.isnan(value)
    return type(value) is type(wanted) and equal(value, wanted)


def _bound(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    bindings = case.get("bindings", {})
    plain = {name: _value(bound, False) for name, bound in bindings.items()}
    return plain, {name: _value(bound, True) for name, bound in bindings.items()}


@pytest.mark.row("N27")
def test_engines_agree_on_true_only_where_the_specification_does() -> None:
    wrong: list[str] = []
    asked = core = good = 0
    for case in map(json.loads, SPECIFICATION.read_text().splitlines()):
        if text_problem(case["expr"])[0] == "a string is not closed":
            continue
        data = _bound(case)
        asked += 1
        outcome, value = _second(case, data[1])
        if outcome.kind == "true" and case["expect"] != TRUE and _first(case, data[0]).kind == "true":
            wrong.append(case["expr"])
        if not case.get("needs_proto") and not case.get("ext"):
            core += 1
            good += _as_expected(case["expect"], outcome, value)
    assert wrong == []
    assert asked > 1_500
    assert core > 1_000
    assert good / core >= 0.95, f"{good} of {core}"
