"""Limits how much is recorded of what anybody can cause without being let in: some in each minute, the rest counted."""

from datetime import datetime

from signoff.contracts.limits import REFUSALS_A_MINUTE


class RecordRateLimit:
    """Limits the records of refusals of one kind by one process, so that no flood of them fills a store."""

    def __init__(self, kept_a_minute: int = REFUSALS_A_MINUTE) -> None:
        self._most = kept_a_minute
        self._minute = 0
        self._kept = 0
        self._uncounted = 0

    def admit(self, now: datetime) -> int | None:
        """Returns how many were left out since the last recorded one; None where this one is to be left out, too."""
        minute = int(now.timestamp()) // 60
        if minute != self._minute:
            self._minute, self._kept = minute, 0
        if self._kept >= self._most:
            self._uncounted += 1
            return None
        self._kept += 1
        more, self._uncounted = self._uncounted, 0
        return more
