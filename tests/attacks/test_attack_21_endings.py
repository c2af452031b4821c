from datetime import UTC, datetime

import pytest
from attack_site import AttackSite, approval_id, payee
from impostor import ForgedTurn, Impostor

from signoff.contracts import names
from signoff.contracts.activity_messages import RecordTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import TurnKey


async def finished_turn(site: AttackSite, impostor: Impostor) -> ForgedTurn:
    zoe = site.person("zoe")
    own = await zoe.ask([("look", {"place": "the yard"})])
    await zoe.result(own)
    return await impostor.stand(own)


async def end(forged: ForgedTurn, approval: str, state: str, tenant: str) -> None:
    ending = AuditEntry(
        tenant=tenant,
        stream=forged.key.workflow_id,
        kind="ending",
        key=f"ending/{approval}/{state}",
        at=datetime.now(UTC),
        data={"approval": approval, "revision": 1, "state": state},
    )
    await forged.schedule(names.RECORD, f"r{state}", RecordTask(audit=(ending,)))


@pytest.mark.parametrize("state", ["cancelled", "approved", "lapsed"])
@pytest.mark.parametrize("turn", ["finished", "made up"])
async def test_turn_cannot_end_the_question_of_another_turn(
    site: AttackSite, impostor: Impostor, turn: str, state: str
) -> None:
    # A stranger records in their own turn that Rui's question ended: it still waits and is answered. Before the fix
    # the card showed a stopped turn, or vanished from all lists, Ana's answer got 409, and Rui's turn still waited:
    # any workflow of any tenant could end any question.
    to, ana = payee(), site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": 5, "to": to})])
    shown = await ana.waiting(approval_id(key))
    ghost = TurnKey("other", f"ghost-{state}", "ghost")
    forged = await (finished_turn(site, impostor) if turn == "finished" else impostor.stand(ghost))
    await end(forged, approval_id(key), state, forged.key.tenant)
    listed = await ana.http.get("/v1/approvals?limit=1000")
    assert (approval_id(key) in listed.text, (await ana.see(approval_id(key))).view["state"]) == (True, "pending")
    receipt = (await ana.decide(shown)).json()
    await site.person("rui").result(key)
    assert (receipt["status"], site.amounts(to)) == ("accepted", [5])


async def test_audit_entries_of_a_turn_stay_in_its_own_tenant(site: AttackSite, impostor: Impostor) -> None:
    # A made-up turn of another tenant names `main` as the tenant of its entries: no export of `main` contains them.
    # Before the fix the export of the named tenant contained the false entry.
    ghost = TurnKey("other", "liar", "ghost")
    forged = await impostor.stand(ghost)
    await end(forged, ".".join((*ghost, "c1.1")), "cancelled", "main")
    whole, exported = site.folder / "whole.jsonl", site.folder / "main.jsonl"
    await site.run("gateway", "audit", "export", "--out", str(whole))
    await site.run("gateway", "audit", "export", "--tenant", "main", "--out", str(exported))
    assert [ghost.workflow_id in each.read_text() for each in (whole, exported)] == [True, False]
