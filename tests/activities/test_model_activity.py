import asyncio
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from activity_kit import PLACE, environment, free, pinned, worker_deps
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table
from temporalio.exceptions import ApplicationError
from turn_fixtures import Ledger, pay_tool

from signoff.activities import model_activity
from signoff.activities.model_activity import ModelActivity
from signoff.contracts.activity_messages import ModelReply, ModelTask, TurnLimits
from signoff.contracts.completion import Completion, CompletionRequest, ProposedCall
from signoff.contracts.content import Content, text_of
from signoff.contracts.errors import ConfigError, ModelRefused, ModelUnavailable, StoreUnavailable
from signoff.contracts.limits import (
    ARGUMENTS_BYTES,
    CALLS_BYTES_PER_COMPLETION,
    CALLS_KEPT_PER_COMPLETION,
    CALLS_PER_COMPLETION,
    INLINE_BYTES,
)
from signoff.contracts.message import CallPart, Message, TextPart, user_message
from signoff.contracts.turn import TokenUsage
from signoff.formats.bounds import SEND_IN_PARTS
from signoff.registry.actor import Actor, instructions_hash
from signoff.registry.gates.call_parts import parse_arguments
from signoff.store.content_store import keep, load, to_content
from signoff.store.store import Store
from signoff.temporal.converter import DATA_CONVERTER
from signoff.testing.scripted_model import ScriptedModel, calls, respond, say

LEDGER = Ledger()


async def asked(store: Store, answer: Any, **fields: Any) -> ModelReply:
    def react(request: CompletionRequest) -> Completion:
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    actors = [
        Actor(
            name="desk",
            model="scripted",
            instructions="Be brief.",
            limits=TurnLimits(calls=9),
            model_settings={"temperature": 0} | fields.pop("settings", {}),
        )
    ]
    deps = worker_deps(
        store, pay_tool(LEDGER), actors=actors, drivers=fields.pop("drivers", {"scripted": ScriptedModel(react)})
    )
    task = ModelTask(**{"ctx": pinned(), "completion": 2, "messages": (user_message("go"),)} | fields)
    # A separate run: a reply with calls is kept for the next attempt of its completion.
    env = environment("signoff.model", workflow_run_id=uuid.uuid4().hex)
    reply = await env.run(ModelActivity(deps).model, task)
    converter = DATA_CONVERTER.payload_converter
    return converter.from_payloads(converter.to_payloads([reply]), [ModelReply])[0]


def parts(reply: ModelReply) -> list[CallPart]:
    return [part for part in reply.message.parts if isinstance(part, CallPart)]


async def test_calls_are_numbered_by_signoff(store: Store) -> None:
    reply = await asked(store, calls(("pay", {"amount": 1}), ("look", {}), text="a moment"))
    assert [(part.call, part.provider_call, part.tool) for part in parts(reply)] == [
        ("c2.1", "p0", "pay"),
        ("c2.2", "p1", "look"),
    ]
    assert parts(reply)[0].args.inline == {"amount": 1}
    assert reply.message.parts[0] == TextPart(text=Content(inline="a moment"))
    assert (reply.message.role, reply.message.provider) == ("assistant", None)
    assert reply.usage == TokenUsage(input_tokens=10, output_tokens=5)
    assert (reply.response, reply.respond_call, reply.respond_error, reply.dropped) == (None, "", "", 0)
    assert (reply.limits, reply.catalog, reply.instructions) == (TurnLimits(), "", "")


async def test_limits_and_catalog_come_only_with_the_first_completion(store: Store) -> None:
    """They belong to the turn: each reply would repeat them otherwise."""
    first = await asked(store, calls(("look", {"amount": 1})), completion=1)
    assert first.limits == TurnLimits(calls=9)
    assert first.catalog
    assert first.instructions == instructions_hash(Actor(name="desk", model="m", instructions="Be brief."), "", "")


async def test_driver_receives_stored_content_inline(store: Store) -> None:
    text = "é" * INLINE_BYTES
    stored = await to_content(store, text, PLACE)
    provider = await keep(store, b'{"opaque":1}', PLACE)
    history = (
        Message(role="user", parts=(TextPart(text=stored),)),
        Message(role="assistant", parts=(TextPart(text=Content(inline="hm")),), provider=provider),
    )
    seen: list[CompletionRequest] = []

    def react(request: CompletionRequest) -> Completion:
        seen.append(request)
        return say("ok")

    await asked(store, react, messages=history)
    request = seen[0]
    assert (request.model, request.instructions, request.settings) == ("scripted", "Be brief.", {"temperature": 0})
    assert request.messages[0].parts[0].text == Content(inline=text)
    assert request.messages[1].parts == history[1].parts
    assert request.provider == (None, b'{"opaque":1}')
    assert [tool.name for tool in request.tools] == ["pay", "respond"]


async def test_plain_text_is_a_response_and_an_empty_reply_fails(store: Store) -> None:
    reply = await asked(store, say("hello"))
    assert (reply.response.state, reply.response.text.inline, reply.respond_call) == ("complete", "hello", "")
    with pytest.raises(ApplicationError, match="answered twice with nothing"):
        await asked(store, Completion())


@table("state", "complete", "clarifying", "awaiting")
async def test_respond_call_ends_the_turn(store: Store, state: Any) -> None:
    reply = await asked(store, respond("done", state))
    assert (reply.answer.state, reply.answer.text.inline) == (state, "done")
    assert (reply.respond_call, reply.respond_error) == ("c2.1", "")
    beside = await asked(store, calls(("pay", {"amount": 1}), ("respond", {"text": "x"})))
    assert (beside.respond_call, beside.answer.text.inline) == ("c2.2", "x")


@table(("text", "twice"), ("done", False), ("x" * 20_000, True))
async def test_short_answer_is_not_sent_twice(store: Store, text: str, twice: bool) -> None:
    reply = await asked(store, respond(text))
    assert (reply.response is not None, reply.answer.state) == (twice, "complete")
    assert (text_of(reply.answer.text)[:1], reply.answer.text.blob is not None) == (text[:1], twice)


@table(
    ("args", "text"),
    ({"text": 5}, '{"text": 5}'),
    ({"text": "x", "state": "over"}, '{"text": "x", "state": "over"}'),
    ("not json", "not json"),
    ({}, "{}"),
    (["x"], '["x"]'),
    ({"text": "é", "n": float("nan")}, '{"text": "\\u00e9", "n": NaN}'),
)
async def test_invalid_respond_call_is_reported_and_kept_as_text(store: Store, args: Any, text: str) -> None:
    reply = await asked(store, calls(("respond", args)))
    assert reply.respond_error
    assert (reply.respond_call, reply.response.state, reply.response.text.inline) == ("c2.1", "complete", text)
    worded = await asked(store, calls(("respond", args), text="my words"))
    assert worded.response.text.inline == "my words"


@table(
    ("raw", "args", "why"),
    ({"amount": 1}, {"amount": 1}, ""),
    ('{"amount": 1}', {"amount": 1}, ""),
    ("  ", {}, ""),
    (None, {}, ""),
    ("{", {}, "is not JSON"),
    ("[" * 100_000, {}, "nested too deeply"),
    ("[1]", {}, "not a JSON object"),
    ([1], {}, "not a JSON object"),
    ("null", {}, ""),
    ('{"amount": NaN}', {}, "not a JSON number"),
    ('{"amount": 1e999}', {}, "number that is too large"),
    ('{"to": "\\ud800"}', {}, "surrogate"),
    ({"n": 2**53}, {}, "integer outside"),
    ('{"a":' * 300 + "1" + "}" * 300, {}, "nested deeper"),
    ({"a": {1, 2}}, {}, "not a JSON type"),
    ({"a": "é" * ARGUMENTS_BYTES}, {}, f"at most {ARGUMENTS_BYTES} are taken"),
)
async def test_unusable_arguments_make_a_malformed_call(store: Store, raw: Any, args: Any, why: str) -> None:
    part = parts(await asked(store, calls(("pay", raw))))[0]
    assert part.args.inline == args
    assert why in part.malformed
    assert bool(part.malformed) == bool(why)
    assert not part.surplus


@table("over", 0, 1)
async def test_arguments_are_limited_in_bytes(store: Store, over: int) -> None:
    chars_left = ARGUMENTS_BYTES - len('{"a":""}')
    args = {"a": "é" * (chars_left // 2) + "x" * (chars_left % 2 + over)}
    part = parts(await asked(store, calls(("pay", args))))[0]
    assert part.malformed == (
        f"the arguments are {ARGUMENTS_BYTES + 1} bytes, at most 65536 are taken; {SEND_IN_PARTS}" if over else ""
    )
    assert await load(store, part.args) == ({} if over else args)


@table("over", 0, 1)
async def test_calls_above_fifty_per_completion_are_surplus(store: Store, over: int) -> None:
    made = await asked(store, calls(*[("pay", {"amount": 1})] * (CALLS_PER_COMPLETION + over)))
    found = parts(made)
    assert [part.surplus for part in found] == [False] * CALLS_PER_COMPLETION + [True] * over
    assert found[-1].args.inline == ({} if over else {"amount": 1})
    assert found[-1].call == f"c2.{CALLS_PER_COMPLETION + over}"


async def test_calls_above_one_mebibyte_per_completion_are_surplus(store: Store) -> None:
    filler = ARGUMENTS_BYTES - len('{"a":""}')
    big = ("pay", {"a": "x" * filler})
    whole = CALLS_BYTES_PER_COMPLETION // ARGUMENTS_BYTES
    found = parts(await asked(store, calls(("pay", "{"), *[big] * (whole + 1), ("pay", {}))))
    assert [part.surplus for part in found] == [False] * (whole + 1) + [True, True]
    fits = parts(await asked(store, calls(*[big] * (whole - 1), ("pay", {"a": "x" * (filler - 2)}), big, ("pay", {}))))
    assert [part.surplus for part in fits] == [False] * whole + [True, False]


async def test_calls_above_the_storage_limit_are_dropped_and_counted(store: Store) -> None:
    many = calls(*[("pay", {"amount": 1})] * (CALLS_KEPT_PER_COMPLETION + 3))
    whole = Completion(calls=many.calls[:CALLS_KEPT_PER_COMPLETION], provider=b"{}")
    kept = await asked(store, whole)
    assert (len(parts(kept)), kept.dropped) == (CALLS_KEPT_PER_COMPLETION, 0)
    assert await store.get_blob(kept.message.provider.sha256) == b"{}"
    cut = await asked(store, Completion(calls=many.calls, provider=b"{}"))
    assert (len(parts(cut)), cut.dropped, cut.message.provider) == (CALLS_KEPT_PER_COMPLETION, 3, None)


async def test_lone_surrogates_are_replaced(store: Store) -> None:
    odd = Completion(text="a\ud800", calls=(ProposedCall(tool="p\ud800", args={}, provider_call="i\ud800"),))
    reply = await asked(store, odd)
    assert reply.message.parts[0].text.inline == "a?"
    assert (parts(reply)[0].tool, parts(reply)[0].provider_call) == ("p?", "i?")
    assert (await asked(store, say("\udfff"))).response.text.inline == "?"
    assert (await asked(store, calls(("respond", "\udfff")))).response.text.inline == "?"


async def test_long_names_are_cut_and_long_texts_stored(store: Store) -> None:
    text = "é" * INLINE_BYTES
    made = Completion(text=text, calls=(ProposedCall(tool="t" * 999, args={}, provider_call="i" * 999),))
    reply = await asked(store, made)
    assert await load(store, reply.message.parts[0].text) == text
    assert reply.message.parts[0].text.blob is not None
    assert (parts(reply)[0].tool, parts(reply)[0].provider_call) == ("t" * 200, "i" * 200)
    reply = await asked(store, respond(text))
    assert await load(store, reply.response.text) == text


@table(
    ("error", "kind", "final", "delay"),
    (ModelRefused("no"), "ModelRefused", True, None),
    (ConfigError("no key"), "ConfigError", True, None),
    (ModelUnavailable("busy"), "ModelUnavailable", False, None),
    (ModelUnavailable("busy", retry_after=None), "ModelUnavailable", False, None),
    (ModelUnavailable("busy", retry_after=7), "ModelUnavailable", False, timedelta(seconds=7)),
    (ModelUnavailable("busy", retry_after=0.01), "ModelUnavailable", False, timedelta(seconds=1)),
    (ModelUnavailable("busy", retry_after=9_999), "ModelUnavailable", False, timedelta(minutes=2)),
)
async def test_model_errors_carry_type_and_retry_delay(
    store: Store, error: Exception, kind: str, final: bool, delay: Any
) -> None:
    with pytest.raises(ApplicationError) as failed:
        await asked(store, error)
    found = failed.value
    assert (found.type, found.non_retryable, found.next_retry_delay) == (kind, final, delay)
    assert found.message == error.args[0]


async def test_model_text_and_errors_hide_the_provider_key(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "sk-of-the-model-41")
    keyed = {"api_key": "env:OUR_KEY"}

    def react(request: CompletionRequest) -> Completion:
        return say(f"I was called with {request.settings['api_key']}")

    reply = await asked(store, react, settings=keyed)
    assert reply.response is not None
    assert reply.response.text.inline == "I was called with [hidden]"
    for error in (ModelRefused("no key sk-of-the-model-41"), ModelUnavailable("busy: sk-of-the-model-41")):
        with pytest.raises(ApplicationError) as failed:
            await asked(store, error, settings=keyed)
        assert "sk-of" not in failed.value.message
        assert "[hidden]" in failed.value.message


@table(("fields", "words"), ({"ctx": pinned(actor="dask")}, "`dask`"), ({"drivers": {}}, "no driver for the model"))
async def test_unknown_actor_or_model_is_a_config_error(store: Store, fields: Any, words: str) -> None:
    with pytest.raises(ApplicationError, match=words) as failed:
        await asked(store, say("x"), **fields)
    assert (failed.value.type, failed.value.non_retryable) == ("ConfigError", True)


async def test_failing_store_cancels_the_model_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, broken_off = asyncio.Event(), asyncio.Event()

    async def thinks(request: CompletionRequest) -> Completion:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            broken_off.set()
            raise
        return say("x")

    async def fails(deps: Any, seen: Any) -> None:
        await begun.wait()
        raise StoreUnavailable("no disk")

    monkeypatch.setattr(model_activity, "hand_over", fails)
    with pytest.raises(StoreUnavailable):
        await asked(store, None, drivers={"scripted": ScriptedModel(thinks)})
    assert broken_off.is_set()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(JSON | JSON.map(json.dumps) | st.text())
def test_parsed_arguments_can_always_be_recorded(raw: Any) -> None:
    args, why, size = parse_arguments(raw)
    written = json.dumps(args, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    assert len(written.encode()) == size or why
    assert not why or (args, size) == ({}, 0)
    assert size <= ARGUMENTS_BYTES


async def test_tool_without_approval_is_offered_like_a_gated_one(store: Store) -> None:
    deps = worker_deps(store, free(LEDGER), pay_tool(LEDGER, name="gated"))
    offered = {offer.name: offer.parameters for offer in deps.catalog.offered_tools("desk", pinned())}
    assert offered["pay"] == offered["gated"]
