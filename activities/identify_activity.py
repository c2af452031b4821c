"""Local activity `signoff.identify`: finds out who answered, and whether they may now."""

import logging
from datetime import datetime
from typing import Final

from temporalio import activity

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.activity_messages import Authority, IdentifyTask
from signoff.contracts.decision import Decision
from signoff.keys.signatures import Verifier
from signoff.people.authority import SignatureEvidence, check_authority
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions

_UNKEPT: Final = "`remember`: only an answer given through the gateway is remembered"
_log = logging.getLogger(__name__)


class IdentifyActivity:
    """Says whose answer it is: by what the gateway stored, else by the directory as it is now; never fails."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)
        self._answers = Answers(deps.store)

    @activity.defn(name=names.IDENTIFY)
    async def identify(self, task: IdentifyTask) -> Authority:
        """Returns whether the author of this decision may decide this request, and as whom."""
        try:
            evidence = evidence_of(task.decision, self._deps.verifier, self._deps.clock())
            development = self._deps.profile == "development"
            # Nobody is looked up on the word of a forger.
            named = () if evidence.kind == "forged" else (task.decision.subject, task.requester)
            people = await self._deps.directory_for(task.tenant, *named)
            found = await self._find_stored(task.decision, evidence)
            if found is not None:
                return found
            if development:
                return _refuse_unkept(task.decision, check_authority(task, evidence, people, development=True))
            asked = await self._with_stored_terms(task)
            return _discreet(_refuse_unkept(task.decision, check_authority(asked, evidence, people, development=False)))
        except Exception as error:
            # A directory can be anybody's code, and whatever escapes from here would leave the answer without receipt.
            _log.warning("who answered %s cannot be known now: %s", task.decision.approval_id, type(error).__name__)
            return Authority(allowed=False, code="unavailable")

    async def _find_stored(self, decision: Decision, evidence: SignatureEvidence) -> Authority | None:
        """Returns the gateway's finding on the author of a stored answer; None of one that never came by the gateway.

        The gateway decided who was first, and nothing signed leaves it that does not lie in the store.
        """
        # The gateway stamps what it takes: whatever has no time, as from Temporal's own UI, came past it.
        stamped = decision.received_at is not None and evidence.kind != "forged"
        votes = await self._answers.votes_of(decision.approval_id, decision.delivery_id) if stamped else []
        for vote in votes:
            if _is_one(vote.decision, decision):
                return Authority(
                    allowed=True,
                    subject=vote.subject,
                    person_id=vote.person_id,
                    name=vote.name,
                    assurance=vote.assurance,
                    unsigned=vote.unsigned,
                    on_behalf=vote.on_behalf,
                    entries=vote.entries,
                    received_at=vote.at,
                )
        if evidence.kind == "signed":
            return Authority(allowed=False, code="assurance", subject=decision.subject)
        return None

    async def _with_stored_terms(self, task: IdentifyTask) -> IdentifyTask:
        """Returns `task` with the store's terms of its question: whom it asks, and whether unsigned answers count.

        Else a turn that may write any role into its task would learn who has it.
        """
        decision = task.decision
        rows = await self._rows.read(decision.approval_id)
        question = None if rows is None else rows.revision(decision.revision or rows.latest.revision)
        if question is None:
            return task.model_copy(update={"accept_unsigned": False})
        asked = (*question.approvers, *question.escalate_to)
        return task.model_copy(
            update={
                "approvers": tuple(each for each in task.approvers if each in asked),
                "requester": question.requester.user,
                "requester_person": question.requester.person_id,
                "allow_self": question.allow_self,
                # Without a say as long as what is unsigned is refused or waives it; never the turn's word all the same.
                "min_assurance": question.min_assurance,
                "accept_unsigned": task.accept_unsigned and question.accept_unsigned,
                "proposers": question.proposers,
                "groups": question.groups,
            }
        )


def _discreet(found: Authority) -> Authority:
    """Removes from `found` whom the answer names, where the answer does not count."""
    if found.allowed:
        return found
    return found.model_copy(update={"person_id": "", "name": "", "on_behalf": "", "assurance": "none", "entries": ()})


def _refuse_unkept(decision: Decision, found: Authority) -> Authority:
    """Refuses an answer that wishes to be remembered and came past the gateway, which alone remembers."""
    if decision.remember is None or not found.allowed:
        return found
    return found.model_copy(update={"allowed": False, "code": "malformed", "note": _UNKEPT})


def _is_one(stored: Decision, given: Decision) -> bool:
    """Returns whether two decisions are one answer; a turn names its author as the gateway did."""
    return stored.model_copy(update={"subject": given.subject}) == given


def evidence_of(decision: Decision, verifier: Verifier, now: datetime) -> SignatureEvidence:
    """Checks the signature of a decision. A key id or a signature alone claims one, too."""
    if not decision.signature and not decision.key_id:
        return SignatureEvidence("unsigned", now)
    if not verifier.check_decision(decision):
        return SignatureEvidence("forged", now)
    received = decision.received_at
    if received is None or received.tzinfo is None:
        return SignatureEvidence("signed", now)
    return SignatureEvidence("signed", received, received)
