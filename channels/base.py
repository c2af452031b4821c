"""What every channel is: a table of facts, a way out and a way in. Adding one is a module that ends in `CHANNEL`.

The way out is called by the courier (`courier.py`), which decides who is told what, when, and how often. The way in
is called by the gateway's doors and by `listen`; what it returns goes to `hearing.py`, which decides what it means.
A channel only knows its vendor.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from signoff.channels.envelopes import Closed, Finding, Notice, Raw, Received, Reply, Sent
from signoff.channels.outbound.card_text import card_words
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Assurance
from signoff.contracts.errors import Refused, Unavailable
from signoff.contracts.limits import MIB
from signoff.texts.formatter import formatter_for


class Options(BaseModel):
    """The options of a channel in the manifest. Secrets are references: `env:NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Forged(Refused):
    """It does not come from whom it claims: 401, without a word of why, and one line in the record."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="forged")


class Malformed(Refused):
    """It comes from the vendor but cannot be read: 400."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="malformed")


class NotDelivered(Unavailable):
    """A card did not get out. `code` is the vendor's; `again` whether trying again can help, `after` seconds at least.

    Without `again` the courier goes on to the person's next channel.
    """

    def __init__(self, message: str, *, code: str, again: bool, after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.again = again
        self.after = after


@dataclass(frozen=True)
class Means:
    """What a channel is given: its name in the manifest, its options with secrets read, our address, and a clock."""

    name: str
    options: Mapping[str, Any]
    public_url: str
    clock: Clock
    secret: bytes
    """Made by the store for this channel alone; for what must be recognised as ours."""


Take = Callable[[Raw], Awaitable[Received]]
"""Hands a raw message in, as the door does; returns once it is kept safely, so that the vendor may be told so."""


class Channel(ABC):
    """One configured channel, made once a process; `close_down` ends it."""

    kind: ClassVar[str]
    identity: ClassVar[str]
    """The name under which people's identities of this kind stand in the directory, such as `email`."""
    options: ClassVar[type[Options]]
    assurance: Assurance = "channel"
    """How strongly the channel identifies who answers by it; one whose senders can be forged sets `link`."""
    answers: ClassVar[bool] = True
    """Whether an answer can come back by it; else it only notifies."""
    per_second: ClassVar[float] = 10.0
    """How many cards a second the vendor takes."""
    room: int = 3 * MIB
    """Bytes of the largest message that is taken in; more is refused before it is looked at."""

    def __init__(self, means: Means) -> None:
        self.means = means
        self.name = means.name

    @abstractmethod
    async def deliver(self, notice: Notice, before: Sent | None) -> Sent:
        """Send one card; `before` is the first one where this reminds of it. Raises `NotDelivered`."""

    def draws_whole(self, notice: Notice) -> bool:
        """Whether the card, as `deliver` sends it, gives every value; by one that does not nobody approves.

        A channel that has less room than a mail has says so itself.
        """
        return card_words(notice, formatter_for(notice.person, self.means.clock()), how="text").whole

    @abstractmethod
    async def close(self, sent: Sent, closed: Closed) -> None:
        """Make the card say that it is over. A channel that cannot edit says so in the same thread.

        Raises `NotDelivered`.
        """

    @abstractmethod
    async def answer(self, where: Mapping[str, Any], reply: Reply) -> None:
        """Answer what somebody did, where they did it. Raises `NotDelivered`."""

    @abstractmethod
    def verify(self, raw: Raw) -> None:
        """Raises `Forged` unless `raw`, byte for byte, comes from the vendor. Never raises anything else."""

    @abstractmethod
    def parse(self, raw: Raw) -> Received:
        """What a verified message holds. Raises `Malformed`; what is new to us is left out, never an error."""

    async def listen(self, take: Take) -> None:  # noqa: B027 (most channels are brought what is said)
        """Fetch messages that no vendor brings, until cancelled. Returns at once where there is nothing to fetch."""

    async def check(self) -> list[Finding]:
        """Try credentials, reachability, registration and clock, changing nothing."""
        return []

    async def close_down(self) -> None:  # noqa: B027 (some hold nothing)
        """Let go of connections."""

    async def read(self, raw: Raw, threads: Executor) -> Received:
        """Verify and read one message in a thread of `threads`, since what anybody sends may be long.

        A channel that has to ask somebody in between does so itself, where no thread waits for it. Raises `Forged`,
        `Malformed`, and `Unavailable` for what is to be brought again.
        """
        return await asyncio.get_running_loop().run_in_executor(threads, self.receive, raw)

    def receive(self, raw: Raw) -> Received:
        """Verify, then read. Raises `Forged`, `Malformed`."""
        # In this order, and here for all adapters: no parser is shown what just anybody sent.
        self.verify(raw)
        return self.parse(raw)
