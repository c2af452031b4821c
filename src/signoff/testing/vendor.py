"""The fake vendor behind a channel, as the channel suite drives it. Needs only Signoff."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, TypeAlias

from signoff.channels.base import Channel
from signoff.channels.envelopes import InboundBatch, InboundRequest, RoomAct
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Verdict
from signoff.contracts.names import PLUGIN_NAMES
from signoff.store.store import Store

CardStatus: TypeAlias = Literal["delivered", "read", "failed"]
"""Statuses that vendors report for accepted cards."""
Trouble: TypeAlias = Literal["", "down", "busy", "limited", "fault", "garbage", "cut"]
"""Failures of a vendor. `down`: it does not answer, or says that it cannot. `busy`: it refuses for a stated time.

`vendor_server.serve_vendor` plays the others: a bare 429, a 500, an invalid success, and a cut connection.
"""
HTTP_TROUBLES: Final[Sequence[Trouble]] = ("limited", "fault", "garbage", "cut")
"""The troubles of every vendor with an HTTP API."""


@dataclass(frozen=True)
class VendorCard:
    """One card as the vendor holds it."""

    to: str
    token: str
    text: str


class Vendor(ABC):
    """A fake of the vendor behind a channel. Set `clock` before use: it gives the time of signatures."""

    kind: ClassVar[str]
    """`email`, or `package.module`."""
    plugins: ClassVar[Sequence[str]] = PLUGIN_NAMES
    """The loaded plugins, as in `SIGNOFF_PLUGINS`."""
    identities: ClassVar[tuple[str, str, str, str]]
    """The identities of four people. The last one is a stranger."""
    writes: ClassVar[bool] = True
    """Whether people can write free text there, without a card."""
    room: ClassVar[str] = ""
    """The address of a room in which the channel may post, "" if the vendor has no rooms."""
    shows: ClassVar[bool] = True
    """Whether cards show their request. Others only lead to it."""
    trouble: Trouble = ""
    troubles: ClassVar[Sequence[Trouble]] = ()
    """Further failures of a call. Use `HTTP_TROUBLES` if the channel calls HTTP and reads the answers."""
    busy_seconds: ClassVar[float] = 0.0
    """The stated time of `busy`, in seconds; 0 if the vendor does not state it."""
    clock: Clock
    said_at: datetime | None = None
    """The time of the next message, which a vendor may deliver later. `None` means now."""

    @property
    def now_said(self) -> datetime:
        """Return the time of the next message: `said_at`, or now."""
        return self.said_at or self.clock()

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the channel's options as in a manifest, with references to secrets."""
        return {}

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables behind the references in `options`."""
        return {}

    async def prepare(self, store: Store, channel: Channel) -> None:  # noqa: B027 (most people need nothing there)
        """Store the data that people enter in the inbox, before any card."""

    @abstractmethod
    def cards(self) -> Sequence[VendorCard]:
        """Return every sent card in order, including reminders and digests."""

    @abstractmethod
    def reads(self, identity: str) -> Sequence[str]:
        """Return all text that a person can read now: current cards, follow-ups and replies."""

    @abstractmethod
    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Return the request that reaches the channel if `identity` answers the card in the channel's way."""

    @abstractmethod
    def sign(self, body: bytes) -> InboundRequest:
        """Return a request with any body, signed as the vendor does."""

    def write(self, identity: str, words: str) -> InboundRequest:
        """Return the request that reaches the channel if `identity` writes `words`.

        Only called if `writes` is true.
        """
        raise NotImplementedError

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest | None:
        """Return the request that reaches the channel if `identity` writes below a card, or `None` if that is
        impossible.
        """
        return None

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest | None:
        """Return the request that reaches the channel if `identity` writes `words`, then `struck` struck out, below a
        card.

        `None` if text cannot be struck out.
        """
        return None

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest | None:
        """Return the request of a reply by `identity` to our latest message, or `None` if that is impossible."""
        return None

    def room_cards(self) -> Sequence[VendorCard]:
        """Return the present form of every card in `room`, in order. Only called if there is a room."""
        raise NotImplementedError

    def press_room(self, card: VendorCard, identity: str, act: RoomAct) -> InboundRequest:
        """Return the request that reaches the channel if `identity` presses a button of a card in `room`.

        Raises `KeyError` if the card has no such button.
        """
        raise NotImplementedError

    def introductions(self) -> Sequence[InboundRequest]:
        """Return the requests that reach the channel before any card, such as of people who install a bot."""
        return ()

    def show_response(self, raw: InboundRequest, response: InboundBatch) -> None:  # noqa: B027 (most vendors show none)
        """Take the response to `raw`, whose reply a vendor may show. By default, it is not shown."""

    def status(self, card: VendorCard, state: CardStatus) -> InboundRequest | None:
        """Return the vendor's report on a card, or `None` if it sends none."""
        return None

    def forgeries(self, raw: InboundRequest) -> Sequence[InboundRequest]:
        """Return forgeries of `raw`."""
        return (dataclasses.replace(raw, headers={}), dataclasses.replace(raw, body=raw.body + b" "))

    def unknown(self) -> Sequence[InboundRequest]:
        """Return vendor requests that the channel ignores: new events, new states, the vendor's own tests."""
        return ()
