"""Records refused sign-ins: a few each minute, the rest as a count, so that a flood cannot fill the store."""

from typing import Final

from signoff.approvals.audit_events import admin_entry
from signoff.audit.rate_limit import RecordRateLimit
from signoff.contracts.names import DEFAULT_TENANT
from signoff.gateway.audit_writer import record
from signoff.gateway.deps import GatewayDeps

_CHARS: Final = 200
_FACT_CHARS: Final = 600
"""Enough for a login: an issuer, `#` and a subject of 255."""


class FailedSignIns:
    """Records refusals of one way to sign in.

    Stores nothing that the client sent: it may be another system's secret.
    """

    def __init__(self, deps: GatewayDeps, channel: str) -> None:
        self._deps = deps
        self._channel = channel
        self._sparing = RecordRateLimit()

    async def note(self, reason: str, login: str = "", person: str = "") -> None:
        """Raises nothing if the store is down.

        `login` and `person` are set if a login claims to be a declared person.
        """
        now = self._deps.clock()
        self._deps.store.count_refusal("sign_in")
        more = self._sparing.admit(now)
        if more is None:
            return
        entry = admin_entry(
            DEFAULT_TENANT,
            "sign-in refused",
            "",
            now,
            channel=self._channel,
            reason=reason[:_CHARS],
            more_before=more or None,
            login=login[:_FACT_CHARS],
            person=person,
        )
        await record(self._deps.store, entry)
