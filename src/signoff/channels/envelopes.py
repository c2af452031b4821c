"""Defines what the two ends of a channel carry: cards that go out, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Verdict
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt


class OutboundCard(FrozenModel):
    """One card for one person on one channel."""

    token: str
    """Names this delivery in every copy that is sent, however often: at most 32 characters of `[a-z0-9]`."""
    kind: Literal["ask", "remind", "digest"] = "ask"
    """`remind` reminds of a card that is out; `digest` tells of several requests that wait."""
    request: ApprovalRequest
    """The request; of a digest the first of them."""
    person: Person
    """Who is told."""
    address: str
    """The person's identity on the channel."""
    link: str
    """Opens the request in a browser; it decides nothing by itself."""
    more: int = 0
    """How many other requests a digest is about."""


class SentCard(FrozenModel):
    """What a vendor said of a card that it took."""

    vendor_id: str = ""
    """The vendor's own name of the message, by which it speaks of it in statuses and replies."""
    handle: dict[str, Any] = Field(default_factory=dict)
    """All that editing or answering the card needs later, as JSON."""


PARTIAL: Final = "partial"
"""In the handle of a card that does not give every value, added for whoever hears the answers to it."""


SENT: Final = "sent"
"""In the handle of a card sent by mail: the words of each mail about it, by which its quote is compared."""


class ClosedCard(FrozenModel):
    """A card whose request is over: it is to say its end, who, when and by which channel."""

    request: ApprovalRequest
    """The request as it ended."""
    person: Person
    """Whose card it is."""
    token: str
    """The token of its delivery."""
    link: str
    """Opens the request in a browser."""
    address: str = ""
    """The person's address, for a card that the vendor never acknowledged."""


@dataclass(frozen=True)
class InboundRequest:
    """One message as it reached us, unread."""

    body: bytes
    """Its bytes as they came; signatures are over these."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Its headers, by names in lower case."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The parameters of its address."""
    method: str = "POST"
    """The method of HTTP; only a `POST` says something."""
    url: str = ""
    """The address that was called, as the public knows it."""
    at: datetime | None = None
    """When it came, by our clock, in UTC."""


class InboundAction(FrozenModel):
    """One thing that somebody did on a channel, once its origin is verified.

    What it is about: `token` of a delivery, else `vendor_ids`, else a code in `text`.
    """

    key: str
    """Its own name, the same as long as the vendor may repeat it: the only guard against replays where no time is
    signed.
    """
    identity: str
    """Who did it, as the directory spells it."""
    token: str = ""
    """The token of the delivery that it answers."""
    vendor_ids: tuple[str, ...] = ()
    """The vendor's names of the messages that it replies to."""
    verdict: Verdict | None = None
    """The verdict of a button; None where words say it."""
    reason: str = ""
    """What was written beside a button."""
    text: str = ""
    """All that was newly written."""
    below: str = ""
    """What stands below the quote of a mail."""
    sender: str = ""
    """The address that sent a mail in the name of `identity`; "" where it is the same."""
    quoted: str = ""
    """The lines of our own mail that a mail quotes."""
    others: tuple[str, ...] = ()
    """Other people's addresses that the message also went to."""
    form: Literal["chat", "mail"] = "chat"
    """How `text` is read: in a `chat` all of it is the answer, a `mail` has a sign-off too."""
    unclear: str = ""
    """Why nothing in it may decide, such as `reaction` or `group`; "" where something may.

    `edited` and `deleted` are for a message that `changes` an earlier one.
    """
    changes: str = ""
    """The key of the earlier message of the same author that was edited or deleted."""
    name: str = ""
    """What the writer calls themselves; nobody is known by it."""
    said_at: AwareDatetime | None = None
    """When the person did it, as the vendor tells it. The arrival counts if that is earlier.

    Without it, an approval counts only if it names its card by `token` or `vendor_ids`.
    """
    where: dict[str, Any] = Field(default_factory=dict)
    """What an answer in the channel needs, as JSON."""

    @property
    def author(self) -> str:
        """Return who did it, as the directory spells it."""
        return self.identity


class DeliveryStatus(FrozenModel):
    """What a vendor reports of a card that it took."""

    key: str
    """Its own name, the same whenever it is repeated."""
    vendor_id: str
    """The vendor's name of the message."""
    state: Literal["sent", "delivered", "read", "failed", "unknown"]
    """What became of it; a state that the vendor does not explain is `unknown`, and only recorded."""
    code: str = ""
    """The vendor's code of a failure."""
    message: str = ""
    """What the failure means, in words."""

    @property
    def author(self) -> str:
        """Return "": no person wrote a report."""
        return ""


@dataclass(frozen=True)
class InboundBatch:
    """What one raw message holds, and what the vendor is told at once; most want nothing but 200."""

    actions: tuple[InboundAction, ...] = ()
    """What people did."""
    statuses: tuple[DeliveryStatus, ...] = ()
    """What became of cards."""
    status: int = 200
    """The status of the answer to the vendor."""
    body: bytes = b""
    """The body of that answer."""
    media_type: str = "text/plain"
    """The type of that body."""


class ChannelReply(FrozenModel):
    """The answer to what somebody did, in their language."""

    id: str = ""
    """Names this reply each time it is sent, and no other; at most 32 of `[a-z0-9]`. The gateway sets it."""

    text: str
    """The answer, whole by itself."""
    language: str = "en"
    """The language of `text`."""
    receipt: Receipt | None = None
    """The receipt that it tells of; None for questions."""
    choices: tuple[str, ...] = ()
    """Short codes among which somebody is to choose."""
    reason_required: bool = False
    """Whether a denial of the request needs a reason."""


@dataclass(frozen=True)
class CheckFinding:
    """One line of `signoff channels check`."""

    ok: bool
    """Whether all is well."""
    what: str
    """What was found."""
    remedy: str = ""
    """What to do where it is not well."""
