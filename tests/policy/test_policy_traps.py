import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import TOOL, arguments, compiled, context, verdict_of
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import CompiledPolicy, compile_policy
from signoff.policy.first_engine import first_program
from signoff.policy.second_engine import as_celpy, second_program

SECRET = "hunter2-is-the-password"


def open_policy(**fields: Any) -> CompiledPolicy:
    return compile_policy(
        ApprovalPolicy(**fields), tool=TOOL, input_schema={"type": "object", "properties": {"a": {}}, "required": ["a"]}
    )


def second(text: str, **args: Any) -> str:
    return second_program(text).run({"args": as_celpy(args)}).kind


@pytest.mark.row("N27")
@table("value", True, False)
def test_boolean_is_not_a_small_number(value: bool) -> None:
    assert open_policy(auto_approve_if="args.a < 50").judge({"a": value}, context()).verdict == "ask"
    assert second("args.a < 50", a=value) == "error"
    assert second("args.a == 1 || args.a == 0", a=value) == "false"
    assert second("args.a + 1 < 50", a=value) == "error"


@pytest.mark.row("N27")
@table(
    ("text", "value"),
    ("size(args.a) <= 5", None),
    ("!has(args.a.b.c)", {}),
    ("'A' in args.a", "xAx"),
    ("timestamp(args.a) <= timestamp('2999-01-01T00:00:00Z')", "now"),
    ("args.a.startsWith('x')", ["x"]),
    ("args.a.contains('x')", ["x"]),
    ("args.a[true] == 'x'", ["w", "x"]),
    ("bool(args.a)", "yes"),
    ("int(args.a) < 5", True),
    ("double(args.a) < 5.0", " 1 "),
    ("duration(args.a) < duration('1h')", "1d"),
    ("args.a > 0.0 / 0.0 || args.a <= 0.0 / 0.0", 1.0),
    ("args.a.filter(x, x).size() == 1", ["true"]),
    ("args.a", "true"),
    ("args.a", 1),
)
def test_expression_true_only_in_celpy_never_skips_approval(text: str, value: Any) -> None:
    assert open_policy(auto_approve_if=text).judge({"a": value}, context()).verdict == "ask"
    if "filter" not in text:
        assert second(text, a=value) != "true"
    if not text.startswith("args.a > 0.0"):
        assert open_policy(deny_if=text).judge({"a": value}, context()).verdict == "deny"


@pytest.mark.row("N27")
@table(
    ("text", "kind"),
    ("args.n < 49.5", "true"),
    ("args.n == 49.0", "true"),
    ("1.0 in args.l", "true"),
    ("args.n == null", "false"),
    ("args.n != 'x'", "true"),
    ("args.s < 5", "error"),
    ("size(args.s) == 2", "true"),
    ("has(args.none)", "false"),
    ("has(args.s.none)", "error"),
    ("args.m == {'k': 1.0}", "true"),
    ("args.l[5] == 1", "error"),
    ("args.n / 2 == 24", "true"),
    ("0.0 / 0.0 == 0.0 / 0.0", "false"),
    ("1.0 / 0.0 > 1000.0", "true"),
)
def test_custom_operators_match_the_specification(text: str, kind: str) -> None:
    data = {"n": 49, "l": [1, 2], "s": "ab", "m": {"k": 1}}
    assert second(text, **data) == kind
    assert first_program(text, ["args"]).run({"args": data}).kind == kind


@table("text", '"' + r"\a" * 26, "'" + r"\\" * 200, '"""' + r"\a" * 400 + '"', "r'" + r"\a" * 300)
def test_unterminated_string_is_refused_immediately(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ConfigError, match="a string is not closed"):
        compiled(auto_approve_if=f"args.currency == {text}")
    assert time.process_time() - started < 2


@table("body", r"\a" * 900, r"\\" * 900, r"\"" * 900, r"\'" * 900, "//" * 900)
def test_closed_string_of_escapes_is_read_in_linear_time(body: str) -> None:
    started = time.process_time()
    assert verdict_of(arguments(), auto_approve_if=f'args.currency != "{body}"') == "auto"
    assert time.process_time() - started < 2


@table("value", "1" * 28, "1s" * 14 + "!", "9" * 5_000 + "h", "a" * 40 + "!")
def test_hostile_duration_is_read_in_constant_time(value: str) -> None:
    started = time.process_time()
    policy = compiled(auto_approve_if="duration(args.currency) < duration('1h')")
    assert policy.judge(arguments(currency=value), context()).verdict == "ask"
    assert second("true || duration(args.w) < duration('1h')", w=value) == "true"
    assert second("duration(args.w) < duration('1h')", w=value) == "error"
    assert time.process_time() - started < 2


def test_macros_over_long_lists_run_out_of_steps() -> None:
    policy = compiled(auto_approve_if="args.numbers.all(a, args.numbers.all(b, a <= b || true))")
    assert policy.judge(arguments(numbers=[1.0] * 30), context()).verdict == "auto"
    started = time.process_time()
    assert policy.judge(arguments(numbers=[1.0] * 1_500), context()).verdict == "ask"
    assert second("args.l.all(a, args.l.all(b, true))", l=[1] * 1_000) == "error"
    assert time.process_time() - started < 10


@given(st.text(alphabet="\\'\"abr\n/ \t()u0", max_size=40))
@settings(max_examples=300, deadline=2_000)
def test_any_text_is_a_policy_or_a_config_error(text: str) -> None:
    outcome = "compiled"
    try:
        compiled(auto_approve_if=f"args.currency == {text}")
    except ConfigError as error:
        outcome = error.message
    assert outcome


@pytest.mark.row("N28")
@table(
    ("text", "expected"),
    ("tool.tags.includes('destructive')", "auto"),
    ('tool.tags.includes( "harmless" )', "ask"),
    ("!tool.tags.includes('harmless')", "auto"),
    ("tool.tags.includes('money') && !tool.tags.includes('x')", "auto"),
)
def test_javascript_spelling_of_a_tag_test_is_accepted(text: str, expected: str) -> None:
    assert verdict_of(arguments(), auto_approve_if=text) == expected


@pytest.mark.row("N28")
def test_string_like_the_javascript_spelling_stays_a_string() -> None:
    text = """args.currency == "tool.tags.includes('x')" """
    assert verdict_of(arguments(currency="tool.tags.includes('x')"), auto_approve_if=text) == "auto"


@table(
    "text",
    "args.a.b.c",
    "args.a < 5",
    "args.a['x']",
    "timestamp(args.a) < timestamp(args.a)",
    "args.a[args.a]",
    "{'x': true}[args.a]",
    "[args.a].filter(x, x.y)[0]",
    "dyn([args.a])",
)
def test_arguments_never_appear_in_a_message(text: str) -> None:
    for field in ("auto_approve_if", "deny_if", "require_approval_if", "route_to"):
        source = f"dyn({text})" if field == "route_to" else text
        try:
            verdict = open_policy(**{field: source}).judge({"a": SECRET}, context())
        except ConfigError:
            continue
        assert verdict.verdict in ("ask", "deny")
        assert SECRET not in repr(verdict)
    assert SECRET not in second_program(text).run({"args": as_celpy({"a": SECRET})}).note


def test_policies_print_nothing_and_keep_the_recursion_limit() -> None:
    program = (
        "import sys; sys.setrecursionlimit(4321)\n"
        "from signoff.policy.approval_policy import ApprovalPolicy\n"
        "from signoff.policy.compiled_policy import compile_policy\n"
        "from signoff.policy.facts import ToolFacts\n"
        "from signoff.policy.second_engine import second_program\n"
        "tool = ToolFacts('t', 's', 'local', ())\n"
        "p = compile_policy(ApprovalPolicy(auto_approve_if='size(ctx.tenant) > 100'), tool=tool, input_schema={})\n"
        "assert p.judge({}, {}).verdict == 'ask'\n"
        "for bad in ('1 +', '`a`', '@'):\n"
        "    try: second_program(bad)\n"
        "    except Exception: pass\n"
        "assert sys.getrecursionlimit() == 4321\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
