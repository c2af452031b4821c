"""Defines the result of a received message with the reply, and limits the replies.

A phone with automatic replies gets no reply to each message. An unknown sender gets one reply a day, and a flood of
unknown senders is not stored.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from typing import Any, Final, Literal

from signoff.approvals.audit_events import admin_entry, fingerprint
from signoff.channels.answer_text.answer_tokens import fold
from signoff.channels.asked_revision import AskedRevision
from signoff.channels.envelopes import ChannelReply, InboundAction
from signoff.channels.inbound.receiver import Record
from signoff.contracts.clock import Clock
from signoff.contracts.limits import REPLIES_A_MINUTE, REPLIES_AN_HOUR
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.store.inbound_queue import TOLD, InboundQueue, InboundRow

WINDOW: Final = "trigger_id"
"""The entry of `InboundAction.where` with which a channel opens a dialog instead of a reply in words."""
AN_HOUR: Final = 100
"""Messages of strangers that are stored for one channel in an hour; the rest are only counted."""
_Met = Literal["new", "seen", "many"]
"""`new`: reply that the sender is unknown. `seen`: the sender had that reply today. `many`: store no message."""
_IDENTITY_CHARS: Final = 200

_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_DIGITS: Final = re.compile(r"(?<!\w)\d+(?!\w)")
"""Times and counts: the automatic replies of one phone differ only in these."""
_READ_CHARS: Final = 2_000


@dataclass(frozen=True)
class Outcome:
    """The result of one message. `where` is the place of the reply, as in `InboundAction`."""

    result: dict[str, Any] | None = None
    """The stored result, or `None` if the message is read again later."""
    reply: ChannelReply | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    state: Literal["done", "dropped"] = "done"
    forgotten: bool = False
    about: tuple[AskedRevision, ...] = ()
    """The requests that the reply is about."""
    person: Person | None = None
    """The person who gets the reply, or `None` for a stranger."""
    hold: float = 0.0
    """Seconds until the arrival is read again, as if for the first time."""

    def reply_id(self, key: str) -> str:
        """Return the id of the reply to the arrival `key`: the same for each attempt and any text.

        An arrival that is read again gets one reply now and one about its decision.
        """
        stage = "" if self.result is not None else "held" if self.hold else "pending"
        return hashlib.sha256(f"{key}/{stage}".encode()).hexdigest()[:32]


def in_words(where: Mapping[str, Any]) -> dict[str, Any]:
    """Return `where` for a reply in words, which opens no dialog."""
    return {name: value for name, value in where.items() if name != WINDOW}


def drop_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value}


class ReplyLimit:
    """Limits the replies that decide nothing, for all processes over one store."""

    def __init__(self, arrivals: InboundQueue, record: Record) -> None:
        self._arrivals = arrivals
        self._record = record

    async def apply(self, person: Person, action: InboundAction, row: InboundRow, outcome: Outcome) -> Outcome:
        """Remove the reply if its author has had that reply or too many others.

        Button presses and decisions always get their reply. Raises `StoreUnavailable`.
        """
        result = outcome.result
        is_press = action.verdict is not None or bool(action.question) or WINDOW in action.where
        if outcome.reply is None or result is None or is_press or not _decides_nothing(result):
            return outcome
        words_hash = _fingerprint(action, outcome) if result.get("why") and action.text.strip() else ""
        before = await self._arrivals.list_told(row, row.received_at - _HOUR, limit=REPLIES_AN_HOUR)
        last_minute = sum(each.received_at > row.received_at - _MINUTE for each in before)
        if words_hash and any((each.result or {}).get(TOLD) == words_hash for each in before):
            why = "repeated"
        elif last_minute >= REPLIES_A_MINUTE or len(before) >= REPLIES_AN_HOUR:
            why = "many"
        else:
            return replace(outcome, result={**result, TOLD: words_hash})
        await self._note(person, row, why)
        return replace(outcome, result={**result, "unanswered": why}, reply=None)

    async def _note(self, person: Person, row: InboundRow, why: str) -> None:
        """Record once an hour that a person gets no reply."""
        key = f"unanswered/{row.speaker[:16]}/{row.received_at:%Y-%m-%dT%H}"
        facts = {"channel": row.channel, "why": why}
        entry = admin_entry(
            person.tenant, "message not answered", person.id, row.received_at, kind="attempt", key=key, **facts
        )
        await self._record([entry])


def _decides_nothing(result: dict[str, Any]) -> bool:
    is_refused = result["what"] in ("decided", "question") and result.get("status") not in ("accepted", "counted")
    return is_refused or result["what"] in ("asked", "changed", "link", "sender")


def _fingerprint(action: InboundAction, outcome: Outcome) -> str:
    """Return the same hash for the same words, without their numbers, about the same requests."""
    words = _DIGITS.sub("#", fold(action.text[:_READ_CHARS]))
    ids = ",".join(sorted(each.request.id for each in outcome.about))
    return hashlib.sha256(f"{ids}|{action.unclear}|{words}".encode(errors="surrogatepass")).hexdigest()[:32]


class UnknownSenders:
    """Counts the unknown senders on one channel in this process."""

    def __init__(self, channel: str, record: Record, clock: Clock) -> None:
        self._channel = channel
        self._record = record
        self._clock = clock
        self._hour = 0
        self._kept = 0
        self._uncounted = 0

    async def count_sender(self, identity: str) -> _Met:
        """Record a sender once a day, with the number of senders left out before. Raises `StoreUnavailable`."""
        now = self._clock()
        hour = int(now.timestamp()) // 3600
        if hour != self._hour:
            self._hour, self._kept = hour, 0
        if self._kept >= AN_HOUR:
            self._uncounted += 1
            return "many"
        self._kept += 1
        more = self._uncounted
        seen = admin_entry(
            DEFAULT_TENANT,
            "stranger",
            "",
            now,
            kind="attempt",
            key=f"stranger/{self._channel}/{fingerprint(identity)[:16]}/{now.astimezone(UTC):%Y-%m-%d}",
            channel=self._channel,
            identity=identity[:_IDENTITY_CHARS],
            more_before=more or None,
        )
        # All processes share the audit log, which takes a key once: the result shows whether this is the first today.
        if not await self._record([seen]):
            return "seen"
        # Do not set it to 0: more senders may have been left out during the write.
        self._uncounted -= more
        return "new"
