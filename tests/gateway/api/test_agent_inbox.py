import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from activity_kit import TURN, about, asked, pinned, worker_deps
from gateway_login import asked_of, locked_rig, token_of
from gateway_rig import MONEY, SIGNER, GatewayRig, gateway_rig, turn_of
from signed_askers import signed_asker
from tables import table
from temporalio.client import Client
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities import question_writer
from signoff.approvals.card import NOTE_CHARS
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Remark
from signoff.formats.replace import replace
from signoff.languages.remarks import remark_text
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.hooks import HookContext, Permission
from signoff.store.store import Store
from signoff.testing.builders import a_person

ROOT = "/v1/agent-inbox/threads"
OBJECTION = "no payments to this address at present"
PEOPLE = (
    a_person("bea", name="Bea", roles=("approvers",)),
    a_person("ana", name="Ana", roles=("approvers",)),
    a_person("guest", roles=()),
    a_person("eve", roles=("stock",)),
)
NULLABLE = MONEY | {"properties": MONEY["properties"] | {"to": {"type": ["string", "null"]}}}
SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}


async def objects(args: dict[str, Any], context: HookContext) -> Permission:
    return Permission.deny(OBJECTION, can_override=True)


def catalog_for(ledger: Ledger) -> Catalog:
    money: dict[str, Any] = {"input_schema": MONEY, "effect": "Pay {amount} to {to}", "title": "Pay"}
    tools = [
        pay_tool(ledger, ApprovalPolicy(edit="approve"), answer_schema=SCHEMA, **money),
        pay_tool(ledger, ApprovalPolicy(confirm="type"), name="typed", **money),
        pay_tool(ledger, ApprovalPolicy(require_reason=True), name="easy", **money),
        pay_tool(ledger, ApprovalPolicy(quorum=2, edit="approve"), name="both", **money),
        pay_tool(ledger, ApprovalPolicy(), name="objects", check_permissions=objects, **money),
        pay_tool(ledger, ApprovalPolicy(timeout=600.0), name="doubt", **money),
        pay_tool(ledger, ApprovalPolicy(edit="approve"), name="guarded", input_schema=NULLABLE, effect="Pay {to}"),
    ]
    return catalog_of(tools, actors=[Actor(name="desk", model="scripted")], people=PEOPLE)


@pytest.fixture
async def rig(client: Client, task_queue: str, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, task_queue, catalog_of_ledger=catalog_for) as found:
        yield locked_rig(found, people=PEOPLE)


async def key_of(rig: GatewayRig, person: str = "ana", *scopes: Any) -> dict[str, str]:
    return {"x-api-key": await token_of(rig, person, *scopes)}


async def written(rig: GatewayRig, tool: str, args: Any = None, **fields: Any) -> ApprovalRequest:
    [declared] = rig.deps.catalog.tools_named(tool)
    ctx = pinned(user=signed_asker(SIGNER, GUEST, *TURN, at=datetime.now(UTC)))
    return await asked(worker_deps(rig.deps.store, declared, people=PEOPLE), declared, args, ctx=ctx, **fields)


async def threads(rig: GatewayRig, person: str = "ana", **page: Any) -> list[dict[str, Any]]:
    body = {"offset": 0, "limit": 10, "status": "interrupted", "metadata": {"graph_id": "desk"}, **page}
    found = await rig.http.post(f"{ROOT}/search", json=body, headers=await key_of(rig, person))
    assert found.status_code == 200, found.text
    return list(found.json())


async def resumed(rig: GatewayRig, thread: str, kind: str, args: Any = None, person: str = "ana") -> httpx2.Response:
    body = {"assistant_id": "desk", "command": {"resume": [{"type": kind, "args": args}]}, "stream_mode": "events"}
    return await rig.http.post(f"{ROOT}/{thread}/runs", json=body, headers=await key_of(rig, person))


def shown(thread: dict[str, Any]) -> dict[str, Any]:
    [[interrupt]] = thread["interrupts"].values()
    found: dict[str, Any] = interrupt["value"]
    return found


async def test_waiting_request_is_an_interrupted_thread_for_its_approvers(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    [thread] = await threads(rig)
    request, value = await rig.request(approval), shown(thread)
    assert thread["thread_id"] == f"{approval}~{request.question_hash}"
    assert value["action_request"] == {"action": "pay", "args": {"amount": 420, "currency": "EUR", "to": "Ana"}}
    assert value["config"] == {"allow_accept": True, "allow_edit": True, "allow_respond": True, "allow_ignore": True}
    assert request.card.effect in value["description"]
    assert await threads(rig, "eve") == []
    hidden = await rig.http.get(f"{ROOT}/{thread['thread_id']}", headers=await key_of(rig, "eve"))
    assert hidden.status_code == 404


async def test_description_has_reasons_remarks_and_defaults_of_the_card(rig: GatewayRig) -> None:
    await written(rig, "pay", {"amount": 7, "to": "P\u0430ypal\u202e <b>*&"}, notes=(Remark.of("not_run"),))
    [thread] = await threads(rig)
    told = shown(thread)["description"]
    for part in (
        "- Payee: P\u0430⟦U+0430⟧ypal⟦U+202E⟧ \\<b\\>\\*\\&",
        "⟦default⟧: EUR",
        "imitate Latin letters",
        "hold invisible characters",
        "an earlier approval was not used",
        "on behalf of guest",
        "always does",
        f"{rig.deps.settings.public_url}/approvals/",
    ):
        assert part.lower() in told.lower(), (part, told)
    assert shown(thread)["config"]["allow_accept"]


async def test_objection_of_the_permission_check_is_in_the_description(rig: GatewayRig) -> None:
    await written(rig, "objects")
    [thread] = await threads(rig)
    assert OBJECTION in shown(thread)["description"]
    assert shown(thread)["config"]["allow_accept"]


async def test_unnamed_editor_of_a_card_stops_an_acceptance(rig: GatewayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    # A forged question.
    monkeypatch.setattr(question_writer, "editor_note", lambda name: Remark.of("not_run"))
    edited, first = {"amount": 7, "to": "Ana"}, await written(rig, "both")
    edit = about(first, subject="ana", edited_args=edited, delivery_id="edit")
    request = await written(rig, "both", edited, edit=edit)
    [thread] = await threads(rig, "bea")
    assert (await rig.request(request.id)).edited_by == "ana"
    assert not shown(thread)["config"]["allow_accept"]


async def test_remarks_without_room_in_the_description_stop_an_acceptance(rig: GatewayRig) -> None:
    notes = (Remark.of("lookalikes"), Remark.of("invisible"), "n" * 101)
    request = await written(rig, "pay", notes=notes)
    [thread] = await threads(rig)
    assert (await rig.request(request.id)).card.notes == notes
    assert len(remark_text(notes, "en")) > NOTE_CHARS
    assert not shown(thread)["config"]["allow_accept"]


@table("kind", "accept", "edit", "response")
async def test_request_whose_description_lacks_its_objection_takes_only_a_denial(rig: GatewayRig, kind: str) -> None:
    request = await written(rig, "pay", override="0" * 64)
    [thread] = [each for each in await threads(rig) if each["thread_id"].startswith(request.id)]
    config = {"allow_accept": False, "allow_edit": False, "allow_respond": False, "allow_ignore": True}
    assert shown(thread)["config"] == config
    edit = {"action": "pay", "args": {"amount": "380", "to": "Ana"}}
    args = {"accept": None, "edit": edit, "response": '{"amount": 1}'}[kind]
    sent = await resumed(rig, thread["thread_id"], kind, args)
    assert (sent.status_code, "in the inbox" in sent.json()["message"]) == (422, True), sent.text
    assert (await rig.request(request.id)).state == "pending"


async def test_editor_is_named_to_the_next_approver(rig: GatewayRig) -> None:
    approval = await asked_of(rig, "both")
    args = {"amount": "380", "currency": "EUR", "to": "Ana"}
    first = await resumed(
        rig, f"{approval}~{(await rig.request(approval)).question_hash}", "edit", {"action": "both", "args": args}
    )
    assert first.status_code in (200, 202), first.text
    [thread] = await threads(rig, "bea")
    assert "Ana edited" in shown(thread)["description"], shown(thread)
    assert shown(thread)["config"]["allow_accept"]


async def test_arguments_for_reading_alone_hold_no_markup(rig: GatewayRig) -> None:
    await written(rig, "typed", {"amount": 7, "to": "Bo <!-- and Eve -->", "memo": "- a\nb", "more": ["<b>"]})
    [thread] = await threads(rig)
    args = {"amount": 7, "to": "Bo \\<\\!-- and Eve --\\>", "memo": "\\- a⏎b", "more": '\\["\\<b\\>"\\]'}
    assert shown(thread)["action_request"]["args"] == args


@table(
    ("kind", "args", "state", "code"),
    ("accept", {"action": "pay", "args": {"amount": "420"}}, "approved", "ok"),
    ("ignore", None, "denied", "denied"),
    ("response", '{"amount": 12}', "answered", "answered"),
    ("edit", {"action": "pay", "args": {"amount": "380", "currency": "EUR", "to": "Ana"}}, "approved", "ok"),
)
async def test_each_verb_decides_as_the_person_of_the_token(
    rig: GatewayRig, kind: str, args: Any, state: str, code: str
) -> None:
    approval = await asked_of(rig)
    thread = next(each for each in await threads(rig) if each["thread_id"].startswith(approval))
    sent = await resumed(rig, thread["thread_id"], kind, args)
    assert (sent.status_code, sent.json()["status"]) == (200, "success"), sent.text
    [call] = (await rig.turns.signoff.result(turn_of(approval))).calls
    request = await rig.request(approval)
    assert (request.state, request.decided_by, call.code) == (state, "ana", code)
    after = await rig.http.get(f"{ROOT}/{thread['thread_id']}", headers=await key_of(rig))
    assert (after.json()["status"], after.json()["interrupts"]) == ("idle", {})
    if kind == "edit":
        assert rig.ledger.rows[-1][1]["amount"] == 380


async def test_argument_set_to_null_is_edited_to_null(rig: GatewayRig) -> None:
    approval = await asked_of(rig, "guarded")
    request = await rig.request(approval)
    args = {"amount": "420", "currency": "EUR", "to": None}
    sent = await resumed(rig, f"{approval}~{request.question_hash}", "edit", {"action": "guarded", "args": args})
    assert sent.status_code == 200, sent.text
    await rig.turns.signoff.result(turn_of(approval))
    assert rig.ledger.rows[-1][1] == {"amount": 420, "currency": "EUR", "to": None}


async def test_request_about_an_unknown_outcome_takes_no_place_in_a_page(rig: GatewayRig) -> None:
    doubt = await written(rig, "doubt", doubt=1)
    assert doubt.kind == "in_doubt"
    approvals = [await asked_of(rig) for _ in range(2)]
    pages = [await threads(rig, offset=offset, limit=1) for offset in range(3)]
    assert sorted(each["thread_id"].partition("~")[0] for page in pages for each in page) == sorted(approvals)
    assert [len(page) for page in pages] == [1, 1, 0]


async def test_page_begins_far_within_the_list_but_not_behind_its_end(rig: GatewayRig) -> None:
    body, headers = {"offset": 500, "limit": 100}, await key_of(rig)
    assert (await rig.http.post(f"{ROOT}/search", json=body, headers=headers)).json() == []
    for wrong in ({"offset": 1_000}, {"limit": 101}, {"offset": -1}):
        sent = await rig.http.post(f"{ROOT}/search", json=wrong, headers=headers)
        assert sent.status_code in (400, 422), wrong


async def test_streamed_response_has_one_event_for_its_run(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    [thread] = await threads(rig)
    body = {"command": {"resume": {"type": "ignore", "args": None}}}
    path = f"{ROOT}/{thread['thread_id']}/runs/stream"
    sent = await rig.http.post(path, json=body, headers=await key_of(rig))
    assert sent.headers["content-type"].startswith("text/event-stream")
    first = sent.text.split("\n")
    assert (first[0], json.loads(first[1].removeprefix("data: "))["status"]) == ("event: metadata", "success")
    again = await rig.http.post(path, json=body, headers=await key_of(rig))
    assert (await rig.request(approval)).state == "denied"
    assert again.status_code == 409


async def test_mark_as_resolved_is_refused_in_words_and_decides_nothing(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    [thread] = await threads(rig)
    path, body = f"{ROOT}/{thread['thread_id']}/state", {"values": None, "as_node": "__end__"}
    sent = await rig.http.post(path, json=body, headers=await key_of(rig))
    assert (sent.status_code, sent.json()["status"]) == (422, "error")
    assert "answer the request, or decide it in the inbox" in sent.json()["message"]
    assert (await rig.http.post(path, json=body)).status_code == 401
    assert (await rig.http.post(path, json=body, headers=await key_of(rig, "ana", "read"))).status_code == 403
    assert (await rig.request(approval)).state == "pending"
    assert shown((await threads(rig))[0])["config"]["allow_ignore"]


@table(
    ("text", "kind", "args", "status"),
    ("long", "accept", None, 422),
    ("typed", "accept", None, 422),
    ("easy", "ignore", None, 422),
    ("easy", "response", "no", 403),
    ("pay", "response", "much", 422),
    ("pay", "response", {"a": 1}, 422),
    ("pay", "edit", {"action": "other", "args": {"amount": "1"}}, 422),
    ("pay", "edit", {"action": "pay", "args": {"amount": "much"}}, 422),
    ("pay", "edit", {"action": "pay", "args": {"amount": "420", "currency": "EUR", "to": "Ana"}}, 422),
    ("pay", "edit", {"action": "pay", "args": {"amount": "380", "to": "Ana"}}, 422),
    ("pay", "edit", {"action": "pay", "args": {"amount": "380", "currency": None, "to": "Ana"}}, 422),
    ("pay", "approve", None, 422),
)
async def test_response_that_cannot_count_changes_nothing(
    rig: GatewayRig, text: str, kind: str, args: Any, status: int
) -> None:
    approval = await asked_of(rig, text)
    request = await rig.request(approval)
    sent = await resumed(rig, f"{approval}~{request.question_hash}", kind, args)
    assert (sent.status_code, sent.json()["status"]) == (status, "error"), sent.text
    assert sent.json()["message"]
    assert (await rig.request(approval)).state == "pending"


async def test_thread_of_another_question_is_stale(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    assert (await resumed(rig, f"{approval}~{'0' * 64}", "accept")).status_code == 409
    assert (await resumed(rig, approval, "accept")).status_code == 422
    assert (await rig.request(approval)).state == "pending"


async def test_card_that_is_not_whole_offers_no_acceptance(rig: GatewayRig) -> None:
    await asked_of(rig, "long")
    config = shown((await threads(rig))[0])["config"]
    assert (config["allow_accept"], config["allow_edit"], config["allow_respond"]) == (False, False, False)


async def test_only_a_personal_token_for_decisions_answers(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    thread = f"{approval}~{(await rig.request(approval)).question_hash}"
    body = {"command": {"resume": [{"type": "ignore", "args": None}]}}
    open_rig = rig.beside(settings=replace(rig.deps.settings, profile="development"))
    assert (await open_rig.http.post(f"{ROOT}/{thread}/runs", json=body)).status_code == 401
    assert (await rig.http.post(f"{ROOT}/{thread}/runs", json=body)).status_code == 401
    wrong = {"x-api-key": "sgf_wrong"}
    assert (await rig.http.post(f"{ROOT}/{thread}/runs", json=body, headers=wrong)).status_code == 401
    reader = await key_of(rig, "ana", "read")
    assert (await rig.http.post(f"{ROOT}/{thread}/runs", json=body, headers=reader)).status_code == 403
    assert (await resumed(rig, thread, "ignore", person="eve")).status_code == 404
    assert (await rig.request(approval)).state == "pending"


async def test_page_of_another_origin_is_not_answered(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    thread = f"{approval}~{(await rig.request(approval)).question_hash}"
    headers = {**await key_of(rig), "origin": "https://inbox.example.org", "sec-fetch-site": "cross-site"}
    body = {"command": {"resume": [{"type": "accept", "args": None}]}}
    sent = await rig.http.post(f"{ROOT}/{thread}/runs", json=body, headers=headers)
    asked = await rig.http.options(f"{ROOT}/{thread}/runs", headers=headers)
    assert sent.status_code == 403
    assert all("access-control-allow-origin" not in each.headers for each in (sent, asked))
    assert (await rig.request(approval)).state == "pending"


async def test_key_header_signs_in_nowhere_else(rig: GatewayRig) -> None:
    assert (await rig.http.get("/v1/approvals", headers=await key_of(rig))).status_code == 401
