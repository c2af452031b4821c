import sys
from pathlib import Path
from typing import Any

import pytest
from tables import table

from signoff.activities.models.drivers import build_driver
from signoff.activities.models.first_words import ask_command
from signoff.activities.models.offline_choice import take_offline
from signoff.activities.models.offline_model import OfflineModel
from signoff.cli.local.dev import model_lines
from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.call import ToolDenied
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError
from signoff.contracts.message import CallPart, Message, ResultPart, TextPart
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.settings import require_real_model

SCHEMA = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["customer", "amount"],
}
REFUND = ModelTool(name="refund", description="", parameters=SCHEMA)
RESPOND = ModelTool(name="respond", description="", parameters={"type": "object"})
CALL = Message(role="assistant", parts=(CallPart(call="c1.1", tool="refund", args=Content(inline={})),))
MANIFEST = """
version: 1
actors:
  desk: {model: "%s", instructions: Help., tools: [look, refund]}
tools:
  look: {handler: "offline_tools:look", scope: generalist, read_only: true}
  refund: {handler: "offline_tools:refund", scope: generalist, effect: Refund, requires_approval: true}
"""
TOOLS = '''
async def refund(customer: str, amount: float) -> str:
    """Pay back."""
    return "paid"


async def look(place: str) -> str:
    """Look."""
    return place
'''


def said(text: str) -> Message:
    return Message(role="user", parts=(TextPart(text=Content(inline=text)),))


def result(value: Any, code: str = "ok", note: str = "") -> Message:
    part = ResultPart(call="c1.1", tool="refund", code=code, value=Content(inline=value), note=note)
    return Message(role="tool", parts=(part,))


async def answer(*messages: Message, tools: tuple[ModelTool, ...] = (REFUND, RESPOND)) -> Completion:
    return await OfflineModel().complete(CompletionRequest("offline", "", messages, (None,) * len(messages), tools))


def catalog(folder: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    (folder / "signoff.yaml").write_text(MANIFEST % model, encoding="utf-8")
    (folder / "offline_tools.py").write_text(TOOLS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return load_manifest(folder / "signoff.yaml")


async def test_offline_model_calls_the_tool_in_the_message() -> None:
    completion = await answer(said("refund ana 50"))
    assert [(each.tool, each.args) for each in completion.calls] == [("refund", {"customer": "ana", "amount": 50})]
    assert completion.text == ""


async def test_offline_model_reads_each_new_message_as_one_command() -> None:
    completion = await answer(said("refund bo 1"), CALL, result("ok"), said("refund ana 50"), said("do not refund"))
    assert [each.args["customer"] for each in completion.calls] == ["ana"]
    assert completion.text.startswith("ok\n\nNo call: ")


@table("text", "give Ana her 50 euros back", "do not refund", "respond hello", "")
async def test_offline_model_answers_other_words_with_one_usage_line_per_tool(text: str) -> None:
    look = ModelTool(name="look", description="", parameters={"type": "object"})
    completion = await answer(said(text), tools=(REFUND, look, RESPOND))
    assert completion.calls == ()
    assert completion.text.splitlines() == [
        "No call: this line does not begin with the name of a tool. The model `offline` takes one command a message:",
        "refund CUSTOMER AMOUNT",
        "look",
    ]


async def test_offline_model_names_the_missing_argument() -> None:
    completion = await answer(said("refund ana"))
    assert (completion.calls, completion.text.splitlines()[1:]) == ((), ["refund CUSTOMER AMOUNT"])
    assert "`amount` is missing" in completion.text


async def test_offline_model_without_tools_reports_it() -> None:
    assert (await answer(said("hello"), tools=(RESPOND,))).text.endswith("and this actor has no tools.")


async def test_offline_model_lists_at_most_twenty_tools() -> None:
    tools = tuple(ModelTool(name=f"tool{n}", description="", parameters={}) for n in range(25))
    lines = (await answer(said("hello"), tools=tools)).text.splitlines()
    assert (len(lines), lines[-1]) == (22, "and 5 more")


DENIED = ToolDenied(source="human", tool="refund", call_id="c1.1", decided_by="bo", reason="too much").for_model()
BY_RULE = ToolDenied(source="policy", tool="refund", call_id="c1.1", reason="over 5000").for_model()


@table(
    ("settled", "text"),
    (result("ana got 50"), "ana got 50"),
    (result({"paid": 50, "to": "Zoë"}), '{"paid": 50, "to": "Zoë"}'),
    (result("ana got 50", note="Changed by bo."), "Changed by bo.\n\nana got 50"),
    (result(""), "`refund` ran, and returned nothing."),
    (result(DENIED, "denied"), "`refund` was denied by bo: too much"),
    (result(BY_RULE, "denied"), "`refund` was denied: over 5000"),
    (result("no money", "execution_failed"), "`refund` gave no result (execution_failed): no money"),
    (result("", "waiting", "It waits."), "`refund` gave no result (waiting): It waits."),
)
async def test_offline_model_answers_with_the_result(settled: Message, text: str) -> None:
    assert (await answer(said("refund ana 50"), CALL, settled)).text == text


def test_offline_model_replaces_a_model_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = catalog(tmp_path, "openai:gpt-5", monkeypatch)
    after, lacks = take_offline(before)
    assert (before.models, after.models) == (("openai:gpt-5",), ("offline",))
    assert before.hash != after.hash == catalog(tmp_path, "offline", monkeypatch).hash
    assert model_lines(after, "", lacks) == [
        "offline, because OPENAI_API_KEY is not set; it understands `refund CUSTOMER AMOUNT`"
    ]
    assert ask_command(after) == "signoff ask 'refund ana 50'"
    assert isinstance(build_driver("offline"), OfflineModel)


def test_offline_model_replaces_a_model_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python finds nothing behind None.
    monkeypatch.setitem(sys.modules, "anthropic", None)
    after, lacks = take_offline(catalog(tmp_path, "anthropic:claude-sonnet-4-5", monkeypatch))
    assert (after.models, lacks) == (("offline",), ("the extra `anthropic` is not installed",))


@table("model", "opnai:gpt-5", "openai:", "ollama:qwen3", "scripted:nowhere:model", "cohere:command")
def test_offline_model_replaces_no_other_model(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    monkeypatch.setitem(sys.modules, "cohere", None)
    before = catalog(tmp_path, model, monkeypatch)
    assert take_offline(before) == (before, ())
    with pytest.raises(ConfigError):
        build_driver(model)


def test_offline_model_may_be_configured_and_may_replace_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = catalog(tmp_path, "offline", monkeypatch)
    assert take_offline(named) == (named, ())
    assert model_lines(named) == ["offline; it understands `refund CUSTOMER AMOUNT`"]
    assert ask_command(named) == "signoff ask 'refund ana 50'"
    scripted = catalog(tmp_path, "scripted:nowhere:model", monkeypatch)
    assert ask_command(scripted, "offline") == "signoff ask 'refund ana 50'"
    assert model_lines(scripted, "offline")[0].endswith("script; it understands `refund CUSTOMER AMOUNT`")


def test_production_rejects_the_offline_model_in_one_sentence() -> None:
    require_real_model("development", ["offline"])
    require_real_model("production", ["openai:gpt-5", ""])
    with pytest.raises(ConfigError, match=r"^`profile` is `production`, and the model `offline` is for first tries"):
        require_real_model("production", ["offline"])
