import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from attack_05_bombs import BOMBS, SCHEMA, large

from signoff import policypool
from signoff.contracts import limits
from signoff.contracts.errors import ConfigError
from signoff.policy.answer import EngineOutcome
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.bounded_expression import BoundedTask, NoEvaluator, current_evaluator, set_evaluator
from signoff.policy.compiled_policy import CompiledPolicy, compile_policy
from signoff.policy.facts import ToolFacts
from signoff.policy.grant_predicate import compile_where
from signoff.policypool.pool import PolicyPool

TOOL = ToolFacts("batch", "generalist", "routed", ())
PAIRS = "args.items.all(x, args.items.all(y, x + y >= 0))"
COPIES = "args.items.filter(x, x >= 0).size() >= 0"
FIVE = "(args.items + args.items + args.items + args.items + args.items)"


def policy(**rules: str) -> CompiledPolicy:
    return compile_policy(ApprovalPolicy(**rules), tool=TOOL, input_schema=SCHEMA)  # type: ignore[arg-type]


def of(items: int, text: int = 0) -> dict[str, Any]:
    return {"items": [1] * items, "memo": "m" * text, "to": "Ana"}


def task(text: str, args: dict[str, Any]) -> BoundedTask:
    return BoundedTask(text, ("args",), {"args": args})


class Refusing:
    def __init__(self) -> None:
        self.asked = 0

    def evaluate(self, task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
        self.asked += 1
        return EngineOutcome("true"), EngineOutcome("true")


@pytest.fixture
def reached() -> Iterator[Refusing]:
    before, here = current_evaluator(), Refusing()
    set_evaluator(here)
    yield here
    set_evaluator(before)


@pytest.fixture
def pool() -> Iterator[PolicyPool]:
    made = PolicyPool(1)
    yield made
    made.close()


# Limits of a rule's text


def repeated(piece: str, count: int, between: str) -> str:
    return between.join([piece] * count)


@pytest.mark.parametrize(
    ("most", "more", "why"),
    [
        (f"'{'a' * (limits.POLICY_CHARS - 6)}'!=''", f"'{'a' * (limits.POLICY_CHARS - 5)}'!=''", "at most 2000"),
        (f"{'(' * limits.POLICY_NESTING}true{')' * 24}", f"{'(' * 25}true{')' * 25}", "nested deeper than 24"),
        (PAIRS, "args.items.all(x, [1].all(y, [1].all(z, true)))", "more than 2 deep"),
        (repeated("true", limits.POLICY_OPERATORS - 1, "&&"), repeated("true", 97, "&&"), "more than 96 operators"),
        (PAIRS, "args.items.all(x, args.items.all(y, y in args.items))", "third power"),
        (
            f"[args.items].map(x, [{repeated('x', 40, ',')}]).map(y, [{repeated('y', 40, ',')}]) == dyn([1])",
            f"[args.items].map(x, [{repeated('x', 460, ',')}]).map(y, [{repeated('y', 460, ',')}]) == dyn(args.items)",
            "takes more than 4096 times",
        ),
    ],
)
def test_manifest_rule_over_a_limit_is_refused(most: str, more: str, why: str) -> None:
    # At the limit a rule is accepted; one step beyond it the worker does not start, with the reason. Without the
    # limits in `text_problem`, `tree_problem` and `growth_problem` each was accepted.
    policy(auto_approve_if=most)
    with pytest.raises(ConfigError, match=why):
        policy(auto_approve_if=more)


@pytest.mark.parametrize(
    ("most", "more", "why"),
    [
        (
            f"args.to == '{'a' * (limits.PREDICATE_CHARS - 14)}' ",
            f"args.to == '{'a' * (limits.PREDICATE_CHARS - 10)}'",
            "at most 500",
        ),
        ("args.items.all(x, x > 0)", "args.items.all(x, [1, 2].exists(y, x == y))", "only the manifest may have"),
        ("args.items.all(x, x + 1 > 0)", "args.items.all(x, [x] + [x] != [])", "adds numbers only"),
        ("args.items.all(x, x + 1 > 0)", "args.items.all(x, args.memo + 'a' != '')", "adds numbers only"),
    ],
)
def test_remembered_predicate_over_a_limit_is_refused(most: str, more: str, why: str) -> None:
    # At the limit a predicate is accepted; one step beyond it is refused with the reason when it is to be remembered.
    # Without the limits in `compile_where` each was accepted.
    compile_where(most, policy(auto_approve_if="false"))
    with pytest.raises(ConfigError, match=why):
        compile_where(more, policy(auto_approve_if="false"))


# Rules evaluated in a process, and the size of their data


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("args.items.all(x, x > 0)", False),
        (repeated("args.items.all(x, x > 0)", 4, " && "), False),
        (repeated("args.items.all(x, x > 0)", 6, " && "), True),
        (repeated("args.memo", 20, " + ") + " == ''", False),
        (f"({repeated('args.memo', 26, ' + ')}) + ({repeated('args.memo', 26, ' + ')}) == ''", True),
        ("args.items.all(x, x in args.items)", True),
        (COPIES, True),
    ],
)
def test_rule_that_outgrows_its_data_is_evaluated_in_a_process(text: str, bounded: bool) -> None:
    # This includes rules that cost more than `POLICY_PLAIN_STEPS` or `POLICY_PLAIN_BYTES` over the largest possible
    # data. With `is_bounded` always false none was.
    assert policy(auto_approve_if=text).expressions["auto_approve_if"].bounded is bounded


@pytest.mark.parametrize(
    ("text", "most", "more", "why"),
    [
        (PAIRS, of(110), of(160), f"more than {limits.POLICY_BOUNDED_STEPS} steps"),
        ("args.memo.contains(args.to)", of(0, 40_000), of(0, 65_000) | {"to": "a" * 65_000}, "steps"),
        (f"{FIVE}.filter(x, x >= 0).size() >= 0", of(500), of(600), "more than 128 MiB"),
    ],
)
def test_rule_over_too_large_data_reaches_no_evaluator(
    text: str, most: dict[str, Any], more: dict[str, Any], why: str, reached: Refusing
) -> None:
    # Within the limit a process is used; beyond it an approver is asked and a denying rule denies, at once. Without
    # the comparisons of steps and memory in `bounded_outcomes` each reached it and ran by rule.
    assert policy(auto_approve_if=text).judge(most, {}).verdict == "auto"
    assert reached.asked == 1
    verdict = policy(auto_approve_if=text).judge(more, {})
    assert (verdict.verdict, why in verdict.why) == ("ask", True)
    assert policy(deny_if=text).judge(more, {}).verdict == "deny"
    assert reached.asked == 1


def test_plain_rule_ends_after_its_step_limit() -> None:
    # The longest body over the longest list ends within seconds, and asks. With `is_bounded` always false it ran to
    # its end, and the call ran by rule.
    body = repeated("x > 0", 90, " && ")
    found = policy(auto_approve_if=f"args.items.all(x, {body})")
    begun = time.process_time()
    assert found.judge(of(1_990), {}).verdict == "ask"
    assert time.process_time() - begun < 5


_ROUNDS_OF_ERRORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from signoff.policy.compiled_policy import compile_policy
from signoff.policy.facts import ToolFacts
from signoff.policy.approval_policy import ApprovalPolicy
items = {"type": "array", "items": {"type": "integer"}}
schema = {"type": "object", "properties": {"items": items}, "required": ["items"]}
tool = ToolFacts("batch", "generalist", "routed", ())
made = compile_policy(ApprovalPolicy(auto_approve_if=sys.argv[1]), tool=tool, input_schema=schema)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
verdict = made.judge({"items": [0] * 1_900 + [1]}, {}).verdict
print(verdict, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize(
    "text",
    [
        "args.items.exists(x, 10 / x > 5)",
        "!args.items.all(x, 10 / x < 5)",
        "args.items.exists(x, 10 / x > 5 || 10 / x > 6)",
    ],
)
def test_rounds_with_errors_cost_no_more_than_others(text: str) -> None:
    # A division by zero in each round except the last, which decides: within seconds, and at most 100 MiB more. With
    # celpy's own joining of rounds, instead of `member_dot_arg` of `second_engine.py`, each error's text contained the
    # previous one twice: 30 items took a worker's memory, 24 of them 0.5 GB and five seconds.
    run = [sys.executable, "-c", _ROUNDS_OF_ERRORS, text]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-300:]
    verdict, grown = done.stdout.split()
    assert verdict == "auto"
    assert int(grown) < 100


# Limits of the processes


def test_evaluation_over_its_time_limit_is_killed(pool: PolicyPool) -> None:
    # A longer evaluation is an error after two seconds, and the next one gets an answer. Without the time in
    # `_Process.evaluate` the processor limit ended it later, and without that as well it gave an answer.
    first, second = pool.evaluate(task(BOMBS["all items for each item"], large("Ana")))
    # Its own limit has this text; other ends have others.
    assert (first.kind, second.kind, "2 s" in first.note) == ("error", "error", True)
    assert [each.kind for each in pool.evaluate(task("1 in args.items", of(3)))] == ["true", "true"]


def test_evaluation_over_its_memory_limit_is_an_error(pool: PolicyPool) -> None:
    # A larger evaluation is an error, no process exceeds its limit, and the next one gets an answer. Without the limit
    # of the address space in `policypool/process.py` it took 2.5 GB. A server of other tests is also a child of this
    # process, of any size.
    others = {each.pid for each in psutil.Process().children()}
    pool.evaluate(task("1 in args.items", of(3)))
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for child in psutil.Process().children():
                # It may end between any two steps.
                with contextlib.suppress(psutil.NoSuchProcess):
                    seen.append(0 if child.pid in others else child.memory_info().rss)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        first, second = pool.evaluate(task(BOMBS["a text for each item"], large("Ana")))
    finally:
        over.set()
        watcher.join()
    assert (first.kind, second.kind) == ("error", "error")
    assert 0 < max(seen) < limits.POLICY_PROCESS_BYTES + 200 * limits.MIB
    assert [each.kind for each in pool.evaluate(task("1 in args.items", of(3)))] == ["true", "true"]


def test_evaluation_without_a_free_process_is_an_error(pool: PolicyPool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The wait for a process ends in an error, which asks or denies. Without the end of the wait in
    # `PolicyPool.evaluate` it waited until the process was free.
    monkeypatch.setattr("signoff.policypool.pool.POLICY_WAIT_SECONDS", 0.05)
    found = EngineOutcome("true")
    # Repeat if this thread was suspended for as long as the other one was busy.
    while found.kind == "true":
        pool.evaluate(task("1 in args.items", of(3)))
        busy = threading.Thread(target=pool.evaluate, args=(task(BOMBS["all items for each item"], large("Ana")),))
        busy.start()
        while found.kind == "true" and busy.is_alive():
            found, _ = pool.evaluate(task("1 in args.items", of(3)))
        busy.join()
    assert found == EngineOutcome("error", "all processes that could evaluate it are busy")


def test_evaluator_that_does_not_start_is_an_error(pool: PolicyPool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Then nothing is evaluated elsewhere. With a fallback to an evaluation in this process, instead of the error in
    # `PolicyPool.evaluate`, it was true.
    monkeypatch.setattr("signoff.policypool.pool.sys.executable", "/bin/false")
    assert pool.evaluate(task("1 in args.items", of(3)))[0].kind == "error"


def test_evaluator_process_knows_no_secret_and_ends_with_its_pool(
    pool: PolicyPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It inherits only the environment that Python needs, and ends with the pool. With the whole environment passed on
    # in `policypool/pool.py` the process had all of it.
    monkeypatch.setenv("SIGNOFF_TOKEN", "s3cret")
    before = {each.pid for each in psutil.Process().children()}
    pool.evaluate(task("1 in args.items", of(3)))
    (child,) = (each for each in psutil.Process().children() if each.pid not in before)
    assert set(child.environ()) <= {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH"}
    pool.close()
    assert not psutil.pid_exists(child.pid)


def test_bounded_rule_without_installed_evaluator_asks(reached: Refusing) -> None:
    # Without an installed evaluator a costly rule is an error with the remedy, and a second installation has no
    # effect. With `is_bounded` always false the rule let the call run here.
    set_evaluator(NoEvaluator())
    verdict = policy(auto_approve_if=COPIES).judge(of(3), {})
    assert (verdict.verdict, "policypool.install()" in verdict.why) == ("ask", True)
    policypool.install()
    installed = current_evaluator()
    policypool.install()
    assert isinstance(installed, PolicyPool)
    assert current_evaluator() is installed
    assert policy(auto_approve_if=COPIES).judge(of(3), {}).verdict == "auto"
    installed.close()
