"""Attack D3: after a reset to before the answer, what has happened is asked again, and denied while it stands."""

from attack_site import AttackSite, approval_id, payee, until
from impostor import Impostor


async def test_what_has_happened_cannot_be_denied(site: AttackSite, impostor: Impostor) -> None:
    """Approved and paid, then reset to before the answer: the call's outcome is that it ran, whatever people say."""
    to, ana, rui = payee(), site.person("ana"), site.person("rui")
    key = await rui.ask([("pay", {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})])
    assert (await ana.approve(approval_id(key)))["status"] == "accepted"
    second = await ana.waiting(approval_id(key, "c2.1"))
    assert site.amounts(to) == [9]
    await impostor.reset(key)

    async def on_again() -> bool:
        first = await ana.see(approval_id(key))
        if first.view.get("state") == "pending":
            await ana.decide(first, "denied", reason="rather not")
        calls = (await rui.turn(key))["calls"]
        return bool(calls) and calls[0]["outcome"] is not None

    await until(on_again)
    [first, *_] = (await rui.turn(key))["calls"]
    assert (first["outcome"]["code"], site.amounts(to)) == ("ok", [9])
    assert second.status == 200


async def test_what_has_happened_is_not_done_again(site: AttackSite, impostor: Impostor) -> None:
    """Approved and paid, then reset to before the answer, asked again or not, and approved again: paid once."""
    to, ana, rui = payee(), site.person("ana"), site.person("rui")
    key = await rui.ask([("pay", {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})])
    assert (await ana.approve(approval_id(key)))["status"] == "accepted"
    await ana.waiting(approval_id(key, "c2.1"))
    await impostor.reset(key)

    async def on_again() -> bool:
        first = await ana.see(approval_id(key))
        if first.view.get("state") == "pending":
            await ana.decide(first)
        calls = (await rui.turn(key))["calls"]
        return bool(calls) and calls[0]["outcome"] is not None

    await until(on_again)
    assert ((await rui.turn(key))["calls"][0]["outcome"]["code"], site.amounts(to)) == ("ok", [9])
