from typing import Any

from gateway_rig import FLIGHT, PASSWORD, GatewayRig, turn_of
from tables import table


async def result_of(gateway: GatewayRig, approval: str) -> Any:
    return (await gateway.turns.signoff.result(turn_of(approval))).calls[0]


def ran_with(gateway: GatewayRig, tool: str) -> list[dict[str, Any]]:
    return [args for name, args, _ in gateway.ledger.rows if name == tool]


async def test_approval_with_edited_arguments_runs_the_edit(gateway: GatewayRig) -> None:
    approval = await gateway.asked("book")
    shown = (await gateway.http.get(f"/v1/approvals/{approval}")).json()["args"]["inline"]
    assert shown["card"] == f"hidden, {len(PASSWORD)} characters"
    answer = await gateway.decide(approval, verdict="approved", revision=1, edited_args={**shown, "cost": 380})
    assert (answer.status_code, answer.json()["status"]) == (200, "accepted"), answer.text
    outcome = await result_of(gateway, approval)
    assert (outcome.code, outcome.edited_by) == ("ok", "approver")
    assert ran_with(gateway, "book")[-1] == {**FLIGHT, "cost": 380}
    request = await gateway.turns.signoff.request(approval)
    assert (request.revision, request.edited_by) == (2, "approver")
    text = (await gateway.http.get(f"/v1/approvals/{approval}")).text
    assert PASSWORD not in text


@table(
    ("fields", "status", "expected"),
    ({"edited_args": {**FLIGHT, "cost": "380"}}, 422, "`cost` must be of type number"),
    ({"edited_args": {**FLIGHT, "cots": 1}}, 422, "`cots` is not an argument"),
    ({"edited_args": {**FLIGHT, "card": "hidden, 3 characters"}}, 422, "`card`: the hidden value for this mask"),
    ({"edited_args": {**FLIGHT, "cost": 2**60}}, 422, "an integer outside"),
    ({"edited_args": [1]}, 422, "`edited_args` must be a JSON object"),
    ({"edited_args": {**FLIGHT, "cost": 1}, "verdict": "denied"}, 422, "only an approval can change"),
    ({"verdict": "happened"}, 422, "is only for a call with an unknown outcome"),
    ({"result": "booked"}, 422, "only for the verdict `happened`"),
    ({"remember": {}}, 403, "this policy does not remember answers"),
)
async def test_invalid_answer_changes_nothing(
    gateway: GatewayRig, fields: dict[str, Any], status: int, expected: str
) -> None:
    approval = await gateway.asked("book")
    answer = await gateway.decide(approval, **{"verdict": "approved", "revision": 1} | fields)
    assert (answer.status_code, answer.json()["status"]) == (status, "refused"), answer.text
    assert expected in answer.json()["message"]
    request = await gateway.turns.signoff.request(approval)
    assert (request.state, request.revision, request.votes) == ("pending", 1, ())


async def test_edit_voids_earlier_votes(gateway: GatewayRig) -> None:
    approval = await gateway.asked("trip")
    await gateway.decide(approval, verdict="approved", revision=1, **{"as": "bo"})
    edited = {**FLIGHT, "cost": 300}
    answer = await gateway.decide(approval, verdict="approved", revision=1, edited_args=edited, **{"as": "ana"})
    assert (answer.json()["status"], answer.json()["votes"], answer.json()["needed"]) == ("counted", 1, 2)
    stale = await gateway.decide(approval, verdict="approved", revision=1, **{"as": "bo"})
    assert stale.json()["code"] == "stale"
    final = await gateway.decide(approval, verdict="approved", revision=2, **{"as": "bo"})
    assert final.json()["status"] == "accepted"
    assert (await result_of(gateway, approval)).code == "ok"
    assert ran_with(gateway, "trip")[-1]["cost"] == 300


async def test_happened_verdict_settles_an_unknown_outcome(gateway: GatewayRig) -> None:
    approval = await gateway.doubted()
    answer = await gateway.decide(approval, verdict="happened", revision=2, result="paid, no 7")
    assert (answer.status_code, answer.json()["state"]) == (200, "happened")
    outcome = await result_of(gateway, approval)
    assert (outcome.code, outcome.value.inline) == ("ok", "paid, no 7")
    assert await gateway.runs(approval) == 0


async def test_api_schema_describes_every_part_of_an_answer(gateway: GatewayRig) -> None:
    described = (await gateway.http.get("/openapi.json")).json()
    operation = described["paths"]["/v1/approvals/{approval}/decide"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/DecisionDraft")
    schema = described["components"]["schemas"]["DecisionDraft"]
    assert {
        "verdict",
        "edited_args",
        "remember",
        "result",
        "answer",
        "reason",
        "confirm",
        "revision",
        "question_hash",
        "seen",
        "thread",
        "passkey",
        "approval_id",
        "delivery_id",
    } == set(schema["properties"])
    assert schema["properties"]["verdict"]["enum"] == ["approved", "denied", "answered", "happened"]


async def test_typed_confirmation_is_required_over_the_api(gateway: GatewayRig) -> None:
    first, second, third = [await gateway.asked("typed") for _ in range(3)]
    for fields in (
        {},
        {"confirm": ""},
        {"confirm": "421"},
        {"confirm": "420", "edited_args": {"amount": 99, "to": "Bo"}},
    ):
        answer = await gateway.decide(first, verdict="approved", revision=1, **fields)
        assert (answer.status_code, answer.json()["code"]) == (422, "malformed"), answer.text
        assert "the value of `amount` typed again" in answer.json()["message"]
    other = await gateway.decide(first, verdict="approved", revision=1, question_hash="0" * 64)
    assert (other.json()["code"], "newer revision" in other.json()["message"]) == ("stale", True)
    odd = await gateway.decide(first, verdict="approved", revision=1, confirm="420", edited_args={"to": [1]})
    assert (odd.status_code, odd.json()["code"]) == (422, "malformed")
    shown = (await gateway.turns.signoff.request(first)).question_hash
    item = {"approval_id": first, "revision": 1, "question_hash": shown, "verdict": "approved"}
    several = await gateway.http.post("/v1/approvals/decide", json={"decisions": [item]})
    assert several.json()["receipts"][0]["code"] == "malformed"
    assert (await gateway.decide(second, verdict="denied", revision=1)).json()["status"] == "accepted"
    edited = {"amount": 99, "to": "Bo"}
    changed = await gateway.decide(third, verdict="approved", revision=1, confirm="99", edited_args=edited)
    assert changed.json()["status"] == "accepted", changed.text
    several = await gateway.http.post("/v1/approvals/decide", json={"decisions": [item | {"confirm": "420"}]})
    assert several.json()["receipts"][0]["status"] == "accepted", several.text
