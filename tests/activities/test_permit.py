"""The right to run is derived: what a permit says is compared, never believed."""

from datetime import UTC, datetime
from typing import Any

import pytest
from activity_kit import ARGS, TURN, decision, permit_for, pinned, room_of
from desk_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.gate import digest_of
from signoff.activities.permit import (
    RUN,
    Caller,
    Standing,
    Witness,
    believed,
    caller_problem,
    doubted,
    seating,
    standing,
)
from signoff.contracts.call import Permit
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person
from signoff.contracts.steps import Tally
from signoff.policy.model import ApprovalPolicy
from signoff.registry.gates import Judgement, judge
from signoff.registry.tool import Tool
from signoff.signing import Verifier
from signoff.store.store import Store

LEDGER = Ledger()
GATED = pay_tool(LEDGER)
CALLER = Caller("ActorTurn", TURN.workflow_id, "pay", "c1.1")
APPROVERS = (Person(id="approver", roles=("approvers",)), Person(id="ana", roles=("approvers",)))
LENIENT = Witness(Verifier(), development=True)


def weighed(store: Store, tool: Tool, permit: Permit, witness: Witness = LENIENT) -> Standing:
    """What the permit is worth for `tool` as it is now."""
    room = room_of(store, tool, people=APPROVERS)
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    found = judge(room.catalog, permit.ctx, call, ARGS, Tally())
    return standing(
        permit,
        permit_for(tool).digest,
        found,
        room.catalog.policy("pay"),
        witness=witness,
        seating=seating(room.catalog, room.people, permit.ctx, "pay", found, datetime.now(UTC)),
        digest_of_args=lambda args: digest_of(permit.ctx, "c1.1", tool, args),
    )


@pytest.mark.parametrize(
    ("caller", "problem"),
    [
        (CALLER, ""),
        (Caller("", "", "pay", "c1.1"), "this tool runs only inside a turn"),
        (Caller("actorturn", TURN.workflow_id, "pay", "c1.1"), "this tool runs only inside a turn"),
        (Caller("ActorTurn", "turn/main/s/other", "pay", "c1.1"), "the permit names another turn"),
        (Caller("ActorTurn", "turn/other/s/t", "pay", "c1.1"), "the permit names another turn"),
        (Caller("ActorTurn", "turn/main/other/t", "pay", "c1.1"), "the permit names another turn"),
        (Caller("ActorTurn", TURN.workflow_id, "refund", "c1.1"), "the permit names another call"),
        (Caller("ActorTurn", TURN.workflow_id, "pay", "c1.2"), "the permit names another call"),
    ],
)
def test_only_the_turn_and_call_of_the_permit_may_use_it(caller: Caller, problem: str) -> None:
    """Workflow type and id, activity type and id come from the server and have to be those of the permit."""
    assert caller_problem(caller, permit_for(GATED), "pay") == problem


async def test_an_automatic_permit_runs_what_the_policy_still_lets_run(store: Store) -> None:
    """`auto` is the policy asked again: still automatic runs, anything else is judged anew."""
    tool = pay_tool(LEDGER, False)
    assert weighed(store, tool, permit_for(tool)) == RUN
    gated = Standing("again", "the policy changed before this ran", "policy")
    assert weighed(store, GATED, permit_for(GATED)) == gated


@pytest.mark.parametrize("kind", ["auto", "approved"])
async def test_another_digest_is_stale(store: Store, kind: Any) -> None:
    """A permit for other arguments or another definition of the tool runs nothing, decided or not."""
    tool = pay_tool(LEDGER, kind == "approved")
    stale = Standing("again", "the tool changed while you were asked", "stale")
    assert weighed(store, tool, permit_for(tool, kind=kind, digest="0" * 64)) == stale
    assert weighed(store, tool, permit_for(tool, {"amount": 2}, kind=kind)) == stale


@pytest.mark.parametrize(
    "fields",
    [{}, {"revision": None}, {"digest": permit_for(GATED).digest}],
)
async def test_one_decision_about_this_call_is_enough(store: Store, fields: Any) -> None:
    """An unsigned decision may leave digest and revision out; what it names has to be right."""
    assert weighed(store, GATED, permit_for(GATED, kind="approved", decisions=(decision(**fields),))) == RUN


ELSE = "a decision in the permit is about something else"
OTHER = "a decision in the permit is about other arguments"
FEW = "too few people have approved this"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"verdict": "denied"}, ELSE),
        ({"approval_id": "main.s.t.c1.2"}, ELSE),
        ({"approval_id": "main.s.other.c1.1"}, ELSE),
        ({"subject": ""}, ELSE),
        ({"digest": "0" * 64}, OTHER),
        ({"revision": 2}, OTHER),
    ],
)
async def test_a_copied_or_edited_decision_is_refused(store: Store, fields: Any, why: str) -> None:
    """One decision that is not about exactly this spoils the permit, also beside a good one."""
    wrong = decision(**fields)
    refused = Standing("refuse", why)
    assert weighed(store, GATED, permit_for(GATED, kind="approved", decisions=(wrong,))) == refused
    assert weighed(store, GATED, permit_for(GATED, kind="approved", decisions=(decision(), wrong))) == refused


async def test_a_first_answer_is_none_to_a_later_revision(store: Store) -> None:
    """Asked again, only an answer that names the revision counts."""
    later = permit_for(GATED, kind="approved", revision=2)
    assert weighed(store, GATED, later) == Standing("refuse", OTHER)
    named = later.model_copy(update={"decisions": (decision(revision=2),)})
    assert weighed(store, GATED, named) == RUN
    silent = later.model_copy(update={"decisions": (decision(revision=None),)})
    assert weighed(store, GATED, silent) == Standing("refuse", OTHER)


TWO = pay_tool(LEDGER, ApprovalPolicy(quorum=2))
PAIR = (decision(), decision(subject="ana"))


@pytest.mark.parametrize(
    ("tool", "quorum", "decisions", "runs"),
    [
        (GATED, 1, (), False),
        (GATED, 0, (), False),
        (GATED, 2, (decision(),), False),
        (GATED, 2, PAIR, True),
        (GATED, 2, (decision(), decision(delivery_id="again")), False),
        (TWO, 2, (decision(),), False),
        (TWO, 2, PAIR, True),
        (TWO, 1, PAIR, True),
    ],
)
async def test_a_quorum_is_of_distinct_people(
    store: Store, tool: Tool, quorum: int, decisions: Any, runs: bool
) -> None:
    """As many different people as the permit and the present policy ask; one person twice is one."""
    present = room_of(store, tool).catalog.policy("pay").hash
    permit = permit_for(tool, kind="approved", quorum=quorum, decisions=decisions, policy_hash=present)
    assert weighed(store, tool, permit) == (RUN if runs else Standing("refuse", FEW))


async def test_a_quorum_that_rose_is_asked_again(store: Store) -> None:
    """Asked under another policy for fewer people than now: more are asked; under this policy: refused."""
    again = Standing("again", "more people have to approve this now", "policy")
    permit = permit_for(TWO, kind="approved", quorum=1, policy_hash="another")
    assert weighed(store, TWO, permit) == again
    present = room_of(store, TWO).catalog.policy("pay").hash
    edited = permit.model_copy(update={"policy_hash": present})
    assert weighed(store, TWO, edited) == Standing("refuse", FEW)
    nobody = permit.model_copy(update={"decisions": ()})
    assert weighed(store, TWO, nobody) == Standing("refuse", FEW)


ANA = Person(id="ana", tier="trusted", roles=("a", "b"))


@pytest.mark.parametrize("development", [True, False])
@pytest.mark.parametrize(
    ("person", "sure"),
    [
        (ANA, True),
        (ANA.model_copy(update={"roles": ("b", "a")}), True),
        (ANA.model_copy(update={"active": False}), False),
        (ANA.model_copy(update={"tier": "standard"}), False),
        (ANA.model_copy(update={"roles": ("a",)}), False),
        (ANA.model_copy(update={"roles": ("a", "b", "c")}), False),
    ],
)
def test_the_directory_bears_a_requester_out(person: Person, sure: bool, development: bool) -> None:
    """Tier and roles have to be the directory's of now, in either profile."""
    user = GUEST.model_copy(update={"user": "ana", "tier": "trusted", "roles": ("a", "b")})
    assert believed(pinned(user=user), person, development=development) is sure


@pytest.mark.parametrize("development", [True, False])
def test_only_development_believes_a_stranger(development: bool) -> None:
    """Somebody the directory does not know is believed in the development profile alone."""
    assert believed(pinned(), None, development=development) is development


async def test_a_doubted_requester_is_asked_about(store: Store) -> None:
    """What would run by rule is asked, with the reason; what is asked or settled anyway stays as it is."""
    tool = pay_tool(LEDGER, ApprovalPolicy(auto_approve_if="true"))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    run = judge(room_of(store, tool).catalog, pinned(), call, ARGS, Tally())
    found = doubted(run, "it is too long ago")
    assert (found.kind, found.tool, found.verdict.verdict) == ("ask", run.tool, "ask")
    assert (found.verdict.rule, found.verdict.rule_text) == ("requester", "")
    assert found.verdict.why == "it is too long ago"
    assert found.verdict.policy_hash == run.verdict.policy_hash
    asked = judge(room_of(store, GATED).catalog, pinned(), call, ARGS, Tally())
    assert doubted(asked, "it is too long ago") is asked
    routed = pay_tool(LEDGER, ApprovalPolicy(auto_approve_if="true", route_to="['role:finance']"))
    found = doubted(judge(room_of(store, routed).catalog, pinned(), call, ARGS, Tally()), "it is too long ago")
    assert (found.kind, found.verdict.approvers) == ("ask", ("role:finance",))
    bare = Judgement("c1.1", "run", "approval")
    assert doubted(bare, "it is too long ago") is bare
