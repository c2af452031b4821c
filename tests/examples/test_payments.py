import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.completion import CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart, Message, ResultPart, user_message
from signoff.contracts.person import Principal
from signoff.registry.gates.pipeline import judge
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.tool_context import ToolContext

CATALOG = load_manifest(Path(__file__).parents[2] / "examples" / "payments" / "signoff.yaml")
from payments.script import react  # noqa: E402  (the manifest puts its folder on the path)

PAYMENT = {"invoice": "INV-4711", "payee": "Nordwind", "amount": 12000.0, "currency": "EUR"}
CLERK = Principal(user="clerk")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deep" / "payments.db"
    monkeypatch.setenv("PAYMENTS_DB", str(path))
    return path


def next_call(*messages: Message) -> Any:
    return react(CompletionRequest("", "", messages, (None,) * len(messages), ())).calls[0]


@table(
    ("words", "tool", "args"),
    ("pay 12000 euro to Nordwind for INV-4711", "release_payment", PAYMENT),
    ("top up petty cash in Lisbon by 80 euro", "top_up", {"office": "Lisbon", "amount": 80.0}),
)
def test_message_becomes_a_payment_call(words: str, tool: str, args: dict[str, Any]) -> None:
    call = next_call(user_message(words))
    assert (call.tool, call.args) == (tool, args)


def test_unclear_payment_message_is_asked_back() -> None:
    call = next_call(user_message("pay Nordwind"))
    assert (call.tool, call.args["state"]) == ("respond", "clarifying")


@table(
    ("tool", "code", "value", "note", "expected"),
    ("release_payment", "ok", json.dumps(PAYMENT), "", "Paid 12000 EUR to Nordwind for INV-4711."),
    ("release_payment", "ok", json.dumps(PAYMENT), "Changed.", "Changed. Paid 12000 EUR to Nordwind for INV-4711."),
    ("top_up", "ok", json.dumps({"office": "Lisbon", "amount": 80}), "", "Paid 80 EUR to the office in Lisbon."),
    ("top_up", "ok", "[dry-run] top_up would be called", "", "That came to: [dry-run] top_up would be called"),
    ("top_up", "denied", {"reason": "too much"}, "", "I could not do that: it was denied (too much)."),
)
def test_payment_result_is_put_into_words(tool: str, code: str, value: Any, note: str, expected: str) -> None:
    part = ResultPart(call="c1.1", tool=tool, code=code, value=Content(inline=value), note=note)
    assert next_call(user_message("go"), Message(role="tool", parts=(part,))).args["text"] == expected


@table(("amount", "kind"), (12000.0, "ask"), (50000.0, "ask"), (50000.5, "settled"))
def test_payments_need_two_of_finance_and_have_a_limit(amount: float, kind: str) -> None:
    ctx = CallContext(user=CLERK, actor="payables", session="s", turn="t", tenant="main")
    call = CallPart(call="c1.1", tool="release_payment", args=Content(inline=PAYMENT | {"amount": amount}))
    found = judge(CATALOG, ctx, call, PAYMENT | {"amount": amount}, Tally(), dry_run=False)
    policy = CATALOG.policy("release_payment").policy
    assert policy is not None
    assert (found.kind, policy.quorum, policy.approvers) == (kind, 2, ("role:finance",))


@pytest.mark.parametrize(
    ("tool", "args", "table"),
    [("release_payment", PAYMENT, "payments"), ("top_up", {"office": "Lisbon", "amount": 80.0}, "top_ups")],
)
async def test_second_run_with_the_same_key_pays_nothing(
    database: Path, tool: str, args: dict[str, Any], table: str
) -> None:
    found = CATALOG.registry.resolve(tool)
    assert found is not None
    for key in ("k1", "k1", "k2"):
        ctx = ToolContext(
            actor_name="payables", session_id="s", turn_id="t", call_id="c1.1", tenant_id="main", user_id="clerk",
            user=CLERK, idempotency_key=key,
        )  # fmt: skip
        result = await found.handler(args, ctx)
        assert result["amount"] == args["amount"]
    with sqlite3.connect(database) as books:
        assert books.execute(f"SELECT count(*) FROM {table}").fetchall() == [(2,)]
