import pytest
from attack_site import AttackSite, approval_id, payee, until
from impostor import Impostor


@pytest.mark.parametrize("to_start", [False, True])
async def test_call_that_ran_cannot_be_denied_after_a_reset(
    site: AttackSite, impostor: Impostor, to_start: bool
) -> None:
    # Approved and paid, then reset to before the answer: the call's outcome stays a run after any answer.
    # Without `_ran_before` in `activities/gate_activity.py` a turn reset to its start asked again and was denied, and
    # with every claim answered as fresh in `Store.claim` one reset to before the answer paid again.
    to, ana, rui = payee(), site.person("ana"), site.person("rui")
    key = await rui.ask([("pay", {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})])
    assert (await ana.approve(approval_id(key)))["status"] == "accepted"
    second = await ana.waiting(approval_id(key, "c2.1"))
    assert site.amounts(to) == [9]
    await impostor.reset(key, to_start=to_start)

    async def on_again() -> bool:
        first = await ana.see(approval_id(key))
        if first.status == 200:
            # Also if it is shown as approved.
            await ana.decide(first, "denied", reason="rather not")
        calls = (await rui.turn(key))["calls"]
        return bool(calls) and calls[0]["outcome"] is not None

    await until(on_again)
    [first, *_] = (await rui.turn(key))["calls"]
    assert (first["outcome"]["code"], site.amounts(to)) == ("ok", [9])
    assert second.status == 200


@pytest.mark.parametrize("to_start", [False, True])
async def test_call_that_ran_does_not_run_again_after_a_reset(
    site: AttackSite, impostor: Impostor, to_start: bool
) -> None:
    # Approved and paid, then reset to before the answer, asked again or not, and approved again: paid once. With every
    # claim answered as fresh in `Store.claim` it was paid twice after a reset to before the answer, and without
    # `_ran_before` in `activities/gate_activity.py` as well after one to its start.
    to, ana, rui = payee(), site.person("ana"), site.person("rui")
    key = await rui.ask([("pay", {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})])
    assert (await ana.approve(approval_id(key)))["status"] == "accepted"
    await ana.waiting(approval_id(key, "c2.1"))
    await impostor.reset(key, to_start=to_start)

    async def on_again() -> bool:
        first = await ana.see(approval_id(key))
        if first.view.get("state") == "pending":
            await ana.decide(first)
        calls = (await rui.turn(key))["calls"]
        return bool(calls) and calls[0]["outcome"] is not None

    await until(on_again)
    assert ((await rui.turn(key))["calls"][0]["outcome"]["code"], site.amounts(to)) == ("ok", [9])
