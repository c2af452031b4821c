"""What the two ends of a channel carry: cards that go out, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Verdict
from signoff.contracts.frozen_model import Shape
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt


class OutboundCard(Shape):
    """One card for one person on one channel.

    `token` names this delivery: at most 32 characters of `[a-z0-9]`, in every copy that is sent, however often.
    `address` is the person's identity there. `link` opens the request in a browser and decides nothing by itself.
    `kind` `digest` tells of several requests that wait: `request` is the first, `more` how many others there are.
    """

    token: str
    kind: Literal["ask", "remind", "digest"] = "ask"
    request: ApprovalRequest
    person: Person
    address: str
    link: str
    more: int = 0


class SentCard(Shape):
    """What a vendor said of a card that it took. `handle` is all that editing or answering it needs later, as JSON.

    `vendor_id` is the vendor's own name of the message, by which it speaks of it in statuses and replies.
    """

    vendor_id: str = ""
    handle: dict[str, Any] = Field(default_factory=dict)


PARTIAL: Final = "partial"
"""In the handle of a card that does not give every value, added for whoever hears the answers to it."""


class ClosedCard(Shape):
    """What every card of a request says once it is over: its end, who, when and by which channel."""

    request: ApprovalRequest
    person: Person
    token: str
    link: str


@dataclass(frozen=True)
class InboundRequest:
    """One message as it reached us, unread. Header names are in lower case; `at` is our clock, in UTC."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    url: str = ""
    at: datetime | None = None


class InboundAction(Shape):
    """One thing that somebody did on a channel, once its origin is verified.

    `key` is its own, as long as the vendor may repeat it: the only guard against replays where nothing is signed with
    a time. `identity` is who did it, as the directory spells it. What it is about: `token` of a delivery, else
    `vendor_ids` of messages it replies to, else a code in `text`. `verdict` is that of a button; otherwise `text` is
    all that was newly written, and what it says is read as `form`: in a `chat` all of it is the answer, a `mail` has a
    sign-off too, and `below` is what stands below its quote. `unclear` says why nothing in it may decide. `name` is
    what the writer calls themselves; nobody is known by it. `where` is what an answer in the channel needs, as JSON.
    """

    key: str
    identity: str
    token: str = ""
    vendor_ids: tuple[str, ...] = ()
    verdict: Verdict | None = None
    reason: str = ""
    text: str = ""
    below: str = ""
    form: Literal["chat", "mail"] = "chat"
    unclear: str = ""
    name: str = ""
    where: dict[str, Any] = Field(default_factory=dict)


class DeliveryStatus(Shape):
    """What a vendor reports of a card that it took. A state it does not explain is `unknown`, and only recorded."""

    key: str
    vendor_id: str
    state: Literal["sent", "delivered", "read", "failed", "unknown"]
    code: str = ""
    told: str = ""


@dataclass(frozen=True)
class InboundBatch:
    """What one raw message holds, and what the vendor is told at once; most want nothing but 200."""

    heard: tuple[InboundAction, ...] = ()
    statuses: tuple[DeliveryStatus, ...] = ()
    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain"


class Reply(Shape):
    """The answer to what somebody did, in their language. `text` is whole by itself; `receipt` is None for questions.

    `choices` are short codes among which somebody is to choose. `language` is that of `text`.
    """

    text: str
    language: str = "en"
    receipt: Receipt | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckFinding:
    """One line of `signoff channels check`."""

    ok: bool
    what: str
    remedy: str = ""
