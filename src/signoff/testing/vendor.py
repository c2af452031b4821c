"""A fake of whoever is behind a channel, as the suite of channels drives it; it needs nothing but Signoff."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, TypeAlias

from signoff.channels.envelopes import InboundRequest
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Verdict
from signoff.contracts.names import PLUGIN_NAMES

CardStatus: TypeAlias = Literal["delivered", "read", "failed"]
"""What vendors tell of cards that they took."""
Trouble: TypeAlias = Literal["", "down", "busy", "limited", "fault", "garbage", "cut"]
"""What a vendor does in place of its work. `down`: it answers nothing, or that it cannot. `busy`: it takes no more for
now, and says for how long. The others are played by `vendor_server.serve_vendor`: a bare 429, a 500, a success that is
no answer, a connection that is cut.
"""
HTTP_TROUBLES: Final[Sequence[Trouble]] = ("limited", "fault", "garbage", "cut")
"""Those of every vendor that is called over HTTP."""


@dataclass(frozen=True)
class VendorCard:
    """One card as the vendor holds it."""

    to: str
    """The identity that it was sent to."""
    token: str
    """The token of its delivery."""
    text: str
    """Everything that can be read of it."""


class Vendor(ABC):
    """A fake of whoever is behind a channel. `clock` is set before it is used, and is the time it signs with."""

    kind: ClassVar[str]
    """As a manifest names it: `email`, or `package.module`."""
    plugins: ClassVar[Sequence[str]] = PLUGIN_NAMES
    """The plugins that are loaded, as `SIGNOFF_PLUGINS` names them."""
    identities: ClassVar[tuple[str, str, str, str]]
    """How four people are known there. The last one is a stranger."""
    writes: ClassVar[bool] = True
    """Whether people can write what they like there, beside any card."""
    trouble: Trouble = ""
    troubles: ClassVar[Sequence[Trouble]] = ()
    """What else may befall a call of it; `HTTP_TROUBLES` where it is called over HTTP and its answers are read."""
    busy_seconds: ClassVar[float] = 0.0
    """For how long it says that it is busy; 0 where it does not say."""
    clock: Clock
    said_at: datetime | None = None
    """When a person writes what the fake makes next; None: now. A vendor may bring it later."""

    @property
    def now_said(self) -> datetime:
        """The time that a message made now has."""
        return self.said_at or self.clock()

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the channel, as a manifest has them."""
        return {}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that those options refer to."""
        return {}

    @abstractmethod
    def cards(self) -> Sequence[VendorCard]:
        """Returns every card that was sent, reminders and digests too, in order."""

    @abstractmethod
    def reads(self, identity: str) -> Sequence[str]:
        """Returns all that somebody can read there now: cards as they are now, what follows them, and answers."""

    @abstractmethod
    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Makes the request that reaches us when `identity` answers that card, in the way the channel has for it."""

    @abstractmethod
    def sign(self, body: bytes) -> InboundRequest:
        """Makes a request of any body at all, as if it came from the vendor."""

    def write(self, identity: str, words: str) -> InboundRequest:
        """Makes the request that reaches us when `identity` writes something, beside any card."""
        raise NotImplementedError

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest | None:
        """Makes the request that reaches us when `identity` writes below a card; None where nobody can."""
        return None

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest | None:
        """Makes the request that reaches us when `identity` writes `words` below a card, then `struck` struck out.

        None where nobody can strike text out.
        """
        return None

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest | None:
        """Makes the request that reaches us when `identity` writes below our latest message; None where nobody can."""
        return None

    def status(self, card: VendorCard, state: CardStatus) -> InboundRequest | None:
        """Makes the vendor's report on a card; None where it sends none."""
        return None

    def forgeries(self, raw: InboundRequest) -> Sequence[InboundRequest]:
        """Returns `raw` as somebody else would send it."""
        return (dataclasses.replace(raw, headers={}), dataclasses.replace(raw, body=raw.body + b" "))

    def unknown(self) -> Sequence[InboundRequest]:
        """Returns requests of the vendor that mean nothing to us: new events, new states, its own tests."""
        return ()
