"""Activity `signoff.model`: requests one completion, converts and stores it, and judges its calls."""

import asyncio
import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.call_journal import attribute, hand_over, make_hand_over
from signoff.activities.gate_activity import GateActivity
from signoff.activities.heartbeat import send_heartbeats
from signoff.activities.hooks.tool_hooks import withheld_tools
from signoff.activities.models.model_settings import model_settings
from signoff.activities.results.step_mover import StepMover, ctx_at
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.audit_buffer import unfold_facts
from signoff.approvals.audit_events import facts_of_begin
from signoff.approvals.call_events import proposed_entry
from signoff.approvals.redaction import redact_secrets, redact_value
from signoff.audit.log import entry_writer
from signoff.contracts import names
from signoff.contracts.activity_messages import GateReply, GateTask, ModelReply, ModelTask, Response, TurnLimits
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import ProposedExternalCall
from signoff.contracts.completion import Completion, CompletionRequest, Driver, ProposedCall
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError, ModelRefused, ModelUnavailable, Unavailable
from signoff.contracts.ids import SessionKey, call_id
from signoff.contracts.limits import CALLS_KEPT_PER_COMPLETION, MIB
from signoff.contracts.message import CallPart, Message, Part, TextPart, words_of
from signoff.contracts.turn import ResponsePart
from signoff.formats.replace import replace
from signoff.registry.actor import Actor, instructions_at, instructions_hash
from signoff.registry.gates.call_parts import call_parts, parse_arguments, parse_call
from signoff.registry.respond_form import RespondPayload
from signoff.registry.tool_result import render_value
from signoff.store.blobs import Blob
from signoff.store.completions import Completions, KeptReply
from signoff.store.content_store import fetch_in, load_message, seal_ref, to_content
from signoff.telemetry.stack_trace import trace_without_words

GATES_SECONDS: Final = 30.0
"""Time limit for the gates here, equal to that of the turn's local activity."""
SPARE_SECONDS: Final = 20.0
"""Minimum remaining time of the attempt, beyond the gates' limit, to start the gates."""
REPLY_BYTES: Final = MIB
"""A larger reply omits the decisions on its calls: the server accepts 2 MiB."""
_CATALOG_CHARS = 16
_FAILURES: Final = {ConfigError: "config", ModelRefused: "refused", ModelUnavailable: "unavailable"}
_log = logging.getLogger(__name__)


class ModelActivity:
    """Asks the model and runs the gates on its calls.

    A reply with calls is stored before the gates run, and an attempt after a lost one finds it: no second completion is
    paid for, and no question is about calls of another reply.
    """

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._gates = GateActivity(deps)
        self._completions = Completions(deps.store)
        self._steps = StepMover(deps)

    @activity.defn(name=names.MODEL)
    async def model(self, task: ModelTask) -> ModelReply:
        """Fails with `ConfigError`, `ModelRefused` (final) or `ModelUnavailable` (retried)."""
        begun = asyncio.get_running_loop().time()
        try:
            async with send_heartbeats():
                reply = await self._complete(task)
                moved = replace(task, ctx=ctx_at(task.ctx, reply.place))
                return await self._judge_calls(moved, reply, begun) if _has_calls(reply) else _drop_repeat(reply)
        except (ConfigError, ModelRefused) as error:
            message = self._deps.secrets.redact(error.message)
            raise ApplicationError(message, type=type(error).__name__, non_retryable=True) from None
        except ModelUnavailable as error:
            raise retry_later(self._deps, error) from None

    async def _complete(self, task: ModelTask) -> ModelReply:
        info = activity.info()
        run = info.workflow_run_id or ""
        if task.external is not None:
            return await self._propose(task, task.external, run)
        before = await self._completions.read(run, task.completion) if run and info.attempt > 1 else None
        if before is not None:
            await hand_over(self._deps, _read_entries(task))
            return _keep_reply(before)
        place = await self._steps.advance(task.ctx, task.completion)
        # In parallel, because the model takes its time. Its answer is not used before the entries are recorded.
        asking = asyncio.ensure_future(self._ask_model(replace(task, ctx=ctx_at(task.ctx, place))))
        try:
            await hand_over(self._deps, _read_entries(task))
            await self._steps.record(task.ctx, place, task.completion)
        except BaseException:
            # Otherwise each attempt during a store outage would be paid for.
            asking.cancel()
            await asyncio.wait({asking})
            raise
        reply, provider = await asking
        reply = replace(reply, place=place)
        if not (run and _has_calls(reply)):
            # No work follows between such a reply and the end of this activity: storing it would help no later attempt.
            if provider is not None:
                await self._deps.store.put_blob(provider.body, _place(task))
            return reply
        body = reply.model_dump_json().encode()
        at, model = self._deps.clock(), names.OFFLINE_MODEL if self._deps.is_offline(task.ctx.actor) else ""
        entries = [proposed_entry(task.ctx, part.call, part.tool, at, model=model) for part in reply.calls]
        proposed = entry_writer(await attribute(self._deps, task.ctx, entries))
        kept = await self._completions.keep(run, task.completion, body, _place(task), provider, proposed)
        # An attempt that counted as lost may have stored its reply first. The turn gets that one.
        return _keep_reply(kept)

    async def _propose(self, task: ModelTask, given: ProposedExternalCall, run: str) -> ModelReply:
        """Store the one call of an external agent as its completion."""
        actor = self._deps.catalog.actor(task.ctx.actor)
        if actor.external is None:
            # Anyone who can start workflows can give any actor a call that its model never made.
            raise ConfigError(f"`{actor.name}` is no external agent; its calls are its model's")
        secrets = self._deps.secrets_of([(given.tool, given.args.inline)])
        says = Content(inline=redact_secrets(given.says, secrets))
        words: tuple[Part, ...] = (TextPart(text=says),) if given.says else ()
        part = CallPart(call=call_id(task.completion, 1), tool=given.tool, args=given.args)
        reply = ModelReply(
            message=Message(role="assistant", parts=(*words, part)),
            catalog=self._deps.catalog.hash[:_CATALOG_CHARS],
            limits=actor.limits,
        )
        if not run:
            await hand_over(self._deps, _read_entries(task))
            return reply
        # Use the transaction that stores the call: all entries of the first attempt are then recorded.
        entry = proposed_entry(task.ctx, part.call, part.tool, self._deps.clock())
        proposed = make_hand_over(_read_entries(task), await attribute(self._deps, task.ctx, [entry]))
        body = reply.model_dump_json().encode()
        return _keep_reply(await self._completions.keep(run, task.completion, body, _place(task), None, proposed))

    async def _judge_calls(self, task: ModelTask, reply: ModelReply, begun: float) -> ModelReply:
        """Return `reply` with the gates' decisions, or without them if the gates cannot answer now.

        The turn then asks the gates itself.
        """
        span = activity.info().start_to_close_timeout
        ends = None if span is None else begun + span.total_seconds() - SPARE_SECONDS
        if ends is not None and ends - asyncio.get_running_loop().time() < GATES_SECONDS:
            return reply
        gates = GateTask(
            ctx=task.ctx,
            calls=reply.calls,
            tally=task.tally,
            dry_run=task.dry_run,
            agent_says=words_of(reply.message),
            withheld=reply.withheld,
            asked_since=reply.kept_at,
            denied=task.denied,
            waiting=task.waiting,
            ask_within=0.0 if task.external is None else task.external.ask_within,
        )
        try:
            async with asyncio.timeout(GATES_SECONDS):
                gate_reply: GateReply = await self._gates.gate(gates)
        except Exception as error:
            # Keep the model's answer in any case. If the gates already asked a question, the turn's repeat is the same
            # question.
            _log.warning("calls of completion %d are left to their turn: %s", task.completion, type(error).__name__)
            return reply
        whole = replace(reply, gates=gate_reply)
        return whole if len(whole.on_wire()) <= REPLY_BYTES else reply

    async def _ask_model(self, task: ModelTask) -> tuple[ModelReply, Blob | None]:
        """Return the model's answer, and the provider's own form of it, which is not yet stored."""
        deps = self._deps
        actor = deps.catalog.actor(task.ctx.actor)
        messages = tuple([await load_message(deps.store, message, _place(task)) for message in task.messages])
        left_out = await withheld_tools(deps.catalog, task.ctx, at=deps.clock())
        request = CompletionRequest(
            model=actor.model,
            instructions=instructions_at(actor, task.ctx.route, task.ctx.step),
            messages=messages,
            provider=tuple([await self._provider(message, _place(task)) for message in task.messages]),
            tools=deps.catalog.offered_tools(actor.name, task.ctx, left_out),
            settings=await self._settings(actor),
        )
        completion = self._quiet(messages, await complete_measured(deps, actor.model, request))
        reply, provider = await self._reply(task, completion)
        return replace(reply, withheld=tuple(sorted(left_out))) if left_out else reply, provider

    async def _settings(self, actor: Actor) -> dict[str, Any]:
        try:
            return await model_settings(actor, self._deps.secrets)
        except Unavailable as error:
            # Without its key, the model counts as unavailable and is retried.
            raise ModelUnavailable(error.message) from None

    async def _reply(self, task: ModelTask, completion: Completion) -> tuple[ModelReply, Blob | None]:
        deps, place = self._deps, _place(task)
        kept = completion.calls[:CALLS_KEPT_PER_COMPLETION]
        parts: list[Part] = []
        if completion.text:
            parts.append(TextPart(text=await self._text(completion.text, place)))
        for part in call_parts(kept, task.completion):
            parts.append(replace(part, args=await to_content(deps.store, part.args.inline, place)))
        dropped = len(completion.calls) - len(kept)
        # The provider's own message cannot be truncated. With dropped calls, later requests rebuild it from the parts.
        own = Blob.of(completion.provider) if completion.provider and not dropped else None
        provider = None if own is None else await seal_ref(deps.store, own.ref, place)
        response, respond_call, error = await self._response(task, completion, kept)
        reply = ModelReply(
            message=Message(role="assistant", parts=tuple(parts), provider=provider),
            usage=completion.usage,
            catalog=deps.catalog.hash[:_CATALOG_CHARS] if task.completion == 1 else "",
            instructions=_hash_instructions(deps.catalog.actor(task.ctx.actor), task) if task.completion == 1 else "",
            response=response,
            respond_call=respond_call,
            respond_error=error,
            dropped=dropped,
            limits=deps.catalog.actor(task.ctx.actor).limits if task.completion == 1 else TurnLimits(),
            leave_open=task.completion == 1 and deps.catalog.actor(task.ctx.actor).leave_open,
        )
        return reply, own

    def _quiet(self, messages: Sequence[Message], completion: Completion) -> Completion:
        """Remove the worker's secrets and secret arguments, present and earlier, from the agent's texts.

        Calls except `respond` are unchanged: approvers are asked about the proposed arguments, and these run.
        """
        earlier = ((p.tool, p.args.inline) for message in messages for p in message.parts if isinstance(p, CallPart))
        proposed = ((each.tool, parse_arguments(each.args)[0]) for each in completion.calls[:CALLS_KEPT_PER_COMPLETION])
        secrets = self._deps.secrets_of((*earlier, *proposed))
        if not secrets:
            return completion
        calls = tuple(
            dataclasses.replace(each, args=redact_value(each.args, secrets)) if each.tool == names.RESPOND else each
            for each in completion.calls
        )
        return dataclasses.replace(completion, text=redact_secrets(completion.text, secrets), calls=calls)

    async def _response(
        self, task: ModelTask, completion: Completion, kept: tuple[ProposedCall, ...]
    ) -> tuple[Response | None, str, str]:
        """Return the response, the id of its call, and its error (then the response is the raw text)."""
        for index, proposed in enumerate(kept, 1):
            if proposed.tool == names.RESPOND:
                call = call_id(task.completion, index)
                args, malformed, _ = parse_call(proposed)
                form = self._deps.catalog.respond(task.ctx.actor)
                parsed = malformed or form.parse(args, task.ctx.extra.get("data"))
                if isinstance(parsed, str):
                    raw = proposed.args if isinstance(proposed.args, str) else _dumps(proposed.args)
                    return Response(text=await self._text(completion.text or raw, _place(task))), call, parsed
                return await self._parse_response(parsed, _place(task)), call, ""
        if kept:
            return None, "", ""
        return Response(text=await self._text(completion.text, _place(task))), "", ""

    async def _parse_response(self, payload: RespondPayload, place: SessionKey) -> Response:
        parts = [
            ResponsePart(type=kind, content=await to_content(self._deps.store, content, place))
            for kind, content in payload.parts
        ]
        text = await self._text(payload.text, place)
        return Response(state=payload.state, text=text, pass_to=payload.pass_to, parts=tuple(parts))

    async def _text(self, text: str, place: SessionKey) -> Content:
        # A model may write half of a character, which JSON cannot encode.
        return await to_content(self._deps.store, render_value(text), place)

    async def _provider(self, message: Message, place: SessionKey) -> bytes | None:
        return await fetch_in(self._deps.store, message.provider, place) if message.provider else None


def _hash_instructions(actor: Actor, task: ModelTask) -> str:
    return instructions_hash(actor, task.ctx.route, task.ctx.step)


async def complete_measured(deps: WorkerDeps, model: str, request: CompletionRequest) -> Completion:
    """Raises `ConfigError`, `ModelRefused`, `ModelUnavailable`."""
    counts, begun, outcome = deps.store.counts, time.monotonic(), "ok"
    try:
        completion = await _complete_or_retry(deps.driver(model), request)
        counts.count("signoff_model_tokens", model, "input", by=completion.usage.input_tokens)
        counts.count("signoff_model_tokens", model, "output", by=completion.usage.output_tokens)
        return completion
    except (ConfigError, ModelRefused, ModelUnavailable) as error:
        outcome = _FAILURES[type(error)]
        raise
    finally:
        counts.count("signoff_model_requests", model, outcome)
        counts.observe("signoff_model_request_duration_seconds", time.monotonic() - begun, model)


def retry_later(deps: WorkerDeps, error: ModelUnavailable) -> ApplicationError:
    return ApplicationError(deps.secrets.redact(error.message), type="ModelUnavailable", next_retry_delay=_delay(error))


async def _complete_or_retry(driver: Driver, request: CompletionRequest) -> Completion:
    """Request a completion, and once again if it is empty. Raises `ModelRefused` if both are."""
    first = await _ask_once(driver, request)
    if not _is_empty(first):
        return first
    second = await _ask_once(driver, request)
    if _is_empty(second):
        # Accepted as an answer, it would end the turn as `complete` without any text or action.
        if second.cut:
            raise ModelRefused(
                "the model's answer was cut twice at its length before any words or call; ask for less, or raise "
                "`max_tokens` in the actor's `model_settings`"
            )
        raise ModelRefused("the model answered twice with nothing, neither words nor a call; ask again, or say more")
    return dataclasses.replace(second, usage=first.usage + second.usage)


async def _ask_once(driver: Driver, request: CompletionRequest) -> Completion:
    try:
        return await driver.complete(request)
    except (ConfigError, ModelRefused, ModelUnavailable):
        raise
    except (OSError, TimeoutError) as error:
        raise ModelUnavailable(f"the model `{request.model}` did not answer ({type(error).__name__})") from None
    except Exception as error:
        # This is a bug in the driver or script. It repeats, and its message may quote the conversation.
        _log.error("the driver of the model %r failed: %s", request.model, trace_without_words(error))
        why = f"the model `{request.model}` failed with {type(error).__name__}; the worker's log has where"
        raise ModelRefused(why) from None


def _is_empty(completion: Completion) -> bool:
    return not completion.calls and not completion.text.strip()


def _keep_reply(kept: KeptReply) -> ModelReply:
    return replace(ModelReply.model_validate_json(kept.body), kept_at=kept.at)


def _has_calls(reply: ModelReply) -> bool:
    """Return whether the reply has calls to judge: a completion with a response runs none of its calls."""
    return reply.response is None and not reply.respond_error and bool(reply.calls)


def _drop_repeat(reply: ModelReply) -> ModelReply:
    """Return `reply` without an answer that its `respond` call repeats verbatim, to shorten the history."""
    calls = (part for part in reply.message.parts if isinstance(part, CallPart) and part.call == reply.respond_call)
    payloads = [part.args.inline for part in calls]
    if reply.respond_error or not payloads or not isinstance(payloads[0], dict) or payloads[0].keys() != {"text"}:
        return reply
    short = replace(reply, response=None)
    # The text may differ from the model's arguments: it may be stored separately, or be made printable.
    return short if short.answer == reply.response else reply


def _read_entries(task: ModelTask) -> tuple[AuditEntry, ...]:
    return unfold_facts(task.audit, facts_of_begin(task.ctx))


def _place(task: ModelTask) -> SessionKey:
    return SessionKey(task.ctx.tenant, task.ctx.session)


def _delay(error: ModelUnavailable) -> timedelta | None:
    """Return the provider's requested delay, if any, up to two minutes."""
    seconds = error.context.get("retry_after")
    # A longer delay would use up the ten minutes of a completion. A shorter one would only be refused again.
    return timedelta(seconds=min(max(seconds, 1.0), 120.0)) if isinstance(seconds, int | float) else None


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, default=str)
