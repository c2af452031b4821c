"""Decides answers of channels as those of the inbox, bound to what the card showed."""

from collections.abc import Sequence

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.gateway.approvals.decisions import decide
from signoff.gateway.deps import GatewayDeps


class DecisionAdapter:
    """Answers channels; see `signoff.channels.inbound.answer_handler.DecisionPort`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor, *, again: bool = False) -> Receipt:
        """Decides what somebody was asked, for them.

        What may have been sent is sent again only once a worker answers: each time makes the turn's history longer.
        """
        if again and not await self._answers(draft.approval_id):
            return Receipt(status="pending", approval_id=draft.approval_id, verdict=draft.verdict)
        return await decide(self._deps, draft, author)

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        """Returns requests with this code that the person may decide, waiting or decided. Raises
        `ServerUnavailable`.
        """
        found = await self._deps.requests.find_by_code(person.tenant, code)
        if found is None:
            return ()
        try:
            request = (await self._deps.requests.load(found)).request
        except NotFound:
            return ()
        asked = not set(self._deps.rights(person)).isdisjoint(request.approvers)
        return (request,) if asked else ()

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        """Returns the request's page in the inbox, which asks for a sign-in."""
        return f"{self._deps.settings.public_url}/approvals/{request.id}"

    async def _answers(self, approval: str) -> bool:
        """Returns whether a worker can say what became of a request, or there is none."""
        try:
            await self._deps.client.request(approval)
        except NotFound:
            return True
        except ServerUnavailable:
            return False
        return True
