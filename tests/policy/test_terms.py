import dataclasses
from typing import Any

import pytest
from policy_samples import arguments, compiled, context
from tables import table

from signoff.contracts.approval import AppliedTerm, ApproverGroup
from signoff.contracts.errors import ConfigError
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, Term, TermRule
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.handler_verdict import HandlerVerdict, apply_handler_verdict, read_answer
from signoff.policy.second_engine import second_program
from signoff.policy.terms import Terms, terms_of
from signoff.testing.builders import a_question

LARGE = {"when": "args.count > 2", "quorum": 2, "reason": "it is a large order"}
LEGAL = {"when": "args.currency == 'USD'", "approvers": ["role:legal"]}
BASE: dict[str, Any] = {"approvers": ["role:finance"], "escalate_to": ["role:cfo", "user:eve"], "escalate_after": 3_600}
FINANCE, COUNSEL = ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal",))


def policy(*terms: Any, **fields: Any) -> CompiledPolicy:
    return compiled(ApprovalPolicy.model_validate({**BASE, "terms": list(terms), **fields}))


def on(judge: CompiledPolicy, **args: Any) -> Terms:
    return judge.judge(arguments(**args), context(), {"name": "desk", "tags": ["night"]}).terms


def test_a_term_applies_where_its_condition_does_not_say_false() -> None:
    judge = policy(LARGE)
    assert (on(judge, count=2).quorum, on(judge, count=2).applied) == (1, ())
    assert on(judge, count=3).quorum == 2
    assert [each.reason for each in on(judge, count=3).applied] == ["it is a large order"]


@table("when", "ctx.user.roles[9] == 'x'", "args.count / (args.count - args.count) > 1")
def test_what_cannot_be_known_to_be_false_applies(when: str) -> None:
    assert on(policy({"when": when, "quorum": 2})).quorum == 2


def test_engines_that_differ_apply_a_term() -> None:
    judge = policy(LARGE)
    name = "terms.0.when"
    wrong = dataclasses.replace(judge.expressions[name], second=second_program("args.count > 1"))
    assert on(judge, count=2).quorum == 1
    assert on(dataclasses.replace(judge, expressions={name: wrong}), count=2).quorum == 2


def test_data_that_cannot_be_read_apply_every_term() -> None:
    found = policy(LARGE, LEGAL).judge({"count": float("nan")}, context()).terms
    assert (found.quorum, found.groups) == (2, (FINANCE, COUNSEL))


def test_conditions_see_the_actor_and_its_tags() -> None:
    judge = policy({"when": "'night' in actor.tags && actor.name == 'desk' && tool.name != ''", "quorum": 2})
    assert on(judge).quorum == 2
    assert judge.judge(arguments(), context(), {"name": "desk", "tags": []}).terms.quorum == 1


def test_whom_a_term_asks_is_asked_beside_those_of_the_policy() -> None:
    found = on(policy(LEGAL), currency="USD")
    assert (found.approvers, found.groups, found.quorum) == (("role:finance", "role:legal"), (FINANCE, COUNSEL), 2)
    assert found.applied[0].reason == "args.currency == 'USD'"


def test_several_terms_combine_to_the_strictest() -> None:
    terms: list[Any] = [
        {"when": "true", "quorum": 2, "min_assurance": "session", "timeout": "2h"},
        {"when": "true", "approvers": [{"of": "role:legal", "quorum": 2}], "escalate_after": "10m"},
        {"when": "true", "min_assurance": "mfa", "escalate_after": "20m", "escalate_to": ["role:cfo"]},
        {"when": "true", "approvers": ["role:legal"], "timeout": "3h"},
    ]
    for ordered in (terms, terms[::-1]):
        found = on(policy(*ordered, remind_after="15m"))
        assert (found.quorum, found.min_assurance, found.timeout) == (3, "mfa", 7_200)
        assert (found.escalate_after, found.escalate_to) == (600, ("role:cfo",))
        assert found.groups == (FINANCE, ApproverGroup(of=("role:legal",), quorum=2))
        assert found.remind_after is None, "nobody is reminded after it was escalated"


def test_a_deadline_before_the_escalation_leaves_none() -> None:
    found = on(policy({"when": "true", "timeout": "30m"}))
    assert (found.timeout, found.escalate_after, found.escalate_to, found.on_timeout) == (1_800, None, (), "deny")


def test_terms_stand_also_where_a_rule_lets_the_call_pass() -> None:
    verdict = policy(LARGE, auto_approve_if="true").judge(arguments(count=3), context())
    assert (verdict.verdict, verdict.terms.quorum) == ("auto", 2)


def test_whom_a_route_names_is_asked_on_the_same_terms() -> None:
    found = on(policy(LEGAL, route_to="['user:ana']"), currency="USD")
    assert found.groups == (ApproverGroup(of=("user:ana",)), COUNSEL)


def test_who_has_a_place_in_a_group_is_escalated_to_nobody() -> None:
    """By a route, a handler or the default: after the deadline one group would stand for all of them."""
    routed = on(policy(LEGAL, route_to="['role:cfo']"), currency="USD")
    assert (routed.groups, routed.escalate_to) == ((ApproverGroup(of=("role:cfo",)), COUNSEL), ("user:eve",))
    judge = policy(handler="desk.rules:judge", escalate_to=["role:legal"], on_timeout="escalate")
    stricter = Term.model_validate({"approvers": ["role:legal"]})
    result = apply_handler_verdict(
        judge, judge.judge(arguments(), context()), HandlerVerdict("ask", stricter=stricter)
    ).terms
    assert (result.groups, result.escalate_to, result.on_timeout) == ((FINANCE, COUNSEL), (), "deny")


@table("word", "ask", "auto")
def test_a_handler_may_add_terms(word: Any) -> None:
    judge = policy(LEGAL, handler="desk.rules:judge", require_approval_if="true")
    verdict = judge.judge(arguments(currency="USD"), context())
    found = apply_handler_verdict(
        judge, verdict, HandlerVerdict(word, reason="new payee", stricter=Term(quorum=3))
    ).terms
    assert (found.quorum, found.groups) == (3, (FINANCE, COUNSEL))
    assert [each.reason for each in found.applied] == ["args.currency == 'USD'", "new payee"]


def test_a_handler_that_asks_administrators_keeps_the_terms() -> None:
    judge = policy(LEGAL, handler="desk.rules:judge", require_approval_if="true")
    verdict = judge.judge(arguments(currency="USD"), context())
    found = apply_handler_verdict(judge, verdict, HandlerVerdict("ask", "admin")).terms
    assert found.groups == (ApproverGroup(of=("role:admin",)), COUNSEL)


def test_what_a_handler_gives_for_terms_is_a_term() -> None:
    """Anything else is no answer, so that a person is asked."""
    assert read_answer(HandlerVerdict("ask", stricter={"quorum": 2})) is None  # type: ignore[arg-type]
    assert read_answer(HandlerVerdict("ask", stricter=Term(quorum=2))) is not None


def test_the_hash_of_a_policy_has_its_conditions_where_they_stand() -> None:
    first, second = {"when": "args.count > 2", "quorum": 2}, {"when": "args.count > 3", "quorum": 3}
    swapped = {**first, "when": second["when"]}, {**second, "when": first["when"]}
    assert policy(first, second).hash != policy(*swapped).hash


@table(
    ("term", "field", "words"),
    ({}, "terms", "changes nothing"),
    ({"quorum": 1}, "quorum", "greater than or equal to 2"),
    ({"quorum": 2, "approver": ["role:a"]}, "approver", "did you mean `approvers`"),
    ({"approvers": ["legal"]}, "approvers.0", "is not an approver"),
    ({"min_assurance": "channel"}, "terms.0.min_assurance", "must be stronger"),
    ({"timeout": "2d"}, "terms.0.timeout", "must be shorter"),
    ({"timeout": "24h"}, "terms.0.timeout", "must be shorter"),
    ({"escalate_after": "2h"}, "terms.0.escalate_after", "before the policy's"),
    ({"escalate_after": "1h"}, "terms.0.escalate_after", "a term's `escalate_after` must come before the policy's"),
    ({"escalate_after": "5m", "timeout": "5m"}, "terms.0.escalate_after", "and before the deadline"),
    ({"escalate_to": ["role:board"]}, "terms.0.escalate_to", "only narrow"),
    ({"approvers": ["role:cfo"]}, "escalate_to", "fill another group's place"),
)
def test_a_term_that_changes_nothing_or_loosens_is_refused(term: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ApprovalPolicy.model_validate({**BASE, "terms": [{"when": "true", **term}]})
    assert (caught.value.context["field"], words in caught.value.message) == (field, True)


def test_a_quorum_that_the_policy_has_already_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger than the policy's 2") as caught:
        ApprovalPolicy(quorum=2, terms=(TermRule(when="true", quorum=2),))
    assert caught.value.context["field"] == "terms.0.quorum"


def test_a_term_escalates_to_nobody_where_the_policy_names_nobody() -> None:
    with pytest.raises(ConfigError) as caught:
        ApprovalPolicy(terms=(TermRule(when="true", escalate_after=60),))
    assert caught.value.message.endswith(
        "a term has no approvers to escalate to; name them in the policy's own `escalate_to`"
    )
    assert caught.value.context["field"] == "terms.0.escalate_after"


def test_a_typo_in_a_condition_names_the_term() -> None:
    with pytest.raises(ConfigError, match=r"terms\.0\.when"):
        policy({"when": "args.cuont > 2", "quorum": 2})


@table(
    ("more", "asks_more"),
    ({}, False),
    ({"quorum": 2}, True),
    ({"approvers": ["role:legal"]}, True),
    ({"min_assurance": "mfa"}, True),
    ({"timeout": 60}, True),
    ({"escalate_after": 60}, False),
)
def test_terms_exceed_a_question_that_asked_for_less(more: dict[str, Any], asks_more: bool) -> None:
    rules = ApprovalPolicy.model_validate(BASE)
    asked = a_question(approvers=("role:finance",))
    applied: list[AppliedTerm] = [Term.model_validate(more).as_applied()] if more else []
    assert terms_of(rules, rules.named_approvers, applied).are_stricter_than(asked) is asks_more


def test_a_term_that_adds_a_group_leaves_the_policy_as_many_people_as_it_asked_for() -> None:
    """Beside the two of finance comes one of legal: one of each would be less than the policy wanted."""
    terms = on(policy(LEGAL, quorum=2), currency="USD")
    assert terms.groups == (replace(FINANCE, quorum=2), COUNSEL)
    assert terms.quorum == 3


def test_a_term_that_adds_a_group_leaves_the_groups_of_the_policy() -> None:
    """Each keeps its own place: together they would be one, which a single person fills."""
    own = [{"of": "role:finance"}, {"of": "role:ops"}]
    terms = on(policy(LEGAL, approvers=own), currency="USD")
    assert terms.groups == (FINANCE, ApproverGroup(of=("role:ops",)), COUNSEL)
    assert terms.quorum == 3


@table(
    ("asked", "asks_more"),
    ((FINANCE, COUNSEL), False),
    ((COUNSEL, FINANCE), False),
    ((FINANCE,), True),
    ((FINANCE, ApproverGroup(of=("role:ops",))), True),
    ((FINANCE, replace(COUNSEL, quorum=2)), True),
    ids=["the-same", "in-another-order", "one-is-new", "another-one", "of-other-size"],
)
def test_terms_exceed_a_question_that_asked_other_groups(asked: tuple[ApproverGroup, ...], asks_more: bool) -> None:
    terms = Terms(groups=(FINANCE, COUNSEL), quorum=2)
    assert terms.are_stricter_than(a_question(groups=asked, quorum=2)) is asks_more


@table(
    ("term", "expected"),
    ({"quorum": 2}, 600),
    ({"timeout": 601}, 600),
    ({"timeout": 600}, None),
    ({"escalate_after": 601}, 600),
    ({"escalate_after": 600}, None),
)
def test_who_is_asked_is_reminded_while_they_alone_are_waited_for(term: dict[str, Any], expected: int | None) -> None:
    """Nobody waits any more, or for others too, when a later reminder would come."""
    rules = ApprovalPolicy.model_validate(BASE | {"remind_after": 600})
    terms = terms_of(rules, ("role:finance",), [Term.model_validate(term).as_applied()])
    assert terms.remind_after == expected


def test_what_the_deadline_does_is_the_policys() -> None:
    rules = ApprovalPolicy.model_validate(BASE | {"on_timeout": "escalate"})
    assert terms_of(rules, rules.named_approvers).on_timeout == "escalate"
    assert terms_of(ApprovalPolicy.model_validate(BASE), ("role:finance",)).on_timeout == "deny"


def test_an_escalation_at_the_deadline_is_none() -> None:
    term = Term.model_validate({"timeout": 3_600}).as_applied()
    terms = terms_of(ApprovalPolicy.model_validate(BASE), ("role:finance",), [term])
    assert (terms.escalate_after, terms.escalate_to) == (None, ())
