"""One channel's notices: sends each at most once, after a crash too."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from signoff.approvals.audit_events import notice_entry
from signoff.approvals.notifications import Notice
from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import SENT, OutboundNotice, SentCard
from signoff.channels.outbound.receipt_text import notice_words
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import Clock
from signoff.contracts.person import Person
from signoff.people.directory import Directory
from signoff.store.messages.notices import NoticeRow, Notices
from signoff.store.messages.own_messages import OwnMessage, OwnMessages

AT_ONCE: Final = 20
"""The number of notices that are claimed together."""
CLAIM_SECONDS: Final = 20.0
"""The time to begin an attempt after a claim."""
MOST_ATTEMPTS: Final = 150
"""The most attempts on a person's last channel: about a day, as the pauses grow to ten minutes."""
ATTEMPTS_BEFORE_NEXT: Final = 10
"""The most attempts while there is a further channel: about 15 minutes."""


class NoticeDeps(Protocol):
    """The dependencies; see `SenderDeps`."""

    @property
    def notices(self) -> Notices | None: ...
    @property
    def own_messages(self) -> OwnMessages: ...
    @property
    def people(self) -> Directory: ...
    @property
    def may_read(self) -> Callable[[Person, ApprovalRequest], bool]: ...
    @property
    def record(self) -> Callable[[Sequence[AuditEntry]], Awaitable[object]]: ...
    @property
    def clock(self) -> Clock: ...


class VendorCalls(Protocol):
    """The calls of a channel to its vendor; see `ChannelSender`."""

    @property
    def rests(self) -> bool: ...
    async def wait_for_turn(self, pace: float) -> None: ...
    async def within(self, sending: Awaitable[SentCard | None]) -> SentCard: ...
    def pause(self, attempts: int, error: NotDelivered) -> float: ...


class NoticeSender:
    """Sends the notices of one channel. No two calls run at the same time."""

    def __init__(self, channel: Channel, deps: NoticeDeps, vendor: VendorCalls) -> None:
        self._channel = channel
        self._deps = deps
        self._vendor = vendor

    async def send(self, pace: float = 0.0) -> int:
        """Send due notices, `pace` seconds apart. Returns their number. Raises `StoreUnavailable`."""
        queue = self._deps.notices
        if queue is None or self._vendor.rests:
            return 0
        late = asyncio.get_running_loop().time() + CLAIM_SECONDS
        rows = await queue.claim_due(AT_ONCE, self._channel.name)
        sent = await asyncio.gather(*(self._one(queue, row, pace, late) for row in rows))
        return sum(sent)

    async def _one(self, queue: Notices, row: NoticeRow, pace: float, late: float) -> int:
        # Use the current directory: a person who has lost the right to read must not get the notice.
        person = self._deps.people.find(row.person, row.tenant)
        if person is None or not person.active or not may_know(person, row.notice, self._deps.may_read):
            await queue.drop(row.token)
            await self._record(row, "notice skipped")
            return 0
        await self._vendor.wait_for_turn(pace)
        if self._vendor.rests or asyncio.get_running_loop().time() > late:
            await queue.release(row.token)
            return 0
        # Record the attempt before sending: after a crash in between, the notice is not sent again.
        if not await queue.begin(row.token):
            await self._record(row, "notice failed", code="unknown")
            return 0
        try:
            sent = await self._vendor.within(self._channel.notify(self._outbound(row, person)))
        except NotDelivered as error:
            await self._fail(queue, row, error)
            return 0
        if sent.vendor_id:
            # Before the end of the attempt: a reply may arrive at once, and must not decide.
            message = OwnMessage(notice=True, words=tuple(sent.handle.get(SENT, ())))
            await self._deps.own_messages.note(self._channel.name, sent.vendor_id, row.tenant, row.person, message)
        await queue.record_sent(row.token)
        await self._record(row, "notice sent")
        return 1

    async def _fail(self, queue: Notices, row: NoticeRow, error: NotDelivered) -> None:
        most = ATTEMPTS_BEFORE_NEXT if await queue.has_next(row.token) else MOST_ATTEMPTS
        again = error.again and row.attempts < most
        pause = self._vendor.pause(row.attempts, error)
        await queue.record_failure(row.token, error.code, error.message, again_after=pause if again else None)
        if not again:
            await self._record(row, "notice failed", code=error.code)

    def _outbound(self, row: NoticeRow, person: Person) -> OutboundNotice:
        notice, formatter = row.notice, self._channel.formatter(person)
        request, public_url = notice.request, self._channel.context.public_url
        link = f"{public_url}/passkeys" if request is None else f"{public_url}/approvals/{request.id}"
        title, words = notice_words(notice, formatter, link)
        return OutboundNotice(
            token=row.token,
            kind=notice.kind,
            title=title,
            text=words,
            language=formatter.language,
            person=person,
            address=row.address,
            approval="" if request is None else request.id,
            state="" if request is None else request.state,
        )

    async def _record(self, row: NoticeRow, event: str, **facts: str) -> None:
        entry = notice_entry(
            row.notice, row.tenant, row.person, event, self._deps.clock(), channel=row.channel, **facts
        )
        await self._deps.record([entry])


def may_know(person: Person, notice: Notice, may_read: Callable[[Person, ApprovalRequest], bool]) -> bool:
    """Return whether a person may get a notice. It holds only for requests: a passkey's recipient is its owner."""
    return notice.request is None or may_read(person, notice.request)
