"""Background tasks that run the channels: send cards, read decisions, poll for messages."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Final

from signoff.approvals.request_thread import question_problem
from signoff.audit.event_sources import EventSources
from signoff.audit.log import AuditLog
from signoff.channels.asked_revision import AskedRevision
from signoff.channels.base import Channel
from signoff.channels.inbound.processor import InboundProcessor
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.channels.outbound.dispatcher import Dispatcher
from signoff.channels.outbound.notice_planner import NoticePlanner, PlannerDeps
from signoff.channels.outbound.request_events import RequestEvents
from signoff.channels.outbound.sender import SenderDeps
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.audit import AuditEntry
from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.limits import LINK_SECONDS
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.gateway.absence_service import list_absences
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.approvals.question_repeater import QuestionRepeater
from signoff.gateway.approvals.question_service import QuestionService, is_external
from signoff.gateway.audit_writer import record
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.read_access import may_read, of_request
from signoff.gateway.repair_task import AnswerDispatcher, RequestSweep
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.messages.notices import Notices
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.questions.questions import Questions
from signoff.store.questions.taken_requests import TakenRequests
from signoff.store.store import Store

LONGEST_PAUSE: Final = 300.0
WORDS_HOLD: Final = 5.0
STEADY_SECONDS: Final = 60.0
"""A task that ran at least this long restarts after the shortest pause when it fails."""
CLOSE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def run_channels(
    deps: GatewayDeps, channels: Mapping[str, Channel], rules: RoutingRules
) -> AsyncIterator[InboundReceiver | None]:
    """Run until the block ends.

    Yields the receiver of vendors' messages, or `None` if there is no channel. A failing task does not end the block.
    It is logged, and restarts after a pause.
    """
    tasks = [
        asyncio.create_task(run_forever("the dispatcher of answers", AnswerDispatcher(deps).run)),
        asyncio.create_task(run_forever("the repeater of questions", QuestionRepeater(deps).run)),
    ]
    if not channels:
        tasks.append(asyncio.create_task(run_forever("the sweep of requests", RequestSweep(deps, None).run)))
        try:
            yield None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return
    log = AuditLog(deps.store)
    hold = deps.settings.words_hold
    processor = InboundProcessor(
        deps.store,
        channels,
        deps.people,
        DecisionAdapter(deps),
        log.append,
        deps.clock,
        hold=(0.0 if deps.development else WORDS_HOLD) if hold is None else hold,
    )
    receiver = InboundReceiver(deps.store, channels, log.append, deps.clock, processor.wake, processor.replies)
    dispatcher = _dispatcher(deps, channels, rules)
    tasks += [
        asyncio.create_task(run_forever("the dispatcher of cards", dispatcher.run)),
        asyncio.create_task(run_forever("the processor of answers", processor.run)),
        asyncio.create_task(run_forever("the sweep of requests", RequestSweep(deps, dispatcher).run)),
    ]
    for name, channel in channels.items():
        listen = partial(channel.listen, partial(receiver.take, name))
        tasks.append(asyncio.create_task(run_forever(f"the listener of channel `{name}`", listen)))
    try:
        yield receiver
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        receiver.close()
        await asyncio.gather(*(_close(name, channel) for name, channel in channels.items()))


@asynccontextmanager
async def keep_running(what: str, work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run `work` as `run_forever` does, until the block ends."""
    running = asyncio.create_task(run_forever(what, work))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def run_forever(what: str, work: Callable[[], Awaitable[None]], *, first_pause: float = 1.0) -> None:
    """Run `work` until it returns. Restart after each failure, with growing pauses."""
    pause = first_pause
    while True:
        begun = time.monotonic()
        try:
            return await work()
        except Exception as error:
            # Adapters are third-party code. Their errors may contain the message that was sent.
            why = error.message if isinstance(error, SignoffError) else type(error).__name__
            pause = first_pause if time.monotonic() - begun >= STEADY_SECONDS else pause
            _log.warning("%s failed and begins again in %g s: %s", what, pause, why)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def card_links(
    store: Store, public_url: str, channels: Mapping[str, Channel]
) -> Callable[[DeliveryRow], Awaitable[str]]:
    """Return a function that makes the link of a card."""
    kinds = {name: channel.kind for name, channel in channels.items()}
    keys, reading = list[bytes](), asyncio.Lock()

    async def link_of(row: DeliveryRow) -> str:
        over = row.request.expires_at or row.created_at + timedelta(seconds=row.request.timeout)
        link = ApprovalLink(
            approval=row.approval,
            revision=row.revision,
            person=row.person,
            channel=kinds.get(row.channel, row.channel),
            # A deadline may be extended once. The link of a request that ends earlier stops working (`pages/link.py`).
            expires=over + timedelta(seconds=row.request.timeout + LINK_SECONDS),
        )
        async with reading:
            if not keys:
                # The store's key never changes.
                keys.append(await store.secret_key(LINK_KEY))
        return f"{public_url}/link/{make_link(keys[0], link)}"

    return link_of


def _dispatcher(deps: GatewayDeps, channels: Mapping[str, Channel], rules: RoutingRules) -> Dispatcher:
    async def note(entries: Sequence[AuditEntry]) -> None:
        await record(deps.store, *entries)

    def may_read_request(person: Person, request: ApprovalRequest) -> bool:
        return may_read(person, deps.rights(person), of_request(request), development=deps.development)

    def tell(question: Question) -> Mapping[str, Sequence[str]]:
        tool = deps.catalog.find_definition(question.tool, question.definition)
        return {} if tool is None else tool.tell

    notices = Notices(deps.store, deps.limits)
    sender_deps = SenderDeps(
        deliveries=DeliveryQueue(deps.store, deps.limits),
        own_messages=OwnMessages(deps.store),
        people=deps.people,
        links=card_links(deps.store, deps.settings.public_url, channels),
        record=note,
        clock=deps.clock,
        digest_over=rules.digest_over,
        secrets=deps.secrets,
        notices=notices,
        may_read=may_read_request,
        absences=partial(list_absences, deps),
        rooms=deps.catalog.channels.rooms,
        may_ask=DecisionAdapter(deps).may_ask,
        taken=TakenRequests(deps.store),
    )
    planner_deps = PlannerDeps(
        notices=notices,
        questions=Questions(deps.store),
        requests=deps.requests,
        sources=EventSources(deps.store),
        people=deps.people,
        tell=tell,
        may_read=may_read_request,
        record=note,
        clock=deps.clock,
    )
    identities = {name: channel.identity for name, channel in channels.items()}
    planner = NoticePlanner(planner_deps, identities, rules)
    events = RequestEvents(Questions(deps.store), deps.requests, deps.clock, deps.catalog.channels.rooms)
    return Dispatcher(events, channels, rules, sender_deps, planner)


async def _close(name: str, channel: Channel) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await channel.close_down()
    except Exception as error:
        _log.warning("channel `%s` did not close: %s", name, type(error).__name__)


class DecisionAdapter:
    """Implements `signoff.channels.inbound.answer_handler.DecisionPort` for the channels."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
        """A repeated decision gets its receipt from the store."""
        return await DecisionService(self._deps).decide(draft, author)

    async def ask(self, asked: AskedRevision, question: str, author: DecisionAuthor, *, again: bool) -> Receipt:
        return await QuestionService(self._deps).ask(
            asked.request.id,
            author.person,
            question,
            author.channel,
            author.assurance,
            question_hash=asked.question_hash,
            since=author.received_at if again else None,
        )

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        """Return requests that the person may decide, waiting or decided. Raises `ServerUnavailable`."""
        request_id = await self._deps.requests.find_by_code(person.tenant, code)
        if request_id is None:
            return ()
        try:
            request = (await self._deps.requests.load(request_id)).request
        except NotFound:
            return ()
        is_approver = not set(self._deps.rights(person)).isdisjoint(request.approvers)
        return (request,) if is_approver else ()

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        """The page requires a sign-in."""
        return f"{self._deps.settings.public_url}/approvals/{request.id}"

    def may_ask(self, request: ApprovalRequest) -> bool:
        problem = question_problem(request, request.messages, "?")
        return problem is None and not is_external(self._deps.catalog, request.actor)
