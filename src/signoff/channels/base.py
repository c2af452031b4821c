"""Defines what every channel is: a table of facts, a way out and a way in. One more is a module that ends in `CHANNEL`.

The way out is called by the dispatcher (`outbound/dispatcher.py`), which decides who is told what, when, and how often.
The way in is called by the gateway's routes and by `listen`; what it returns goes to `inbound/processor.py`, which
decides what it means. A channel only knows its vendor.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from signoff.channels.card_text import card_words
from signoff.channels.envelopes import (
    ChannelReply,
    CheckFinding,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    SentCard,
)
from signoff.channels.signature_check import check_same, hmac_hex
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Assurance
from signoff.contracts.limits import MIB
from signoff.contracts.person import Person
from signoff.texts.formatter import Formatter, formatter_for

FETCHED: Final = "x-signoff-fetched"
"""The header of a message that its channel fetched itself; only the mark in it counts, as anybody may send one."""


class Connection(Protocol):
    """What a channel holds open while it runs."""

    async def close(self) -> None:
        """Closes it."""
        ...


Held = TypeVar("Held", bound=Connection)


class ChannelOptions(BaseModel):
    """The options of a channel in the manifest. Secrets are references: `env:NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class ChannelContext:
    """What a channel is given when it is made."""

    name: str
    """Its name in the manifest."""
    options: Mapping[str, Any] = field(repr=False)
    """Its options, with secrets in the place of references."""
    public_url: str
    """The gateway's address as the public knows it."""
    clock: Clock
    """Gives the time."""
    secret: bytes = field(repr=False)
    """Made by the store for this channel alone; for what must be recognised as ours."""


Receive = Callable[[InboundRequest], Awaitable[InboundBatch]]
"""Hands a raw message in, as a vendor's route does; returns once it is kept safely: the vendor may be told so."""


class Channel(ABC):
    """One configured channel, made once a process; `close_down` ends it."""

    kind: ClassVar[str]
    identity: ClassVar[str]
    """The name under which people's identities of this kind stand in the directory, such as `email`."""
    options: ClassVar[type[ChannelOptions]]
    assurance: Assurance = "channel"
    """How strongly the channel identifies who answers by it; one whose senders can be forged sets `link`."""
    answers: ClassVar[bool] = True
    """Whether an answer can come back by it; else it only notifies."""
    per_second: ClassVar[float] = 10.0
    """How many cards a second the vendor takes."""
    max_bytes: int = 3 * MIB
    """Bytes of the largest message that is taken in; more is refused before it is looked at."""

    def __init__(self, context: ChannelContext) -> None:
        self.context = context
        self.name = context.name
        self._connections: list[Connection] = []

    def attach(self, connection: Held) -> Held:
        """Returns `connection`, which is closed when the channel is."""
        self._connections.append(connection)
        return connection

    @abstractmethod
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        """Sends one card; `before` is the first one where this reminds of it.

        Returns the sent message, of a reminder too. Raises `NotDelivered`.
        """

    def draws_whole(self, card: OutboundCard) -> bool:
        """Returns whether the card, as `deliver` sends it, gives every value; by one that does not nobody approves.

        A channel that has less room than a mail has says so itself.
        """
        return card_words(card, self.formatter(card.person), how="text").whole

    def formatter(self, person: Person) -> Formatter:
        """Returns the formatter of texts, times and numbers for a person, as of now."""
        return formatter_for(person, self.context.clock())

    @abstractmethod
    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """Makes the card say that it is over. A channel that cannot edit says so in the same thread.

        Returns the new message if people can reply to one. Raises `NotDelivered`.
        """

    @abstractmethod
    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        """Answers what somebody did, where they did it.

        Returns the message under the id that a reply to it names; None if people cannot reply to it. Raises
        `NotDelivered`.
        """

    @abstractmethod
    def verify(self, raw: InboundRequest) -> None:
        """Raises `Forged` unless `raw`, byte for byte, comes from the vendor. Never raises anything else.

        What the channel fetched itself is checked before, by its own mark. See `signature_check`.
        """

    @abstractmethod
    def parse(self, raw: InboundRequest) -> InboundBatch:
        """Parses a verified message. Raises `Malformed`; what is new to us is left out, never an error."""

    async def listen(self, take: Receive) -> None:  # noqa: B027 (most channels are brought what is said)
        """Fetches messages that no vendor brings, until cancelled. Returns at once where there is nothing to fetch."""

    async def check(self) -> list[CheckFinding]:
        """Tries credentials, reachability, registration and clock, changing nothing."""
        return []

    async def close_down(self) -> None:
        """Closes what was attached."""
        for connection in self._connections:
            await connection.close()

    def mark_fetched(self, body: bytes) -> InboundRequest:
        """Returns a message that the channel fetched itself, marked as its own, for the way in."""
        mark = hmac_hex(self.context.secret, FETCHED.encode() + body)
        return InboundRequest(body, {FETCHED: mark, "content-type": "application/json"}, at=self.context.clock())

    def is_fetched(self, raw: InboundRequest) -> bool:
        """Tells whether the channel fetched `raw` itself. Raises `Forged` for a mark that is not its own."""
        given = raw.headers.get(FETCHED, "")
        if given:
            check_same(given, hmac_hex(self.context.secret, FETCHED.encode() + raw.body))
        return bool(given)

    async def read(self, raw: InboundRequest, threads: Executor) -> InboundBatch:
        """Verifies and reads one message in a thread of `threads`, since what anybody sends may be long.

        A channel that has to ask somebody in between does so itself, where no thread waits for it. Raises `Forged`,
        `Malformed`, and `Unavailable` for what is to be brought again.
        """
        return await asyncio.get_running_loop().run_in_executor(threads, self.receive, raw)

    def receive(self, raw: InboundRequest) -> InboundBatch:
        """Verifies, then reads. Raises `Forged`, `Malformed`."""
        # In this order, and here for all adapters: no parser is shown what just anybody sent.
        if not self.is_fetched(raw):
            self.verify(raw)
        return self.parse(raw)
