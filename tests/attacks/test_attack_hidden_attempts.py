"""Attempts that hide behind each other in the record, and bodies that say two things at once."""

import json
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, binding, payee, receipt

pytestmark = pytest.mark.timeout(180)
JSON = {"content-type": "application/json"}


async def test_a_long_key_hides_no_attempt(site: AttackSite) -> None:
    # Two answers whose `Idempotency-Key` differs in the last character alone are two attempts in the record. With the
    # delivery id cut at 200 characters, without its hash, one record of an attempt stood there for two.
    rui, ana, to = site.person("rui"), site.person("ana"), payee()
    key = await rui.ask([("wire", {"amount": 400, "to": to})])
    shown = await ana.waiting(approval_id(key))
    for last in "12":
        ana.http.headers["idempotency-key"] = "k" * 199 + last
        # No number: the gates refuse it, and both attempts end alike.
        await ana.decide(shown, edited_args={"amount": last, "to": to})
    kept = [each for each in await site.person("aud").record(key) if each["kind"] == "attempt"]
    taken = [each for each in kept if each["data"].get("edited") and each["data"]["status"] == "pending"]
    assert len(taken) == 2


@pytest.mark.parametrize("where", ["verdict", "changed", "one of several"])
async def test_a_field_that_stands_twice_decides_nothing(where: str, site: AttackSite) -> None:
    # Of a body that says a field twice, whoever checks or logs it may have read the other: it is malformed. With plain
    # `json.loads`, and without the look at the body of several, the last one counted: each was a yes.
    rui, ana, to = site.person("rui"), site.person("ana"), payee()
    approval = approval_id(await rui.ask([("wire", {"amount": 400, "to": to})]))
    shown = await ana.waiting(approval)
    fields: dict[str, Any] = {"revision": 1, **binding(shown.view), "verdict": "approved"}
    if where == "verdict":
        body = json.dumps(fields).replace('"revision"', '"verdict": "denied", "revision"')
    elif where == "changed":
        changed = json.dumps(fields | {"edited_args": {"amount": 9_400, "to": to}})
        body = changed.replace('"amount"', '"amount": 400, "amount"')
    else:
        several = json.dumps({"decisions": [{"approval_id": approval, **fields}]})
        body = several.replace('"revision"', '"verdict": "denied", "revision"')
    path = "/v1/approvals/decide" if where == "one of several" else f"/v1/approvals/{approval}/decide"
    answer = await ana.http.post(path, content=body.encode(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "malformed"), answer.text
    after = await ana.see(approval)
    assert (after.view["revision"], after.view["state"], after.view["votes"]) == (1, "pending", [])
    assert receipt(await ana.decide(after, "denied"))["state"] == "denied"
