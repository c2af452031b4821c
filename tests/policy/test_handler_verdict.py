from typing import Any

import pytest
from policy_samples import SCHEMA, TOOL, arguments, compiled, context
from tables import table

from signoff.contracts.call import RuleReference
from signoff.policy.compiled_policy import CompiledPolicy, compile_policy
from signoff.policy.handler_verdict import HandlerVerdict, apply_handler_verdict, handler_rule, read_answer

RULE = "handler:desk.rules:judge"
JUDGES = RuleReference(kind="handler", handler="desk.rules:judge")
AUTO = {"auto_approve_if": "true"}
ASKS = {"require_approval_if": "true"}


def policy(**fields: Any) -> CompiledPolicy:
    return compiled(**{"handler": "desk.rules:judge"} | fields)


def after(judge: CompiledPolicy, answer: HandlerVerdict) -> Any:
    verdict = judge.judge(arguments(), context())
    return apply_handler_verdict(judge, verdict, answer)


@table(
    ("value", "answer"),
    ("auto", HandlerVerdict("auto")),
    ("ask", HandlerVerdict("ask")),
    ("user", HandlerVerdict("ask")),
    ("admin", HandlerVerdict("ask", "admin")),
    ("deny", HandlerVerdict("deny")),
    ("abstain", HandlerVerdict("abstain")),
    (HandlerVerdict("deny", reason="no"), HandlerVerdict("deny", reason="no")),
    ("Auto", None),
    ("", None),
    (True, None),
    (None, None),
    (["auto"], None),
    (HandlerVerdict("maybe"), None),  # type: ignore[arg-type]
    (HandlerVerdict("ask", "boss"), None),  # type: ignore[arg-type]
    (HandlerVerdict("auto", reason=7), None),  # type: ignore[arg-type]
    (HandlerVerdict("auto", failed=True), None),
)
def test_handler_answer_is_a_word_or_a_handler_verdict(value: Any, answer: HandlerVerdict | None) -> None:
    assert read_answer(value) == answer


@table(("rules", "verdict"), (AUTO, "auto"), (ASKS, "ask"), ({"deny_if": "true"}, "deny"), ({}, "ask"))
def test_abstaining_handler_leaves_the_verdict_to_the_rules(rules: dict[str, str], verdict: str) -> None:
    judge = policy(**rules)
    found, before = after(judge, HandlerVerdict("abstain")), judge.judge(arguments(), context())
    assert (found.verdict, found.rule, found.why) == (verdict, before.rule, before.why)
    assert found.evaluators.endswith(RULE) is (verdict != "deny")


@pytest.mark.row("B71")
@table("word", "auto", "ask", "deny")
def test_handler_without_rules_decides_alone(word: Any) -> None:
    alone = policy()
    found = after(alone, HandlerVerdict(word))
    assert (found.verdict, found.rule, found.rule_text) == (word, JUDGES, word)
    assert found.why == f"`handler` says {word}"
    assert found.evaluators == f"{alone.evaluators}, {RULE}"
    assert (found.terms.approvers, found.level, found.policy_hash) == ((), "user", alone.hash)
    assert (alone.handler_alone, alone.needs_person, handler_rule(alone)) == (True, "maybe", JUDGES)


@table(
    ("rules", "word", "verdict", "rule"),
    (AUTO, "auto", "auto", RULE),
    (AUTO, "ask", "ask", RULE),
    (AUTO, "deny", "deny", RULE),
    (ASKS, "auto", "ask", "require_approval_if"),
    (ASKS, "ask", "ask", f"require_approval_if, {RULE}"),
    (ASKS, "deny", "deny", RULE),
    ({"deny_if": "false"}, "auto", "ask", "requires_approval"),
    ({"deny_if": "false"}, "ask", "ask", RULE),
    ({"deny_if": "true"}, "auto", "deny", "deny_if"),
    ({"deny_if": "true"}, "deny", "deny", "deny_if"),
    ({"auto_approve_if": "false"}, "auto", "ask", "auto_approve_if"),
    ({"route_to": "['user:ana']"}, "auto", "auto", RULE),
)
def test_handler_with_rules_only_tightens(rules: Any, word: Any, verdict: str, rule: str) -> None:
    found = after(policy(**rules), HandlerVerdict(word))
    assert (found.verdict, found.rule.label) == (verdict, rule)


def test_agreeing_handler_is_named_with_the_rule() -> None:
    found = after(policy(**AUTO), HandlerVerdict("auto", reason="known payee"))
    assert found.why == "`auto_approve_if` is true, so the call needs no approval; known payee"
    assert (found.rule_text, found.terms.approvers) == ("auto: known payee", ())


def test_reason_of_an_asking_handler_follows_the_rule() -> None:
    found = after(policy(**ASKS), HandlerVerdict("ask", reason="new payee"))
    assert found.why == "`require_approval_if` is true, so the call needs approval; new payee"
    assert (found.rule_text, len(found.engines)) == ("ask: new payee", 2)


def test_handler_that_turns_a_call_into_a_question_uses_the_route() -> None:
    routed = {"route_to": "['user:ana', args.currency == 'EUR' ? 'role:eu' : 'role:us']"}
    turned = after(policy(**AUTO, **routed), HandlerVerdict("ask"))
    assert turned.terms.approvers[0] == "user:ana"
    assert [engine.rule for engine in turned.engines] == ["auto_approve_if"] * 2 + ["route_to"] * 2
    assert after(policy(**ASKS, **routed), HandlerVerdict("ask")).terms.approvers == turned.terms.approvers
    assert after(policy(**AUTO, approvers=("role:cfo",)), HandlerVerdict("ask")).terms.approvers == ("role:cfo",)
    odd = after(policy(**AUTO, route_to="['nobody']", approvers=("role:cfo",)), HandlerVerdict("ask"))
    assert odd.terms.approvers == ("role:cfo",)


@table("rules", {}, AUTO)
def test_automatic_handler_verdict_still_names_the_approvers(rules: Any) -> None:
    found = after(policy(**rules, route_to="['role:finance']"), HandlerVerdict("auto"))
    assert (found.verdict, found.terms.approvers) == ("auto", ("role:finance",))


@table("rules", {}, AUTO, ASKS, {**AUTO, "approvers": ("role:finance",)})
def test_level_admin_asks_administrators(rules: Any) -> None:
    found = after(policy(**rules), HandlerVerdict("ask", "admin"))
    assert (found.verdict, found.terms.approvers, found.level) == ("ask", ("role:admin",), "admin")
    assert found.rule.label.endswith(f"{RULE} (admin)")
    assert found.rule_text == "ask admin"


def test_level_is_ignored_unless_the_answer_asks() -> None:
    for answer in (HandlerVerdict("auto", "admin"), HandlerVerdict("deny", "admin")):
        found = after(policy(), answer)
        assert (found.level, found.terms.approvers, found.rule_text) == ("user", (), answer.verdict)


def test_failed_handler_has_its_own_rule_label() -> None:
    found = after(policy(**AUTO), HandlerVerdict("ask", reason="it broke", failed=True))
    assert (found.verdict, found.rule.label, found.why) == ("ask", f"{RULE} (failed)", "it broke")


@table(("rules", "needs"), ({}, "maybe"), (AUTO, "maybe"), (ASKS, "always"), ({"deny_if": "false"}, "always"))
def test_handler_policy_knows_in_advance_whether_it_needs_a_person(rules: Any, needs: str) -> None:
    assert policy(**rules).needs_person == needs


def test_policy_without_a_handler_ignores_handler_verdicts() -> None:
    plain = policy(handler=None, **AUTO)
    verdict = plain.judge(arguments(), context())
    assert apply_handler_verdict(plain, verdict, HandlerVerdict("deny")) is verdict
    assert (handler_rule(plain), plain.handler_alone) == (None, False)
    never = compile_policy(False, tool=TOOL, input_schema=SCHEMA)
    assert (handler_rule(never), never.handler_alone) == (None, False)
    hashes = {each.hash for each in (plain, policy(**AUTO), policy(handler="desk.rules:other", **AUTO))}
    assert len(hashes) == 3
