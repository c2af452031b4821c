"""Local activity `signoff.answers`: reads the state of a question from the store. Stores a raw answer first."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection
from temporalio import activity

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.card import draw_card
from signoff.approvals.edit_diff import edit_note, remark_note
from signoff.approvals.request_state import StoredAnswer, pending_edits
from signoff.approvals.request_thread import unanswered
from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersReply, AnswersTask, Authority
from signoff.contracts.approval import ApprovalRequest, CardRow, Question, Settlement
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.decision import Decision
from signoff.contracts.receipt import Receipt
from signoff.decisions.answer_taker import UNSAFE_ANSWER, find_repeated, refuse
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.formats.replace import replace
from signoff.people.authority import check_authority
from signoff.registry.registry import definition_hash
from signoff.store.content_store import load
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions, end_question
from signoff.store.questions.raw_answers import RawAnswers
from signoff.store.questions.request_messages import RequestMessages

_WAITS: Final = "the answer is kept; a gateway takes it in"
_log = logging.getLogger(__name__)


class _Taken(NamedTuple):
    """The fate of a raw answer."""

    receipt: Receipt
    author: Authority | None = None
    is_stored: bool = True


class AnswersActivity:
    """Raises `StoreUnavailable`, and Temporal retries. A raw answer gets a receipt instead."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._raw = RawAnswers(deps.store)
        self._messages = RequestMessages(deps.store)
        self._taker = RawAnswerTaker(
            deps.store, deps.clock, deps.catalog.takes_unsigned, development=deps.believes_unsigned
        )

    @activity.defn(name=names.ANSWERS)
    async def read_answers(self, task: AnswersTask) -> AnswersReply:
        """Waits while a denial can be undone: the turn would treat it as final."""
        if task.raw is None:
            return await self._state(task)
        taken = await self._take(task, task.raw)
        about = {"receipt": taken.receipt, "author": taken.author}
        if taken.receipt.status == "refused" or not taken.is_stored:
            return AnswersReply(**about)
        return replace(await self._state(task), **about)

    async def _state(self, task: AnswersTask) -> AnswersReply:
        while True:
            rows = await self._read(task)
            if rows is None or rows.undo_seconds <= 0:
                break
            await asyncio.sleep(rows.undo_seconds)
        question = None if rows is None else rows.revision(task.revision)
        if rows is None or question is None:
            return AnswersReply()
        request = rows.request(question)
        return AnswersReply(
            seen=max((each.number for each in rows.answers), default=0),
            settlement=Settlement(**{name: getattr(request, name) for name in Settlement.model_fields}),
            edits=_edits(task, rows, question),
            edited_by=_last_editor(rows.questions, rows.answers),
            remarks=await self._remarks(rows, request),
            word=request.votes[-1].decision if request.state == "happened" else None,
            message=await self._unanswered(request),
            asked_at=question.asked_at,
        )

    async def _unanswered(self, request: ApprovalRequest) -> int:
        if request.state != "pending":
            return 0
        asked = unanswered(await self._messages.read(request.id))
        return 0 if asked is None else asked.number

    async def _read(self, task: AnswersTask) -> ApprovalRows | None:
        if task.deadline is None:
            return await self._rows.read(task.approval)
        await self._rows.run_locked(task.approval, partial(_expire, task))
        return await self._rows.read(task.approval)

    async def _remarks(self, rows: ApprovalRows, request: ApprovalRequest) -> str:
        if request.state != "approved":
            return ""
        edited = [each.edit_of for each in rows.questions if each.edit_of]
        before = rows.revision(min(edited)) if edited else None
        changes = ""
        if before is not None:
            changes = edit_note(await self._card_rows(before), await self._card_rows(request))
        return "\n".join(filter(None, (changes, remark_note(request))))

    async def _card_rows(self, question: Question) -> Sequence[CardRow]:
        """Return the rows of a question's card, or none without its tool."""
        declared = self._deps.catalog.tools_named(question.tool)
        tool = next((each for each in declared if definition_hash(each) == question.definition), None)
        if tool is None:
            return ()
        return draw_card(question, tool.declaration, await load(self._deps.store, question.args), "").rows

    async def _take(self, task: AnswersTask, raw: Decision) -> _Taken:
        try:
            return await self._take_raw(task, raw)
        except NotCanonical:
            return _Taken(refuse("malformed", task.approval, UNSAFE_ANSWER))
        except Exception as error:
            # A directory may be custom code, and an escaped exception would leave the answer without a receipt.
            _log.warning("the answer to %s cannot be taken now: %s", task.approval, type(error).__name__)
            return _Taken(refuse("unavailable", task.approval))

    async def _take_raw(self, task: AnswersTask, raw: Decision) -> _Taken:
        """Store a raw answer if it may count, and accept it if this worker may write answers."""
        claims_signature = bool(raw.signature or raw.key_id)
        if claims_signature and not self._deps.verifier.check_decision(raw):
            # A forged answer must cause no lookup.
            return _refuse(task, Authority(allowed=False, code="assurance"))
        rows = await self._rows.read(task.approval)
        # Each stored answer has a time of arrival. Answers from Temporal's own UI have none.
        stored = rows is not None and raw.received_at is not None and any(_is_of(each, raw) for each in rows.answers)
        if rows is not None and stored:
            return _Taken(find_repeated(rows, raw) or refuse("stale", task.approval))
        if claims_signature:
            # The gateway stores each answer before it wakes the turn.
            return _refuse(task, Authority(allowed=False, code="assurance", subject=raw.subject))
        if raw.verdict == "withdrawn":
            return await self._withdrawal(task, raw, rows)
        if rows is None or not self._taker.counts(rows.latest.tool, rows.latest.definition):
            return _refuse(task, Authority(allowed=False, code="assurance", unsigned=True))
        keeps = self._deps.store.role == "worker"
        key = _key(raw, rows.latest.revision, once=not keeps)
        if keeps:
            kept = await self._raw.add(key, raw)
            waits = Receipt(status="pending", approval_id=task.approval, state="pending", message=_WAITS)
            return _Taken(waits if kept is not None else refuse("not_allowed", task.approval, why="enough"))
        try:
            people = await self._deps.directory_for(rows.latest.tenant, raw.subject, rows.latest.requester.user)
            taken = await self._taker.keep_and_take(key, raw, people)
        except Exception:
            # Keep the answer: it is accepted once its author can be looked up.
            await self._raw.add(key, raw)
            raise
        if taken is None:
            return _Taken(refuse("not_allowed", task.approval, why="enough"))
        # The receipt of a refused answer names its author only in development.
        return _Taken(taken.receipt, taken.author if self._deps.believes_unsigned or taken.vote else None)

    async def _withdrawal(self, task: AnswersTask, raw: Decision, rows: ApprovalRows | None) -> _Taken:
        """Return whose name counts. The sender can also stop the turn, so a withdrawal itself needs no proof."""
        accepted = Receipt(status="accepted", approval_id=task.approval)
        # Elsewhere, a turn could probe for any person.
        if rows is None or not self._deps.believes_unsigned:
            return _Taken(accepted, Authority(allowed=False, code="assurance", unsigned=True), is_stored=False)
        request, now = rows.request(rows.latest), self._deps.clock()
        people = await self._deps.directory_for(request.tenant, raw.subject, request.requester.user)
        author = check_authority(request, raw, now, people, unsigned=True, development=True)
        return _Taken(accepted, author, is_stored=False)


def _expire(task: AnswersTask, connection: Connection, rows: ApprovalRows | None) -> None:
    """End a question that neither an answer nor an edit has settled. A later answer is then refused as expired."""
    question = None if rows is None else rows.revision(task.revision)
    if rows is None or question is None or question is not rows.latest or question.ended_at is not None:
        return
    request = rows.request(question)
    if request.expires_at is not None and task.deadline is not None and task.deadline < request.expires_at:
        # The turn has not heard of an approver's question. The workers' clock may differ from the store's.
        return
    if request.state in ("pending", "timed_out") and not _edits(task, rows, question):
        end_question(connection, question.id, question.revision, "expired")


def _edits(task: AnswersTask, rows: ApprovalRows, question: Question) -> tuple[int, ...]:
    pending = pending_edits(question, rows.latest, rows.answers)
    return tuple(each.number for each in pending if each.number not in task.refused)


def _last_editor(questions: Sequence[Question], answers: Sequence[StoredAnswer]) -> str:
    made = [each for each in questions if each.edit_of]
    if not made:
        return ""
    by = [each.vote for each in answers if each.vote.decision.delivery_id == made[-1].edit_delivery]
    return by[0].subject if by else ""


def _is_of(answer: StoredAnswer, given: Decision) -> bool:
    """Return whether `given` is a copy of a stored answer. A turn names the author as the gateway did."""
    return replace(answer.vote.decision, subject=given.subject) == given


def _refuse(task: AnswersTask, author: Authority) -> _Taken:
    return _Taken(refuse(author.code or "not_allowed", task.approval), author)


def _key(decision: Decision, revision: int, *, once: bool) -> str:
    """Return the key of a raw answer: its run, the pending revision, and its content.

    A repeated workflow task may reorder its messages, so the activity's number does not identify a message. With
    `once`, equal answers to one revision share a key.
    """
    info = activity.info()
    name = f"{info.workflow_run_id}/{revision}/{sha256_hex(decision.model_dump(mode='json'))}"
    return name if once else f"{name}/{info.activity_id}"
