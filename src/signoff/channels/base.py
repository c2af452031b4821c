"""Defines the base class of channels.

A channel's module sets `CHANNEL`. The dispatcher (`outbound/dispatcher.py`) calls the outbound half and decides on
recipients, times and repeats. The gateway's routes and `listen` call the inbound half; `inbound/processor.py`
interprets its results. A channel knows only its vendor.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from signoff.channels.card_text import card_words
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import (
    ChannelReply,
    CheckFinding,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    OutboundNotice,
    RoomCard,
    SentCard,
)
from signoff.channels.signature_check import check_same, hmac_hex
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Assurance
from signoff.contracts.limits import MIB
from signoff.contracts.person import Person, PushSubscription
from signoff.texts.formatter import Formatter, formatter_for

FETCHED: Final = "x-signoff-fetched"
"""The header of a message that its channel fetched itself. Only its mark counts: an attacker can send the header."""


class Connection(Protocol):
    """A connection that a channel keeps open while it runs."""

    async def close(self) -> None: ...


Held = TypeVar("Held", bound=Connection)


class ChannelOptions(BaseModel):
    """The options of a channel in the manifest. Secrets are references: `env:NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Contacts(Protocol):
    """The contacts of one channel, which the gateway stores from verified messages alone."""

    async def find(self, identity: str) -> dict[str, Any] | None:
        """Return the handle of a person's contact, None without one. Raises `StoreUnavailable`."""
        ...


class NoContacts:
    """No contact is known."""

    async def find(self, identity: str) -> dict[str, Any] | None:
        return None


class PushBrowsers(Protocol):
    """The browsers that show people's notifications. All methods raise `StoreUnavailable`."""

    async def list_of(self, tenant: str, person: str, key: str) -> Sequence[PushSubscription]:
        """Return the person's browsers for the installation's public key."""
        ...

    async def find_people(self, tenant: str, key: str) -> Collection[str]:
        """Return the ids of a tenant's people with a browser."""
        ...

    async def forget(self, tenant: str, person: str, subscription: PushSubscription) -> None:
        """Remove a browser that its push service no longer knows."""
        ...


class NoBrowsers:
    """No browser shows notifications."""

    async def list_of(self, tenant: str, person: str, key: str) -> Sequence[PushSubscription]:
        return ()

    async def find_people(self, tenant: str, key: str) -> Collection[str]:
        return ()

    async def forget(self, tenant: str, person: str, subscription: PushSubscription) -> None:
        pass


@dataclass(frozen=True)
class ChannelContext:
    """The values with which a channel is created."""

    name: str
    """The name in the manifest."""
    options: Mapping[str, Any] = field(repr=False)
    """The options, with references replaced by secrets."""
    public_url: str
    """The gateway's public address."""
    clock: Clock
    secret: bytes = field(repr=False)
    """A key that the store made for this channel only. It authenticates data that the channel gets back."""
    contacts: Contacts = field(default_factory=NoContacts, repr=False)
    browsers: PushBrowsers = field(default_factory=NoBrowsers, repr=False)
    """Only for the kind `push`."""


Receive = Callable[[InboundRequest], Awaitable[InboundBatch]]
"""Takes a raw message, as a vendor's route does. Returns once it is stored, so that the vendor may get its response."""


class Channel(ABC):
    """One configured channel, created once per process. `close_down` ends it."""

    kind: ClassVar[str]
    identity: ClassVar[str]
    """The key of people's identities of this kind in the directory, such as `email`. "" if `addresses` needs none."""
    options: ClassVar[type[ChannelOptions]]
    assurance: Assurance = "channel"
    """How strongly the channel identifies an answer's author. If senders can be forged, it sets `link`."""
    answers: ClassVar[bool] = True
    """Whether the channel can receive answers; otherwise it only notifies."""
    rooms: ClassVar[bool] = False
    """Whether the channel has rooms, and implements `deliver_room`."""
    views: ClassVar[bool] = False
    """Whether `answer` can show a card to its reader alone, where the reader acted."""
    per_second: ClassVar[float] = 10.0
    """Cards per second that the vendor accepts."""
    max_bytes: int = 3 * MIB
    """Bytes of the largest accepted message. Larger ones are refused unread."""

    def __init__(self, context: ChannelContext) -> None:
        self.context = context
        self.name = context.name
        self._connections: list[Connection] = []

    def attach(self, connection: Held) -> Held:
        """Return `connection`; `close_down` will close it."""
        self._connections.append(connection)
        return connection

    async def addresses(self, people: Sequence[Person]) -> Mapping[str, str]:
        """Return the address of each person that the channel reaches, by the person's id.

        All people have one tenant. Raises `StoreUnavailable`.
        """
        return {person.id: found[0] for person in people if (found := person.identities.get(self.identity))}

    @abstractmethod
    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        """Send one card.

        For a reminder, `before` is the first card. Returns the sent message. Raises `NotDelivered`.
        """

    def draws_whole(self, card: OutboundCard) -> bool:
        """Return whether the card, as `deliver` sends it, shows every value.

        Others cannot be approved on the channel. A channel with less room than an email overrides this.
        """
        return card_words(card, self.formatter(card.person), how="text").whole

    def formatter(self, person: Person) -> Formatter:
        """Return the formatter for a person, as of now."""
        return formatter_for(person, self.context.clock())

    async def deliver_room(self, card: RoomCard, before: SentCard | None) -> SentCard:
        """Post a card in a room, or draw the card `before` again. Raises `NotDelivered`.

        All members read it, so add nothing to its texts. A card without buttons is of an ended request.
        """
        raise NotDelivered(f"channel `{self.name}` has no rooms", code="no_rooms", again=False)

    @abstractmethod
    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """Show on the card that its request has ended. A channel that cannot edit posts this in the same thread.

        Returns the new message if people can reply to one. Raises `NotDelivered`.
        """

    async def notify(self, notice: OutboundNotice) -> SentCard | None:
        """Send a notice as plain text, without buttons.

        Returns the message with the id that a reply to it names, None if people cannot reply to it. Raises
        `NotDelivered`, by default for every notice.
        """
        raise NotDelivered("this channel sends no notices", code="unsupported", again=False)

    @abstractmethod
    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        """Send a reply to a person's action, at the place of the action.

        Returns the message with the id that a reply to it names, None if people cannot reply to it. Raises
        `NotDelivered`.
        """

    @abstractmethod
    def verify(self, raw: InboundRequest) -> None:
        """Raise `Forged` unless `raw`, byte for byte, comes from the vendor.

        Never raises anything else. The caller checks messages that the channel fetched itself, by their mark. See
        `signature_check`.
        """

    @abstractmethod
    def parse(self, raw: InboundRequest) -> InboundBatch:
        """Return the actions and reports in a verified message. Raises `Malformed`.

        Leave out unknown contents; they are never an error.
        """

    def respond(self, received: InboundBatch, reply: ChannelReply) -> InboundBatch:
        """Return `received` with the reply to its action as the response to the vendor.

        Only called if `reply_seconds` of `received` is set. Without a call in that time, its own response is sent, and
        `answer` gets the reply.
        """
        return received

    async def listen(self, take: Receive) -> None:  # noqa: B027 (most channels are brought what is said)
        """Fetch messages that the vendor does not post, until cancelled. Return at once if the vendor posts all."""

    async def check(self) -> list[CheckFinding]:
        """Check credentials, reachability, registration and clock. Returns the findings.

        Changes nothing. [] by default.
        """
        return []

    async def check_room(self, room: str) -> CheckFinding | None:
        """Check that the bot is in a room of the manifest. Changes nothing. `None`, the default, checks nothing.

        Raises `StoreUnavailable`.
        """
        return None

    async def close_down(self) -> None:
        """Close the connections of `attach`, at the end of the process."""
        for connection in self._connections:
            await connection.close()

    def mark_fetched(self, body: bytes) -> InboundRequest:
        """Return a message that the channel fetched itself, with the mark that `is_fetched` checks."""
        mark = hmac_hex(self.context.secret, FETCHED.encode() + body)
        return InboundRequest(body, {FETCHED: mark, "content-type": "application/json"}, at=self.context.clock())

    def is_fetched(self, raw: InboundRequest) -> bool:
        """Return whether the channel fetched `raw` itself. Raises `Forged` for a wrong mark."""
        mark = raw.headers.get(FETCHED, "")
        if mark:
            check_same(mark, hmac_hex(self.context.secret, FETCHED.encode() + raw.body))
        return bool(mark)

    async def read(self, raw: InboundRequest, threads: Executor) -> InboundBatch:
        """Verify a message, and return its contents. Runs in one of `threads`.

        A stranger's message may be long. A channel that has to query another system in between overrides this, so that
        no thread waits. Raises `Forged`, `Malformed`, and `Unavailable` for a message that the vendor should send
        again.
        """
        return await asyncio.get_running_loop().run_in_executor(threads, self.receive, raw)

    def receive(self, raw: InboundRequest) -> InboundBatch:
        """Verify a message, and return its contents. Raises `Forged`, `Malformed`."""
        # Keep this order here, for all adapters: no parser must see an unverified message.
        if not self.is_fetched(raw):
            self.verify(raw)
        return self.parse(raw)
