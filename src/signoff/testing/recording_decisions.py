"""Decides requests without a server, by the real rules, in memory, for tests of what comes in by channels."""

from collections.abc import Callable, Sequence
from datetime import datetime

from signoff.approvals import deadlines
from signoff.approvals.approval_book import ApprovalBook
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import at_least
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft, decision_from_draft
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility


class RecordingDecisions:
    """Keeps every answer in `heard`, in order, and in `again` whether it may have been brought before.

    `worker` False: answers are taken and not decided (`pending`) until it is True again. `server` False: nothing can be
    asked or answered at all.
    """

    def __init__(self, people: Directory, clock: Callable[[], datetime]) -> None:
        self._people = people
        self._clock = clock
        self._book = ApprovalBook()
        self.answers: list[tuple[DecisionDraft, DecisionAuthor]] = []
        self.again: list[bool] = []
        self.worker = True
        self.server = True

    def open(self, request: ApprovalRequest) -> ApprovalRequest:
        """Asks, or ask again; the request as it waits."""
        return self._book.open(deadlines.open_request(request, self._clock()), self._clock())

    def cancel(self, approval: str) -> ApprovalRequest:
        """Withdraws a request."""
        self._book.cancel(approval, "somebody", "", self._clock())
        return self.request(approval)

    def request(self, approval: str) -> ApprovalRequest:
        """Returns a request as it stands. Raises `KeyError`."""
        found = self._book.get(approval)
        if found is None:
            raise KeyError(approval)
        return found

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor, *, again: bool = False) -> Receipt:
        """See `signoff.channels.inbound.answer_handler.DecisionPort`."""
        if not self.server:
            raise ServerUnavailable("the server is away")
        if not self.worker:
            return Receipt(status="pending", approval_id=draft.approval_id, verdict=draft.verdict)
        self.answers.append((draft, author))
        self.again.append(again)
        decision = decision_from_draft(draft, author, self._clock())
        receipt = self._book.precheck(decision, self._clock())
        return receipt or self._book.settle(decision, self._authority(draft, author), self._clock())

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        """See `signoff.channels.inbound.answer_handler.DecisionPort`."""
        if not self.server:
            raise ServerUnavailable("the server is away")
        return [each for each in self._book.all() if each.code == code and not self._refusal_code(each, person)]

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        """See `signoff.channels.inbound.answer_handler.DecisionPort`."""
        return f"http://127.0.0.1:8300/requests/{request.id}"

    def _authority(self, draft: DecisionDraft, author: DecisionAuthor) -> Authority:
        request, person = self.request(draft.approval_id), author.person
        code = self._refusal_code(request, person)
        if not code and not at_least(author.assurance, request.min_assurance):
            code = "assurance"
        return Authority.model_validate(
            {
                "allowed": not code,
                "code": code,
                "subject": person.id,
                "name": person.name,
                "assurance": author.assurance,
                "received_at": author.received_at,
            }
        )

    def _refusal_code(self, request: ApprovalRequest, person: Person) -> str:
        spec = approver_spec_of(request)
        return resolve_eligibility(person, self._people, spec, self._clock()).code
