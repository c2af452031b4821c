import dataclasses
from datetime import UTC, datetime
from typing import Any

from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.approvals.grant_rules import exact_digest
from signoff.contracts.activity_messages import Tally
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.call import PERMISSION_RULE, REQUESTER_RULE, REQUIRES_APPROVAL, CallContext, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.grant import Grant, GrantScope
from signoff.contracts.limits import MAX_REMEMBERED_USES
from signoff.contracts.names import PEER
from signoff.contracts.person import Principal
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import ExternalAgent
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.grant_match import GrantMatcher
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.testing.builders import a_grant, a_person

GOOD = {"flight": "TP 531", "totalCost": 420}
TOOL = a_tool(requires_approval=ApprovalPolicy(allow_remember=True))
EXACT = GrantRequest()
CHEAP = GrantRequest(where="args.totalCost <= 500.0")


def catalog(tool: Tool = TOOL) -> Catalog:
    return build_catalog(tools=(tool,), actors=(an_actor(),))


def request(**fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "id": "main.s.t.c1.1",
        "tenant": "main",
        "turn": "t",
        "call": "c1.1",
        "requester": Principal(user="guest"),
        "tool": "book_flight",
        "definition": definition_hash(TOOL),
        "args": Content(inline=GOOD),
        "digest": "d",
        "card": Card(effect="Book"),
        "rule": REQUIRES_APPROVAL,
        "allow_remember": True,
    }
    return ApprovalRequest(**given | fields)


def problem(asked: ApprovalRequest | None = None, args: Any = GOOD, tool: Tool = TOOL, **fields: Any) -> str:
    given = {"approval_id": "main.s.t.c1.1", "verdict": "approved", "subject": "ana", "remember": EXACT}
    return GrantMatcher(catalog(tool)).problem(asked or request(), Decision(**given | fields), args)


@table("wish", None, EXACT, GrantRequest(where="  "), CHEAP, GrantRequest(scope="tenant"))
@table("verdict", "approved", "denied")
def test_valid_grant_request_has_no_problem(wish: GrantRequest | None, verdict: str) -> None:
    assert problem(remember=wish, verdict=verdict) == ""


@table(
    ("asked", "fields", "words"),
    ({"allow_remember": False}, {}, "the policy of this request lets no answer be remembered"),
    ({"kind": "in_doubt"}, {}, "the policy of this request lets no answer be remembered"),
    ({}, {"edited_args": {"flight": "TP 9"}}, "changed arguments are not remembered"),
    ({}, {"edited_args": {}}, "changed arguments are not remembered"),
    ({"veto": False}, {"verdict": "denied"}, "one denial does not end this request, so it cannot be remembered"),
    ({"rule": REQUESTER_RULE}, {}, "the directory does not confirm the requester, so each call needs approval"),
    ({"rule": PERMISSION_RULE}, {}, "a permission is overridden for one call at a time"),
    ({}, {"subject": ""}, "an answer without an author is not remembered"),
    ({"definition": "f" * 64}, {}, "the tool has changed since this was asked"),
    ({"tool": "book_train"}, {}, "the tool has changed since this was asked"),
)
def test_invalid_grant_request_states_its_reason(asked: dict[str, Any], fields: dict[str, Any], words: str) -> None:
    assert problem(request(**asked), **fields) == f"`remember`: {words}"
    assert problem(request(**asked), **fields, remember=None) == ""


@table("rule", REQUESTER_RULE, PERMISSION_RULE)
def test_denial_may_always_give_a_grant(rule: RuleReference) -> None:
    assert problem(request(rule=rule), verdict="denied") == ""


def test_approval_without_veto_may_give_a_grant() -> None:
    assert problem(request(veto=False), verdict="approved") == ""


def test_grant_request_above_the_limits_is_refused() -> None:
    wish = GrantRequest(where="args.", uses=MAX_REMEMBERED_USES + 1)
    assert problem(remember=wish).startswith("`remember.uses`: ")


def test_arguments_without_a_canonical_form_give_no_exact_grant() -> None:
    odd = {**GOOD, "totalCost": 2**60}
    assert problem(args=odd) == "`remember`: these arguments cannot be compared with later ones"


@table(
    ("where", "words"),
    ("args.totalCost <= 100.0", "it is not true of the arguments of this very call"),
    ("args.seats > 1", "no field `args.seats`; declared are `flight`, `totalCost`"),
    ("args.", "column"),
)
def test_invalid_predicate_states_its_reason(where: str, words: str) -> None:
    result = problem(remember=GrantRequest(where=where))
    assert result.startswith("`remember.where`: ")
    assert words in result


@table("masked_by", "tool", "question")
def test_predicate_may_not_read_hidden_arguments(masked_by: str) -> None:
    wish = GrantRequest(where="args.flight == 'TP 531'")
    assert problem(remember=wish) == ""
    hides = a_tool(requires_approval=ApprovalPolicy(allow_remember=True), secrets=("flight",))
    if masked_by == "tool":
        result = problem(request(definition=definition_hash(hides)), tool=hides, remember=wish)
    else:
        result = problem(request(secrets=("flight",)), remember=wish)
    assert result.startswith("`remember.where`: ")
    assert "hidden" in result


def test_hidden_arguments_are_judged_per_question() -> None:
    matcher = GrantMatcher(catalog())
    decision = Decision(
        approval_id="a", verdict="approved", subject="ana", remember=GrantRequest(where="args.flight == 'TP 531'")
    )
    assert matcher.problem(request(), decision, GOOD) == ""
    assert "hidden" in matcher.problem(request(secrets=("flight",)), decision, GOOD)
    assert matcher.problem(request(), decision, GOOD) == ""


NOTE_SCHEMA = {
    "type": "object",
    "properties": {
        "pin": {"type": "string"},
        "note": {"type": "string"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
        "amount": {"type": "number"},
    },
    "required": ["pin", "note", "lines", "amount"],
}
PIN_ARGS = {"pin": "hunter2", "note": "", "lines": [], "amount": 1}
NOTED = a_tool(
    "unlock", input_schema=NOTE_SCHEMA, secrets=("pin",), requires_approval=ApprovalPolicy(allow_remember=True)
)


@table(
    ("args", "guess"),
    ({"note": "hunter2"}, "args.note == '{}'"),
    ({"note": "the pin is hunter2!"}, "args.note.contains('{}')"),
    ({"lines": [{"text": "x"}, {"text": "hunter2"}]}, "args.lines.exists(l, l.text == '{}')"),
    ({"note": "hunter2"}, "dyn(args).exists(k, dyn(args)[k] == '{}')"),
)
def test_masked_repeat_of_a_secret_cannot_be_guessed_by_a_predicate(args: Any, guess: str) -> None:
    args = PIN_ARGS | args
    asked = request(tool="unlock", definition=definition_hash(NOTED), secrets=("pin",), args=Content(inline=args))
    right, wrong = (
        problem(asked, args, NOTED, remember=GrantRequest(where=guess.format(word))) for word in ("hunter2", "guess77")
    )
    assert right.replace("hunter2", "") == wrong.replace("guess77", "")
    assert "which is hidden from who decides" in right
    assert problem(asked, args, NOTED, remember=GrantRequest(where="args.amount == 1.0")) == ""


@table(("pin", "serves"), ("hunter2", False), ("something", True))
@table("verdict", "approved", "denied")
def test_guessing_grant_does_not_apply_to_a_call_that_masks_it(pin: str, serves: bool, verdict: Any) -> None:
    args = PIN_ARGS | {"pin": pin, "note": "hunter2"}
    made = catalog(NOTED)
    found = judge(made, pinned(), a_call("unlock"), args, Tally())
    given = grant(found, verdict=verdict, like_exact="", like_where="args.note == 'hunter2'")
    assert GrantMatcher(made).applies(given, pinned(), found, args, FixedDirectory(PEOPLE)) is serves


PEOPLE = (
    a_person("ana"),
    a_person("ana-at-night", person_id="ana"),
    a_person("bo"),
    a_person("cy", active=False),
    a_person("dee", tenant="north"),
    a_person("dee-at-night", tenant="north", person_id="dee"),
    a_person("eve", tenant="north"),
    a_person("eve-at-night", tenant="north", person_id="eve"),
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALLOWED = ApprovalPolicy(allow_remember=True)


def judged(policy: Any = ALLOWED, args: Any = GOOD, ctx: CallContext | None = None) -> JudgedCall:
    return judge(catalog(a_tool(requires_approval=policy)), ctx or pinned(), a_call(), args, Tally())


def grant(found: JudgedCall, **fields: Any) -> Grant:
    assert found.tool is not None
    assert found.verdict is not None
    definition = definition_hash(found.tool)
    like: dict[str, Any] = {
        "tenant": "main",
        "actor": "desk",
        "tool": found.tool.name,
        "definition": definition,
        "exact": exact_digest(found.tool.name, definition, GOOD),
        "rule": found.verdict.rule,
        "policy_hash": found.verdict.policy_hash,
    }
    scope = {name.removeprefix("like_"): value for name, value in fields.items() if name.startswith("like_")}
    own = {name: value for name, value in fields.items() if not name.startswith("like_")}
    return a_grant(**own, like=GrantScope(**like | scope))


def applies(found: JudgedCall, given: Grant, policy: Any = ALLOWED, args: Any = GOOD, **ctx: Any) -> bool:
    matcher = GrantMatcher(catalog(a_tool(requires_approval=policy)))
    return matcher.applies(given, pinned(**ctx), found, args, FixedDirectory(PEOPLE))


@table(
    "fields",
    {},
    {"people": ("ana", "bo")},
    {"like_exact": "", "like_where": "args.totalCost < 500.0"},
    {"like_session": "s"},
)
@table("verdict", "approved", "denied")
def test_grant_applies_to_a_matching_call(fields: dict[str, Any], verdict: Any) -> None:
    found = judged()
    assert applies(found, grant(found, verdict=verdict, **fields))


@table(
    "fields",
    {"like_tenant": "other"},
    {"like_tool": "book_train"},
    {"like_definition": "f" * 64},
    {"like_exact": ""},
    {"like_exact": "f" * 64},
    {"like_where": "args.totalCost < 5.0"},
    {"like_where": "args.seats < 5.0"},
    {"like_session": "another"},
    {"like_session": "s", "requester": "somebody"},
)
@table("verdict", "approved", "denied")
def test_grant_does_not_apply_to_another_call(fields: dict[str, Any], verdict: Any) -> None:
    found = judged()
    assert not applies(found, grant(found, verdict=verdict, **fields))


@table(
    ("verdict", "requester", "serves"),
    ("approved", "somebody", False),
    ("denied", "somebody", True),
    ("approved", "guest", True),
)
def test_approval_grant_for_everyone_serves_no_other_agent(verdict: Any, requester: str, serves: bool) -> None:
    found = judged()
    given = grant(found, verdict=verdict, requester=requester)
    assert applies(found, given)
    assert applies(found, given, channel=PEER) == serves
    assert applies(found, grant(found, verdict=verdict, like_actor="clerk"), channel=PEER) == (verdict == "denied")


@table(
    "fields",
    {"like_rule": RuleReference(kind="global", name="requires_approval")},
    {"like_policy_hash": "f" * 64},
    {"people": ()},
    {"people": ("cy",)},
    {"people": ("ana", "cy")},
    {"people": ("stranger",)},
)
def test_approval_grant_must_still_be_valid_and_a_denial_need_not(fields: dict[str, Any]) -> None:
    found = judged()
    assert not applies(found, grant(found, **fields))
    assert applies(found, grant(found, verdict="denied", **fields))


@table("rule", REQUESTER_RULE, PERMISSION_RULE)
def test_approval_grant_does_not_apply_to_always_asked_calls(rule: RuleReference) -> None:
    found = judged()
    assert found.verdict is not None
    doubted = found._replace(verdict=dataclasses.replace(found.verdict, rule=rule))
    assert not applies(doubted, grant(found, like_rule=rule))
    assert not applies(found._replace(verdict=None), grant(found))


def test_arguments_without_a_canonical_form_match_no_grant() -> None:
    found = judged()
    odd = {**GOOD, "totalCost": 2**60}
    assert not applies(found, grant(found, like_exact=""), args=odd)
    assert not applies(found, grant(found), args=odd)


def test_approval_grant_needs_the_quorum_of_the_call() -> None:
    two = ApprovalPolicy(allow_remember=True, quorum=2)
    found = judged(two)
    assert not applies(found, grant(found), two)
    assert not applies(found, grant(found, people=("ana", "ana-at-night")), two)
    assert applies(found, grant(found, people=("ana", "bo")), two)


@table(("allowed", "holds"), (False, False), (True, True))
def test_approver_grant_does_not_cover_their_own_calls(allowed: bool, holds: bool) -> None:
    policy = ApprovalPolicy(allow_remember=True, allow_self_approval=allowed)
    found = judged(policy)
    for own in ("ana", "ana-at-night"):
        assert applies(found, grant(found), policy, user=Principal(user=own)) is holds
    assert applies(found, grant(found), policy, user=Principal(user="bo"))


def test_grant_people_are_looked_up_in_the_tenant_of_the_call() -> None:
    two = ApprovalPolicy(allow_remember=True, quorum=2)
    found = judged()
    north = grant(found, like_tenant="north", people=("dee",))
    assert applies(found, north, tenant="north")
    assert not applies(found, north, tenant="north", user=Principal(user="dee-at-night"))
    assert not applies(found, grant(found, like_tenant="north", people=("ana",)), tenant="north")
    assert not applies(found, grant(found, people=("dee",)))
    mine = grant(found, like_tenant="north", like_session="s", people=("dee",), requester="eve")
    assert applies(found, mine, tenant="north", user=Principal(user="eve-at-night"))
    both = judged(two)
    given = grant(both, like_tenant="north", people=("dee", "dee-at-night"))
    assert not applies(both, given, two, tenant="north")


def test_grant_applies_only_to_calls_that_would_be_asked() -> None:
    found = judged()
    given = grant(found)
    assert not applies(found.decide(kind="run"), given)
    assert not applies(found.decide(kind="settled"), given)
    assert not applies(found._replace(tool=None), given)
    forgets = judged(True)
    assert not applies(forgets, grant(forgets), True)


def test_grant_costs_the_steps_of_its_predicate() -> None:
    found = judged()
    matcher = GrantMatcher(catalog())
    cheap = grant(found, like_exact="", like_where="args.totalCost < 500.0")
    dear = grant(found, like_exact="", like_where="args.totalCost < 500.0 && args.flight.startsWith('TP')")
    assert 0 < matcher.steps(cheap, found, GOOD) < matcher.steps(dear, found, GOOD)
    assert matcher.steps(grant(found), found, GOOD) == 0
    assert matcher.steps(cheap, found._replace(tool=None), GOOD) == 0
    assert matcher.steps(grant(found, like_where="args.seats < 5.0"), found, GOOD) == 0


OWN = an_actor()
CODER = dataclasses.replace(OWN, name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))
ROAMER = dataclasses.replace(CODER, name="roamer")


@table("session", "", "s")
@table("given_for", "desk", "coder", "roamer", "")
@table("asking", "desk", "coder")
def test_approval_grant_serves_an_external_actor_only_if_given_for_it(
    given_for: str, asking: str, session: str
) -> None:
    found = judged()
    matcher = GrantMatcher(build_catalog(tools=(a_tool(requires_approval=ALLOWED),), actors=(OWN, CODER, ROAMER)))
    people = FixedDirectory(PEOPLE)
    approval = grant(found, like_actor=given_for, like_session=session)
    ctx = pinned(actor=asking)
    assert matcher.applies(approval, ctx, found, GOOD, people) == (given_for == asking)
    denial = grant(found, verdict="denied", like_actor=given_for, like_session=session)
    assert matcher.applies(denial, ctx, found, GOOD, people)


def test_approval_grant_for_everyone_serves_an_external_actor_only_for_its_person() -> None:
    found = judged()
    matcher = GrantMatcher(build_catalog(tools=(a_tool(requires_approval=ALLOWED),), actors=(OWN, CODER)))
    approval = grant(found, like_actor="coder", requester="somebody")
    assert not matcher.applies(approval, pinned(actor="coder"), found, GOOD, FixedDirectory(PEOPLE))


def test_approval_grant_for_everyone_serves_other_internal_actors() -> None:
    found = judged()
    actors = (OWN, an_actor("clerk"))
    matcher = GrantMatcher(build_catalog(tools=(a_tool(requires_approval=ALLOWED),), actors=actors))
    people = FixedDirectory(PEOPLE)
    assert matcher.applies(grant(found), pinned(actor="clerk"), found, GOOD, people)
    assert not matcher.applies(grant(found), pinned(actor="clerk", channel=PEER), found, GOOD, people)
    assert matcher.applies(grant(found), pinned(channel=PEER), found, GOOD, people)


@table("remarks", (), ("flight",))
def test_exact_grant_ignores_remark_arguments(remarks: tuple[str, ...]) -> None:
    tool = a_tool(requires_approval=ALLOWED, remarks=remarks)
    other = {**GOOD, "flight": "the same by other words"}
    judged = judge(catalog(tool), pinned(), a_call(), other, Tally())
    given = grant(judged, like_exact=exact_digest(tool.name, definition_hash(tool), tool.without_remarks(GOOD)))
    people = FixedDirectory(PEOPLE)
    assert GrantMatcher(catalog(tool)).applies(given, pinned(), judged, other, people) == bool(remarks)
    assert not GrantMatcher(catalog(tool)).applies(given, pinned(), judged, {**GOOD, "totalCost": 421}, people)
