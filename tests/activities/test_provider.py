import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from app_server import running_app
from documents import ROOT, shell_lines
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from polling import pauses
from raw_turns import RawTurnClient
from tables import table
from turn_fixtures import PATIENCE, Ledger, TurnRig, catalog_of, no, pay_tool

from signoff.activities.models.drivers import build_driver, build_drivers
from signoff.activities.models.pydantic_ai_driver import ProviderModel, to_library
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.approval_outcomes import late_result
from signoff.contracts import names
from signoff.contracts.call import CallOutcome, ToolDenied
from signoff.contracts.completion import CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError, ModelRefused, ModelUnavailable, ServerUnavailable
from signoff.contracts.message import CallPart, Message, ResultPart, TextPart, user_message
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput
from signoff.keys.secrets import SecretProvider
from signoff.registry.actor import Actor
from signoff.registry.gates.call_parts import call_parts
from signoff.registry.respond_form import respond_form
from signoff.temporal.embedded_server import free_port
from signoff.testing import a_call_context
from signoff.worker import build_worker

MODEL = "openai-chat:fake-1"
Answer = Callable[[list[dict[str, Any]]], tuple[int, dict[str, Any], dict[str, str]]]


class Vendor:
    """Checks keys and message order. Without `key`, any key passes."""

    def __init__(self, answer: Answer, key: str = "test-key") -> None:
        self.answer, self.key = answer, key
        self.seen: list[dict[str, Any]] = []
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.complete)

    async def complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.seen.append(body)
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "bad key"}}, status_code=401)
        open_calls: set[str] = set()
        ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
        if len(ids) != len(set(ids)):
            return JSONResponse({"error": {"message": "ids must be unique"}}, status_code=400)
        for message in body["messages"]:
            if message["role"] == "assistant":
                open_calls = {call["id"] for call in message.get("tool_calls") or ()}
            elif message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    return JSONResponse({"error": {"message": "no such tool call"}}, status_code=400)
                open_calls.discard(message["tool_call_id"])
            elif open_calls:
                return JSONResponse({"error": {"message": "a tool call was not answered"}}, status_code=400)
        status, answer, headers = self.answer(body["messages"])
        return JSONResponse(answer, status_code=status, headers=headers)


@contextlib.asynccontextmanager
async def serving(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Vendor]:
    port = free_port()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    async with running_app(vendor.app, port):
        yield vendor


def completion(text: str = "", *called: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for n, (name, args) in enumerate(called)
    ]
    message = {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake-1",
        "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def asked(*messages: Message) -> CompletionRequest:
    return CompletionRequest(MODEL, "Be brief.", messages, (None,) * len(messages), (respond_form().offer,))


async def test_completion_is_converted_to_signoff_types(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Vendor(lambda _: (200, completion("Hm.", ("pay", {"amount": 3})), {}))
    async with serving(vendor, monkeypatch):
        answer = await ProviderModel(MODEL).complete(asked(user_message("pay 3")))
    assert answer.text == "Hm."
    assert [(c.tool, c.provider_call) for c in answer.calls] == [("pay", "call_0")]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (11, 7)
    assert vendor.seen[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert [tool["function"]["name"] for tool in vendor.seen[0]["tools"]] == ["respond"]


@pytest.mark.row("E07")
@pytest.mark.parametrize(("strict", "sent"), [(True, True), (False, None)])
async def test_strict_flag_reaches_a_provider_that_supports_it(
    monkeypatch: pytest.MonkeyPatch, strict: bool, sent: bool | None
) -> None:
    vendor = Vendor(lambda _: (200, completion("Hm."), {}))
    catalog = catalog_of([pay_tool(Ledger(), strict=strict)])
    offered = catalog.definitions(a_call_context(), frozenset())
    request = dataclasses.replace(asked(user_message("pay 3")), tools=offered)
    async with serving(vendor, monkeypatch):
        await ProviderModel(MODEL).complete(request)
    functions = {each["function"]["name"]: each["function"] for each in vendor.seen[0]["tools"]}
    assert functions["pay"].get("strict") is sent


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, ModelUnavailable),
        (500, ModelUnavailable),
        (503, ModelUnavailable),
        (400, ModelRefused),
        (404, ModelRefused),
    ],
)
async def test_http_status_decides_between_retry_and_refusal(
    monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    vendor = Vendor(lambda _: (status, {"error": {"message": "secret body"}}, {"retry-after": "0.01"}))
    async with serving(vendor, monkeypatch):
        with pytest.raises(error) as raised:
            await ProviderModel(MODEL).complete(asked(user_message("hi")))
    assert str(status) in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "login", "remedy"),
    [("openai:fake-1", "user:hunter2@", "takes `openai-chat:fake-1`"), (MODEL, "", "nothing answers at that path")],
)
async def test_missing_api_path_error_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, model: str, login: str, remedy: str
) -> None:
    vendor = Vendor(lambda _: (404, {"error": {"message": "secret body"}}, {}))
    async with serving(vendor, monkeypatch):
        port = os.environ["OPENAI_BASE_URL"].rpartition(":")[2]
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://{login}127.0.0.1:{port}")
        with pytest.raises(ModelRefused, match=remedy) as raised:
            await ProviderModel(model).complete(asked(user_message("hi")))
    assert f"answered 404 at http://127.0.0.1:{port}" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@table(
    ("address", "provider"),
    ("OPENAI_BASE_URL", "openai-chat"),
    ("OLLAMA_BASE_URL", "ollama"),
)
async def test_documented_small_model_works_without_a_key(
    address: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line for line in shell_lines(ROOT / "docs" / "models.md") if line.startswith("export ")]
    exports = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    documented = exports["SIGNOFF_MODEL"]
    assert documented.startswith("openai-chat:")
    vendor = Vendor(lambda _: (200, completion("hello"), {}), key="")
    async with serving(vendor, monkeypatch):
        base_url = os.environ["OPENAI_BASE_URL"]
        assert urlsplit(exports["OPENAI_BASE_URL"]).path == urlsplit(base_url).path
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(address, base_url)
        model = f"{provider}:{documented.partition(':')[2]}"
        assert (await build_driver(model).complete(asked(user_message("hi")))).text == "hello"
    assert [request["model"] for request in vendor.seen] == ["qwen3:4b"]


async def test_unreachable_server_is_model_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{free_port()}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    with pytest.raises(ModelUnavailable):
        await ProviderModel(MODEL).complete(asked(user_message("hi")))


@table(
    ("model", "part"),
    ("openai-chat:gpt-5", "OPENAI_API_KEY"),
    ("nonsense", "nonsense"),
    ("scripted", "the model `scripted` cannot be imported"),
    ("anthropic:claude", "signoff[anthropic]"),
)
async def test_unusable_model_fails_at_start(monkeypatch: pytest.MonkeyPatch, model: str, part: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    actor = Actor(name="desk", description="", instructions="", model=model)
    with pytest.raises(ConfigError) as raised:
        await build_drivers(catalog_of([], actors=[actor]), SecretProvider())
    assert part in raised.value.message
    assert "\n" not in raised.value.message


async def test_single_model_may_replace_all_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    actor = Actor(name="desk", description="", instructions="", model="scripted:nowhere:model")
    drivers = await build_drivers(catalog_of([], actors=[actor]), SecretProvider(), instead="openai-chat:gpt-5")
    assert isinstance(drivers["scripted:nowhere:model"], ProviderModel)


def test_unreadable_provider_response_is_rebuilt_from_the_message() -> None:
    spoken = Message(
        role="assistant",
        parts=(
            TextPart(text=Content(inline="Hm.")),
            CallPart(call="c1.1", provider_call="x", tool="pay", args=Content(inline={"a": 1})),
        ),
    )
    answer = Message(
        role="tool",
        parts=(ResultPart(call="c1.1", provider_call="x", tool="pay", code="ok", value=Content(inline="ok")),),
    )
    for provider in (None, b"not json", b'{"messages": [{"kind": "future"}]}'):
        request = CompletionRequest(MODEL, "", (spoken, answer), (provider, None), ())
        first, second = to_library(request)
        assert [part.part_kind for part in first.parts] == ["text", "tool-call"]
        assert second.parts[0].tool_call_id == "x"


def test_late_outcome_of_a_waiting_call_is_a_user_message() -> None:
    call = CallPart(call="c1.1", provider_call="x", tool="pay", args=Content(inline={}))
    waits = ResultPart(call="c1.1", provider_call="x", tool="pay", code="waiting", value=Content(inline="waiting"))
    denied = ToolDenied(source="human", tool="pay", call_id="c1.1", reason="no")
    outcome = CallOutcome(
        call="c1.1", tool="pay", code="denied", value=Content(inline=denied.model_dump(mode="json")), denied=denied
    )
    messages = (
        Message(role="assistant", parts=(call,)),
        Message(role="tool", parts=(waits,)),
        Message(role="tool", parts=(late_result(outcome, "K7Q2FM"),)),
    )
    *_, given = to_library(CompletionRequest(MODEL, "", messages, (None, None, None), ()))
    [part] = given.parts
    assert part.part_kind == "user-prompt"
    head, _, body = str(part.content).partition("\n\n")
    assert head == "Outcome of c1.1 (`pay`), which waited for approval, K7Q-2FM: ToolDenied."
    assert json.loads(body) == denied.model_dump(mode="json")


async def test_complete_turn_runs_over_a_real_provider(monkeypatch: pytest.MonkeyPatch, turn_rig: TurnRig) -> None:
    def answer(messages: list[dict[str, Any]]) -> tuple[int, dict[str, Any], dict[str, str]]:
        results = [message for message in messages if message["role"] == "tool"]
        if not results:
            return 200, completion("", ("pay", {"amount": 900, "to": "Ana"})), {}
        return 200, completion("", ("respond", {"text": f"sorry: {results[0]['content'][:200]}"})), {}

    vendor, ledger = Vendor(answer), Ledger()
    async with serving(vendor, monkeypatch):
        actor = Actor(name="desk", description="", instructions="Help.", model=MODEL)
        catalog = catalog_of([pay_tool(ledger)], actors=[actor])
        drivers = await build_drivers(catalog, SecretProvider())
        deps = WorkerDeps(
            catalog, turn_rig.store, catalog.people, drivers, await turn_rig.store.secret_key("card-mark")
        )
        async with build_worker(turn_rig.client, deps, task_queue=turn_rig.task_queue):
            signoff = RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=PATIENCE)
            key = await signoff.start_turn(
                TurnInput(
                    engine=names.ENGINE,
                    session_id=turn_rig.task_queue,
                    turn_id=turn_rig.task_queue,
                    actor="desk",
                    messages=(user_message("pay Ana 900"),),
                    principal=Principal(user="guest"),
                )
            )
            for pause in pauses():
                # A busy worker may not answer one query in time.
                with contextlib.suppress(ServerUnavailable):
                    if (await signoff.view(key)).state == "suspended":
                        break
                await asyncio.sleep(pause)
            await signoff.decide(no(key))
            result = await signoff.result(key)
    assert result.state == "complete"
    assert "too expensive" in str(result.parts[0].content.inline)
    assert ledger.rows == []
    assert (result.usage.input_tokens, result.completions) == (22, 2)


async def test_refusal_text_becomes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = completion()
    refused["choices"][0]["message"] |= {"content": None, "refusal": "I can't help with that."}
    async with serving(Vendor(lambda _: (200, refused, {})), monkeypatch):
        answer = await ProviderModel(MODEL).complete(asked(user_message("hi")))
    assert (answer.text, answer.calls, answer.provider) == ("I can't help with that.", (), None)


async def test_call_in_a_truncated_answer_is_malformed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = completion("", ("pay", {}))
    cut["choices"][0]["finish_reason"] = "length"
    cut["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"amount": 100, "to": "No'
    async with serving(Vendor(lambda _: (200, cut, {})), monkeypatch):
        answer = await ProviderModel(MODEL).complete(asked(user_message("hi")))
    [part] = call_parts(answer.calls, 1)
    assert part.malformed == (
        "your answer was cut at its greatest length, within these arguments; send less in one call"
    )


async def test_provider_400_error_is_logged_but_not_raised_verbatim(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vendor = Vendor(lambda _: (400, {"error": {"message": "Invalid value for 'messages[4]'"}}, {}))
    async with serving(vendor, monkeypatch):
        with pytest.raises(ModelRefused) as refused:
            await ProviderModel(MODEL).complete(asked(user_message("hi")))
    assert "Invalid value for 'messages[4]'" in caplog.text
    assert "messages[4]" not in str(refused.value)


async def test_turn_whose_model_repeats_a_call_id_completes(turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        completion("", ("pay", {"amount": 1, "to": "Ana"}), ("pay", {"amount": 2, "to": "Ana"})),
        completion("", ("pay", {"amount": 3, "to": "Ana"})),
        completion("Paid."),
    ]
    for answer in answers[:2]:
        for call in answer["choices"][0]["message"]["tool_calls"]:
            call["id"] = "functions.pay:0"
    left = iter(answers)
    vendor, ledger = Vendor(lambda _: (200, next(left), {})), Ledger()
    async with serving(vendor, monkeypatch):
        actor = Actor(name="desk", description="", instructions="Help.", model=MODEL)
        catalog = catalog_of([pay_tool(ledger, False)], actors=[actor])
        drivers = await build_drivers(catalog, SecretProvider())
        deps = WorkerDeps(
            catalog, turn_rig.store, catalog.people, drivers, await turn_rig.store.secret_key("card-mark")
        )
        async with build_worker(turn_rig.client, deps, task_queue=turn_rig.task_queue):
            signoff = RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue, patience=PATIENCE)
            key = await signoff.start_turn(
                TurnInput(
                    engine=names.ENGINE,
                    session_id=turn_rig.task_queue,
                    turn_id=turn_rig.task_queue,
                    actor="desk",
                    messages=(user_message("pay Ana"),),
                    principal=Principal(user="guest"),
                )
            )
            result = await signoff.result(key)
    assert (result.state, sorted(args["amount"] for _, args, _ in ledger.rows)) == ("complete", [1, 2, 3])
    last = vendor.seen[-1]["messages"]
    made = [call["id"] for each in last for call in each.get("tool_calls") or ()]
    told = [each["tool_call_id"] for each in last if each["role"] == "tool"]
    assert (made[0], made == told, len(set(made))) == ("functions.pay:0", True, 3)


@table(
    ("model", "expected"),
    (
        "openai-chat:gpt-5",
        "the model `openai-chat:gpt-5` needs a key: set `OPENAI_API_KEY`, or name another model in the manifest or "
        "SIGNOFF_MODEL",
    ),
    ("opnai:gpt-5", "there is no model `opnai:gpt-5`; did you mean `openai`?"),
    ("nonsense", "there is no model `nonsense`: write `provider:name`"),
    ("openai:", "there is no model `openai:`: write `provider:name`"),
    ("oflline", "there is no model `oflline`; did you mean `offline`?"),
    (
        "ollama:qwen3",
        "the model `ollama:qwen3` needs `OLLAMA_BASE_URL`: set it, or name another model in the manifest or "
        "SIGNOFF_MODEL",
    ),
)
def test_unusable_model_error_has_a_clear_message(monkeypatch: pytest.MonkeyPatch, model: str, expected: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError) as refused:
        build_driver(model)
    assert refused.value.message == expected
