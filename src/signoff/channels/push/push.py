"""Notifies people in their browsers by Web Push.

A notification has no content and never approves: a click opens the card in the inbox. Its button denies there, by the
browser's own sign-in. People switch notifications on in each browser.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from signoff.channels.base import Channel, ChannelContext, ChannelOptions
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import (
    ChannelReply,
    CheckFinding,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    SentCard,
)
from signoff.channels.outbound_http import GuardedHttp, ServerAnswer, read_networks
from signoff.channels.push.push_messages import PushMessage, VapidKey
from signoff.channels.push.push_options import PushOptions
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import at_least
from signoff.contracts.person import Person, PushSubscription

LONGEST_KEPT: Final = timedelta(days=28)
"""The longest time for which push services keep a message for a browser that is off."""
LONGEST_PAUSE: Final = timedelta(minutes=10)
"""The most of a push service's `Retry-After` that counts."""
_SECONDS: Final = 10.0
_GONE: Final = (404, 410)
_TOO_MANY: Final = 429
_TOPIC_CHARS: Final = 32


class Push(Channel):
    """See the module."""

    kind: ClassVar[str] = "push"
    identity: ClassVar[str] = ""
    options: ClassVar[type[ChannelOptions]] = PushOptions
    answers: ClassVar[bool] = False
    per_second: ClassVar[float] = 50.0

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._options = PushOptions.model_validate(context.options)
        self._key = VapidKey(self._options.private_key, self._options.contact)
        self._http = self.attach(GuardedHttp(read_networks(self._options.allow_networks), _SECONDS))
        # By browser, not for the whole channel: one person's browser must not stop the notifications of others.
        self._pauses: dict[str, datetime] = {}

    @property
    def public_key(self) -> str:
        """The key that a browser needs for its subscription, in base64url."""
        return self._key.public

    def problem(self, subscription: PushSubscription) -> str:
        """Return the reason for which nothing may be sent to the browser, or ""."""
        return self._options.problem(subscription)

    async def addresses(self, people: Sequence[Person]) -> Mapping[str, str]:
        if not people:
            return {}
        found = await self.context.browsers.find_people(people[0].tenant, self.public_key)
        return {person.id: person.id for person in people if person.id in found}

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        together = card.kind == "digest"
        formatter = self.formatter(card.person)
        words = formatter.text(f"push.{card.kind}", **({"n": card.more + 1} if together else {}))
        denies = not together and _takes_denial(card.request)
        deny, denied = (formatter.text(each) if denies else "" for each in ("button.deny", "card.own.denied"))
        message = PushMessage("" if together else card.token, words, deny, denied)
        await self._send(card.person, card.token, message, until=card.request.expires_at)
        return before or SentCard()

    def draws_whole(self, card: OutboundCard) -> bool:
        """A notification shows no value."""
        return False

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """Replace the notification by one with the end state."""
        if closed.request.state == "pending":
            # A newer card has its own notification.
            return
        formatter = self.formatter(closed.person)
        words = formatter.text("push.ended", state=formatter.text(f"state.{closed.request.state}"))
        await self._send(closed.person, closed.token, PushMessage(closed.token, words, ended=True), until=None)

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> None:
        raise NotDelivered("notifications take no answers", code="no_answers", again=False)

    def verify(self, raw: InboundRequest) -> None:
        raise Forged("notifications take no answers")

    def parse(self, raw: InboundRequest) -> InboundBatch:
        raise Malformed("notifications take no answers")

    async def check(self) -> list[CheckFinding]:
        """A push service cannot be asked without a browser."""
        return [CheckFinding(True, "the key is usable; `channels test` shows whether a browser gets a notification")]

    async def _send(self, person: Person, card: str, message: PushMessage, *, until: datetime | None) -> None:
        """Send to all browsers of the person. Raises `NotDelivered` if no push service accepts the message."""
        known = await self.context.browsers.list_of(person.tenant, person.id, self.public_key)
        if not known:
            raise NotDelivered("the person has no browser with notifications", code="no_browser", again=False)
        left = LONGEST_KEPT if until is None else min(until - self.context.clock(), LONGEST_KEPT)
        headers = {
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(max(int(left.total_seconds()), 0)),
            # Replaces an earlier message that waits for a browser that is off. The service reads it: hide the token.
            "topic": hashlib.sha256(card.encode()).hexdigest()[:_TOPIC_CHARS],
            "urgency": "normal" if message.ended else "high",
        }
        failures = await asyncio.gather(*(self._push(person, each, message, headers) for each in known))
        errors = [each for each in failures if each is not None]
        if len(errors) == len(known):
            raise next((each for each in errors if each.again), errors[0])

    async def _push(
        self, person: Person, browser: PushSubscription, message: PushMessage, headers: Mapping[str, str]
    ) -> NotDelivered | None:
        now = self.context.clock()
        if now < self._pauses.get(browser.id, now):
            return NotDelivered("the push service is busy", code=str(_TOO_MANY), again=True)
        # Check again: the option may be stricter than at the subscription.
        if why := self.problem(browser):
            return NotDelivered(f"nothing is sent to the browser: {why}", code="service", again=False)
        vouched = {**headers, "authorization": self._key.authorization(browser.endpoint, now)}
        try:
            answer = await self._http.post(browser.endpoint, message.encrypt(browser), vouched)
        except NotDelivered as error:
            return error
        if answer.status in _GONE:
            await self.context.browsers.forget(person.tenant, person.id, browser)
        return self._failure(browser, answer, now)

    def _failure(self, browser: PushSubscription, answer: ServerAnswer, now: datetime) -> NotDelivered | None:
        code = str(answer.status)
        if 200 <= answer.status < 300:
            return None
        if answer.status in _GONE:
            return NotDelivered("the browser's notifications have ended", code=code, again=False)
        if answer.status == _TOO_MANY or answer.status >= 500:
            if answer.retry_after:
                self._pauses = {name: until for name, until in self._pauses.items() if until > now}
                self._pauses[browser.id] = now + min(timedelta(seconds=answer.retry_after), LONGEST_PAUSE)
            return NotDelivered("the push service is busy", code=code, again=True)
        return NotDelivered(f"the push service answered {code}", code=code, again=False)


def _takes_denial(request: ApprovalRequest) -> bool:
    # Only for display: the denial itself checks this.
    easy = not request.require_reason and not at_least(request.min_assurance, "present")
    return easy and request.kind == "approval"


CHANNEL = Push
