from call_rig import CallRig
from gateway_rig import PEOPLE

from signoff.calls.agent_calls import Judgement
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.gateway.calls.own_calls import judge_call, judgement_of
from signoff.registry.gates.judged_call import settled_decision
from signoff.store.freezes import Freezes


async def test_frozen_tenant_denies_every_judged_call(agent: CallRig) -> None:
    deps, call = agent.rig.deps, ("coder", PEOPLE[0], "refund", {"order": "A7", "euro": 20})
    await Freezes(deps.store).freeze("cold", reason="a drill", by="boss", also=None)
    found = await judge_call(deps, "cold", *call)
    assert (found.decision, found.reason, found.is_requestable) == (False, "frozen", False)
    assert (await judge_call(deps, "main", *call)).decision


def test_call_over_a_usage_limit_is_not_requestable() -> None:
    call = CallPart(call="c1.1", tool="refund", args=Content(inline={}))
    found = settled_decision(call, "caps", "too_many_calls", "enough")
    assert judgement_of(found) == Judgement(False, "too_many_calls", "enough")
