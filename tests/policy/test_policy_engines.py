from importlib.metadata import version
from typing import Any

import pytest
from celpy import celtypes
from celpy.celparser import CELParseError
from policy_samples import arguments, compiled, context
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import POLICY_STEPS
from signoff.policy import second_engine
from signoff.policy.answer import EngineAnswer, EngineOutcome
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.expression import EVALUATORS, facts
from signoff.policy.first_engine import first_program
from signoff.policy.operators import FUNCTIONS
from signoff.policy.second_engine import as_celpy, second_program
from signoff.policy.syntax import subtrees

DATA = {"s": "x", "m": {"k": 1}, "n": 3, "l": [1, 2], "none": None, "zero": 0, "d": 1.5, "yes": True}


def both(text: str) -> tuple[tuple[str, str], tuple[str, str]]:
    one = first_program(text, ["args"]).run({"args": DATA})
    two = second_program(text).run({"args": as_celpy(DATA)})
    return (one.kind, one.note), (two.kind, two.note)


@table(
    ("text", "first", "second"),
    ("args.absent == 1", "Key not found in map", "no such member in mapping"),
    ("args.s < 5", "No matching overloads found: _<_(string, int64)", "found no matching overload"),
    ("args.n / 0 == 1", "divide by zero", "modulus or divide by zero"),
    ("args.n % 0 == 1", "modulus by zero", "modulus or divide by zero"),
    ("args.l[7] == 1", "Index error: index=7 size=2", "invalid_argument"),
    ("args.n + 9223372036854775807 > 0", "integer overflow", "return error for overflow"),
    ("has(args.s.x)", "Applying SELECT to non-message type", "no such overload"),
)
def test_error_note_uses_the_words_of_each_engine(text: str, first: str, second: str) -> None:
    assert both(text) == (("error", first), ("error", second))


@table(
    ("text", "first", "second"),
    ("args.n", "a int", "a IntType"),
    ("args.d", "a double", "a DoubleType"),
    ("args.s", "a string", "a StringType"),
    ("b'x'", "a bytes", "a BytesType"),
    ("args.m", "a map<dyn, dyn>", "a MapType"),
    ("args.l", "a list<dyn>", "a ListType"),
    ("args.none", "a null", "a NoneType"),
    ("duration('1h')", "a duration", "a DurationType"),
)
def test_non_boolean_result_is_noted_with_its_type(text: str, first: str, second: str) -> None:
    assert both(text) == (("other", first), ("other", second))


def test_boolean_result_has_no_note() -> None:
    assert both("args.yes") == (("true", ""), ("true", ""))
    assert both("args.n == 4") == (("false", ""), ("false", ""))


def test_lists_and_texts_come_back_as_plain_values() -> None:
    for text, value in (("['a', 'b' + args.s]", ["a", "bx"]), ("args.l", [1, 2]), ("args.s", "x")):
        one = first_program(text, ["args"]).run({"args": DATA})
        two = second_program(text).run({"args": as_celpy(DATA)})
        assert one.value == two.value == value
    found = second_program("['a', args.s]").run({"args": as_celpy(DATA)}).value
    assert [type(each) for each in found] == [str, str]


def test_missing_or_broken_data_is_an_error_with_a_note() -> None:
    assert first_program("args.s == 'x'", ["args"]).run({}) == EngineOutcome(
        "error", 'No value with name "args" found in Activation'
    )
    broken: Any = 7
    assert first_program("args.s == 'x'", ["args"]).run(broken) == EngineOutcome(
        "error", "'int' object is not iterable"
    )
    assert second_program("args.s == 'x'").run({}).kind == "error"
    assert second_program("args.s == 'x'").run(broken).kind == "error"


# has()


@table(
    ("text", "note"),
    ("has(args.none.x)", "no such overload"),
    ("has(args.l.x)", "no such overload"),
    ("has(args.l[0])", "no such overload"),
    ("has(args)", "no such overload"),
    ("has(1)", "no such overload"),
    ("has('x')", "no such overload"),
    ("has(.args)", "no such overload"),
    ("has(args.absent.deeper)", "no such member in mapping"),
    ("has(args.l[9].x)", "invalid_argument"),
    ("has(nothing.x)", "undeclared reference"),
)
def test_has_on_a_value_without_fields_is_an_error(text: str, note: str) -> None:
    program = second_program(text)
    found = program.run({"args": as_celpy(DATA)})
    assert (found.kind, found.note) == ("error", note)
    around = second_program(f"{text} || false").run({"args": as_celpy(DATA)})
    assert around.kind == "error"
    assert second_program(f"{text} || true").run({"args": as_celpy(DATA)}) == EngineOutcome("true")


@table(
    ("text", "kind"),
    ("has(args.m.k)", "true"),
    ("has(args.m.z)", "false"),
    ("!has(args.z)", "true"),
    ("has(args.zero) && has(args.none)", "true"),
)
def test_has_gives_the_same_result_in_both_engines(text: str, kind: str) -> None:
    assert both(text) == ((kind, ""), (kind, ""))


# Macros and their step limit


@table(
    ("text", "expected"),
    ("[].all(x, x)", EngineOutcome("true")),
    ("[].exists(x, x)", EngineOutcome("false")),
    ("[1].all(x, x)", EngineOutcome("error", "no such overload")),
    ("[1].exists(x, x)", EngineOutcome("error", "no such overload")),
    ("[true, 1].all(x, x)", EngineOutcome("error", "no such overload")),
    ("[false, 1].all(x, x)", EngineOutcome("false")),
    ("[1, true].exists(x, x)", EngineOutcome("true")),
)
def test_non_boolean_macro_round_is_an_error_unless_another_decides(text: str, expected: EngineOutcome) -> None:
    assert second_program(text).run({}) == expected


def test_each_round_of_a_macro_costs_the_size_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    # The budget is spent over the whole evaluation and is whole again for the next; `x >= 0` has six places. A tenth of
    # it, counted alike, is spent in a tenth of the time.
    steps = POLICY_STEPS // 10
    monkeypatch.setattr(second_engine, "POLICY_STEPS", steps)
    rounds = steps // 6
    program = second_program("args.all(x, x >= 0)")
    most = {"args": as_celpy([1] * rounds)}
    assert program.run(most) == program.run(most) == EngineOutcome("true")
    spent = {"args": as_celpy([1] * (rounds + 1))}
    assert (program.run(spent).kind, program.run(spent).note) == ("error", "too many steps")
    twice = second_program("args.all(x, x >= 0) && args.all(y, y >= 0)")
    assert twice.run({"args": as_celpy([1] * (rounds // 2))}) == EngineOutcome("true")
    assert twice.run(most).note == "too many steps"


@table(
    ("text", "kind"),
    ("args.l.exists(x, x == args.n - 1)", "true"),
    ("args.l.all(x, args.l.exists(y, y == x && args.n > y))", "true"),
    ("args.l.map(x, x + args.n) == [4, 5]", "true"),
    ("args.l.exists(x, x > 1) && args.l.exists(x, x < 2)", "true"),
    ("args.l.exists(args, args == 2) && args.n == 3", "true"),
    ("args.l.filter(x, x > 1) == [2]", "true"),
    ("args.l.exists_one(x, x > 0)", "false"),
)
def test_macro_sees_its_item_and_the_outer_variables(text: str, kind: str) -> None:
    assert both(text) == ((kind, ""), (kind, ""))


# Reading


def test_brackets_and_single_child_nodes_are_dropped() -> None:
    plain, wrapped = second_program("args.n + 1 == 4"), second_program("((((args.n)) + (1)) == ((4)))")
    assert plain.tree == wrapped.tree
    assert plain.tree.data == "relation"
    for text, kind in (("(args.n - 1) * 2 == 4", "true"), ("args.n - (1 * 2) == 1", "true"), ("!(args.yes)", "false")):
        assert both(text) == ((kind, ""), (kind, ""))


def test_syntax_tree_keeps_every_position() -> None:
    tree = second_program("args.n == (args.l[0])").tree
    assert (tree.meta.line, tree.meta.column) == (1, 1)
    assert all(each.meta.line == 1 for each in subtrees(tree))


def test_unreadable_text_raises_a_parse_error() -> None:
    for text in ("1 +", "a b", ")", ""):
        with pytest.raises(CELParseError):
            second_program(text)


def test_custom_operator_table_replaces_the_default() -> None:
    odd = {**FUNCTIONS, "_==_": lambda *_: celtypes.BoolType(True)}
    assert second_program("1 == 2", odd).run({}) == EngineOutcome("true")
    assert second_program("1 == 2").run({}) == EngineOutcome("false")


# Values


@table(
    ("plain", "kind"),
    (True, celtypes.BoolType),
    (0, celtypes.IntType),
    (1.0, celtypes.DoubleType),
    ("x", celtypes.StringType),
    ([1], celtypes.ListType),
    ((1,), celtypes.ListType),
    ({"a": 1}, celtypes.MapType),
)
def test_plain_values_become_cel_values(plain: Any, kind: type) -> None:
    assert type(as_celpy(plain)) is kind
    assert as_celpy(plain) == (list(plain) if isinstance(plain, tuple) else plain)
    assert type(as_celpy({"inner": [plain]})[celtypes.StringType("inner")][0]) is kind
    assert [type(name) for name in as_celpy({"inner": plain})] == [celtypes.StringType]


def test_null_stays_null() -> None:
    assert as_celpy(None) is None
    assert as_celpy([None]) == celtypes.ListType([None])


# Expressions


def test_evaluators_are_named_with_their_versions() -> None:
    assert f"cel-expr-python {version('cel-expr-python')}, cel-python {version('cel-python')}" == EVALUATORS


def test_facts_hold_the_data_for_both_engines() -> None:
    found = facts({"args": {"n": 1}, "ctx": {}})
    assert found.plain == {"args": {"n": 1}, "ctx": {}}
    assert sorted(found.celpy) == ["args", "ctx"]
    assert type(found.celpy["args"]) is celtypes.MapType


def test_expression_answers_name_their_rule() -> None:
    expression = compiled(auto_approve_if="args.count / 0 == 1").expressions["auto_approve_if"]
    data = facts({"args": arguments(), "ctx": context(), "tool": {}})
    assert expression.outcomes(data)[1] == EngineOutcome("error", "not run, the first engine has an error")
    assert expression.ask(data) == (
        EngineAnswer("auto_approve_if", "cel-expr-python", "error", "divide by zero"),
        EngineAnswer("auto_approve_if", "cel-python", "error", "not run, the first engine has an error"),
    )


@table("rule", "route_to", "deny_if")
def test_result_of_unknown_type_is_a_finding(rule: str) -> None:
    found = compiled(ApprovalPolicy.model_validate({rule: "args.meta.x"})).findings
    assert found == (f"`{rule}`: not checked: the type of the result", f"`{rule}`: not checked: `args.meta.x`")


def test_unguarded_optional_argument_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(deny_if="args.flag && args.optional == 'x'")
    assert caught.value.message == (
        "tool `book_flight`: `deny_if`: `args.optional` is optional; ask `has(args.optional) && ...` first, "
        "else its absence is an error (in `args.flag && args.optional == 'x'`)"
    )
    assert caught.value.context["column"] == 0
    assert compiled(deny_if="has(args.optional) && args.optional == 'x'").findings == ()
