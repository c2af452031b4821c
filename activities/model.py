"""Activity `signoff.model`: one completion, brought into our own message type."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.asking import withheld
from signoff.activities.journal import hand_over
from signoff.activities.model_settings import model_settings
from signoff.activities.pulse import pulse
from signoff.activities.room import Room
from signoff.activities.secrets import secrets_of
from signoff.approvals.redaction import value_without, without
from signoff.contracts import names
from signoff.contracts.completion import Completion, CompletionRequest, ProposedCall
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError, ModelRefused, ModelUnavailable
from signoff.contracts.ids import call_id
from signoff.contracts.limits import (
    ARGUMENTS_BYTES,
    CALLS_BYTES_PER_COMPLETION,
    CALLS_KEPT_PER_COMPLETION,
    CALLS_PER_COMPLETION,
)
from signoff.contracts.message import CallPart, Message, Part, TextPart, content_of
from signoff.contracts.steps import ModelReply, ModelTask, Response
from signoff.contracts.turn import ResponsePart
from signoff.policy.bounds import out_of_bounds
from signoff.registry.respond import Payload
from signoff.registry.result import render_value
from signoff.store.content import load, to_content

_NAME_CHARS = 200


class ModelActivity:
    """Builds the tool list, asks the model, stores what is bulky, numbers the calls."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @activity.defn(name=names.MODEL)
    async def model(self, task: ModelTask) -> ModelReply:
        """One completion. Fails with `ConfigError`, `ModelRefused` (final) or `ModelUnavailable` (retried)."""
        try:
            async with pulse():
                await hand_over(self._room, task.audit)
                return await self._complete(task)
        except (ConfigError, ModelRefused) as error:
            raise ApplicationError(error.message, type=type(error).__name__, non_retryable=True) from None
        except ModelUnavailable as error:
            raise ApplicationError(error.message, type="ModelUnavailable", next_retry_delay=_delay(error)) from None

    async def _complete(self, task: ModelTask) -> ModelReply:
        room = self._room
        actor = room.catalog.actor(task.ctx.actor)
        messages = tuple([await self._inline(message) for message in task.messages])
        left_out = await withheld(room.catalog, task.ctx, at=room.clock())
        request = CompletionRequest(
            model=actor.model,
            instructions=actor.instructions,
            messages=messages,
            provider=tuple([await self._provider(message) for message in task.messages]),
            tools=room.catalog.offered(actor.name, task.ctx, left_out),
            settings=model_settings(actor),
        )
        completion = self._quiet(messages, await room.driver(actor.model).complete(request))
        reply = await self._reply(task, completion)
        return reply.model_copy(update={"withheld": tuple(sorted(left_out))}) if left_out else reply

    async def _reply(self, task: ModelTask, completion: Completion) -> ModelReply:
        room = self._room
        kept = completion.calls[:CALLS_KEPT_PER_COMPLETION]
        parts: list[Part] = []
        if completion.text:
            parts.append(TextPart(text=await self._text(completion.text)))
        budget = CALLS_BYTES_PER_COMPLETION
        for index, proposed in enumerate(kept, 1):
            part, used = await self._call(call_id(task.completion, index), proposed, index, budget)
            budget -= used
            parts.append(part)
        dropped = len(completion.calls) - len(kept)
        # The provider's own message cannot be cut, so one with dropped calls is rebuilt from the parts.
        provider = await room.store.put_blob(completion.provider) if completion.provider and not dropped else None
        response, respond_call, error = await self._response(task, completion, kept)
        return ModelReply(
            message=Message(role="assistant", parts=tuple(parts), provider=provider),
            usage=completion.usage,
            catalog=room.catalog.hash,
            response=response,
            respond_call=respond_call,
            respond_error=error,
            dropped=dropped,
            limits=room.catalog.actor(task.ctx.actor).limits,
        )

    def _quiet(self, messages: Sequence[Message], completion: Completion) -> Completion:
        """`completion` without the secret arguments of its calls, and of earlier ones, in what the agent says.

        Calls but `respond` stay as they are: what people are asked about, and what runs, is what was proposed.
        """
        earlier = ((p.tool, p.args.inline) for message in messages for p in message.parts if isinstance(p, CallPart))
        proposed = ((each.tool, _arguments(each.args)[0]) for each in completion.calls[:CALLS_KEPT_PER_COMPLETION])
        secrets = secrets_of(self._room.catalog, (*earlier, *proposed))
        if not secrets:
            return completion
        calls = tuple(
            dataclasses.replace(each, args=value_without(each.args, secrets)) if each.tool == names.RESPOND else each
            for each in completion.calls
        )
        return dataclasses.replace(completion, text=without(completion.text, secrets), calls=calls)

    async def _call(self, call: str, proposed: ProposedCall, index: int, budget: int) -> tuple[CallPart, int]:
        args, malformed, size = _arguments(proposed.args)
        surplus = index > CALLS_PER_COMPLETION or size > budget
        content = await to_content(self._room.store, {} if surplus else args)
        part = CallPart(
            call=call,
            provider_call=render_value(proposed.provider_call[:_NAME_CHARS]),
            tool=render_value(proposed.tool[:_NAME_CHARS]),
            args=content,
            malformed="" if surplus else malformed,
            surplus=surplus,
        )
        # What is left out takes no room from the calls after it.
        return part, 0 if surplus or malformed else size

    async def _response(
        self, task: ModelTask, completion: Completion, kept: tuple[ProposedCall, ...]
    ) -> tuple[Response | None, str, str]:
        """The response, the id of its call, and what was wrong with it (then the response is its raw text)."""
        for index, proposed in enumerate(kept, 1):
            if proposed.tool == names.RESPOND:
                call = call_id(task.completion, index)
                args, malformed, _ = _arguments(proposed.args)
                form = self._room.catalog.respond(task.ctx.actor)
                parsed = malformed or form.parse(args, task.ctx.extra.get("data"))
                if isinstance(parsed, str):
                    raw = proposed.args if isinstance(proposed.args, str) else _dumps(proposed.args)
                    return Response(text=await self._text(completion.text or raw)), call, parsed
                return await self._parsed(parsed), call, ""
        if kept:
            return None, "", ""
        return Response(text=await self._text(completion.text)), "", ""

    async def _parsed(self, payload: Payload) -> Response:
        parts = [
            ResponsePart(type=kind, content=await to_content(self._room.store, content))
            for kind, content in payload.parts
        ]
        text = await self._text(payload.text)
        return Response(state=payload.state, text=text, pass_to=payload.pass_to, parts=tuple(parts))

    async def _text(self, text: str) -> Content:
        # A model may write half of a character, which no record can hold.
        return await to_content(self._room.store, render_value(text))

    async def _inline(self, message: Message) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            field, content = content_of(part)
            inline = Content(inline=await load(self._room.store, content)) if content.blob else content
            parts.append(part.model_copy(update={field: inline}))
        return message.model_copy(update={"parts": tuple(parts)})

    async def _provider(self, message: Message) -> bytes | None:
        return await self._room.store.get_blob(message.provider.sha256) if message.provider else None


def _delay(error: ModelUnavailable) -> timedelta | None:
    """How long the provider asked us to wait, if it did; at most two minutes."""
    seconds = error.context.get("retry_after")
    # Longer would use up the ten minutes that a completion has in all; shorter would only be refused again.
    return timedelta(seconds=min(max(seconds, 1.0), 120.0)) if isinstance(seconds, int | float) else None


def _arguments(raw: Any) -> tuple[dict[str, Any], str, int]:
    """The arguments object, why it is none, and its size in bytes of JSON."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw) if raw.strip() else {}
        except (ValueError, RecursionError):
            # `json` recurses: brackets within brackets, a thousandfold, are no ValueError.
            return {}, "the arguments are not valid JSON; send one JSON object", 0
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        return {}, "the arguments are not a JSON object", 0
    why = out_of_bounds(raw)
    if why:
        return {}, f"the arguments hold {why}; send it as a string or leave it out", 0
    size = len(json.dumps(raw, ensure_ascii=False, separators=(",", ":")).encode())
    if size > ARGUMENTS_BYTES:
        return {}, f"the arguments are {size} bytes, at most {ARGUMENTS_BYTES} are taken", 0
    return raw, "", size


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)
