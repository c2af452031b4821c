"""Takes requests for people, from rooms and the inbox. Taking informs others, and changes no right."""

from signoff.approvals.audit_events import taken_entry
from signoff.audit.log import entry_writer
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import Clock
from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.questions.taken_requests import TakenRequest, TakenRequests
from signoff.store.store import Store


class RequestTaker:
    """Only people who may decide a waiting request take it, or give it back.

    All methods raise `Refused` (`not_allowed`) for others, and `Unavailable`.
    """

    def __init__(self, store: Store, people: Directory, clock: Clock) -> None:
        self._taken = TakenRequests(store)
        self._cards = DeliveryQueue(store)
        self._people = people
        self._clock = clock

    def may_take(self, request: ApprovalRequest, person: Person) -> bool:
        """True also for a request that has ended, so that it can be named to the person."""
        return not resolve_eligibility(person, self._people, approver_spec_of(request), self._clock()).code

    async def take(self, request: ApprovalRequest, person: Person, channel: str) -> TakenRequest:
        """Return the holder, perhaps another person who was first."""
        self._check(request, person)
        taking = await self._taken.take(
            request.id,
            request.tenant,
            person.id,
            lambda row: entry_writer([taken_entry(request, "taken", channel, person.id, row.taken_at)]),
        )
        # Also after a repeat: the first attempt may have ended before this.
        await self._cards.redraw(request.id)
        return taking.holder

    async def release(self, request: ApprovalRequest, person: Person, channel: str) -> bool:
        """Return whether the person had it."""
        self._check(request, person)
        entry = taken_entry(request, "released", channel, person.id, self._clock())
        released = await self._taken.release(request.id, request.tenant, person.id, entry_writer([entry]))
        await self._cards.redraw(request.id)
        return released

    def _check(self, request: ApprovalRequest, person: Person) -> None:
        if request.state != "pending" or not self.may_take(request, person):
            raise Refused("the person may not take this request", code="not_allowed")
