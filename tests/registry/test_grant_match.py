"""Which wishes to be remembered can be kept, in words for who has them."""

from typing import Any

import pytest
from registry_kit import a_tool, an_actor

from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.limits import MAX_REMEMBERED_USES
from signoff.contracts.person import Principal
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.grant_match import GrantMatcher
from signoff.registry.gates.pipeline import DOUBTED_RULE
from signoff.registry.hooks import PERMISSION_RULE
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool

GOOD = {"flight": "TP 531", "totalCost": 420}
TOOL = a_tool(requires_approval=ApprovalPolicy(allow_remember=True))
EXACT = GrantRequest()
CHEAP = GrantRequest(where="args.totalCost <= 500.0")


def catalog(tool: Tool = TOOL) -> Catalog:
    """A catalog of the one tool."""
    return build_catalog(tools=(tool,), actors=(an_actor(),))


def request(**fields: Any) -> ApprovalRequest:
    """A question about a call of the tool, an answer to which may be remembered."""
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
        "rule": "always",
        "allow_remember": True,
    }
    return ApprovalRequest(**given | fields)


def problem(asked: ApprovalRequest | None = None, args: Any = GOOD, tool: Tool = TOOL, **said: Any) -> str:
    """Why an answer to it cannot be remembered."""
    given = {"approval_id": "main.s.t.c1.1", "verdict": "approved", "subject": "ana", "remember": EXACT}
    return GrantMatcher(catalog(tool)).problem(asked or request(), Decision(**given | said), args)


@pytest.mark.parametrize("wish", [None, EXACT, GrantRequest(where="  "), CHEAP, GrantRequest(scope="tenant")])
@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_wish_that_can_be_kept_has_no_problem(wish: GrantRequest | None, verdict: str) -> None:
    """An answer without a wish, or with one that is true of the call and not too much, is taken."""
    assert problem(remember=wish, verdict=verdict) == ""


@pytest.mark.parametrize(
    ("asked", "said", "words"),
    [
        ({"allow_remember": False}, {}, "the policy of this request lets no answer be remembered"),
        ({"kind": "in_doubt"}, {}, "the policy of this request lets no answer be remembered"),
        ({}, {"edited_args": {"flight": "TP 9"}}, "changed arguments are not remembered"),
        ({}, {"edited_args": {}}, "changed arguments are not remembered"),
        ({"veto": False}, {"verdict": "denied"}, "one denial does not end this request, so it cannot be remembered"),
        ({"rule": DOUBTED_RULE}, {}, "who asked for this is not who the directory says, so each call is asked about"),
        ({"rule": PERMISSION_RULE}, {}, "a permission is overridden for one call at a time"),
        ({}, {"subject": ""}, "an answer that names nobody is not remembered"),
        ({"definition": "f" * 64}, {}, "the tool has changed since this was asked"),
        ({"tool": "book_train"}, {}, "the tool has changed since this was asked"),
    ],
)
def test_a_wish_that_cannot_be_kept_says_why(asked: dict[str, Any], said: dict[str, Any], words: str) -> None:
    """Each reason is told by itself; without the wish the same answer is taken."""
    assert problem(request(**asked), **said) == f"`remember`: {words}"
    assert problem(request(**asked), **said, remember=None) == ""


@pytest.mark.parametrize("rule", [DOUBTED_RULE, PERMISSION_RULE])
def test_a_denial_is_remembered_whatever_was_asked(rule: str) -> None:
    """Only a yes to a doubted requester or to an objection is for the one call: a no errs on the safe side."""
    assert problem(request(rule=rule), verdict="denied") == ""


def test_a_yes_is_remembered_where_one_no_ends_nothing() -> None:
    """That a denial needs company says nothing of approvals."""
    assert problem(request(veto=False), verdict="approved") == ""


def test_too_much_is_not_remembered() -> None:
    """The bounds of a wish are told before its predicate is even read."""
    wish = GrantRequest(where="args.", uses=MAX_REMEMBERED_USES + 1)
    assert problem(remember=wish).startswith("`remember.uses`: ")


def test_arguments_without_a_canonical_form_are_not_remembered_exactly() -> None:
    """What cannot be compared with later calls is not kept; a predicate over it can be."""
    odd = {**GOOD, "totalCost": 2**60}
    assert problem(args=odd) == "`remember`: these arguments cannot be compared with later ones"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("args.totalCost <= 100.0", "it is not true of the arguments of this very call"),
        ("args.seats > 1", "no field `args.seats`; declared are `flight`, `totalCost`"),
        ("args.", "column"),
    ],
)
def test_a_predicate_that_does_not_fit_says_why(where: str, words: str) -> None:
    """It has to be an expression over the tool's arguments, and true of the call that is answered."""
    told = problem(remember=GrantRequest(where=where))
    assert told.startswith("`remember.where`: ")
    assert words in told


@pytest.mark.parametrize("masked_by", ["tool", "question"])
def test_a_predicate_reads_nothing_that_is_hidden(masked_by: str) -> None:
    """Neither what the tool hides by now, nor what it hid when people were asked."""
    wish = GrantRequest(where="args.flight == 'TP 531'")
    assert problem(remember=wish) == ""
    hides = a_tool(requires_approval=ApprovalPolicy(allow_remember=True), secrets=("flight",))
    if masked_by == "tool":
        told = problem(request(definition=definition_hash(hides)), tool=hides, remember=wish)
    else:
        told = problem(request(secrets=("flight",)), remember=wish)
    assert told.startswith("`remember.where`: ")
    assert "hidden" in told


def test_what_is_hidden_from_one_question_is_so_whatever_was_asked_before() -> None:
    """A predicate that was read for one question is read anew for one that hides more."""
    matcher = GrantMatcher(catalog())
    said = Decision(
        approval_id="a", verdict="approved", subject="ana", remember=GrantRequest(where="args.flight == 'TP 531'")
    )
    assert matcher.problem(request(), said, GOOD) == ""
    assert "hidden" in matcher.problem(request(secrets=("flight",)), said, GOOD)
    assert matcher.problem(request(), said, GOOD) == ""
