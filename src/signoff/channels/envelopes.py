"""Defines the data of a channel's two halves: outbound cards, and inbound actions and reports."""

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

IDENTITY_CHARS: Final = 200
"""The longest identity of a stored contact."""


class OutboundCard(FrozenModel):
    """One card for one person on one channel."""

    token: str
    """The id of this delivery in every copy: at most 32 characters of `[a-z0-9]`."""
    kind: Literal["ask", "remind", "digest"] = "ask"
    """`remind` is a reminder of a sent card; `digest` lists several open requests."""
    request: ApprovalRequest
    """The request; for a digest the first one."""
    person: Person
    """The recipient."""
    address: str
    """The person's identity on the channel."""
    link: str
    """The address of the request's page. Opening it decides nothing."""
    more: int = 0
    """The number of a digest's other requests."""
    asks: bool = False
    """Whether the person can ask the agent about the request."""


class SentCard(FrozenModel):
    """A vendor's acknowledgement of a card."""

    vendor_id: str = ""
    """The vendor's id of the message, as in its reports and replies."""
    handle: dict[str, Any] = Field(default_factory=dict)
    """The data for editing or answering the card later, as JSON."""


PARTIAL: Final = "partial"
"""The key in the handle of a card that does not show every value. The processor of its answers reads it."""

SHOWN: Final = "shown"
"""The key in the handle of a card that was in a list, once a reminder has shown every value."""


SENT: Final = "sent"
"""The key in the handle of an emailed card for the words of each email about it, for comparison with quotes."""


class ClosedCard(FrozenModel):
    """A card whose request has ended, to show the end state with its author, time and channel."""

    request: ApprovalRequest
    """The request in its end state."""
    person: Person
    """The card's recipient."""
    token: str
    """The token of its delivery."""
    link: str
    """The address of the request's page."""
    address: str = ""
    """The person's address, for a card that the vendor never acknowledged."""


class OutboundNotice(FrozenModel):
    """A text that informs one person. It asks for nothing, and no answer to it decides."""

    token: str
    """The id of this delivery: at most 32 characters of `[a-z0-9]`."""
    kind: Literal["waiting", "decided", "ran", "failed", "passkey", "sign_in"]
    """The event: of a request, of its call, of the person's passkeys, or of a sign-in."""
    title: str
    """The event in one line, for channels with a subject."""
    text: str
    """The whole notice, in the person's language. Text of models and people in it is on one line each."""
    language: str
    """The language of `text`."""
    person: Person
    """The recipient."""
    address: str
    """The person's identity on the channel."""
    approval: str = ""
    """The id of the request, "" if it is about none."""
    state: str = ""
    """The state of the request, "" if it is about none."""


@dataclass(frozen=True)
class InboundRequest:
    """One received message before parsing."""

    body: bytes
    """The received bytes; signatures are over these."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers, with names in lower case."""
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    """The HTTP method. Only the contents of a `POST` count."""
    url: str = ""
    """The public form of the called address."""
    at: datetime | None = None
    """The time of arrival by our clock, in UTC."""


RoomAct = Literal["take", "release", "show"]
"""The acts on a room's card: take the request, give it back, or see it whole. None of them decides."""


class RoomCard(FrozenModel):
    """A waiting or ended request as all members of a room see it: without arguments, or texts made from them."""

    token: str
    """The id of this delivery in every copy: at most 32 characters of `[a-z0-9]`."""
    address: str
    """The room's address on the channel."""
    heading: str
    lines: tuple[str, ...] = ()
    buttons: tuple[tuple[RoomAct, str], ...] = ()
    """The acts, with their labels. Empty for an ended request."""

    @property
    def text(self) -> str:
        """The card as plain text, without buttons."""
        return "\n".join((self.heading, *self.lines))


class InboundAction(FrozenModel):
    """One action of a person on a channel, with a verified origin.

    Its request is named by the `token` of a delivery, else by `vendor_ids`, else by a code in `text`.
    """

    key: str
    """The action's id, the same each time the vendor repeats it.

    It is the only guard against replays if no time is signed.
    """
    identity: str
    """The author's identity, as in the directory."""
    token: str = ""
    """The token of the delivery that it answers."""
    vendor_ids: tuple[str, ...] = ()
    """The vendor's ids of the messages that it replies to."""
    verdict: Verdict | None = None
    """The verdict of a button. None for an answer in words."""
    room: RoomAct | None = None
    """The act of a button of a room's card. It has no verdict."""
    reason: str = ""
    """The text that came with a button."""
    question: str = ""
    """A question to the agent, written in a separate field. It has no verdict."""
    text: str = ""
    """All new text."""
    below: str = ""
    """The text below the quote of an email."""
    sender: str = ""
    """The address that sent an email in the name of `identity`. "" if it is the same."""
    quoted: str = ""
    """The lines of Signoff's email that an email quotes."""
    others: tuple[str, ...] = ()
    """Other people's addresses that the message also went to."""
    form: Literal["chat", "mail"] = "chat"
    """How to read `text`: a `chat` is wholly an answer, a `mail` also has a sign-off."""
    unclear: str = ""
    """Why the action may not decide, such as `reaction` or `group`. "" if it may.

    `edited` and `deleted` are for a message that `changes` an earlier one.
    """
    changes: str = ""
    """The key of the earlier message of the same author that was edited or deleted."""
    name: str = ""
    """The writer's own choice of name. It identifies no person."""
    said_at: AwareDatetime | None = None
    """The vendor's time of the action. The arrival counts if that is earlier.

    Without it, an approval counts only if it names its card by `token` or `vendor_ids`.
    """
    where: dict[str, Any] = Field(default_factory=dict)
    """The data for a reply on the channel, as JSON."""

    @property
    def author(self) -> str:
        """The author's identity, as in the directory."""
        return self.identity


class DeliveryStatus(FrozenModel):
    """A vendor's report on a card that it accepted."""

    key: str
    """The report's id, the same each time it is repeated."""
    vendor_id: str
    """The vendor's id of the message."""
    state: Literal["sent", "delivered", "read", "failed", "unknown"]
    """The card's state. An undocumented state is `unknown`, and only recorded."""
    code: str = ""
    """The vendor's code of a failure."""
    message: str = ""
    """The meaning of the failure, in words."""

    @property
    def author(self) -> str:
        """Return "", because no person wrote a report."""
        return ""


class Contact(FrozenModel):
    """A place where a person of a vendor can be written to, as a verified message shows it."""

    identity: str = Field(min_length=1, max_length=IDENTITY_CHARS)
    """The person's identity, as in the directory."""
    handle: dict[str, Any] | None = None
    """The data for a message to the person, as JSON. None if the person can no longer be written to."""


@dataclass(frozen=True)
class InboundBatch:
    """The contents of one raw message, and the immediate response to the vendor. Most vendors only need 200."""

    actions: tuple[InboundAction, ...] = ()
    statuses: tuple[DeliveryStatus, ...] = ()
    contacts: tuple[Contact, ...] = ()
    """The contacts to store, for `ChannelContext.contacts`."""
    reply_seconds: float = 0.0
    """How long the vendor's request waits for the reply to its one action, which `Channel.respond` writes.

    0 if the vendor does not show the response.
    """
    status: int = 200
    """The status of the response to the vendor."""
    body: bytes = b""
    media_type: str = "text/plain"


class ChannelReply(FrozenModel):
    """The reply to a person's action, in the person's language."""

    id: str = ""
    """The unique id of this reply, the same each time it is sent: at most 32 of `[a-z0-9]`. The gateway sets it."""

    text: str
    """The reply, complete without the other fields."""
    language: str = "en"
    """The language of `text`."""
    receipt: Receipt | None = None
    """The receipt of the decision. None for questions."""
    choices: tuple[str, ...] = ()
    """The short codes that the person can choose."""
    reason_required: bool = False
    """Whether a denial of the request needs a reason."""
    card: OutboundCard | None = None
    """The card to show to the person alone, on a channel with `views`."""


@dataclass(frozen=True)
class CheckFinding:
    """One line of `signoff channels check`."""

    ok: bool
    what: str
    remedy: str = ""
    """The remedy if the check failed."""
