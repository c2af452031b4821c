import json
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, binding, payee, receipt

pytestmark = pytest.mark.timeout(180)
JSON = {"content-type": "application/json"}


async def test_long_idempotency_keys_hide_no_attempt(site: AttackSite) -> None:
    # Two answers whose `Idempotency-Key` differs only in the last character are two recorded attempts. With the
    # delivery id cut at 200 characters, without its hash, one entry was recorded for two.
    rui, ana, to = site.person("rui"), site.person("ana"), payee()
    key = await rui.ask([("wire", {"amount": 400, "to": to})])
    shown = await ana.waiting(approval_id(key))
    for last in "12":
        ana.http.headers["idempotency-key"] = "k" * 199 + last
        # Not a number: the gates refuse it, and both attempts end alike.
        await ana.decide(shown, edited_args={"amount": last, "to": to})
    kept = [each for each in await site.person("aud").record(key) if each["kind"] == "attempt"]
    taken = [each for each in kept if each["data"].get("edited") and each["data"]["status"] == "pending"]
    assert len(taken) == 2


@pytest.mark.parametrize("where", ["verdict", "changed", "one of several"])
async def test_body_with_a_repeated_field_is_malformed(where: str, site: AttackSite) -> None:
    # A body with a repeated field is malformed, because another reader may see the other value. With plain
    # `json.loads`, and without the check of a batch's body, the last value counted: each was an approval.
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
