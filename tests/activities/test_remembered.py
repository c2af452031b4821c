"""To which calls a remembered answer applies, and who can give one: every condition by itself."""

from typing import Any

import pytest
from activity_kit import ARGS, TURN, decision, environment, permit_for, pinned, room_of, run, task_for, told
from desk_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.gate import GateActivity
from signoff.activities.room import Room
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, Remember
from signoff.contracts.grant import Grant
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person, Principal
from signoff.contracts.steps import GateTask, Ruling
from signoff.policy.model import ApprovalPolicy, GlobalRule
from signoff.registry.tool import Tool
from signoff.store.grants import Grants
from signoff.store.store import Store

SMALL = Remember(scope="tenant", where="args.amount <= 50.0")
ALLOWED = ApprovalPolicy(allow_remember=True)
APPROVERS = (Person(id="approver", roles=("approvers",)), Person(id="ana", roles=("approvers",)))


def asking(ledger: Ledger, policy: ApprovalPolicy = ALLOWED, **fields: Any) -> Tool:
    """A tool about which people are asked."""
    return pay_tool(ledger, policy, **fields)


async def approved(room: Room, tool: Tool, *decisions: Decision, **fields: Any) -> None:
    """Run one call that people approved, with what they want remembered."""
    permit = permit_for(tool, kind="approved", decisions=decisions, quorum=len(decisions), **fields)
    assert told(await run(room, tool, task_for(tool, permit)))[0] == "ok"


async def ruled(room: Room, args: Any = None, **ctx: Any) -> Ruling:
    """What the gates say of the next call, in another turn."""
    pin = pinned(**({"turn": "next"} | ctx))
    env = environment("signoff.gate", is_local=True, workflow_id=f"turn/{pin.tenant}/{pin.session}/{pin.turn}")
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=args or ARGS))
    reply = await env.run(GateActivity(room).gate, GateTask(ctx=pin, calls=(call,)))
    return Ruling.model_validate_json(reply.rulings[0].model_dump_json())


async def kept(store: Store) -> list[Grant]:
    """All that is remembered."""
    return await Grants(store).all("main", every=True)


async def test_the_next_call_like_it_runs_by_the_grant(store: Store) -> None:
    """In another turn and session of the tenant, with other arguments for which the predicate holds."""
    tool = asking(Ledger())
    room = room_of(store, tool)
    await approved(room, tool, decision(remember=SMALL))
    (grant,) = await kept(store)
    ruling = await ruled(room, {"amount": 50}, session="other")
    assert (ruling.verdict, ruling.grant, ruling.rule) == ("run", grant.id, f"grant:{grant.id}")
    assert (await ruled(room, {"amount": 51})).verdict == "ask"
    assert (await ruled(room, {"amount": 50}, tenant="other")).verdict == "ask"


async def test_exact_arguments_in_one_session(store: Store) -> None:
    """Without a predicate only the very same arguments, however numbers are written; elsewhere people are asked."""
    tool = asking(Ledger())
    room = room_of(store, tool)
    await approved(room, tool, decision(remember=Remember()))
    assert (await ruled(room)).verdict == "run"
    assert (await ruled(room, {**ARGS, "amount": 20.0})).verdict == "run"
    assert (await ruled(room, {**ARGS, "to": "Bo"})).verdict == "ask"
    assert (await ruled(room, session="other")).verdict == "ask"


@pytest.mark.parametrize(
    "change",
    [
        {"policy": ApprovalPolicy(allow_remember=False)},
        {"policy": ApprovalPolicy(allow_remember=True, quorum=2)},
        {"policy": ApprovalPolicy(allow_remember=True, min_assurance="mfa")},
        {"policy": ApprovalPolicy(allow_remember=True, require_approval_if="true")},
        {"version": "2"},
        {"people": (Person(id="approver", roles=("approvers",), active=False),)},
        {"policies": [GlobalRule(name="house", rule="true", effect="deny")]},
    ],
)
async def test_another_question_is_asked_anew(store: Store, change: dict[str, Any]) -> None:
    """Another policy, another definition, somebody who left, a rule that denies: nothing runs by the old answer."""
    tool = asking(Ledger())
    await approved(room_of(store, tool), tool, decision(remember=SMALL))
    more = {name: change[name] for name in ("people", "policies") if name in change}
    fields = {name: value for name, value in change.items() if name not in more}
    later = room_of(store, asking(Ledger(), **fields), **more)
    assert (await ruled(later)).verdict != "run"


async def test_nobody_approves_their_own_calls_in_advance(store: Store) -> None:
    """Who gave the answer may not use it, unless the policy lets people approve their own."""
    tool = asking(Ledger())
    room = room_of(store, tool, people=APPROVERS)
    await approved(room, tool, decision(remember=SMALL))
    mine = Principal(user="approver", roles=("approvers",))
    assert (await ruled(room, user=mine)).verdict == "ask"
    assert (await ruled(room, user=GUEST)).verdict == "run"


async def test_a_requester_who_is_not_who_the_directory_says_is_asked_about(store: Store) -> None:
    """As with rules: of whom nobody is sure, for him no answer was given in advance."""
    tool = asking(Ledger())
    room = room_of(store, tool)
    await approved(room, tool, decision(remember=SMALL))
    assert (await ruled(room, user=Principal(user="guest", tier="gold"))).verdict == "ask"


@pytest.mark.parametrize(
    ("second", "uses"),
    [
        (None, None),
        (Remember(scope="tenant", where="args.amount <= 60.0"), None),
        (SMALL.model_copy(update={"scope": "session"}), None),
        (SMALL.model_copy(update={"uses": 7, "seconds": 60.0}), 7),
    ],
)
async def test_a_quorum_has_to_want_the_same_remembered(
    store: Store, second: Remember | None, uses: int | None
) -> None:
    """Two people, two wishes that agree; of different counts and lengths the smaller holds."""
    tool = asking(Ledger(), ApprovalPolicy(allow_remember=True, quorum=2))
    room = room_of(store, tool, people=APPROVERS)
    await approved(room, tool, decision(remember=SMALL), decision(subject="ana", remember=second))
    assert [(grant.people, grant.uses) for grant in await kept(store)] == (
        [] if uses is None else [(("approver", "ana"), uses)]
    )


async def test_a_permit_that_names_a_grant_it_has_no_right_to_runs_nothing(store: Store) -> None:
    """A forged, revoked or foreign grant: judged anew, the handler is not called."""
    ledger = Ledger()
    tool = asking(ledger)
    room = room_of(store, tool)
    await approved(room, tool, decision(remember=SMALL))
    (grant,) = await kept(store)
    ledger.rows.clear()
    ctx = pinned(turn="next")
    env = {"workflow_id": f"turn/main/{TURN.session}/next"}

    async def attempt(name: str, args: dict[str, Any]) -> str:
        permit = permit_for(tool, args, grant=name, ctx=ctx)
        reply = await run(room, tool, task_for(tool, permit, args), environment(tool.name, **env))
        return reply.again or told(reply)[0]

    assert await attempt("", {"amount": 1}) == "policy"
    assert await attempt("gnobody", {"amount": 1}) == "policy"
    assert await attempt(grant.id, {"amount": 51}) == "policy"
    await Grants(store).revoke(grant.id, "main", by="approver")
    assert await attempt(grant.id, {"amount": 1}) == "policy"
    assert ledger.rows == []


async def test_a_tool_that_only_reads_spends_its_grant_once(store: Store) -> None:
    """It takes a ticket for that; after a crash it may read again without spending twice."""
    tool = asking(Ledger(), read_only=True)
    room = room_of(store, tool)
    await approved(room, tool, decision(remember=SMALL))
    (grant,) = await kept(store)
    permit = permit_for(tool, grant=grant.id, ctx=pinned(turn="next"))
    env = {"workflow_id": f"turn/main/{TURN.session}/next"}
    for _ in range(2):
        reply = await run(room, tool, task_for(tool, permit), environment(tool.name, **env))
        assert told(reply)[0] == "ok"
    assert (await kept(store))[0].uses_left == grant.uses - 1
