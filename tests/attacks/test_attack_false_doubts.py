import asyncio
from typing import Any

import pytest
from attack_site import AttackSite, Shown, approval_id, payee, receipt, until
from impostor import Claim, ForgedTurn, Impostor
from real_time import let_pass
from temporalio.client import WorkflowUpdateFailedError

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.call import CallContext
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.store.store import RUNS_SECONDS


async def begun(site: AttackSite, to: str) -> None:
    async def look() -> bool:
        return (site.folder / f"begun-{to}").exists()

    await until(look)


def let_go(site: AttackSite, to: str) -> None:
    (site.folder / f"go-{to}").touch()


async def doubted(site: AttackSite, key: TurnKey) -> Shown:
    async def look() -> Shown | None:
        shown = await site.person("ana").see(approval_id(key))
        return shown if (shown.view.get("kind"), shown.view.get("state")) == ("in_doubt", "pending") else None

    found: Shown = await until(look, 90)
    return found


async def lost(
    site: AttackSite, impostor: Impostor, to: str, tool: str = "haul", *approvers: str
) -> tuple[TurnKey, CallContext, Claim]:
    """Kill the worker midway. Return the permit once the honest turn asks."""
    rui, args = site.person("rui"), {"amount": 9, "to": to}
    key = await rui.ask([(tool, args)])
    for name in approvers or ("ana",):
        await site.person(name).approve(approval_id(key))
    await begun(site, to)
    async with site.without("worker"):
        pass
    await doubted(site, key)
    ctx = await impostor.ctx(key)
    claim = impostor.claim(ctx, impostor.digest(ctx, tool, args), await impostor.decisions(key), tool=tool)
    let_go(site, to)
    return key, ctx, claim


async def again(forged: ForgedTurn, claim: Claim, tool: str, args: dict[str, Any]) -> None:
    doubts = tuple(each for each in await forged.decisions() if each.revision != 1)
    await forged.run(tool, args, replace(claim, doubts=doubts), ticket=2)


async def test_running_call_is_not_asked_about(site: AttackSite, impostor: Impostor) -> None:
    # A haul continues in a thread. The attacker who ended its turn wants its outcome asked: no question opens, and the
    # run counts. Without the store's record of the run, Ana answered that it did not happen, and 9 crates were hauled
    # twice.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    args = {"amount": 9, "to": to}
    key = await rui.ask([("haul", args)])
    await ana.approve(approval_id(key))
    await begun(site, to)
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    claim = impostor.claim(ctx, impostor.digest(ctx, "haul", args), await impostor.decisions(key), tool="haul")
    forged = await impostor.take_over(key, **{"state": view})
    why = "a worker is held for lost when it was not heard of for so long, by the clock of its store"
    await asyncio.to_thread(let_pass, RUNS_SECONDS + 5, why)
    with pytest.raises(WorkflowUpdateFailedError):
        await forged.gate(ctx, "haul", args, doubt=1, doubt_of=claim.digest)
    shown = await ana.see(approval_id(key))
    if shown.view["kind"] == "in_doubt":
        await ana.decide(shown)
        await again(forged, claim, "haul", args)
    let_go(site, to)

    async def summary() -> GateDecision | None:
        gate_decision = await forged.gate(ctx, "haul", args, doubt=1, doubt_of=claim.digest)
        return gate_decision if gate_decision.outcome is not None else None

    await until(lambda: _ledger(site, to))
    found: GateDecision = await until(summary)
    assert found.outcome is not None
    assert (found.outcome.code, site.amounts(to)) == ("ok", [9])


async def _ledger(site: AttackSite, to: str) -> list[int]:
    return site.amounts(to)


@pytest.mark.parametrize("doubt", [1, -1])
async def test_call_that_never_started_is_not_asked_about(doubt: int, site: AttackSite, impostor: Impostor) -> None:
    # A call waits for its approval, and a taken-over turn claims that it started without an answer. Without the check
    # of the ticket the card showed that, and a `happened` answer was accepted.
    to, ana = payee(), site.person("ana")
    args = {"amount": 9, "to": to}
    key = await site.person("rui").ask([("pay", args)])
    shown = await ana.waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{"state": view})
    gate_decision = await forged.gate(ctx, "pay", args, doubt=doubt, doubt_of=impostor.digest(ctx, "pay", args))
    assert (gate_decision.kind, gate_decision.question) == ("settled", None)
    now = (await ana.see(approval_id(key))).view
    assert (now["kind"], now["revision"]) == ("approval", shown.view["revision"])


async def test_call_confirmed_as_happened_is_not_asked_about_again(site: AttackSite, impostor: Impostor) -> None:
    # Ana confirms that a haul happened, and the turn asks Bo, but he does not know. If her answer did not end all
    # questions about that attempt, Bo's "it did not" hauled 9 crates more.
    to, ana, bo = payee(), site.person("ana"), site.person("bo")
    args = {"amount": 9, "to": to}
    key, ctx, claim = await lost(site, impostor, to)
    view = await impostor.view(key)
    forged = await impostor.take_over(key, **{"state": view})
    reply = receipt(await ana.decide(await ana.see(approval_id(key)), "happened", result="I see it in the bank"))
    assert reply["state"] == "happened"
    gate_decision = await forged.gate(ctx, "haul", args, doubt=1, doubt_of=claim.digest)
    shown = await bo.see(approval_id(key))
    if shown.view["state"] == "pending":
        await bo.decide(shown)
    await again(forged, claim, "haul", args)
    assert (gate_decision.kind, site.amounts(to)) == ("settled", [])


async def test_answers_to_several_outcome_questions_do_not_add_up(site: AttackSite, impostor: Impostor) -> None:
    # Two have to deny that a haul happened: Ana does, the turn asks again in other words, and only Cy answers. If
    # answers to earlier questions counted, 9 crates were hauled after one answer to each of two questions.
    to, ana, bo, cy = payee(), site.person("ana"), site.person("bo"), site.person("cy")
    args = {"amount": 9, "to": to}
    key, ctx, claim = await lost(site, impostor, to, "haul_by_two", "ana", "bo")
    view = await impostor.view(key)
    forged = await impostor.take_over(key, **{"state": view})
    assert receipt(await ana.decide(await ana.see(approval_id(key))))["status"] == "counted"
    await forged.gate(ctx, "haul_by_two", args, doubt=1, doubt_of=claim.digest, agent_says="Once more.")
    assert receipt(await cy.decide(await cy.waiting(approval_id(key))))["status"] == "counted"
    await again(forged, claim, "haul_by_two", args)
    assert site.amounts(to) == []
    # Bo gives it up: from now on no question opens, and no answer makes it run.
    assert (
        receipt(await bo.decide(await bo.waiting(approval_id(key)), "denied", reason="leave it"))["state"] == "denied"
    )
    gate_decision = await forged.gate(
        ctx, "haul_by_two", args, doubt=1, doubt_of=claim.digest, agent_says="And once more."
    )
    assert gate_decision.kind == "settled"
    await again(forged, claim, "haul_by_two", args)
    assert site.amounts(to) == []


async def test_lost_call_is_asked_about_and_runs_again(site: AttackSite, impostor: Impostor) -> None:
    to, ana = payee(), site.person("ana")
    key, _, _ = await lost(site, impostor, to)
    await ana.approve(approval_id(key))
    assert ((await site.person("rui").result(key))["calls"][0]["code"], site.amounts(to)) == ("ok", [9])
