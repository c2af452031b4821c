"""Answers senders whom the directory does not know: once a day, so that no flood of them fills a store."""

from datetime import UTC
from typing import Final, Literal

from signoff.approvals.audit_events import admin_entry, fingerprint
from signoff.channels.inbound.receiver import Record
from signoff.contracts.clock import Clock
from signoff.contracts.names import DEFAULT_TENANT

AN_HOUR: Final = 100
"""What strangers say on one channel in an hour is kept so often; the rest is only counted."""
Met = Literal["new", "seen", "many"]
"""Whether somebody is told that they are not known: `new`. What is one of too `many` is not kept."""
_IDENTITY_CHARS: Final = 200


class UnknownSenders:
    """Keeps count of the unknown senders on one channel in this process."""

    def __init__(self, channel: str, record: Record, clock: Clock) -> None:
        self._channel = channel
        self._record = record
        self._clock = clock
        self._hour = 0
        self._kept = 0
        self._uncounted = 0

    async def count_sender(self, identity: str) -> Met:
        """Counts a sender; records it once a day, with how many were left out before.

        Raises `StoreUnavailable`.
        """
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
        # The record is shared by all processes and takes a key once: it says whether this is the first time today.
        if not await self._record([seen]):
            return "seen"
        # Not set to 0: others may have been turned away while this was written.
        self._uncounted -= more
        return "new"
