"""Reads requests from the store, and proves them before they are shown or signed.

Recomputes all hashes. Never consults workflows, queries, memos and notices: any holder of Temporal credentials can
write anything there.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from signoff.approvals.binding import digest_with
from signoff.approvals.card import NO_AMOUNT, Amount, card_amount, draw_card, effect_sentence
from signoff.approvals.digest import digest_mark, doubt_digest
from signoff.approvals.quorum import people_who_gave
from signoff.approvals.request_thread import hash_thread
from signoff.contracts.approval import JUDGED_SECONDS, ApprovalRequest, Card, Question
from signoff.contracts.call import LateReport
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import TurnKey
from signoff.contracts.responses import WaitingCard
from signoff.formats.replace import replace
from signoff.formats.visible_text import one_line
from signoff.keys.signatures import Verifier
from signoff.store.content_store import load
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import PIECE, RequestLists, TurnRows
from signoff.store.questions.request_messages import RequestMessages
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.telemetry.stack_trace import trace_without_words

LATE_REPORT_CHARS: Final = 2_000
MARK_KEY: Final = "card-mark"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProvedQuestion:
    """A proved question without its card."""

    question: Question
    args: Mapping[str, Any]
    declaration: Mapping[str, Any]
    rows: ApprovalRows

    @property
    def request(self) -> ApprovalRequest:
        """The request in its state when it was read. Its card is not drawn, so it is not whole."""
        return self.rows.request(self.question)


@dataclass(frozen=True)
class LoadedRequest:
    """A proved request with its card."""

    request: ApprovalRequest
    """The request, with its card."""
    args: Mapping[str, Any]
    """The arguments shown on the card."""
    declaration: Mapping[str, Any]
    rows: ApprovalRows


class RequestReader:
    """Loads requests for pages, the API, channels and the dispatcher.

    `verifier` checks the requester's signature, which the `development` profile does not require. `declares` returns
    whether the catalog contains the tool of a question. All methods raise `StoreUnavailable`.
    """

    def __init__(
        self,
        store: Store,
        verifier: Callable[[], Verifier],
        *,
        development: bool,
        declares: Callable[[Question], bool] = lambda question: True,
    ) -> None:
        self._store = store
        self._declares = declares
        self._rows = Questions(store)
        self._lists = RequestLists(store)
        self._messages = RequestMessages(store)
        self._verifier = verifier
        self.development = development

    async def load(self, approval: str, revision: int | None = None) -> LoadedRequest:
        """Load a request in its present state, waiting or settled; by default its latest revision.

        Raises like `find`.
        """
        return await self.draw(await self.find(approval, revision))

    async def find(self, approval: str, revision: int | None = None) -> ProvedQuestion:
        """Find a question, by default the latest of its approval, without drawing its card.

        Raises `NotFound` without a question, and for an unreadable or unproved row, counted for the operator. A row is
        unproved if a blob was changed, if the gateway did not sign for the requester, or if the digest is wrong.
        """
        try:
            rows = await self._rows.read(approval)
        except NotFound:
            self._store.count_refusal("unproved")
            raise
        question = None if rows is None else rows.latest if revision is None else rows.revision(revision)
        if rows is None or question is None:
            raise NotFound(f"there is no request `{approval}`")
        if question.id != approval:
            self._refuse_unproved(question, "it is in the row of another request")
        declaration, args = await self._prove(question)
        return ProvedQuestion(question, args, declaration, rows)

    async def draw(self, found: ProvedQuestion) -> LoadedRequest:
        """Raises `NotFound` for unreadable messages."""
        question, args, declaration, rows = found.question, found.args, found.declaration, found.rows
        try:
            messages = await self._messages.read(question.id)
        except NotFound:
            self._store.count_refusal("unproved")
            raise
        request = replace(
            found.request,
            card=await self._card(question, declaration, args),
            messages=messages,
            thread=hash_thread(messages),
            answer_schema=declaration.get("answer_schema") if question.kind == "approval" else None,
        )
        old = rows.revision(question.edit_of) if question.edit_of else None
        if old is not None:
            before = await self._card(old, declaration, await self._arguments(old))
            request = replace(request, before=before.rows)
        if request.state in ("pending", "approved") and not self._declares(question):
            request = replace(request, undeclared=True)
        if question.doubt_of:
            request = replace(request, late_report=await self._late_report(question, args))
        return LoadedRequest(request, args, declaration, rows)

    async def _late_report(self, question: Question, args: Mapping[str, Any]) -> LateReport | None:
        ticket = await self._store.read_ticket(ticket_key(digest_with(question)(args), question.doubt_of))
        report = None if ticket is None else ticket.late_report
        return report and replace(report, text=one_line(report.text, LATE_REPORT_CHARS).text)

    async def list_waiting(
        self,
        tenant: str,
        *,
        approvers: Sequence[str] | None = None,
        readers: Sequence[str] | None = None,
        wanted: Callable[[WaitingCard], bool] | None = None,
        limit: int = 100,
    ) -> list[WaitingCard]:
        """Soonest deadline first.

        `approvers` restricts the list to requests that these entries may decide. `wanted` gets a row without its effect
        and returns whether to list it. `readers` are the reader's approver entries, or `None` for a reader of
        everything. Leaves out unproved rows.
        """
        cards: list[WaitingCard] = []
        # Without a filter nearly all rows are listed: reading more of them than are listed takes time for nothing.
        size = PIECE if wanted is not None else limit
        entries = readers if approvers is None else approvers
        # Many rows share few tools. Reading the declaration for each row took most of the time of a list.
        declarations: dict[tuple[str, str], Mapping[str, Any]] = {}
        # A partly consumed generator is otherwise closed only by the garbage collector.
        async with aclosing(self._lists.iterate_waiting(tenant, readers=entries, piece=size)) as pieces:
            async for piece in pieces:
                for request in piece:
                    if len(cards) == limit:
                        break
                    row = await self._build_listed(request, approvers, wanted, declarations)
                    cards += [row] if row is not None else []
                if len(cards) == limit:
                    break
        return sorted(cards, key=lambda row: row.expires_at or _NEVER)

    async def _build_listed(
        self,
        request: ApprovalRequest,
        approvers: Sequence[str] | None,
        wanted: Callable[[WaitingCard], bool] | None,
        declarations: dict[tuple[str, str], Mapping[str, Any]],
    ) -> WaitingCard | None:
        if approvers is not None and set(request.approvers).isdisjoint(approvers):
            return None
        if wanted is not None and not wanted(_row(request, "")):
            return None
        try:
            declaration, args = await self._prove(request, declarations)
        except NotFound:
            return None
        try:
            return _row(request, _effect(request, declaration, args), card_amount(request, declaration, args))
        # A worker may have stored a declaration that no tool has: one bad row must not make the whole list fail.
        except Exception as error:
            _log.error("the request %r cannot be drawn: %s", request.id, trace_without_words(error))
            return None

    async def list_of_turn(self, turn: TurnKey) -> list[ApprovalRequest]:
        """Return all revisions, without cards. Includes only requests for whose requester the gateway signed."""
        return (await self.rows_of_turn(turn)).requests

    async def rows_of_turn(self, turn: TurnKey) -> TurnRows:
        """The requests are those of `list_of_turn`."""
        rows = await self._lists.of_turn(turn)
        return rows._replace(requests=[request for request in rows.requests if self._is_vouched(request)])

    async def find_by_code(self, tenant: str, code: str) -> str | None:
        return await self._rows.find_by_code(tenant, code)

    async def _prove(
        self, question: Question, declarations: dict[tuple[str, str], Mapping[str, Any]] | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Recompute all hashes and check all signatures.

        `declarations` caches checked declarations for one caller, by hash and tool.
        """
        cache, own = declarations if declarations is not None else {}, (question.definition, question.tool)
        declaration = cache.get(own)
        if declaration is None:
            declaration = cache[own] = await self._declaration(question)
        args = await self._arguments(question)
        if question.judging_delay > JUDGED_SECONDS:
            self._refuse_unproved(question, "it was judged at another moment than it was asked")
        if not self._is_vouched(question):
            self._refuse_unproved(question, "the gateway did not sign for its requester")
        try:
            digest = digest_with(question)(args)
        except NotCanonical:
            self._refuse_unproved(question, "its arguments cannot be encoded")
        if question.doubt_of:
            digest = doubt_digest(digest, question.doubt_of)
        if digest != question.digest:
            self._refuse_unproved(question, "its digest does not match its call")
        return declaration, args

    async def _declaration(self, question: Question) -> Mapping[str, Any]:
        body = await self._fetch(question.definition)
        if body is None:
            self._refuse_unproved(question, "its declaration does not match its hash")
        try:
            declaration = json.loads(body)
        except (ValueError, RecursionError):
            declaration = None
        if not isinstance(declaration, dict):
            self._refuse_unproved(question, "its declaration is no JSON object")
        if declaration.get("name") != question.tool:
            self._refuse_unproved(question, "its declaration belongs to another tool")
        return declaration

    async def _arguments(self, question: Question) -> Mapping[str, Any]:
        content: Content = question.args
        if content.blob is not None and await self._fetch(content.blob.sha256) is None:
            self._refuse_unproved(question, "its arguments do not match their hash")
        try:
            args = await load(self._store, content)
        except (ValueError, RecursionError):
            args = None
        if not isinstance(args, dict):
            self._refuse_unproved(question, "its arguments are no JSON object")
        return args

    async def _fetch(self, sha256: str) -> bytes | None:
        """Return the bytes with this hash, or `None`."""
        # PostgreSQL takes no NUL, and would look as if it were unavailable.
        body = None if "\0" in sha256 else await self._store.get_blob(sha256)
        return body if body is not None and hashlib.sha256(body).hexdigest() == sha256 else None

    def _is_vouched(self, question: Question) -> bool:
        asker = question.requester
        if not (asker.signature or asker.key_id):
            return self.development
        return self._verifier().check_asker(question)

    def _refuse_unproved(self, question: Question, why: str) -> NoReturn:
        _log.error("the request %r is not shown: %s", question.id, why)
        self._store.count_refusal("unproved")
        # Same message as for a missing request, so that a forger learns nothing about the progress of the forgery.
        raise NotFound(f"there is no request `{question.id}`")

    async def _card(self, question: Question, declaration: Mapping[str, Any], args: Mapping[str, Any]) -> Card:
        key = await self._store.secret_key(MARK_KEY)
        return draw_card(question, declaration, args, digest_mark(question.digest, key))


def _effect(question: Question, declaration: Mapping[str, Any], args: Mapping[str, Any]) -> str:
    secrets = frozenset({*question.secrets, *declaration["secrets"]})
    title = str(declaration["title"])
    effect, schema = str(declaration["effect"]), declaration["input_schema"]
    return effect_sentence(effect, title=title, tool=question.tool, args=args, schema=schema, secrets=secrets)


def _row(request: ApprovalRequest, effect: str, amount: Amount = NO_AMOUNT) -> WaitingCard:
    return WaitingCard(
        id=request.id,
        code=request.code,
        revision=request.revision,
        tool=request.tool,
        actor=request.actor,
        effect=effect,
        amount=amount.value,
        currency=amount.currency,
        requester=request.requester.user,
        approvers=request.approvers,
        opened_at=request.opened_at,
        expires_at=request.expires_at,
        kind=request.kind,
        reminded=request.reminded,
        escalated=request.escalated,
        edited_by=request.edited_name or request.edited_by,
        answered_by=(*(vote.subject for vote in request.votes), *people_who_gave(request.assignments)),
        tenant=request.tenant,
        session=request.session,
        turn=request.turn,
    )


_NEVER: Final = datetime.max.replace(tzinfo=UTC)
