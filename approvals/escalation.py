"""When those to whom a request escalates could answer it, by what is on record of when it was asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple


class Asked(NamedTuple):
    """When a revision of a request was asked (UTC), and whether somebody's edit made it."""

    at: datetime
    edited: bool


@dataclass(frozen=True)
class Escalation:
    """Whom a policy escalates to, and when each revision of a request was asked, as far as that is on record.

    `assumed`: what nobody signed is taken to have come after the escalation.
    """

    to: tuple[str, ...] = ()
    after: timedelta = timedelta()
    asked: Mapping[int, Asked] = field(default_factory=dict)
    assumed: bool = False

    def reached(self, revision: int, moment: datetime) -> bool:
        """Whether `revision` was escalated at `moment`; never, where nothing is known of when it was asked.

        An edit leaves escalated what was; whatever is asked anew begins anew.
        """
        while (asked := self.asked.get(revision)) is not None:
            if asked.at + self.after <= moment:
                return True
            if not asked.edited:
                return False
            # An edit carries over what had escalated by then, so the revision before is asked as of the edit.
            moment, revision = min(asked.at, moment), revision - 1
        return False


NOT_ESCALATED: Final = Escalation()
"""Of a call that nobody but those asked first may answer for."""
