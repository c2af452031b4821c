"""Takes approvers' questions about waiting requests, and wakes the turns that answer them."""

import logging
from functools import partial

from sqlalchemy import Connection

from signoff.approvals.audit_events import message_entry
from signoff.approvals.machine import refusal
from signoff.approvals.request_thread import question_problem
from signoff.audit.log import entry_writer
from signoff.contracts.approval import RequestMessage
from signoff.contracts.errors import NotFound, Unavailable
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.decisions.answer_taker import refuse
from signoff.gateway.deps import GatewayDeps
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_messages import RequestMessages, add_message, read_messages

_log = logging.getLogger(__name__)


class QuestionService:
    """The one way of approvers' questions into the store."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._messages = RequestMessages(deps.store)

    async def ask(self, approval_id: str, person: Person, text: str, channel: str) -> Receipt:
        """Ask the agent a question about a request. Only people who may decide it ask. Raises `StoreUnavailable`."""
        try:
            found = await self._deps.requests.find(approval_id)
        except NotFound:
            return refuse("unknown", approval_id, "there is no such request")
        request = found.request
        spec = approver_spec_of(request)
        if resolve_eligibility(person, self._deps.people, spec, self._deps.clock()).code:
            return refusal(request, "not_allowed")
        if self._is_external(request.actor):
            return refusal(request, "not_allowed", "an external agent runs this; ask it where it runs")
        message = RequestMessage(
            number=0,
            by="approver",
            text=text.strip(),
            revision=request.revision,
            subject=person.id,
            name=person.name,
            channel=channel,
        )
        receipt = await self._rows.run_locked(approval_id, partial(self._add, message))
        if receipt.status == "accepted":
            await self.announce(approval_id)
        return receipt

    async def announce(self, approval_id: str) -> None:
        """Wake the turn of an unanswered question. The dispatcher repeats it."""
        try:
            await self._deps.client.announce(approval_id)
        except Unavailable as error:
            _log.warning("a question about %s reaches its turn later: %s", approval_id, error.message)

    async def announce_unanswered(self, older_than: float, limit: int) -> None:
        """Wake again the turns of questions without an answer. Raises `StoreUnavailable`."""
        for approval, _ in await self._messages.list_unanswered(older_than, limit):
            await self.announce(approval)

    def _is_external(self, actor: str) -> bool:
        declared = self._deps.catalog.actors.get(actor)
        return declared is not None and declared.external is not None

    def _add(self, message: RequestMessage, connection: Connection, rows: ApprovalRows | None) -> Receipt:
        if rows is None:
            return refuse("unknown", "")
        request = rows.request(rows.latest)
        problem = question_problem(request, read_messages(connection, request.id), message.text)
        if problem is not None:
            return problem
        number = add_message(connection, request.id, message)
        entry_writer([message_entry(rows.latest, number, message, self._deps.clock())])(connection)
        return Receipt(status="accepted", approval_id=request.id, state=request.state)
