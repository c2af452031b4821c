from typing import Any

import pytest
from policy_samples import TOOL
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import PREDICATE_CHARS
from signoff.policy.compiled_policy import CompiledPolicy, compile_policy
from signoff.policy.grant_predicate import compile_where

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}, "memo": {"type": "string"}},
    "required": ["amount", "to"],
}
POLICY = compile_policy(True, tool=TOOL, input_schema=SCHEMA)
ANYTHING = {name: {} for name in ("amount", "to", "memo", "lines")}
UNCHECKED = compile_policy(True, tool=TOOL, input_schema={"properties": ANYTHING, "required": list(ANYTHING)})


@table(
    ("where", "args", "holds"),
    ("args.amount <= 50.0", {"amount": 50, "to": "Ana"}, True),
    ("args.amount <= 50.0", {"amount": 50.5, "to": "Ana"}, False),
    ("args.amount < 50 && args.to == 'Ana'", {"amount": 5, "to": "Bo"}, False),
    ("has(args.memo) && args.memo == 'x'", {"amount": 5, "to": "Bo"}, False),
    ("args.amount <= 50.0", {"amount": True, "to": "Ana"}, False),
    ("args.amount <= 50.0", {"to": "Ana"}, False),
    ("args.amount", {"amount": 5, "to": "Ana"}, False),
    ("args.amount <= 50.0", {"amount": 2**60, "to": "Ana"}, False),
    ("true", {"amount": 2**60, "to": "Ana"}, False),
)
def test_predicate_holds_only_if_both_engines_say_true(where: str, args: dict[str, Any], holds: bool) -> None:
    assert compile_where(where, POLICY).holds(args) is holds


@table(
    ("where", "says"),
    ("args.amuont < 5.0", "did you mean"),
    ("args.memo == 'x'", "optional"),
    ("args.to", "true or false"),
    ("ctx.user.tier == 'x'", "ctx"),
    ("args.amount <", "what to remember: `where`"),
)
def test_predicate_is_checked_against_the_schema(where: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_where(where, POLICY)
    assert says in caught.value.message
    assert (caught.value.context["field"], caught.value.context["tool_name"]) == ("where", "book_flight")


@table("hidden", "to", "to.code")
@table(
    "where",
    "args.to == 'h'",
    "args.to.startsWith('h')",
    "has(args.to)",
    "dyn(args)['to'] == 'h'",
    "dyn(args) == {'amount': 5, 'to': 'h'}",
    "dyn(args).exists(k, dyn(args)[k] == 'h')",
    "dyn(args).exists(k, k == 'to')",
    "dyn(args).to == 'h'",
    "[args].exists(one, one.to == 'h')",
    "[args][0].to == 'h'",
    "(true ? args : args).to == 'h'",
    "{'all': args}.all.to == 'h'",
    "(args).to == 'h'",
    "[1, 2].exists(n, args.amount == 5.0 && args.to == 'h')",
    "args.amount == 5.0 || args.to.matches('h.*')",
    "dyn(args).size() == 2",
    "string(dyn(args)) == 'h'",
)
def test_predicate_may_not_read_hidden_arguments(where: str, hidden: str) -> None:
    compile_where(where, UNCHECKED)
    with pytest.raises(ConfigError) as caught:
        compile_where(where, UNCHECKED, (hidden,))
    assert f"may read `{hidden}`, which is hidden" in caught.value.message


@table(
    "where",
    ".args.to == 'h'",
    "[{'to': 'h'}].exists(args, .args.to == 'h')",
    "[0].exists(args, .args.amount == 5.0)",
)
def test_name_with_a_leading_point_is_refused(where: str) -> None:
    # The first engine reads the call's arguments there, whatever a macro calls `args`: nothing says which are read.
    # With such a name taken, the second of these answered how a hidden argument begins.
    with pytest.raises(ConfigError, match=r"the name `\.args` begins with a point; write `args`"):
        compile_where(where, UNCHECKED, ("to",))


@table(
    ("where", "hidden", "taken"),
    ("args.amount <= 50.0", "to", True),
    ("has(args.memo) && args.memo == 'x'", "to", True),
    ("args.lines.all(line, line.sku == 'x')", "to", True),
    ("args.lines.all(line, line.sku == 'x')", "lines.key", False),
    ("args.lines[0].sku == 'x'", "lines.key", False),
    ("args.to.city == 'x'", "to.code", True),
    ("args.to.code == 'x'", "to.code", False),
    ("args.to.code.inner == 'x'", "to.code", False),
    ("args.to == args.memo", "to.code", False),
)
def test_predicate_may_read_visible_arguments(where: str, hidden: str, taken: bool) -> None:
    if taken:
        compile_where(where, UNCHECKED, (hidden,))
        return
    with pytest.raises(ConfigError, match="hidden from who decides"):
        compile_where(where, UNCHECKED, (hidden,))


def refused(where: str, policy: CompiledPolicy = UNCHECKED, hidden: tuple[str, ...] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        compile_where(where, policy, hidden)
    return caught.value


@table(
    ("where", "why"),
    (
        "args.lines.exists(line, [1, 2].exists(n, n == line))",
        "it has a macro in a macro, which only the manifest may have; split it",
    ),
    (
        "['x'].exists(name, name + args.to == 'xAna')",
        "`+` within a macro adds numbers only; texts and lists grow with each item",
    ),
    ("args.to == 'h'", "`args.to` may read `to`, which is hidden from who decides; name other arguments one by one"),
)
def test_refused_predicate_error_quotes_its_text(where: str, why: str) -> None:
    error = refused(where, hidden=("to",) if "hidden" in why else ())
    assert error.message == f"what to remember: `where`: {why} (in `{where}`)"
    assert error.context == {"tool_name": "book_flight", "field": "where", "value": where, "column": 0}


def test_predicate_has_a_length_limit() -> None:
    fits = f"args.to == '{'x' * (PREDICATE_CHARS - 13)}'"
    assert len(fits) == PREDICATE_CHARS
    assert not compile_where(fits, POLICY).holds({"amount": 5, "to": "Ana"})
    long = f"{fits} "
    why = f"it has 501 characters; at most {PREDICATE_CHARS} are allowed"
    assert refused(long, POLICY).message == f"what to remember: `where`: {why} (in `{long[:300]}...`)"


def test_error_quotes_up_to_three_hundred_characters() -> None:
    start, end = "args.to == 'h' || args.memo == '", "'"
    whole = f"{start}{'x' * (300 - len(start) - len(end))}{end}"
    assert refused(whole, hidden=("to",)).message.endswith(f"(in `{whole}`)")
    more = whole.replace("xx", "xxx", 1)
    assert refused(more, hidden=("to",)).message.endswith(f"(in `{more[:300]}...`)")


def test_number_has_the_type_its_schema_declares() -> None:
    assert compile_where("args.amount / 2.0 == 2.5", POLICY).holds({"amount": 5, "to": "Ana"})


def test_steps_grow_with_the_data_of_a_predicate() -> None:
    through = compile_where("args.lines.all(line, line == 'x')", UNCHECKED)
    few, many = ({**dict.fromkeys(ANYTHING, "x"), "lines": ["x"] * count} for count in (1, 50))
    assert 0 < through.steps(few) < through.steps(many)
    assert through.steps({**few, "amount": 2**60}) == 0
