"""Takes approvers' questions about waiting requests, and wakes the turns that answer them."""

import logging
from datetime import datetime
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from signoff.approvals.audit_events import message_entry, rejected_entry
from signoff.approvals.machine import refusal, stale_receipt
from signoff.approvals.redaction import redact_secrets, secret_values
from signoff.approvals.request_thread import is_repeated, question_problem
from signoff.audit.log import entry_writer
from signoff.contracts.approval import ApprovalRequest, RequestMessage
from signoff.contracts.decision import Assurance, at_least
from signoff.contracts.errors import NotFound, ServerUnavailable, Unavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.decisions.answer_taker import refuse
from signoff.engine.turn_list import turn_row
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.registry.catalog import Catalog
from signoff.registry.tool_result import render_value
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions, put_off_deadline
from signoff.store.questions.request_lists import RequestLists
from signoff.store.questions.request_messages import UnansweredMessage, add_message, read_messages
from signoff.store.request_reader import ProvedQuestion
from signoff.telemetry.json_log import bind_log_fields, fields_of_request

_log = logging.getLogger(__name__)


class _Shown(NamedTuple):
    question_hash: str
    since: datetime | None


class QuestionService:
    """The one way of approvers' questions into the store."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)

    async def ask(
        self,
        approval_id: str,
        person: Person,
        text: str,
        channel: str,
        assurance: Assurance = "session",
        *,
        question_hash: str = "",
        since: datetime | None = None,
    ) -> Receipt:
        """Ask the agent about a request. Only people who may decide it ask, by an assurance that could decide it.

        `question_hash` is that of the shown revision. "" means the present one. `since`: when the question arrived, if
        an earlier try may have asked it. Records a refusal. A person without read access gets the answer for an unknown
        request. Raises `StoreUnavailable`.
        """
        with bind_log_fields(fields_of_request(approval_id)):
            unknown = refuse("unknown", approval_id, "there is no such request")
            try:
                found = await self._deps.requests.find(approval_id)
            except NotFound:
                return unknown
            shown = _Shown(question_hash, since)
            receipt = await self._ask(found, person, text, channel, assurance, shown)
            if receipt.status != "refused":
                return receipt
            deps, tenant = self._deps, found.request.tenant
            entry = rejected_entry(receipt, deps.clock(), subject=person.id, channel=channel, body=text, tenant=tenant)
            await deps.attempts.note(deps.store, entry, receipt.code)
            return receipt if await Conversations(deps).may_read(found.request, person) else unknown

    async def _ask(
        self, found: ProvedQuestion, person: Person, text: str, channel: str, assurance: Assurance, shown: _Shown
    ) -> Receipt:
        deps, request = self._deps, found.request
        code = resolve_eligibility(person, deps.people, approver_spec_of(request), deps.clock()).code
        if code:
            return refusal(request, code)
        if not (at_least(assurance, "session") or at_least(assurance, request.min_assurance)):
            return refusal(request, "assurance")
        if is_external(deps.catalog, request.actor):
            return refusal(request, "not_allowed", why="external")
        if request.state == "pending" and await self._is_gone(request):
            return refusal(request, "already_decided", why="gone")
        secrets = secret_values(found.args, request.secrets)
        message = RequestMessage(
            number=0,
            by="approver",
            text=redact_secrets(render_value(text.strip()), secrets),
            revision=request.revision,
            subject=person.id,
            name=person.name,
            channel=channel,
        )
        receipt = await self._rows.run_locked(request.id, partial(self._add, message, shown))
        if receipt.status == "accepted" and await self.announce(UnansweredMessage(request.id, request.revision)):
            # It ended just now. The question stays in the store.
            return refusal(request, "already_decided", why="gone")
        return receipt

    async def _is_gone(self, request: ApprovalRequest) -> bool:
        """Return whether the turn has ended without ending its request, as after a termination."""
        deps, key = self._deps, TurnKey(request.tenant, request.session, request.turn)
        try:
            turn = await turn_row(deps.client.temporal, RequestLists(deps.store), key)
        except ServerUnavailable:
            # The question waits in the store.
            return False
        return turn is None or turn.closed_at is not None

    async def announce(self, asked: UnansweredMessage) -> bool:
        """Wake the turn of a question. Return whether the turn says that it does not wait. Never raises."""
        try:
            receipt = await self._deps.client.announce(*asked)
        except Unavailable as error:
            _log.warning("a question about %s reaches its turn later: %s", asked.approval, error.message)
            return False
        except Exception as error:
            # A forged turn can reply anything.
            _log.warning("turn of %r gave no receipt: %s", asked.approval, type(error).__name__)
            return False
        waits = receipt.status != "refused" and receipt.state in ("", "pending")
        return not waits and receipt.code != "unavailable"

    def _add(
        self, message: RequestMessage, shown: _Shown, connection: Connection, rows: ApprovalRows | None
    ) -> Receipt:
        if rows is None:
            return refuse("unknown", "")
        request = rows.request(rows.latest)
        messages = read_messages(connection, request.id)
        if shown.since is not None and is_repeated(messages, message, shown.since):
            return Receipt(status="accepted", approval_id=request.id, state="pending")
        if request.state == "pending" and shown.question_hash not in ("", request.question_hash):
            return stale_receipt(request)
        problem = question_problem(request, messages, message.text)
        if problem is not None:
            return problem
        number = add_message(connection, request.id, message)
        moved = put_off_deadline(connection, rows.latest, rows.now)
        entry_writer([message_entry(rows.latest, number, message, self._deps.clock(), moved)])(connection)
        return Receipt(status="accepted", approval_id=request.id, state=request.state)


def is_external(catalog: Catalog, actor: str) -> bool:
    """Return whether an actor's model runs elsewhere, so that no worker can ask it."""
    declared = catalog.actors.get(actor)
    return declared is not None and declared.external is not None
