"""Activity `signoff.reply`: has the model answer an approver's question about a waiting request."""

import logging
from functools import partial
from typing import Final

from sqlalchemy import Connection
from temporalio import activity

from signoff.activities.heartbeat import send_heartbeats
from signoff.activities.model_activity import complete_measured, retry_later
from signoff.activities.models.model_settings import model_settings
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.audit_events import message_entry
from signoff.approvals.redaction import redact_secrets, secret_values
from signoff.approvals.request_thread import unanswered
from signoff.audit.log import entry_writer
from signoff.contracts import names
from signoff.contracts.activity_messages import ReplyTask
from signoff.contracts.approval import Question, RequestMessage
from signoff.contracts.completion import CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError, ModelRefused, ModelUnavailable
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.message import CallPart, Message, ResultPart, user_message
from signoff.formats.fence import fence_mark
from signoff.formats.visible_text import ELLIPSIS
from signoff.registry.actor import instructions_at
from signoff.registry.tool_result import render_value
from signoff.store.content_store import load, load_message
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_messages import RequestMessages, add_message, read_messages

_WAITS: Final = "this call waits for approvers"
_log = logging.getLogger(__name__)


class ReplyActivity:
    """The model gets no tools: an answer to approvers has no effects."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._messages = RequestMessages(deps.store)

    @activity.defn(name=names.REPLY)
    async def reply(self, task: ReplyTask) -> None:
        """Store the model's answer, once. Raises `ModelUnavailable` and `StoreUnavailable`, and Temporal retries."""
        rows = await self._rows.read(task.approval)
        asked = unanswered(await self._messages.read(task.approval))
        if rows is None or asked is None or asked.number != task.message:
            return
        if rows.request(rows.latest).state != "pending":
            return
        try:
            async with send_heartbeats():
                text = await self._answer(task, rows.latest, asked)
        except ModelUnavailable as error:
            raise retry_later(self._deps, error) from None
        except (ConfigError, ModelRefused) as error:
            _log.warning("no answer to an approver of %s: %s", task.approval, type(error).__name__)
            text = ""
        await self._rows.run_locked(task.approval, partial(self._add, asked, text))

    async def _answer(self, task: ReplyTask, question: Question, asked: RequestMessage) -> str:
        deps, place = self._deps, SessionKey(task.ctx.tenant, task.ctx.session)
        # Not the turn's word: the question names the actor that approvers see.
        actor = deps.catalog.actor(question.actor)
        messages = [await load_message(deps.store, message, place) for message in task.messages]
        calls = [part for message in messages for part in message.parts if isinstance(part, CallPart)]
        secrets = deps.secrets_of([(part.tool, part.args.inline) for part in calls])
        secrets |= secret_values(await load(deps.store, question.args), question.secrets)
        messages += [*_waiting_results(messages), user_message(_asked_words(question, asked))]
        request = CompletionRequest(
            model=actor.model,
            instructions=instructions_at(actor, task.ctx.route, task.ctx.step),
            messages=tuple(messages),
            provider=(None,) * len(messages),
            tools=(),
            settings=await model_settings(actor, deps.secrets),
        )
        completion = await complete_measured(deps, actor.model, request)
        text = redact_secrets(render_value(completion.text.strip()), secrets)
        return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 1] + ELLIPSIS

    def _add(self, asked: RequestMessage, text: str, connection: Connection, rows: ApprovalRows | None) -> None:
        if rows is None or rows.request(rows.latest).state != "pending":
            return
        if unanswered(read_messages(connection, rows.latest.id)) != asked:
            return
        answer = RequestMessage(number=0, by="agent", text=text, revision=rows.latest.revision)
        number = add_message(connection, rows.latest.id, answer)
        entry_writer([message_entry(rows.latest, number, answer, self._deps.clock())])(connection)


def _waiting_results(messages: list[Message]) -> list[Message]:
    """Return results of calls without one: providers refuse a conversation with open calls."""
    parts = [part for message in messages for part in message.parts]
    done = {part.call for part in parts if isinstance(part, ResultPart)}
    results = tuple(
        ResultPart(
            call=part.call,
            provider_call=part.provider_call,
            tool=part.tool,
            code="waiting",
            value=Content(inline=_WAITS),
        )
        for part in parts
        if isinstance(part, CallPart) and part.call not in done
    )
    return [Message(role="tool", parts=results)] if results else []


def _asked_words(question: Question, asked: RequestMessage) -> str:
    mark = fence_mark(asked.text)
    return (
        f"An approver asks about your call `{question.tool}`, which waits for approval. Answer in words, for the "
        f"approver. You have no tools now, and nothing runs.\n[{mark} the approver wrote:]\n{asked.text}\n"
        f"[{mark} end of the approver's words]"
    )
