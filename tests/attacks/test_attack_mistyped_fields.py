"""A mistyped field beside a raw yes: what its author meant to change must not be passed over."""

from attack_site import AttackSite, approval_id, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.receipt import Receipt
from signoff.engine.workflow_runs import execute_update


async def test_a_mistyped_edit_approves_nothing(site: AttackSite, impostor: Impostor) -> None:
    # Somebody at Temporal's command approves 5,000 as 5 and mistypes `edited_args`: refused, naming the field. Without
    # the strict reading of decisions the yes was accepted and 5,000 ran.
    to = payee()
    rui, ana = site.person("rui"), site.person("ana")
    key = await rui.ask([("petty", {"amount": 5000, "to": to})])
    approval = approval_id(key)
    await ana.waiting(approval)
    handle = impostor.client.get_workflow_handle(key.workflow_id)
    wish = {"approval_id": approval, "verdict": "approved"}
    mistyped = {**wish, "edited_arg": {"amount": 5, "to": to}}
    found = await execute_update(handle, names.DECIDE, mistyped, result_type=Receipt)
    assert (found.status, found.code, found.message) == (
        "refused",
        "malformed",
        "'edited_arg': a decision has no such field",
    )
    assert (await ana.see(approval)).view["state"] == "pending"
    await handle.signal(names.APPROVAL_RESPONSE, mistyped)
    assert (await ana.see(approval)).view["state"] == "pending"
    assert site.amounts(to) == []
    # The same without the slip is taken: this policy takes unsigned answers.
    denied = await execute_update(handle, names.DECIDE, {**wish, "verdict": "denied"}, result_type=Receipt)
    assert denied.status == "accepted"
