"""Orders the checks of emails' senders: one per domain at a time, domains with proved email first.

The domain that an email claims controls the time of a DNS lookup: an attacker's slow domain delays only its own email.
This module never checks who may approve: email from an approver takes the same time as any other email of the domain.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from signoff.contracts.errors import Unavailable
from signoff.contracts.limits import (
    MAIL_DOMAIN_BYTES,
    MAIL_DOMAINS_KEPT,
    MAIL_PROVED_AT_ONCE,
    MAIL_STRANGERS_AT_ONCE,
    MAIL_WAITING_BYTES,
)


@dataclass(frozen=True, eq=False)
class _Waiting:
    domain: str
    turn: asyncio.Future[None]


class MailQueue:
    """Gives emails their turns: `MAIL_PROVED_AT_ONCE` at a time, and fewer of unproved domains.

    At most `MAIL_STRANGERS_AT_ONCE` turns go to domains that have proved nothing yet.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._bytes: Counter[str] = Counter()
        self._busy: set[str] = set()
        self._proved: OrderedDict[str, None] = OrderedDict()

    @asynccontextmanager
    async def turn(self, domain: str, size: int) -> AsyncIterator[None]:
        """Wait for the turn of one email of `size` bytes. Raises `Unavailable` if too much email waits already."""
        # Proved domains may use twice as much: a stranger's flood leaves them half of the room.
        allowed = MAIL_WAITING_BYTES * (2 if domain in self._proved else 1)
        if self._bytes[domain] + size > MAIL_DOMAIN_BYTES or self._bytes.total() + size > allowed:
            raise Unavailable("too much mail waits for its sender to be proved")
        waiting = _Waiting(domain, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._bytes[domain] += size
        self._go_on()
        try:
            await waiting.turn
            yield
        finally:
            self._bytes[domain] -= size
            if not self._bytes[domain]:
                del self._bytes[domain]
            # An email that is cancelled while it waits has no turn that could end.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._busy.discard(domain)
            self._go_on()

    def note(self, domain: str, *, proved: bool, silent: bool) -> None:
        """A proof counts until the domain's DNS does not answer."""
        if silent:
            self._proved.pop(domain, None)
        elif proved:
            self._proved[domain] = None
            self._proved.move_to_end(domain)
            if len(self._proved) > MAIL_DOMAINS_KEPT:
                self._proved.popitem(last=False)

    def proved(self, domain: str) -> bool:
        return domain in self._proved

    def _go_on(self) -> None:
        while (following := self._find_next()) is not None:
            self._waiting.remove(following)
            self._busy.add(following.domain)
            following.turn.set_result(None)

    def _find_next(self) -> _Waiting | None:
        """Prefer a domain with a proof."""
        if len(self._busy) >= MAIL_PROVED_AT_ONCE:
            return None
        unproved = sum(domain not in self._proved for domain in self._busy)
        free = [each for each in self._waiting if each.domain not in self._busy and not each.turn.done()]
        known = next((each for each in free if each.domain in self._proved), None)
        if known is None and unproved < MAIL_STRANGERS_AT_ONCE:
            return next(iter(free), None)
        return known
