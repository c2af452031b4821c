import logging
from typing import Any

import pytest
from gateway_login import bearer, token_of
from gateway_rig import PASSWORD, GatewayRig
from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, catalog_of, no, pay_tool, running_turns, yes

from signoff.audit.log import AuditLog
from signoff.contracts.ids import TurnKey
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}},
    "required": ["to", "pin"],
    "additionalProperties": False,
}
TO, PIN = "zebra crossing 7731", "s3cret-994218305567"
DIGITS = 994218305567
"""A wrong type, and too long to be part of a hash by chance."""
ARGS = {"to": TO, "pin": PIN}


def catalog() -> Any:
    async def fails(args: dict[str, Any], ctx: ToolContext) -> str:
        raise ValueError(f"cannot pay with {args}")

    async def flickers(args: dict[str, Any], ctx: ToolContext) -> str:
        raise TimeoutError(f"no answer to {args}")

    async def leaves(args: dict[str, Any], ctx: ToolContext) -> str:
        raise SystemExit(str(args))

    given: dict[str, Any] = {"input_schema": SCHEMA, "effect": "Pay {to}"}
    tools = [
        pay_tool(Ledger(), **given),
        pay_tool(Ledger(), False, name="fails", handler=fails, **given),
        pay_tool(Ledger(), False, name="flickers", handler=flickers, idempotent=True, **given),
        pay_tool(Ledger(), False, name="leaves", handler=leaves, **given),
    ]
    return catalog_of(tools)


SCRIPT = [
    calls(("pay", ARGS), ("fails", ARGS), ("flickers", ARGS), ("leaves", ARGS)),
    calls(("pay", {"to": TO, "pin": DIGITS}), ("pay", {**ARGS, TO: PIN}), ("pays", ARGS)),
    calls(("pay", {**ARGS, "to": f"{TO}!"})),
    respond("done"),
]


async def played(turns: RunningTurns) -> TurnKey:
    key = await turns.start()
    await turns.waiting(key)
    await turns.signoff.decide(yes(key))
    await turns.until(key, lambda view: any(call.call == "c3.1" and call.approval is not None for call in view.calls))
    await turns.signoff.decide(no(key, "c3.1", revision=9))
    await turns.signoff.decide(no(key, "c3.1"))
    await turns.signoff.result(key)
    return key


async def test_arguments_appear_in_no_id_attribute_log_error_or_audit_entry(
    plain_client: Client, store: Store, task_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_turns(plain_client, store, task_queue, catalog(), SCRIPT) as turns:
        key = await played(turns)
        result = await turns.signoff.result(key)
        handle = plain_client.get_workflow_handle(key.workflow_id)
        described, history = await handle.describe(), await handle.fetch_history()
        records = await AuditLog(store).stream(key.workflow_id)
    codes = [outcome.code for outcome in result.calls]
    assert codes[:4] == ["ok", *["execution_failed"] * 3]
    assert set(codes[4:7]) == {"input_invalid", "not_available"}
    assert codes[7] == "denied"
    assert records
    activities = [event.activity_task_scheduled_event_attributes.activity_id for event in history.events]
    places = {
        "attributes": str(described.typed_search_attributes),
        "ids": f"{described.id} {activities}",
        "logs": caplog.text,
        "failures": str([_failure(event) for event in history.events]),
        "record": "".join(record.model_dump_json() for record in records),
    }
    converter = plain_client.data_converter
    metadata = [each.user_metadata for each in history.events if each.user_metadata.HasField("summary")]
    summaries = [(await converter.decode([each.summary], [str]))[0] for each in metadata]
    # Temporal's UI shows a run by its card's sentence, which contains no secret argument.
    assert f"Pay {TO}" in summaries
    assert [each for each in summaries if PIN in each or str(DIGITS) in each] == []
    found = [(where, word) for where, text in places.items() for word in (TO, PIN, str(DIGITS)) if word in text]
    assert found == []
    assert "flickers: TimeoutError" in places["failures"]


def _failure(event: Any) -> Any:
    kind = event.WhichOneof("attributes")
    attributes = getattr(event, kind)
    last = attributes.last_failure if kind == "activity_task_started_event_attributes" else None
    return last or getattr(attributes, "failure", None)


async def test_secret_argument_appears_in_no_result_and_no_card(client: Client, store: Store, task_queue: str) -> None:
    async with running_turns(client, store, task_queue, catalog(), SCRIPT) as turns:
        key = await played(turns)
        view = await turns.signoff.view(key)
        results = await turns.results(key)
    assert PIN not in str([part.model_dump(mode="json") for part in results])
    cards = [call.approval.card for call in view.calls if call.approval is not None]
    assert cards
    assert PIN not in str(cards)
    assert TO in str(cards)


async def test_gateway_logs_no_argument_and_no_token(locked: GatewayRig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tokens = {person: await token_of(locked, person) for person in ("guest", "bo", "approver")}
    started = await locked.http.post(
        "/v1/turns", json={"text": "login", "actor": "desk"}, headers=bearer(tokens["guest"])
    )
    body = started.json()
    key = TurnKey(body["tenant"], body["session"], body["turn"])
    request = next(call.approval for call in (await locked.turns.waiting(key)).calls if call.approval is not None)
    url = f"/v1/approvals/{request.id}/decide"
    for person, sent in (
        ("bo", {"verdict": "approved", "question_hash": request.question_hash}),
        ("approver", {"verdict": PASSWORD}),
        ("approver", {}),
    ):
        assert (await locked.http.post(url, json=sent, headers=bearer(tokens[person]))).status_code >= 400
    good = {"verdict": "approved", "question_hash": request.question_hash}
    answer = await locked.http.post(url, json=good, headers=bearer(tokens["approver"]))
    assert answer.json()["status"] == "accepted"
    await locked.turns.signoff.result(key)
    records = await AuditLog(locked.deps.store).stream(key.workflow_id)
    text = caplog.text + "".join(record.model_dump_json() for record in records)
    assert request.id in text
    assert [word for word in (PASSWORD, "example.com", *tokens.values()) if word in text] == []
