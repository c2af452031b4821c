"""Limits the records that unauthenticated input can cause.

Some are recorded each minute, the rest is counted.
"""

from datetime import datetime

from signoff.contracts.limits import REFUSALS_A_MINUTE


class RecordRateLimit:
    """Limits one process's records of one kind of refusal.

    A flood must not fill the store.
    """

    def __init__(self, kept_a_minute: int = REFUSALS_A_MINUTE) -> None:
        self._most = kept_a_minute
        self._minute = 0
        self._kept = 0
        self._uncounted = 0

    def admit(self, now: datetime) -> int | None:
        """Return the number omitted since the last record, or `None` to omit this one."""
        minute = int(now.timestamp()) // 60
        if minute != self._minute:
            self._minute, self._kept = minute, 0
        if self._kept >= self._most:
            self._uncounted += 1
            return None
        self._kept += 1
        more, self._uncounted = self._uncounted, 0
        return more
