"""Decides, withdraws and undoes for known people. Every attempt ends in a receipt.

The rows of one approval, under their lock, decide the order. Neither clocks nor workflows do.
"""

import logging
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import Connection

from signoff.approvals import audit_events
from signoff.approvals.confirmation import is_confirmed, missing_words
from signoff.approvals.machine import refusal, settled_receipt, stale_receipt
from signoff.approvals.request_state import INBOX, with_browser
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Assigning, Decision, PasskeyAssertion, at_least
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt, ReceiptCode, ReceiptReason
from signoff.contracts.requests import (
    AssignmentBody,
    DecisionAuthor,
    DecisionDraft,
    decision_from_assignment,
    decision_from_draft,
)
from signoff.contracts.responses import PasskeyOptions
from signoff.decisions.answer_taker import UNSAFE_ANSWER, AnswerTaker, Taken, refuse
from signoff.decisions.assignment_taker import Assigner, AssignmentTaker
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.engine.kill_switch import OPERATOR
from signoff.formats.bounds import bounds_problem
from signoff.formats.replace import replace
from signoff.gateway.approvals.answer_handover import AnswerHandover
from signoff.gateway.approvals.edited_card import edited_request
from signoff.gateway.approvals.presence_check import PresenceCheck
from signoff.gateway.approvals.secret_masks import unmasked_args
from signoff.gateway.approvals.value_check import has_read
from signoff.gateway.auth.passkey_registration import warn_of_copy
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.grant_rows import write_agreed_grant
from signoff.keys.signature_form import new_nonce
from signoff.people.authority import check_authority
from signoff.people.eligibility import approver_spec_of, can_remember, has_handed_on, resolve_eligibility
from signoff.policypool.pool import ask_rules
from signoff.registry.gates.grant_match import GrantMatcher
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.raw_answers import RawAnswer
from signoff.store.request_reader import ProvedQuestion
from signoff.telemetry.json_log import bind_log_fields, fields_of_request

_NO_REQUEST: Final = "there is no such request"
_HASH_NEEDED: Final = "`question_hash`: send back the one of the request that was shown"
_log = logging.getLogger(__name__)


class DecisionService:
    """The one way of answers into the store, for every entrance.

    All methods raise `StoreUnavailable`: then nothing was stored. If the turn cannot take a stored answer now, it gets
    it later. A person without read access gets the answer for an unknown request.
    """

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._taker = AnswerTaker(deps.clock)
        self._handover = AnswerHandover(deps.store, deps.client)
        self._presence = PresenceCheck(deps)

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
        """Decide the request as `author`, stamped with the gateway's clock and signed.

        Records a refusal here, because the turn may be closed or may never learn of it.
        """
        draft = replace(draft, delivery_id=draft.delivery_id or new_nonce())
        found = await self._find(draft.approval_id)
        receipt = _unknown(draft.approval_id) if found is None else await self._decide(found, draft, author)
        if receipt.status != "refused":
            return receipt
        if receipt.why == "passkey_cloned":
            warn_of_copy(self._deps.store, author.person)
        tried = decision_from_draft(draft, author, self._deps.clock())
        return await self._refused(receipt, tried, found, author.person)

    async def make_challenge(self, draft: DecisionDraft, author: DecisionAuthor) -> PasskeyOptions:
        """Return a challenge for the author's passkey, for exactly this decision. Raises `NotFound`, `Refused`."""
        found = await self._find(draft.approval_id)
        if found is None or not await Conversations(self._deps).may_read(found.request, author.person):
            raise NotFound(_NO_REQUEST)
        decision = self._decision(found, draft, author)
        if isinstance(decision, Receipt):
            raise Refused(decision.message or "the request has changed; read it again", code=decision.code)
        return await self._presence.options(decision, found.request.tenant)

    async def make_assignment_challenge(
        self, approval_id: str, verdict: Assigning, body: AssignmentBody, author: DecisionAuthor
    ) -> PasskeyOptions:
        """Return a challenge of the author's passkeys for a hand-on, or an added approver.

        Raises `NotFound` for people who may not read the request, and `Refused` without a passkey.
        """
        found = await self._find(approval_id)
        if found is None or not await Conversations(self._deps).may_read(found.request, author.person):
            raise NotFound(_NO_REQUEST)
        decision = self._assignment(found, approval_id, verdict, body, author)
        return await self._presence.options(decision, found.request.tenant)

    async def assign(
        self,
        approval_id: str,
        verdict: Assigning,
        body: AssignmentBody,
        author: DecisionAuthor,
        passkey: PasskeyAssertion | None = None,
    ) -> Receipt:
        """Hand a request on to another approver, or add one, as `author`."""
        deps = self._deps
        found = await self._find(approval_id)
        decision = self._assignment(found, approval_id, verdict, body, author)
        if found is None:
            return await self._refused(_unknown(approval_id), decision, None, author.person)
        if not decision.question_hash:
            receipt = refusal(found.request, "malformed", _HASH_NEEDED)
            return await self._refused(receipt, decision, found, author.person)
        if found.request.state == "pending" and not self._ineligible(found.request, author.person):
            proved = await self._presence.prove(found.request, decision, passkey, author)
            if isinstance(proved, Receipt):
                return await self._refused(proved, decision, found, author.person)
            decision = proved

        def take(connection: Connection, rows: ApprovalRows | None) -> Receipt:
            assigner = Assigner(deps.people, self._author, partial(self._sign_proved, connection))
            return AssignmentTaker(deps.clock, assigner).take_locked(connection, rows, decision)

        with bind_log_fields(fields_of_request(approval_id)):
            async with deps.acts.decision(found.request, decision):
                receipt = await self._rows.run_locked(approval_id, take)
        return receipt if receipt.status != "refused" else await self._refused(receipt, decision, found, author.person)

    def _assignment(
        self,
        found: ProvedQuestion | None,
        approval_id: str,
        verdict: Assigning,
        body: AssignmentBody,
        author: DecisionAuthor,
    ) -> Decision:
        deps = self._deps
        body = replace(body, delivery_id=body.delivery_id or new_nonce())
        if found is not None:
            # A passkey confirms the person's id, not one of their other names.
            body = replace(body, to=deps.people.person_id(body.to, found.request.tenant))
            if deps.development:
                asked = {"revision": found.request.revision, "question_hash": found.request.question_hash}
                body = replace(body, **{name: getattr(body, name) or shown for name, shown in asked.items()})
        return decision_from_assignment(body, approval_id, verdict, author, deps.clock())

    def _ineligible(self, request: ApprovalRequest, person: Person) -> ReceiptCode:
        """Return the code of a refusal, "" for an eligible person."""
        deps = self._deps
        return resolve_eligibility(person, deps.people, approver_spec_of(request), deps.clock()).code

    async def withdraw(self, approval_id: str, person: Person, reason: str) -> Receipt:
        """For the requester, approvers and operators."""
        found = await self._find(approval_id)
        if found is None:
            return _unknown(approval_id)
        deps, request = self._deps, found.request
        concerned = person.id == request.requester.user or OPERATOR in person.roles
        if not concerned and self._ineligible(request, person):
            stranger = Decision(approval_id=approval_id, verdict="withdrawn", reason=reason, subject=person.id)
            return await self._refused(refusal(request, "not_allowed", why="withdraw"), stranger, found, person)
        wish = Decision(
            approval_id=approval_id,
            revision=request.revision,
            question_hash=request.question_hash,
            verdict="withdrawn",
            reason=reason,
            subject=person.id,
            delivery_id=new_nonce(),
            received_at=deps.clock(),
        )
        return await self._write(found, wish)

    async def undo_denial(self, approval_id: str, person: Person, browser: str) -> Receipt:
        """Undo the denial that a person has just made in this browser session."""
        with bind_log_fields(fields_of_request(approval_id)):
            undo = partial(self._taker.undo_locked, approval_id, person.id, browser, self._sign)
            receipt = await self._rows.run_locked(approval_id, undo)
        if receipt.status != "refused":
            return receipt
        tried = Decision(approval_id=approval_id, verdict="retracted", subject=person.id, channel=INBOX)
        return await self._refused(receipt, tried, await self._find(approval_id), person)

    async def take_raw(self, raw: RawAnswer) -> Receipt:
        """Store an unsigned answer that bypassed the gateway."""
        deps = self._deps
        taker = RawAnswerTaker(deps.store, deps.clock, deps.catalog.takes_unsigned, development=deps.believes_unsigned)
        with bind_log_fields(fields_of_request(raw.decision.approval_id)):
            return await self._handover.give(await taker.take(raw, deps.people))

    async def _find(self, approval_id: str) -> ProvedQuestion | None:
        try:
            return await self._deps.requests.find(approval_id)
        except NotFound:
            return None

    async def _refused(
        self, receipt: Receipt, tried: Decision, found: ProvedQuestion | None, person: Person
    ) -> Receipt:
        """Record a refusal, and return it if the person may read the request."""
        deps = self._deps
        entry = audit_events.attempt_entry(tried, receipt, deps.clock(), reporter="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        if found is None or not await Conversations(deps).may_read(found.request, person):
            return _unknown(tried.approval_id)
        return receipt

    async def _decide(self, found: ProvedQuestion, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
        deps, request, person = self._deps, found.request, author.person
        # Pages offer decisions by the same rule. `check_authority` repeats it under the approval's lock.
        code = self._ineligible(request, person)
        if code:
            _log.warning("%s may not decide %s", person.id, request.id)
            why: ReceiptReason = "handed_on" if has_handed_on(request, person, deps.people) else ""
            return settled_receipt(request) if request.state != "pending" else refusal(request, code, why=why)
        decision = self._decision(found, draft, author)
        if isinstance(decision, Receipt):
            return decision
        if request.state == "pending":
            proved = await self._presence.prove(request, decision, draft.passkey, author)
            if isinstance(proved, Receipt):
                return proved
            decision = proved
            objection = await self._objection(found, draft, decision, author)
            if objection is not None:
                return objection
        return await self._write(found, decision, author.received_at)

    def _decision(self, found: ProvedQuestion, draft: DecisionDraft, author: DecisionAuthor) -> Decision | Receipt:
        """Return a receipt if the draft names another question: never sign unseen content."""
        request, edited = found.request, draft.edited_args
        if edited is not None:
            if problem := bounds_problem(edited):
                return refusal(request, "malformed", f"`edited_args` holds {problem}")
            if request.state == "pending" and request.secrets:
                try:
                    edited = unmasked_args(edited, found.args, request.secrets)
                except Refused as error:
                    return refusal(request, "malformed", error.message)
        if draft.answer is not None and (problem := bounds_problem(draft.answer)):
            return refusal(request, "malformed", f"`answer` holds {problem}")
        if not draft.question_hash and not self._deps.development:
            return refusal(request, "malformed", _HASH_NEEDED)
        revision = 1 if draft.revision is None else draft.revision
        asked = request.question_hash if revision == request.revision else ""
        named = replace(draft, revision=revision, question_hash=draft.question_hash or asked, edited_args=edited)
        decision = decision_from_draft(named, author, self._deps.clock())
        if request.kind == "approval":
            decision = with_browser(decision, author.browser)
        # A decision on an earlier revision gets the state of the current one.
        is_asked = revision == request.revision and decision.question_hash == request.question_hash
        return decision if is_asked else stale_receipt(request)

    async def _objection(
        self, found: ProvedQuestion, draft: DecisionDraft, decision: Decision, author: DecisionAuthor
    ) -> Receipt | None:
        """Return why the decision cannot count, as far as its card and its wish to be remembered say, or `None`."""
        deps, request = self._deps, found.request
        if decision.verdict in ("approved", "answered"):
            if not at_least(decision.assurance, request.min_assurance):
                # Check first: typing a confirmation would not help.
                return refusal(request, "assurance")
            loaded = await deps.requests.draw(found)
            shown = loaded.request
            if draft.edited_args is not None and request.edit != "off":
                # The editor saw the masks.
                shown = edited_request(shown, draft.edited_args, deps.catalog)
            if decision.verdict == "approved" and not is_confirmed(shown, draft.confirm):
                return refusal(request, "malformed", f"{missing_words(shown)}: send it as `confirm`")
            # Also for an edit: its author approves the unchanged arguments too, so they must have been read.
            # A channel's card has no preview.
            whole = loaded.request.card.whole and not request.preview_required
            if not (whole if author.by_card else await has_read(deps.store, loaded, author.person, draft.seen)):
                return refusal(request, "malformed", why="unseen")
        if decision.remember is not None and not at_least(decision.assurance, "channel"):
            # A link's holder must not decide later requests.
            return refusal(request, "assurance")
        if decision.remember is not None and request.allow_remember:
            if not can_remember(request, author.person, deps.people, deps.clock()):
                return refusal(request, "not_allowed", why="passed_on")
            if problem := await ask_rules(True, GrantMatcher(deps.catalog).problem, request, decision, found.args):
                return refusal(request, "malformed", problem)
        return None

    async def _write(self, found: ProvedQuestion, decision: Decision, arrived: datetime | None = None) -> Receipt:
        """Store a decision or a withdrawal, and hand it to its turn.

        `arrived` is the arrival time of a channel's message by the store's clock, or `None` for now.
        """
        deps, request = self._deps, found.request

        def take(connection: Connection, rows: ApprovalRows | None) -> Taken:
            return self._taker.take_locked(
                connection,
                rows,
                decision,
                question_hash=request.question_hash,
                author=self._author,
                sign=partial(self._sign_proved, connection),
                beside=partial(self._remember, found) if request.allow_remember else None,
                arrived=arrived,
            )

        with bind_log_fields(fields_of_request(request.id)):
            async with deps.acts.decision(request, decision):
                taken = await self._rows.run_locked(request.id, take)
                if taken.vote is not None and taken.receipt.status == "accepted" and request.opened_at is not None:
                    waited = (taken.vote.at - request.opened_at).total_seconds()
                    deps.store.counts.observe("signoff_decision_wait_seconds", waited, decision.verdict)
                return await self._handover.give(taken)

    def _remember(self, found: ProvedQuestion, connection: Connection, after: ApprovalRequest) -> None:
        tool = self._deps.catalog.find_definition(after.tool, after.definition)
        compared = found.args if tool is None else tool.without_remarks(found.args)
        write_agreed_grant(connection, after, compared, self._deps.clock())

    def _author(self, request: ApprovalRequest, decision: Decision, received: datetime) -> Authority:
        deps = self._deps
        unsigned, development = deps.signer is None, deps.believes_unsigned
        return check_authority(request, decision, received, deps.people, unsigned=unsigned, development=development)

    def _sign_proved(self, connection: Connection, decision: Decision) -> Decision | Receipt:
        return self._presence.use(connection, decision) or self._sign(decision)

    def _sign(self, decision: Decision) -> Decision | Receipt:
        """Only the development profile may lack a signer."""
        signer = self._deps.signer
        if signer is None:
            message = "this gateway has no keys"
            return decision if self._deps.believes_unsigned else refuse("unavailable", decision.approval_id, message)
        try:
            return signer.sign_decision(decision)
        except NotCanonical:
            return refuse("malformed", decision.approval_id, UNSAFE_ANSWER)


def _unknown(approval_id: str) -> Receipt:
    return refuse("unknown", approval_id, _NO_REQUEST)
