import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import GatewayRig
from sqlalchemy import text

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.testing.builders import a_person

PEOPLE = (
    Person(id="guest"),
    a_person("ana"),
    Person(id="olga", roles=("auditor",)),
    Person(id="root", roles=("admin",)),
    Person(id="zoe", tenant="acme", roles=("auditor", "admin")),
)


async def finished(rig: GatewayRig) -> str:
    approval = await rig.asked("pay")
    await rig.decide(approval, verdict="approved", **{"as": "approver"})
    turn = approval.rpartition(".c1")[0]
    await rig.turns.signoff.result(TurnKey(*turn.split(".")))
    return turn


async def test_timeline_is_found_by_every_name_of_its_turn(rig: GatewayRig) -> None:
    turn = await finished(rig)
    answers = [
        (await rig.http.get(f"/v1/audit/{name}")).json()
        for name in (turn, f"turn/{turn.replace('.', '/')}", turn.rpartition(".")[2])
    ]
    assert answers[0] == answers[1] == answers[2]
    result = answers[0]
    assert (result["stream"], result["finding"]) == (f"turn/{turn.replace('.', '/')}", None)
    assert [record["seq"] for record in result["records"]] == list(range(1, len(result["records"]) + 1))
    assert len(result["timeline"]) == len(result["records"]) >= 6
    text = " ".join(line["what"] for line in result["timeline"])
    assert "answered approved" in text
    missing = await rig.http.get("/v1/audit/main.nothing.nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown")


@pytest.mark.usefixtures("nothing_waits")
async def test_audit_log_is_readable_by_auditors_and_operators_of_its_tenant(rig: GatewayRig) -> None:
    turn = await finished(rig)
    await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    await rig.http.request("DELETE", "/v1/freezes/main?as=approver", json={})
    locked = locked_rig(rig, people=PEOPLE)
    found = {}
    for person, tenant in (("guest", "main"), ("ana", "main"), ("olga", "main"), ("root", "main"), ("zoe", "acme")):
        headers = bearer(await token_of(locked, person, "read", tenant=tenant))
        codes = [
            (await locked.http.get(f"/v1/audit/{name}", headers=headers)).status_code
            for name in (turn, turn.rpartition(".")[2][:12], "admin/main")
        ]
        found[person] = codes
    assert found == {"guest": [403] * 3, "ana": [403] * 3, "olga": [200] * 3, "root": [200] * 3, "zoe": [404] * 3}
    assert (await locked.http.get(f"/v1/audit/{turn}")).status_code == 401


async def test_changed_audit_entry_is_named(rig: GatewayRig) -> None:
    turn = await finished(rig)
    stream = f"turn/{turn.replace('.', '/')}"
    change = text("UPDATE audit_records SET subject = 'mallory' WHERE stream = :stream AND seq = 2")
    await rig.deps.store.run(lambda connection: connection.execute(change, {"stream": stream}))
    body = (await rig.http.get(f"/v1/audit/{turn}")).json()
    assert (body["finding"]["fault"], body["finding"]["stream"], body["finding"]["seq"]) == ("changed", stream, 2)
