"""Before the fix the password was in the agent's message, the effect, another argument, the result and the answer."""

import asyncio
import html
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from gateway_rig import GatewayRig, gateway_rig
from some import some
from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger, catalog_of, pay_tool

from signoff.audit.log import AuditLog
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import parse_approval_id
from signoff.keys.secrets import SecretProvider
from signoff.registry.capabilities import Capabilities
from signoff.registry.catalog import Catalog
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolResult
from signoff.store.store import open_store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

PASSWORD = 'correct "horse" battery'
HELD = "sk-held-by-a-vault-41"
SPELT = (PASSWORD, json.dumps(PASSWORD)[1:-1], quote(PASSWORD), html.escape(PASSWORD), HELD, json.dumps(HELD)[:-2])
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "site": {"type": "string"},
        "note": {"type": "object"},
        "password": {"type": "string", "writeOnly": True},
    },
    "required": ["site", "password"],
}
CALL = {
    "site": f"https://example.com/?p={quote(PASSWORD)}",
    "note": {"to": ["Ana", f"it is {PASSWORD}"]},
    "password": PASSWORD,
}


def leaky(request: CompletionRequest) -> Completion:
    settled = results(request)
    if settled:
        return respond(f"I logged in with {PASSWORD}, by {HELD}. The tool said {settled[-1].value.inline}")
    site = CALL["site"] + ("/fails" if "fails" in last_user_text(request) else "")
    return calls(
        ("login", {**CALL, "site": site}), text=f"I will log in with {PASSWORD}, in JSON {json.dumps(PASSWORD)}."
    )


class Vault:
    async def read(self, name: str, tenant: str) -> str | None:
        return {"key": HELD, "document": json.dumps({"of": tenant, "key": HELD})}.get(name)


def vault_catalog(ledger: Ledger) -> Catalog:
    """`/fails` in the site makes `login` fail with the same text."""

    async def log_in(args: dict[str, Any], context: ToolContext) -> Any:
        vault = context.capabilities.secrets
        key, again = json.loads(await vault.get("secret:document"))["key"], await vault.get("secret:key")
        ledger.rows.append(("login", args, context.idempotency_key))
        body = {"sent": args["password"], "url": f"{args['site']}?key={key}", "headers": [again, {PASSWORD: 1}]}
        if "fails" in args["site"]:
            raise ValueError(f"{body} {json.dumps(body)}")
        return ToolResult(body, structured=body, data_update=body)

    login = pay_tool(
        ledger,
        ApprovalPolicy(edit="approve"),
        name="login",
        input_schema=_SCHEMA,
        effect="Log in to {site}, {note}",
        handler=log_in,
        capabilities=Capabilities(secrets=("secret:key", "secret:document")),
    )
    return catalog_of([login])


@pytest.fixture
async def rig(client: Client, tmp_path: Path) -> AsyncIterator[GatewayRig]:
    queue = f"secrets-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(
            client,
            store,
            queue,
            catalog_of_ledger=vault_catalog,
            secrets=SecretProvider(Vault()),
            model=ScriptedModel(leaky),
        ) as open_rig,
    ):
        yield open_rig


def spoken(text: str) -> list[str]:
    return [each for each in SPELT if each in text]


async def test_texts_of_a_turn_repeat_no_secret(rig: GatewayRig) -> None:
    # Card, page, API, memo, conversation, result and audit log; the tool itself gets the proposed arguments. Without
    # `arguments_without` in `approvals/card.py` the card repeated the password, without that in `masked_args` the API,
    # without `_quiet` in `activities/model_activity.py` and in `ResultProcessor.of` the result.
    approval = await rig.asked("log in")
    named = some(parse_approval_id(approval))
    # The turn's own copy, and the card for approvers.
    assert spoken((await rig.turns.signoff.request(approval)).card.model_dump_json()) == []
    request = (await rig.deps.requests.load(approval)).request
    assert spoken(request.card.model_dump_json()) == []
    assert "[hidden]" in request.card.effect
    # Only the store has the agent's message.
    assert "[hidden]" in (await rig.turns.question(named.turn, named.call)).agent_says
    # Noted on the card, because the agent chose text that approvers do not see.
    assert "repeated in `site`, `note`" in request.card.note
    handle = rig.turns.client.get_workflow_handle(named.turn.workflow_id)
    assert spoken(str(await (await handle.describe()).memo())) == []
    turn = f"{named.turn.tenant}.{named.turn.session}.{named.turn.turn}"
    looked = [f"/v1/approvals/{approval}", f"/approvals/{approval}", f"/v1/turns/{turn}", f"/turns/{turn}", "/"]
    await read(rig, *looked, f"/approvals/{approval}/edit")
    assert (await rig.decide(approval, verdict="approved", revision=1)).json()["status"] == "accepted"
    result = await asyncio.wait_for(rig.turns.signoff.result(named.turn), 60)
    assert result.calls[0].code == "ok"
    assert spoken(result.model_dump_json()) == []
    assert "I logged in with [hidden], by [hidden]" in result.model_dump_json()
    [(_, args, _)] = rig.ledger.rows
    assert args == CALL
    await read(rig, *looked)
    records = await AuditLog(rig.deps.store).stream(named.turn.workflow_id)
    assert spoken("".join(each.data for each in records)) == []


async def test_secret_in_the_requesters_message_is_hidden(rig: GatewayRig) -> None:
    # The requester wrote the password before it was known as one, and the conversation does not show it. Without the
    # secrets of the turn in `masked_view` the conversation showed it.
    approval = await rig.asked(f"log in with {PASSWORD}")
    named = some(parse_approval_id(approval))
    turn = f"{named.turn.tenant}.{named.turn.session}.{named.turn.turn}"
    await read(rig, f"/v1/turns/{turn}", f"/turns/{turn}", f"/approvals/{approval}")
    assert "log in with [hidden]" in (await rig.http.get(f"/v1/turns/{turn}")).text


async def test_errors_repeat_no_secret(rig: GatewayRig) -> None:
    # A handler's exception with its arguments and a provider's secret, in Python's and in JSON's spelling. Without the
    # redaction of a failure's text in `ResultProcessor.of` the outcome repeated the password, and without `handed_out`
    # the vault's secret.
    approval = await rig.asked("log in, it fails")
    await rig.decide(approval, verdict="approved", revision=1)
    named = some(parse_approval_id(approval))
    result = await asyncio.wait_for(rig.turns.signoff.result(named.turn), 60)
    assert result.calls[0].code == "execution_failed"
    assert spoken(result.model_dump_json()) == []
    assert len(rig.ledger.rows) == 1


async def read(rig: GatewayRig, *paths: str) -> None:
    for path in paths:
        answer = await rig.http.get(path)
        assert (path, spoken(answer.text)) == (path, [])
        assert answer.status_code == 200, path


async def test_edit_keeps_hidden_values_unchanged(rig: GatewayRig) -> None:
    # `[hidden]` in an argument is restored to its value; text around it is refused. Without the refusal in
    # `_Unmasked._find_repeated` another person's address was accepted.
    approval = await rig.asked("log in")
    shown = (await rig.http.get(f"/v1/approvals/{approval}")).json()["args"]["inline"]
    assert shown["site"] == "https://example.com/?p=[hidden]"
    refused = await rig.decide(
        approval, verdict="approved", revision=1, edited_args={**shown, "site": "https://evil.example/?p=[hidden]"}
    )
    assert refused.json()["code"] == "malformed"
    changed = {**shown, "note": {"to": ["Bo"]}}
    answer = await rig.decide(approval, verdict="approved", revision=1, edited_args=changed)
    assert answer.json()["status"] == "accepted", answer.text
    named = some(parse_approval_id(approval))
    await asyncio.wait_for(rig.turns.signoff.result(named.turn), 60)
    [(_, args, _)] = rig.ledger.rows
    assert args == {**CALL, "note": {"to": ["Bo"]}}
