import dataclasses
from typing import Any

from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.content import Remark
from signoff.contracts.limits import MAX_NAME_CHARS
from signoff.formats.json_schema import SchemaProblem
from signoff.registry.catalog import build_catalog
from signoff.registry.function import tool
from signoff.registry.gates.argument_check import check_arguments, final_arguments, problem_remarks
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.hooks import Correction
from signoff.registry.tool import Tool

GOOD: dict[str, Any] = {"flight": "TP 531", "totalCost": 420}
OPEN: dict[str, Any] = {"type": "object"}
MISFIT = "The arguments do not fit the schema: `totalCost` must be of type number."


def ruled(tool: Tool, args: Any = GOOD) -> JudgedCall:
    return judge(build_catalog(tools=(tool,), actors=(an_actor(),)), pinned(), a_call(), args, Tally())


def corrects(to: dict[str, Any], why: str = "", **fields: Any) -> Tool:
    return a_tool(validate_input=lambda args: [] if args == to else Correction(to, why), **fields)


@table(
    ("to", "why", "note"),
    ({"flight": "TP 9", "totalCost": 1}, "", "The arguments were corrected (`flight`, `totalCost`)."),
    ({"flight": "TP 9", "totalCost": 420}, "it left", "The arguments were corrected (`flight`): it left."),
    ({**GOOD, "seat": None}, "", "The arguments were corrected (`seat`)."),
    ({"flight": "TP 531"}, "", "The arguments were corrected (`totalCost`)."),
)
def test_correction_note_names_changed_added_and_removed_arguments(to: dict[str, Any], why: str, note: str) -> None:
    found = ruled(corrects(to, why, input_schema=OPEN))
    assert (found.kind, found.corrected, found.note) == ("run", to, note)


@table(("changed", "more"), (10, ""), (11, " and 1 more"), (13, " and 3 more"))
def test_correction_note_names_the_first_ten_arguments(changed: int, more: str) -> None:
    names = [f"n{index:02}" for index in range(changed)]
    found = ruled(corrects(dict.fromkeys(names, 1), input_schema=OPEN), {})
    named = ", ".join(f"`{name}`" for name in names[:10])
    assert found.note == f"The arguments were corrected ({named}{more})."


@table(("changed", "note"), (0, "(none changed): it left."), (12, " and 2 more): it left."))
def test_note_of_a_correction_ends_with_its_reason(changed: int, note: str) -> None:
    to = dict.fromkeys([f"n{index:02}" for index in range(changed)], 1)
    checked = a_tool(validate_input=lambda args: Correction(to, "it left"), input_schema=OPEN)
    found = ruled(checked if not changed else corrects(to, "it left", input_schema=OPEN), {})
    assert found.note.startswith("The arguments were corrected (")
    assert found.note.endswith(note)


def test_correction_without_a_change_is_noted() -> None:
    found = ruled(a_tool(validate_input=lambda args: Correction(args)))
    assert (found.kind, found.note) == ("run", "The arguments were corrected (none changed).")


def test_problems_keep_their_remarks_for_translation() -> None:
    words = Remark.of("corrected.none")
    [found] = check_arguments(a_tool(validate_input=lambda args: [("", words)]), GOOD).problems
    assert problem_remarks([found]) == (words,)
    assert problem_remarks([found] * 6) == (*[words] * 5, Remark.of("more", n="1"))
    exact = SchemaProblem("", "x" * 1_500)
    assert problem_remarks([exact]) == (exact.words,)
    assert problem_remarks([SchemaProblem("", "x" * 1_501)]) != (exact.words,)


def test_corrected_arguments_are_a_deep_copy() -> None:
    kept: dict[str, Any] = {"stops": ["LIS"]}
    found = ruled(corrects(kept, input_schema=OPEN), {"stops": []})
    found.args({})["stops"].append("OPO")
    assert kept == {"stops": ["LIS"]}


@table(
    ("to", "expected"),
    (lambda args: {**args, "flight": args["flight"] + "!"}, "keep changing with each correction"),
    (
        lambda args: {**args, "totalCost": 2**60},
        "the arguments hold an integer outside ±(2^53-1); send it as a string or leave it out",
    ),
)
def test_invalid_correction_is_a_problem_of_the_whole_call(to: Any, expected: str) -> None:
    message = f"the arguments of `book_flight` are not valid: {expected}. Correct them and call it again"
    assert ruled(a_tool(validate_input=lambda args: Correction(to(args)))).message == message


def test_schema_mismatch_is_noted_with_any_result_of_the_tools_check() -> None:
    misfit = {"flight": "tp", "totalCost": "much"}
    fine = ruled(a_tool(validation="warn", validate_input=lambda args: []), misfit)
    assert (fine.kind, fine.corrected, fine.note) == ("run", None, MISFIT)
    better = {"flight": "TP", "totalCost": "much"}
    mended = ruled(corrects(better, "in capitals", validation="warn"), misfit)
    assert (mended.kind, mended.corrected) == ("run", better)
    assert mended.note == f"The arguments were corrected (`flight`): in capitals. {MISFIT}"


def test_call_runs_with_the_arguments_it_was_judged_with() -> None:
    wanted = {"flight": "TP 9", "totalCost": 1}
    tool = corrects(wanted)
    assert final_arguments(tool, GOOD) == ruled(tool).args(GOOD) == wanted
    assert final_arguments(tool, wanted) is wanted
    assert final_arguments(a_tool(), GOOD) is GOOD
    assert final_arguments(a_tool(validate_input=lambda args: [SchemaProblem("flight", "is unknown")]), GOOD) is GOOD


def test_check_that_mutates_its_input_changes_nothing() -> None:
    def check(args: dict[str, Any]) -> list[SchemaProblem]:
        args["flight"] = "TP 9"
        args["stops"].append("OPO")
        return []

    tool, given = a_tool(validate_input=check, input_schema=OPEN), {"flight": "TP 531", "stops": ["LIS"]}
    found = ruled(tool, given)
    assert (found.kind, found.corrected) == ("run", None)
    assert final_arguments(tool, given) is given
    assert given == {"flight": "TP 531", "stops": ["LIS"]}


def test_messages_about_long_names_are_short() -> None:
    long = "k" * MAX_NAME_CHARS
    lists = {"type": "object", "additionalProperties": {"type": "integer"}}
    misfit = ruled(a_tool(input_schema=lists, validation="warn"), {long: "x"})
    assert misfit.note == f"The arguments do not fit the schema: `{'k' * 64}...` must be of type integer."
    problems = [SchemaProblem(long, f"is unknown: {long}")] * 7
    checked = ruled(a_tool(input_schema=OPEN, validate_input=lambda args: problems), {long: "x"})
    assert f"`{'k' * 200}...` is unknown: k" in checked.message
    assert "...; and 2 more. Correct them" in checked.message
    assert len(checked.message) < 1_700
    many = {f"{n:02}{long[2:]}": n for n in range(12)}
    corrected = ruled(corrects(many, input_schema=OPEN), {})
    assert corrected.corrected == many
    assert f"`{'11' + 'k' * 62}...`" not in corrected.note
    assert "...` and 2 more)." in corrected.note
    assert len(corrected.note) < 1_000


def test_argument_names_of_a_typed_function_are_cut_too() -> None:
    @tool(scope="generalist")
    async def count(votes: dict[str, int]) -> str:
        """Count the votes."""
        return str(votes)

    found = ruled(
        dataclasses.replace(count, name="book_flight", validation="off", read_only=True),
        {"votes": {"k" * MAX_NAME_CHARS: "x"}},
    )
    assert found.code == "input_invalid"
    assert f"`votes.{'k' * 64}...` input should be a valid integer" in found.message
