from call_rig import CallRig

from signoff.contracts.ids import TurnKey


async def test_history_of_a_call_replays_without_change(agent: CallRig) -> None:
    used = (await agent.propose(use=True)).json()["id"]
    await agent.report(used)
    later = (await agent.propose()).json()["id"]
    await agent.use(later)
    await agent.report(later, "execution_failed")
    approved = (await agent.propose(euro=200)).json()["id"]
    await agent.decide(approved, edited_args={"order": "A7", "euro": 150})
    await agent.show(approved, wait=20)
    await agent.use(approved)
    await agent.report(approved)
    denied = (await agent.propose(euro=2_000)).json()["id"]
    withdrawn = (await agent.propose()).json()["id"]
    await agent.withdraw(withdrawn)
    doubted = (await agent.propose(tool="quick", use=True)).json()["id"]
    await agent.rig.turns.signoff.result(TurnKey(*doubted.split(".")))
    for call in (used, later, approved, denied, withdrawn, doubted):
        await agent.rig.turns.replays(TurnKey(*call.split(".")))
    assert (await agent.show(approved))["code"] == "ok"
    assert (await agent.show(doubted))["code"] == "in_doubt"
