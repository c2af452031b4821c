from typing import Any

import pytest
from evaluation_kit import ASKS, a_call, a_case, a_catalog, a_tool
from tables import table

from signoff.contracts.approval import Terms
from signoff.evaluation.case_file import EvaluationCase
from signoff.evaluation.case_player import CaseModel, play
from signoff.evaluation.difference import Difference, find_differences
from signoff.formats.replace import replace
from signoff.registry.catalog import Catalog
from signoff.testing.scripted_model import calls, respond, steps


async def differences(
    case: EvaluationCase, catalog: Catalog, *proposed: Any, state: str = "complete"
) -> list[Difference]:
    model = CaseModel("script", steps([calls(*proposed), respond("ok", state)])) if proposed else None
    played = await play(case, catalog, model)
    return list(find_differences(case, played, catalog.actors["desk"]))


def summary(found: list[Difference]) -> list[tuple[str, str, str, str]]:
    return [(each.kind, each.tool, each.was, each.now) for each in found]


async def test_identical_replay_has_no_difference() -> None:
    case = a_case(a_call(20), a_call(70, "ask", "c1.2", terms=Terms(approvers=("role:finance",))))
    assert await differences(case, a_catalog()) == []
    assert await differences(case, a_catalog(), ("pay", {"amount": 70}), ("pay", {"amount": 20})) == []


@pytest.mark.row("V16")
async def test_new_missing_and_changed_calls_are_reported() -> None:
    case = a_case(a_call(20), a_call(30, call="c1.2", tool="look"))
    catalog = a_catalog(a_tool(), a_tool("look"), a_tool("fly"))
    found = await differences(case, catalog, ("pay", {"amount": 25}), ("fly", {"amount": 1}))
    assert summary(found) == [
        ("changed", "pay", "amount=20", "amount=25"),
        ("missing", "look", "run", ""),
        ("new", "fly", "", "run"),
    ]
    assert all(each.forbidden for each in found)


async def test_argument_that_differs_only_by_type_is_reported() -> None:
    found = await differences(a_case(a_call(True)), a_catalog(), ("pay", {"amount": 1}))
    assert ("changed", "pay", "amount=True", "amount=1") in summary(found)


async def test_changed_verdict_is_reported_with_its_rule() -> None:
    case = a_case(a_call(70, "ask", call="c1.1"))
    [freed] = await differences(case, a_catalog(a_tool(requires_approval=False)))
    assert (freed.kind, freed.was, freed.now, freed.why) == (
        "verdict",
        "ask",
        "run",
        "requires_approval: the tool needs no approval",
    )
    [gone] = await differences(case, a_catalog(a_tool("look")))
    assert (gone.kind, gone.was, gone.now) == ("verdict", "ask", "not_available")
    assert gone.why.startswith("Unknown tool: pay")


async def test_other_approvers_or_another_quorum_is_a_difference() -> None:
    asked = a_call(70, "ask", terms=Terms(approvers=("role:finance",)))
    two = a_tool(requires_approval=replace(ASKS, quorum=2))
    assert summary(await differences(a_case(asked), a_catalog(two))) == [
        ("terms", "pay", "1 of role:finance", "2 of role:finance")
    ]
    assert await differences(a_case(a_call(70, "ask")), a_catalog(two)) == []


async def test_another_end_state_is_a_difference() -> None:
    case = a_case(a_call(20))
    assert summary(await differences(case, a_catalog(), ("pay", {"amount": 20}), state="clarifying")) == [
        ("ending", "", "complete", "clarifying")
    ]


async def test_allowed_difference_is_reported_and_passes() -> None:
    case = a_case(a_call(70, "ask"), forbid=["new"])
    [found] = await differences(case, a_catalog(a_tool(requires_approval=False)))
    assert (found.kind, found.forbidden) == ("verdict", False)
    [new] = await differences(a_case(forbid=["verdict"]), a_catalog(), ("pay", {"amount": 20}))
    assert (new.kind, new.forbidden) == ("new", False)


@pytest.mark.row("V16")
@table(("mismatch", "seen"), ("warn", [False]), ("error", [True]), ("ignore", []))
async def test_prompt_hash_mismatch_warns_is_an_error_or_is_ignored(mismatch: str, seen: list[bool]) -> None:
    case = EvaluationCase.model_validate(
        {**a_case(a_call(20)).model_dump(exclude={"prompt_hash_mismatch"}), "promptHashMismatch": mismatch}
    )
    found = await differences(case, a_catalog(instructions="Be kind."))
    assert [each.forbidden for each in found] == seen
    assert all(each.kind == "prompt" for each in found)
    assert await differences(case, a_catalog()) == []
