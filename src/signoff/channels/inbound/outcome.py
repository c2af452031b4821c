"""Defines the result of one received message, with the reply to its author."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from signoff.channels.asked_revision import AskedRevision
from signoff.channels.envelopes import ChannelReply
from signoff.contracts.person import Person

WINDOW: Final = "trigger_id"
"""The entry of `InboundAction.where` by which a channel opens a window instead of a reply in words."""


@dataclass(frozen=True)
class Outcome:
    """The result of one message. `where` is the place of the reply, as in `InboundAction`."""

    result: dict[str, Any] | None = None
    """The stored result; None if the message is read again later."""
    reply: ChannelReply | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    state: Literal["done", "dropped"] = "done"
    forgotten: bool = False
    about: tuple[AskedRevision, ...] = ()
    """The requests that the reply is about."""
    person: Person | None = None
    """The person who gets the reply; None for a stranger."""
    hold: float = 0.0
    """Seconds until the arrival is read again, as if for the first time."""

    def reply_id(self, key: str) -> str:
        """Return the id of the reply to the arrival `key`: the same however often it is sent, in whatever words.

        An arrival that is read again gets one reply now and one about its decision.
        """
        stage = "" if self.result is not None else "held" if self.hold else "pending"
        return hashlib.sha256(f"{key}/{stage}".encode()).hexdigest()[:32]


def in_words(where: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `where` for a reply in words, which opens no window."""
    return {name: value for name, value in where.items() if name != WINDOW}


def drop_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts that are not empty."""
    return {name: value for name, value in facts.items() if value}
