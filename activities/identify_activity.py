"""Local activity `signoff.identify`: identifies the author of an answer, and their present right to decide."""

import logging
from typing import Final, Literal

from temporalio import activity

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.decision import Decision
from signoff.contracts.receipt import Receipt
from signoff.decisions.answer_taker import UNSAFE_ANSWER, authority_of, refuse
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.formats.replace import replace
from signoff.keys.signatures import Verifier
from signoff.people.authority import check_authority
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions
from signoff.store.questions.raw_answers import RawAnswers

_WAITS: Final = "the answer is kept; a gateway takes it in"
_log = logging.getLogger(__name__)


class IdentifyActivity:
    """Finds the author of an answer in the store. Stores a raw answer first. Never fails."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._answers = Answers(deps.store)
        self._raw = RawAnswers(deps.store)
        self._taker = RawAnswerTaker(
            deps.store, deps.clock, deps.catalog.takes_unsigned, development=deps.believes_unsigned
        )

    @activity.defn(name=names.IDENTIFY)
    async def identify(self, decision: Decision) -> Authority:
        try:
            proof = proof_of(decision, self._deps.verifier)
            if proof == "forged":
                # A forged answer must cause no lookup.
                return Authority(allowed=False, code="assurance")
            found = await self._find_stored(decision)
            if found is not None:
                return found
            if proof == "signed":
                # The gateway stores each answer before handing it over.
                return Authority(allowed=False, code="assurance", subject=decision.subject)
            rows = await self._rows.read(decision.approval_id)
            if rows is None:
                return Authority(allowed=False, code="assurance", unsigned=True)
            return await self._judge_raw(decision, rows.request(rows.latest))
        except NotCanonical:
            return _refused(refuse("malformed", decision.approval_id, UNSAFE_ANSWER))
        except Exception as error:
            # A directory may be custom code, and an escaped exception would leave the answer without a receipt.
            _log.warning(
                "the author of the answer to %s is unknown now: %s", decision.approval_id, type(error).__name__
            )
            return Authority(allowed=False, code="unavailable")

    async def _find_stored(self, decision: Decision) -> Authority | None:
        # Each stored answer has a time of arrival. Answers from Temporal's own UI have none.
        has_arrival = decision.received_at is not None
        votes = await self._answers.votes_of(decision.approval_id, decision.delivery_id) if has_arrival else []
        for vote in votes:
            if _is_one(vote.decision, decision):
                return authority_of(vote)
        return None

    async def _judge_raw(self, decision: Decision, asked: ApprovalRequest) -> Authority:
        """Store a raw answer if it may count, and accept it if this worker may write answers."""
        withdrawn = decision.verdict == "withdrawn"
        # The sender can also stop the turn, so a withdrawal needs no proof. Its name counts only in development:
        # elsewhere, a turn could probe for any person.
        counts = self._deps.believes_unsigned if withdrawn else self._taker.counts(asked.tool, asked.definition)
        if not counts:
            return Authority(allowed=False, code="assurance", unsigned=True)
        if withdrawn:
            people = await self._deps.directory_for(asked.tenant, decision.subject, asked.requester.user)
            return check_authority(asked, decision, self._deps.clock(), people, unsigned=True, development=True)
        keeps = self._deps.store.role == "worker"
        key = _key(decision, asked.revision, once=not keeps)
        if keeps:
            kept = await self._raw.add(key, decision)
            waits = Receipt(status="pending", approval_id=asked.id, state="pending", message=_WAITS)
            return _refused(waits if kept is not None else refuse("not_allowed", decision.approval_id, why="enough"))
        try:
            people = await self._deps.directory_for(asked.tenant, decision.subject, asked.requester.user)
            taken = await self._taker.keep_and_take(key, decision, people)
        except Exception:
            # Keep the answer: it is accepted once its author can be looked up.
            await self._raw.add(key, decision)
            raise
        if taken is None:
            return _refused(refuse("not_allowed", decision.approval_id, why="enough"))
        if taken.vote is not None:
            return replace(authority_of(taken.vote), taken=taken.vote.decision)
        # The receipt of a refused answer names its author only in development.
        author = taken.author if self._deps.believes_unsigned else None
        return _refused(taken.receipt, author)


def _key(decision: Decision, revision: int, *, once: bool) -> str:
    """Return the key of a raw answer: its run, the pending revision, and its content.

    A repeated workflow task may reorder its messages, so the activity's number does not identify a message. With
    `once`, equal answers to one revision share a key.
    """
    info = activity.info()
    name = f"{info.workflow_run_id}/{revision}/{sha256_hex(decision.model_dump(mode='json'))}"
    return name if once else f"{name}/{info.activity_id}"


def _refused(receipt: Receipt, author: Authority | None = None) -> Authority:
    found = author or Authority(allowed=False, unsigned=True)
    return replace(found, allowed=False, code=receipt.code, receipt=receipt)


def _is_one(stored: Decision, given: Decision) -> bool:
    """Compare two decisions. A turn names the author as the gateway did."""
    return replace(stored, subject=given.subject) == given


def proof_of(decision: Decision, verifier: Verifier) -> Literal["signed", "unsigned", "forged"]:
    """A key id or a signature alone counts as a claim to be signed. Trust nothing in a decision with a false claim."""
    if not decision.signature and not decision.key_id:
        return "unsigned"
    return "signed" if verifier.check_decision(decision) else "forged"
