"""Builds the parts behind the channel suite: the real dispatcher, receiver, processor and rules, over a store."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import update

from signoff.approvals import deadlines, machine
from signoff.approvals.card import render_card
from signoff.approvals.notifications import Notice, NoticeKind, RequestEvent, RequestEventKind
from signoff.approvals.request_thread import hash_thread, is_repeated, question_problem, thread_problem
from signoff.channels.asked_revision import AskedRevision
from signoff.channels.base import Channel
from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import ChannelReply, InboundBatch, InboundRequest, OutboundCard
from signoff.channels.inbound.processor import InboundProcessor
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.channels.inbound.reply_slots import ReplySlot, ReplySlots
from signoff.channels.outbound.dispatcher import Dispatcher
from signoff.channels.outbound.sender import SenderDeps
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, RequestMessage
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.clock import system_clock
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, Verdict, at_least
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.person import Person, Principal
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.requests import DecisionAuthor, DecisionDraft, decision_from_draft
from signoff.formats.replace import replace
from signoff.people.directory import Directory, FixedDirectory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.registry.manifest.room_sections import TeamRoom
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.inbound_queue import InboundQueue, InboundRow
from signoff.store.messages.notices import NewNotice, Notices
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.questions.taken_requests import TakenRequests
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES, TAKEN_REQUESTS
from signoff.testing.vendor import Vendor, VendorCard

TENANT: Final = "main"
_PATIENCE: Final = 20
"""The maximum number of rounds of one step."""


class MovableClock:
    """A clock that a test can move."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return system_clock() + self.ahead


class ChannelRig:
    """A channel between a fake vendor and the real rules. Ana and Bo may approve, Cy may not. Guest asks."""

    def __init__(self, store: Store, channel: Channel, vendor: Vendor, time: MovableClock, locale: str = "en") -> None:
        self.store = store
        self.channel = channel
        self.vendor = vendor
        self.time = time
        self.ana, self.bo, self.cy, self.stranger = vendor.identities
        self.people = FixedDirectory(
            Person(
                id=name,
                name=name.title(),
                tenant=TENANT,
                locale=locale,
                roles=roles,
                identities={channel.identity: (identity,)} if channel.identity else {},
            )
            for name, roles, identity in (
                ("ana", ("approvers",), self.ana),
                ("bo", ("approvers",), self.bo),
                ("cy", (), self.cy),
            )
        )
        self.decisions = RecordingDecisions(self.people, time.now)
        self.cards = DeliveryQueue(store)
        self.events = ScriptedEvents()
        self.recorded: list[AuditEntry] = []
        self.rooms: dict[str, tuple[TeamRoom, ...]] = {}
        self.notices = Notices(store)
        deps = SenderDeps(
            deliveries=self.cards,
            own_messages=OwnMessages(store),
            people=self.people,
            links=self._link,
            record=self._records,
            clock=time.now,
            digest_over=5,
            rooms=self.rooms,
            taken=TakenRequests(store),
            notices=self.notices,
            may_read=lambda person, request: True,
            may_ask=self.decisions.may_ask,
        )
        channels = {channel.name: channel}
        self.dispatcher = Dispatcher(self.events, channels, RoutingRules(), deps)
        self.processor = InboundProcessor(store, channels, self.people, self.decisions, self._records, time.now)
        self.replies = self.processor.replies = WatchedSlots()
        self.receiver = InboundReceiver(store, channels, self._records, time.now, replies=self.replies)

    async def ask(
        self, number: int = 1, *, notify: bool = True, personal: bool = True, **fields: Any
    ) -> ApprovalRequest:
        """Send cards to Bo and Ana unless `notify` is false. Without `personal`, only rooms get cards."""
        name = f"{TENANT}.s.t.c{number}.1"
        args = fields.pop("args", {"to": f"Payee {number}", "amount": number})
        card = render_card(effect=f"Pay {number} to {{to}}", title="", tool="pay", args=args, schema={})
        given: dict[str, Any] = {
            "id": name,
            "code": f"P{number % 10}Q{number // 10 % 10}AY",
            "digest": f"digest {number}",
            "question_hash": f"{number:064x}",
            "tenant": TENANT,
            "turn": "t",
            "actor": "clerk",
            "call": f"c{number}.1",
            "tool": "pay",
            "args": Content(inline=args),
            "card": card,
            "rule": REQUIRES_APPROVAL,
            "approvers": ("role:approvers",),
            "requester": Principal(user="guest", name="Guest"),
            "notify": (self.channel.name,) if personal else (),
            # The highest assurance that the channel can give.
            "min_assurance": "link" if self.channel.assurance == "link" else "channel",
        }
        request = self.decisions.open(ApprovalRequest(**given | fields))
        await self.report_event("opened", request)
        if notify:
            await self.dispatch()
        return request

    def open_room(self, tenant: str = TENANT, locale: str = "") -> None:
        """Show requests to the role `approvers` in the vendor's room, too."""
        self.rooms["role:approvers"] = (TeamRoom(self.channel.name, self.vendor.room, tenant, locale),)

    async def revise(self, request: ApprovalRequest) -> ApprovalRequest:
        """Open the next revision of a request, with other arguments."""
        await self.report_event("closed", request)
        args = {"to": "Somebody else", "amount": 7}
        changed = ("it was changed",)
        card = render_card(effect="Pay 7 to {to}", title="", tool="pay", args=args, schema={}, notes=changed)
        revised = self.decisions.open(
            replace(request, revision=request.revision + 1, question_hash="f" * 64, card=card)
        )
        await self.report_event("opened", revised)
        await self.dispatch()
        return revised

    async def answer_question(self, request: ApprovalRequest, words: str) -> None:
        """Answer an approver's question as the agent, and send the new cards."""
        number = len(self.request(request.id).messages) + 1
        said = RequestMessage(number=number, by="agent", text=words, revision=request.revision)
        await self.report_event("told", self.decisions.tell(request.id, said))
        await self.dispatch()

    async def report_event(self, kind: RequestEventKind, request: ApprovalRequest) -> None:
        self.events.add(kind, request)

    async def dispatch(self) -> None:
        for _ in range(_PATIENCE):
            if not await self.dispatcher.step():
                return

    async def notify(self, request: ApprovalRequest, kind: NoticeKind = "decided") -> None:
        """Send Bo a notice about a request."""
        notice = Notice(kind=kind, about=request.id, at=self.time.now(), request=request)
        row = NewNotice(notice=notice, tenant=TENANT, person="bo", channel=self.channel.name, address=self.bo)
        await self.notices.plan([row])
        await self.dispatch()

    async def make_due(self) -> None:
        due = update(DELIVERIES).values(due_at=0, claimed_until=0)
        await self.store.run(lambda connection: connection.execute(due).rowcount)

    async def backdate(self, request: ApprovalRequest, minutes: int = 60) -> None:
        """Move a revision's cards back by `minutes`. The end of ended cards moves back by ten minutes."""
        back, over = minutes * 60_000, 600_000
        values = {"tried_at": DELIVERIES.c.tried_at - back, "sent_at": DELIVERIES.c.sent_at - back}
        values |= {"created_at": DELIVERIES.c.created_at - back, "ended_at": DELIVERIES.c.ended_at - over}
        of = (DELIVERIES.c.approval == request.id, DELIVERIES.c.revision == request.revision)
        moving = update(DELIVERIES).where(*of).values(values)
        await self.store.run(lambda connection: connection.execute(moving).rowcount)

    async def age_taking(self, request: ApprovalRequest, age: timedelta) -> None:
        """Move the moment at which a request was taken back by `age`."""
        back = round(age.total_seconds() * 1000)
        of = TAKEN_REQUESTS.c.approval == request.id
        moving = update(TAKEN_REQUESTS).where(of).values(taken_at=TAKEN_REQUESTS.c.taken_at - back)
        await self.store.run(lambda connection: connection.execute(moving).rowcount)

    async def receive(self, *raws: InboundRequest) -> list[type[Exception] | None]:
        """Return the refusal of each message, or `None`. All messages arrive before one is processed."""
        taking = [await self._begin(raw) for raw in raws]
        await self.process_inbound()
        refusals: list[type[Exception] | None] = []
        for raw, task in zip(raws, taking, strict=True):
            try:
                self.vendor.show_response(raw, await task)
                refusals.append(None)
            except (Forged, Malformed) as error:
                refusals.append(type(error))
        return refusals

    async def _begin(self, raw: InboundRequest) -> asyncio.Task[InboundBatch]:
        """Return once the message is stored: the vendor's request may wait for its reply."""
        waits = asyncio.Event()
        self.replies.opened = waits
        task = asyncio.create_task(self.receiver.take(self.channel.name, raw, waits=True))
        waiting = asyncio.create_task(waits.wait())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return task

    async def process_inbound(self) -> None:
        """Also close the cards of decided requests."""
        for _ in range(_PATIENCE):
            if not await self.processor.step():
                break
        answered = {draft.approval_id: self.request(draft.approval_id) for draft, _ in self.decisions.answers}
        for request in answered.values():
            if request.state != "pending":
                await self.report_event("closed", request)
        await self.dispatch()

    async def decide_elsewhere(self, request: ApprovalRequest, verdict: Verdict = "approved", reason: str = "") -> None:
        """Decide a request as Ana, in the inbox."""
        await self.decide_in_inbox(request, verdict, reason)
        await self.process_inbound()

    async def decide_in_inbox(self, request: ApprovalRequest, verdict: Verdict = "approved", reason: str = "") -> None:
        """Decide a request as Ana in the inbox, without reporting an event."""
        ana = self.people.find("ana", TENANT)
        assert ana is not None
        draft = DecisionDraft.model_validate(
            {
                "approval_id": request.id,
                "revision": request.revision,
                "question_hash": request.question_hash,
                "verdict": verdict,
                "reason": reason,
                "delivery_id": "elsewhere",
            }
        )
        await self.decisions.decide(draft, DecisionAuthor(ana, "inbox", "session", self.time.now()))

    def request(self, approval: str) -> ApprovalRequest:
        return self.decisions.request(approval)

    def card(self, identity: str, revision_of: str = "") -> VendorCard:
        """Return a person's newest card, optionally of the request with the code `revision_of`."""
        mine = [card for card in self.vendor.cards() if card.to == identity and revision_of in card.text]
        assert mine, f"{identity} was sent no card"
        return mine[-1]

    def text_read_by(self, identity: str) -> str:
        return "\n\n".join(self.vendor.reads(identity))

    async def delivery(self, request: ApprovalRequest, person: str) -> DeliveryRow:
        rows = await self.cards.of_request(request.id, request.revision)
        return next(row for row in rows if row.person == person)

    async def outbound_card(self, row: DeliveryRow) -> OutboundCard:
        person = self.people.find(row.person, row.tenant)
        assert person is not None
        link = await self._link(row)
        return OutboundCard(token=row.token, request=row.request, person=person, address=row.address, link=link)

    async def inbound_rows(self) -> list[InboundRow]:
        return await InboundQueue(self.store).claim(100)

    async def _link(self, row: DeliveryRow) -> str:
        return f"https://signoff.example/link/{row.token}"

    async def _records(self, entries: Sequence[AuditEntry]) -> int:
        self.recorded += entries
        return len(entries)


class WatchedSlot(ReplySlot):
    """A slot that sets `waits` once its request waits."""

    def __init__(self, waits: asyncio.Event) -> None:
        super().__init__()
        self._waits = waits

    async def wait(self, seconds: float) -> ChannelReply | None:
        self._waits.set()
        return await super().wait(seconds)


class WatchedSlots(ReplySlots):
    """Makes slots that set `opened`."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()

    def make(self) -> ReplySlot:
        return WatchedSlot(self.opened)


class RecordingDecisions:
    """Records every answer in `answers`, in order.

    With `worker` false, answers are accepted and stay undecided (`pending`). With `server` false, everything fails.
    """

    def __init__(self, people: Directory, clock: Callable[[], datetime]) -> None:
        self._people = people
        self._clock = clock
        self._requests: dict[str, ApprovalRequest] = {}
        self._receipts: dict[tuple[str, str, int], Receipt] = {}
        self.answers: list[tuple[DecisionDraft, DecisionAuthor]] = []
        self.worker = True
        self.server = True

    def open(self, request: ApprovalRequest) -> ApprovalRequest:
        """Return the request or its next revision as it waits."""
        self._requests[request.id] = deadlines.open_request(request, self._clock())
        return self.request(request.id)

    def cancel(self, approval: str) -> ApprovalRequest:
        ended = {"state": "cancelled", "decided_by": "somebody", "decided_at": self._clock()}
        self._requests[approval] = replace(self.request(approval), **ended)
        return self.request(approval)

    def request(self, approval: str) -> ApprovalRequest:
        return self._requests[approval]

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
        if not self.server:
            raise ServerUnavailable("the server is away")
        if not self.worker:
            return Receipt(status="pending", approval_id=draft.approval_id, verdict=draft.verdict)
        self.answers.append((draft, author))
        decision = decision_from_draft(draft, author, self._clock())
        named = (decision.delivery_id, decision.approval_id, decision.revision or 1)
        if named in self._receipts:
            return replace(self._receipts[named], code="duplicate")
        receipt = self._take(decision, self._authority(draft, author))
        if receipt.status != "refused" and decision.delivery_id:
            self._receipts[named] = receipt
        return receipt

    async def ask(self, asked: AskedRevision, question: str, author: DecisionAuthor, *, again: bool) -> Receipt:
        request, person = self.request(asked.request.id), author.person
        message = RequestMessage(
            number=len(request.messages) + 1,
            by="approver",
            text=question,
            revision=request.revision,
            subject=person.id,
            name=person.name,
            channel=author.channel,
            at=self._clock(),
        )
        if code := self._refusal_code(request, person):
            return machine.refusal(request, code)
        if asked.question_hash != request.question_hash:
            return machine.stale_receipt(request)
        since = author.received_at if again else None
        if since is None or not is_repeated(request.messages, message, since):
            problem = question_problem(request, request.messages, question)
            if problem is not None:
                return problem
            self.tell(request.id, message)
        return Receipt(status="accepted", approval_id=request.id, state="pending")

    def tell(self, approval: str, message: RequestMessage) -> ApprovalRequest:
        """Add a message about a request."""
        messages = (*self.request(approval).messages, message)
        self._requests[approval] = replace(self.request(approval), messages=messages, thread=hash_thread(messages))
        return self.request(approval)

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        if not self.server:
            raise ServerUnavailable("the server is away")
        waiting = self._requests.values()
        return [each for each in waiting if each.code == code and not self._refusal_code(each, person)]

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        return f"http://127.0.0.1:8300/requests/{request.id}"

    def may_ask(self, request: ApprovalRequest) -> bool:
        return question_problem(request, request.messages, "?") is None

    def _take(self, decision: Decision, author: Authority) -> Receipt:
        if decision.approval_id not in self._requests:
            return Receipt(status="refused", code="unknown", approval_id=decision.approval_id)
        request, now = self.request(decision.approval_id), self._clock()
        refused = machine.examine(request, decision, author, now)
        if refused is None and decision.verdict == "approved":
            refused = thread_problem(request, decision.thread, request.messages)
        if refused is not None:
            return refused
        after = machine.count_vote(request, machine.vote_of(decision, author, author.received_at or now))
        self._requests[request.id] = after
        return machine.receipt_after(request, after)

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

    def _refusal_code(self, request: ApprovalRequest, person: Person) -> ReceiptCode:
        spec = approver_spec_of(request)
        return resolve_eligibility(person, self._people, spec, self._clock()).code


class ScriptedEvents:
    """Returns each added event once. Dispatchers that share this object split the events among them."""

    def __init__(self) -> None:
        self._events: list[RequestEvent] = []
        self._over: dict[tuple[str, int], ApprovalRequest] = {}

    def add(self, kind: RequestEventKind, request: ApprovalRequest) -> None:
        self._events.append(RequestEvent(kind, request))
        if kind == "closed":
            self._over[(request.id, request.revision)] = request

    async def poll(self) -> Sequence[RequestEvent]:
        events, self._events = self._events, []
        return events

    async def ending(self, request: ApprovalRequest) -> ApprovalRequest | None:
        return self._over.get((request.id, request.revision))
