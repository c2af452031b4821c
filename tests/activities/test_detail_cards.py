import time
from typing import Any

import pytest
from some import some
from temporalio.api.sdk.v1 import WorkflowMetadata
from turn_fixtures import Ledger, TurnRig, catalog_of, no, pay_tool, query_workflow

from signoff.activities.detail_cards import DETAILED_SECRETS, DetailCards
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.approval import TurnQuestion
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, ShownArguments
from signoff.registry.actor import Actor
from signoff.registry.tool import Tool
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond
from signoff.worker import DEADLOCK_SECONDS

ADDRESS = "https://desk.example"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "title": "How much"},
        "to": {"type": "string"},
        "pin": {"type": "string", "writeOnly": True},
    },
}
LOGIN: dict[str, Any] = {"type": "object", "properties": {"password": {"type": "string"}}}


async def test_details_of_a_waiting_turn_show_arguments_and_card_link(turn_rig: TurnRig) -> None:
    tools = [
        pay_tool(Ledger(), input_schema=SCHEMA),
        pay_tool(Ledger(), requires_approval=False, name="login", input_schema=LOGIN, effect="Log in",
                 secrets=("password",)),
    ]  # fmt: skip
    script = [
        calls(("login", {"password": "swordfish-1"})),
        calls(("pay", {"amount": 20, "to": "Ana swordfish-1 4711-9", "pin": "4711-9"})),
        respond("done"),
    ]
    async with turn_rig.running(tools, script, public_url=ADDRESS) as turns:
        key = await turns.start()
        view = await turns.waiting(key)
        request = next(call.approval for call in view.calls if call.approval is not None)
        handle = turn_rig.client.get_workflow_handle(key.workflow_id)
        shown = await query_workflow(handle, "__temporal_workflow_metadata", result_type=WorkflowMetadata)
        lines = shown.current_details.splitlines()
        assert f"[open the card]({ADDRESS}/approvals/{request.id})" in shown.current_details
        assert "  - `How much`: `20`" in lines
        assert "  - `To`: `Ana [hidden] [hidden]`" in lines
        assert "  - `Pin`: `hidden, 6 characters`" in lines
        assert "- action: `Pay 20 to Ana [hidden] [hidden]`" in lines
        assert "swordfish" not in shown.current_details
        assert "4711" not in shown.current_details
        await turns.replays(key)
        await turns.signoff.decide(no(key, request.call))
        await turns.signoff.result(key)
        ended = await query_workflow(handle, "__temporal_workflow_metadata", result_type=WorkflowMetadata)
        assert "### Answered" in ended.current_details
        assert "How much" not in ended.current_details
        history = (await handle.fetch_history()).to_json()
        assert ADDRESS not in history
        assert "open the card" not in history


def _request(tool: str, args: Content) -> TurnQuestion:
    return TurnQuestion(
        id="main.s.t.c1.1", code="K7Q2FM", call="c1.1", tool=tool, args=args, question_hash="0" * 64, effect="Pay"
    )


def _cards(store: Store, address: str) -> DetailCards:
    return DetailCards(_deps_of([pay_tool(Ledger())], store, address))


async def test_details_have_no_link_without_an_address(store: Store) -> None:
    assert _cards(store, "").link("main.s.t.c1.1") == ""


async def test_approval_id_is_escaped_in_the_link(store: Store) -> None:
    cards = _cards(store, f"{ADDRESS}/")
    assert cards.link("a)(b ?#c/d.e") == f"{ADDRESS}/approvals/a%29%28b%20%3F%23c%2Fd.e"
    assert _cards(store, f"{ADDRESS}/X/").link("c") == f"{ADDRESS}/X/approvals/c"


async def test_non_object_arguments_give_no_card_and_no_error(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    assert _cards(store, ADDRESS).card(_request("pay", Content(inline=[20])), []) is None
    assert caplog.records == []


async def test_card_hides_arguments_hidden_by_any_tool_of_that_name(store: Store) -> None:
    policy = ApprovalPolicy(show=ShownArguments(only=("amount",)))
    own = pay_tool(Ledger(), effect="Pay {amount}", secrets=("to",))
    actor = Actor(name="desk", model="scripted", shadowing="allow", own_tools=(own,))
    deps = _deps_of([pay_tool(Ledger(), policy, input_schema=SCHEMA)], store, actors=[actor])
    request = _request("pay", Content(inline={"amount": 20, "to": "Ana", "pin": "4711-9"}))
    card = some(DetailCards(deps).card(request, []))
    assert {row.name: row.value for row in card.rows} == {
        "amount": "20",
        "to": "hidden, 3 characters",
        "pin": "hidden, 6 characters",
    }
    assert "How much" not in {row.label for row in card.rows}


async def test_unknown_tool_or_stored_arguments_have_no_rows(store: Store) -> None:
    cards = _cards(store, ADDRESS)
    stored = Content(blob=BlobRef(size=9_000, sha256="0" * 64, preview="{"))
    undeclared = some(cards.card(_request("wire", Content(inline={"amount": 1})), []))
    assert (undeclared.rows, undeclared.note) == ((), "this worker has no tool `wire`")
    assert cards.card(_request("pay", stored), []) is None
    assert cards.card(_request("pay", Content(inline={"amount": 1})), [_broken()]) is None
    assert cards.card(_request("pay", Content(inline={"amount": 1})), []) is not None


async def test_rows_follow_the_declaration_of_the_tool(store: Store) -> None:
    policy = ApprovalPolicy(show=ShownArguments(only=("amount", "pin")))
    request = _request("pay", Content(inline={"amount": 20, "to": "Ana", "pin": "4711-9"}))
    request = replace(request, effect="Pay with 4711-9")
    card = some(DetailCards(_deps_of([pay_tool(Ledger(), policy, input_schema=SCHEMA)], store)).card(request, []))
    assert (card.tool_title, card.effect) == ("pay", "Pay with [hidden]")
    shown = {row.label: row.value for row in card.rows if row.name}
    assert shown.keys() >= {"How much", "Pin"}
    assert (shown["How much"], shown["Pin"]) == ("20", "hidden, 6 characters")
    assert "Ana" not in card.model_dump_json()


async def test_failed_card_is_logged_with_its_approval_id(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    assert _cards(store, ADDRESS).card(_request("pay", Content(inline={"amount": 1})), [_broken()]) is None
    (entry,) = caplog.records
    assert entry.getMessage() == "the details of main.s.t.c1.1 lack its arguments"
    assert entry.exc_info
    assert isinstance(entry.exc_info[1], AttributeError)


async def test_card_is_omitted_if_there_are_too_many_secrets(store: Store) -> None:
    cards = DetailCards(_deps_of([_login()], store))
    drawn = some(cards.card(_login_request("8-0"), _logins(DETAILED_SECRETS)))
    assert "8-0" not in drawn.model_dump_json()
    assert cards.card(_login_request("8-0"), _logins(DETAILED_SECRETS + 1)) is None
    begun = time.process_time()
    assert cards.card(_login_request("8-0"), _logins(400_000)) is None
    assert time.process_time() - begun < DEADLOCK_SECONDS / 8


def _login() -> Tool:
    return pay_tool(Ledger(), name="login", input_schema=LOGIN, effect="Log in", secrets=("password",))


def _deps_of(tools: list[Tool], store: Store, address: str = ADDRESS, **more: Any) -> WorkerDeps:
    catalog = catalog_of(tools, **more)
    return WorkerDeps(catalog, store, catalog.people, {}, b"key", public_url=address)


def _login_request(note: str) -> TurnQuestion:
    return _request("login", Content(inline={"note": note}))


def _logins(values: int) -> list[CallPart]:
    firsts = range(0, values, 1_000)
    passwords = ([f"8-{number}" for number in range(first, min(values, first + 1_000))] for first in firsts)
    args = (Content(inline={"password": each}) for each in passwords)
    return [CallPart(call=f"c1.{at}", tool="login", args=each) for at, each in enumerate(args)]


def _broken() -> CallPart:
    return CallPart.model_construct(tool="pay", args=None)
