from attack_site import AttackSite, approval_id, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.receipt import Receipt
from signoff.engine.workflow_runs import execute_update


async def test_decision_with_a_mistyped_field_is_refused(site: AttackSite, impostor: Impostor) -> None:
    # A user of Temporal's command line approves 5,000 as 5 and mistypes `edited_args`: refused with the field's name.
    # Without the strict reading of decisions the approval was accepted and 5,000 ran.
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
    # Without the mistake it is accepted: this policy accepts unsigned answers.
    denied = await execute_update(handle, names.DECIDE, {**wish, "verdict": "denied"}, result_type=Receipt)
    assert denied.status == "accepted"
