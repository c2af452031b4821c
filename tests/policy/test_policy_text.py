import pytest
from policy_samples import arguments, compiled, verdict_of
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import POLICY_CHARS, POLICY_NESTING, POLICY_OPERATORS
from signoff.policy.approval_policy import GlobalRule
from signoff.policy.compiled_policy import compile_rules
from signoff.policy.second_engine import second_program
from signoff.policy.syntax import normalise, text_problem, tree_problem


@table(("written", "read"), ("  a\r\n&& b \r\n", "a\n&& b"), ("a\rb", "a\rb"))
def test_line_ends_are_normalized(written: str, read: str) -> None:
    assert normalise(written) == read


LONG = "a" * POLICY_CHARS
DEEP = "(" * POLICY_NESTING


@table(
    ("text", "expected"),
    ("", ("it is empty", 0)),
    (LONG, ("", 0)),
    (LONG + "a", ("it has 2001 characters; at most 2000 are allowed, split it", 0)),
    ("a == 'b", ("a string is not closed", 6)),
    ("'", ("a string is not closed", 1)),
    ("a == 'b\n'", ("a string is not closed", 6)),
    ('a == """b\n"""', ("", 0)),
    ("a == 'b'", ("", 0)),
    ("a // it's a comment\n", ("", 0)),
    (DEEP, ("", 0)),
    (DEEP + "(", ("nested deeper than 24; split it", 25)),
    ("()" * 30 + "[]" * 30 + "{}" * 30 + DEEP, ("", 0)),
    ("[{" * 12 + "[", ("nested deeper than 24; split it", 25)),
    ("'((((((((((((((((((((((((((((('", ("", 0)),
    ("a\r|| b\r|| c", ("a carriage return; write it as one line", 2)),
    ("\ra", ("a carriage return; write it as one line", 1)),
)
def test_unreadable_text_is_refused_with_its_column(text: str, expected: tuple[str, int]) -> None:
    assert text_problem(text) == expected


@table(
    ("text", "problem"),
    ("&&".join(["a"] * POLICY_OPERATORS), f"more than {POLICY_OPERATORS} operators stand within each other; split it"),
    ("&&".join(["a"] * (POLICY_OPERATORS - 1)), ""),
    ("a.all(x, x.all(y, y.all(z, z)))", "macros stand more than 2 deep; split it"),
    ("a.all(x, x.exists(y, y)) && a.map(x, x.filter(y, y)) == []", ""),
    ("a.all(x, x.starts(y.ends(z.size())))", ""),
    ("a.b{c: 1}", "a policy cannot build messages; compare the fields one by one"),
    ("true || a.b{c: 1} == a", "a policy cannot build messages; compare the fields one by one"),
    ("a == {'c': 1}", ""),
    (".a == 1", "the name `.a` begins with a point; write `a`"),
    ("b || .size(a) == 1", "the name `.size` begins with a point; write `size`"),
    ("[1].exists(a, .a == 2)", "the name `.a` begins with a point; write `a`"),
    ("[1].exists(b, [b].exists(a, !.a[0].c))", "the name `.a` begins with a point; write `a`"),
)
def test_parsed_expression_above_the_limits_is_refused(text: str, problem: str) -> None:
    assert tree_problem(second_program(text).tree) == problem


@table("macro", "all", "exists", "exists_one", "filter", "map")
def test_every_macro_counts_towards_the_nesting_limit(macro: str) -> None:
    tree = second_program(f"a.{macro}(x, x.{macro}(y, y.{macro}(z, z)))").tree
    assert tree_problem(tree) == "macros stand more than 2 deep; split it"


def test_policy_text_may_have_windows_line_ends() -> None:
    text = "args.count < 3 // few\r\n&& args.flag\r\n"
    assert verdict_of(arguments(count=2, flag=True), auto_approve_if=text) == "auto"
    assert verdict_of(arguments(count=2, flag=False), auto_approve_if=text) == "ask"
    assert compiled(auto_approve_if=text).expressions["auto_approve_if"].text == text.replace("\r\n", "\n").strip()


@table(
    ("text", "message", "column"),
    ("args.flag && 'b", "column 14: a string is not closed", 14),
    ("args.flag\r&& true", "column 10: a carriage return; write it as one line", 10),
)
def test_refusal_points_at_its_column(text: str, message: str, column: int) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(deny_if=text)
    assert message in caught.value.message
    assert caught.value.context["column"] == column
    assert caught.value.context["value"] == text


@table("text", "&&".join(["args.flag"] * 97), "args.recipients.all(a, [a].all(b, [b].all(c, true)))")
def test_error_about_depth_has_no_column(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^tool `book_flight`: `deny_if`: (more than 96|macros stand more)"
    ) as caught:
        compiled(deny_if=text)
    assert caught.value.context["column"] == 0


def test_error_of_a_global_rule_names_no_tool() -> None:
    with pytest.raises(ConfigError) as caught:
        compile_rules([GlobalRule(name="night", rule="actor.nme == 'x'", effect="deny")])
    assert caught.value.message.startswith("global rules: `night` column ")
    found = caught.value.context
    assert (found["tool_name"], found["field"], found["value"]) == ("", "night", "actor.nme == 'x'")
