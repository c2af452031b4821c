import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_samples import arguments, compiled, context
from tables import table

from signoff.approvals.tightening import are_stricter, tighten
from signoff.contracts.approval import AppliedTerm, ApproverGroup
from signoff.contracts.decision import ASSURANCES
from signoff.contracts.errors import ConfigError
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, Term, TermRule
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.handler_verdict import HandlerVerdict, apply_handler_verdict, read_answer
from signoff.policy.second_engine import second_program
from signoff.policy.terms import VerdictTerms, add_term, terms_of
from signoff.testing.builders import a_question

LARGE = {"when": "args.count > 2", "quorum": 2, "reason": "it is a large order"}
LEGAL = {"when": "args.currency == 'USD'", "approvers": ["role:legal"]}
BASE: dict[str, Any] = {"approvers": ["role:finance"], "escalate_to": ["role:cfo", "user:eve"], "escalate_after": 3_600}
FINANCE, COUNSEL = ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal",))


def policy(*terms: Any, **fields: Any) -> CompiledPolicy:
    return compiled(ApprovalPolicy.model_validate({**BASE, "terms": list(terms), **fields}))


def on(judge: CompiledPolicy, **args: Any) -> VerdictTerms:
    return judge.judge(arguments(**args), context(), {"name": "desk", "tags": ["night"]}).terms


def test_term_applies_unless_its_condition_is_false() -> None:
    judge = policy(LARGE)
    assert (on(judge, count=2).quorum, on(judge, count=2).applied) == (1, ())
    assert on(judge, count=3).quorum == 2
    assert [each.reason for each in on(judge, count=3).applied] == ["it is a large order"]


@table("when", "ctx.user.roles[9] == 'x'", "args.count / (args.count - args.count) > 1")
def test_term_with_a_failing_condition_applies(when: str) -> None:
    assert on(policy({"when": when, "quorum": 2})).quorum == 2


def test_term_with_disagreeing_engines_applies() -> None:
    judge = policy(LARGE)
    name = "terms.0.when"
    wrong = dataclasses.replace(judge.expressions[name], second=second_program("args.count > 1"))
    assert on(judge, count=2).quorum == 1
    assert on(dataclasses.replace(judge, expressions={name: wrong}), count=2).quorum == 2


def test_unreadable_data_makes_every_term_apply() -> None:
    found = policy(LARGE, LEGAL).judge({"count": float("nan")}, context()).terms
    assert (found.quorum, found.groups) == (2, (FINANCE, COUNSEL))


def test_term_conditions_see_the_actor_and_its_tags() -> None:
    judge = policy({"when": "'night' in actor.tags && actor.name == 'desk' && tool.name != ''", "quorum": 2})
    assert on(judge).quorum == 2
    assert judge.judge(arguments(), context(), {"name": "desk", "tags": []}).terms.quorum == 1


def test_approvers_of_a_term_are_added_to_the_policy() -> None:
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


def test_timeout_before_the_escalation_removes_it() -> None:
    found = on(policy({"when": "true", "timeout": "30m"}))
    assert (found.timeout, found.escalate_after, found.escalate_to, found.on_timeout) == (1_800, None, (), "deny")


def test_terms_apply_even_if_a_rule_approves_the_call() -> None:
    verdict = policy(LARGE, auto_approve_if="true").judge(arguments(count=3), context())
    assert (verdict.verdict, verdict.terms.quorum) == ("auto", 2)


def test_approvers_of_a_route_get_the_same_terms() -> None:
    found = on(policy(LEGAL, route_to="['user:ana']"), currency="USD")
    assert found.groups == (ApproverGroup(of=("user:ana",)), COUNSEL)


def test_member_of_a_group_is_removed_from_the_escalation() -> None:
    """Otherwise one group could fill all places after the deadline."""
    routed = on(policy(LEGAL, route_to="['role:cfo']"), currency="USD")
    assert (routed.groups, routed.escalate_to) == ((ApproverGroup(of=("role:cfo",)), COUNSEL), ("user:eve",))
    judge = policy(handler="desk.rules:judge", escalate_to=["role:legal"], on_timeout="escalate")
    stricter = Term.model_validate({"approvers": ["role:legal"]})
    result = apply_handler_verdict(
        judge, judge.judge(arguments(), context()), HandlerVerdict("ask", stricter=stricter)
    ).terms
    assert (result.groups, result.escalate_to, result.on_timeout) == ((FINANCE, COUNSEL), (), "deny")


@table("word", "ask", "auto")
def test_handler_may_add_terms(word: Any) -> None:
    judge = policy(LEGAL, handler="desk.rules:judge", require_approval_if="true")
    verdict = judge.judge(arguments(currency="USD"), context())
    found = apply_handler_verdict(
        judge, verdict, HandlerVerdict(word, reason="new payee", stricter=Term(quorum=3))
    ).terms
    assert (found.quorum, found.groups) == (3, (FINANCE, COUNSEL))
    assert [each.reason for each in found.applied] == ["args.currency == 'USD'", "new payee"]


def test_handler_that_asks_administrators_keeps_the_terms() -> None:
    judge = policy(LEGAL, handler="desk.rules:judge", require_approval_if="true")
    verdict = judge.judge(arguments(currency="USD"), context())
    found = apply_handler_verdict(judge, verdict, HandlerVerdict("ask", "admin")).terms
    assert found.groups == (ApproverGroup(of=("role:admin",)), COUNSEL)


def test_handler_terms_must_be_a_term_object() -> None:
    assert read_answer(HandlerVerdict("ask", stricter={"quorum": 2})) is None  # type: ignore[arg-type]
    assert read_answer(HandlerVerdict("ask", stricter=Term(quorum=2))) is not None


def test_policy_hash_covers_the_position_of_conditions() -> None:
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
def test_term_without_effect_or_with_a_looser_one_is_refused(term: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ApprovalPolicy.model_validate({**BASE, "terms": [{"when": "true", **term}]})
    assert (caught.value.context["field"], words in caught.value.message) == (field, True)


def test_term_quorum_not_above_the_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger than the policy's 2") as caught:
        ApprovalPolicy(quorum=2, terms=(TermRule(when="true", quorum=2),))
    assert caught.value.context["field"] == "terms.0.quorum"


def test_term_escalation_without_policy_approvers_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        ApprovalPolicy(terms=(TermRule(when="true", escalate_after=60),))
    assert caught.value.message.endswith(
        "a term has no approvers to escalate to; name them in the policy's own `escalate_to`"
    )
    assert caught.value.context["field"] == "terms.0.escalate_after"


def test_typo_in_a_condition_names_the_term() -> None:
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
def test_terms_are_compared_with_an_earlier_question(more: dict[str, Any], asks_more: bool) -> None:
    rules = ApprovalPolicy.model_validate(BASE)
    asked = a_question(approvers=("role:finance",))
    applied: list[AppliedTerm] = [Term.model_validate(more).as_applied()] if more else []
    assert are_stricter(terms_of(rules, rules.named_approvers, applied), asked) is asks_more


def test_term_with_a_new_group_keeps_the_quorum_of_the_policy() -> None:
    """One of each group would be fewer than the policy requires."""
    terms = on(policy(LEGAL, quorum=2), currency="USD")
    assert terms.groups == (replace(FINANCE, quorum=2), COUNSEL)
    assert terms.quorum == 3


def test_term_with_a_new_group_keeps_the_groups_of_the_policy() -> None:
    """Merged groups could be filled by a single person."""
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
def test_terms_are_stricter_than_a_question_with_other_groups(
    asked: tuple[ApproverGroup, ...], asks_more: bool
) -> None:
    terms = VerdictTerms(groups=(FINANCE, COUNSEL), quorum=2)
    assert are_stricter(terms, a_question(groups=asked, quorum=2)) is asks_more


@table(
    ("term", "expected"),
    ({"quorum": 2}, 600),
    ({"timeout": 601}, 600),
    ({"timeout": 600}, None),
    ({"escalate_after": 601}, 600),
    ({"escalate_after": 600}, None),
)
def test_reminder_is_kept_only_before_timeout_and_escalation(term: dict[str, Any], expected: int | None) -> None:
    rules = ApprovalPolicy.model_validate(BASE | {"remind_after": 600})
    terms = terms_of(rules, ("role:finance",), [Term.model_validate(term).as_applied()])
    assert terms.remind_after == expected


def test_timeout_action_comes_from_the_policy() -> None:
    rules = ApprovalPolicy.model_validate(BASE | {"on_timeout": "escalate"})
    assert terms_of(rules, rules.named_approvers).on_timeout == "escalate"
    assert terms_of(ApprovalPolicy.model_validate(BASE), ("role:finance",)).on_timeout == "deny"


def test_escalation_at_the_timeout_is_removed() -> None:
    term = Term.model_validate({"timeout": 3_600}).as_applied()
    terms = terms_of(ApprovalPolicy.model_validate(BASE), ("role:finance",), [term])
    assert (terms.escalate_after, terms.escalate_to) == (None, ())


FURTHER = st.builds(
    AppliedTerm,
    quorum=st.integers(1, 4),
    groups=st.sampled_from(((), (COUNSEL,), (FINANCE, replace(COUNSEL, quorum=2)))),
    min_assurance=st.sampled_from(ASSURANCES),
    timeout=st.none() | st.sampled_from((60.0, 3_600.0)),
)


@given(st.lists(FURTHER, max_size=3), FURTHER)
def test_further_term_loosens_nothing(applied: list[AppliedTerm], more: AppliedTerm) -> None:
    rules = ApprovalPolicy(approvers=("role:finance",), quorum=2)
    terms = terms_of(rules, rules.named_approvers, applied)
    found = add_term(terms, rules, more)
    assert tighten(found, terms, more) == found
    assert set(terms.approvers) <= set(found.approvers)
