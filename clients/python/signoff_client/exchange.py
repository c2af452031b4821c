"""The protocol of one call with a gateway, without I/O.

Each verb is a generator of requests and pauses. Programs with and without an event loop share it.
"""

import random
import uuid
from collections.abc import Callable, Generator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from signoff_client.messages import (
    Failure,
    Pause,
    Proposal,
    Reply,
    ReportCode,
    Request,
    clip,
    encode_outcome,
    safe_key,
    to_text,
)
from signoff_client.status import CallStatus, explain, is_call_id, read_permit, read_status

T = TypeVar("T")
Exchange = Generator[Request | Pause, Reply | Failure | None, T]

HOLD_SECONDS: Final = 30.0
"""Longest wait of one request for approvers, below the timeouts of common proxies."""
_SHORTEST_HOLD: Final = 1.0
"""Shortest interval between looks at a waiting call if the gateway answers at once."""
_MOST_AGAIN: Final = 3
"""Largest number of attempts with a stale permit before the call counts as not permitted."""
_MOST_SUSPENDED: Final = 1_000
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 15.0
_FINAL: Final = frozenset({"sign_in", "scope", "not_found", "not_used", "conflict"})
"""Error codes of a report that another wording would not change."""


class SuspendedUse(NamedTuple):
    """The use of a permit whose call was suspended."""

    attempt: str
    status: CallStatus


@dataclass
class CallExchange:
    """Takes one call through the five verbs."""

    proposal: Proposal
    patience: float
    """Seconds for which an unanswered request is retried."""
    clock: Callable[[], float]
    id: str = ""
    """The id of the call at the gateway; "" before the gateway has named it."""
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The id of this program's attempt to use the permit. A repeat gets the same answer."""
    is_found: bool = False
    """Whether another program proposed the call: it is read, not proposed."""
    is_repeated: bool = False
    """Whether an earlier program with this attempt may have used the permit. The permit is then requested again."""
    suspended: MutableMapping[str, SuspendedUse] = field(default_factory=dict)
    """By call id."""

    def settle(self) -> Exchange[CallStatus]:
        """Propose the call and wait for approvers. `permitted` means that its permit can be used."""
        until = self._deadline()
        status = yield from self._wait((yield from self._propose()), until)
        use = self.suspended.get(self.id)
        return use.status if use is not None and status.state == "used" else status

    def obtain(self, settled: CallStatus | None = None) -> Exchange[CallStatus]:
        """Settle the call, unless given, and use its permit. Without a permit, returns the state of the call."""
        until = self._deadline()
        status, retries = (yield from self._propose()) if settled is None else settled, 0
        # Take it out: of several concurrent resumptions, one runs the call.
        use = self.suspended.pop(self.id, None)
        if use is not None and status.state in ("used", "permitted"):
            self.attempt, status = use.attempt, use.status
        while True:
            status = yield from self._wait(status, until)
            if status.state != "permitted" and not (status.state == "used" and self.is_repeated):
                return status
            status = yield from self._use(status)
            if status.state == "denied" and status.source == "stale" and retries < _MOST_AGAIN:
                # The basis of the permit has changed, and the gates judge again: approvers may be asked now.
                status, retries = replace(status, state="waiting"), retries + 1
            if status.state != "waiting":
                return status

    def suspend(self, status: CallStatus) -> None:
        """Keep the use of a permit, so that this program uses it again when the call is resumed."""
        while len(self.suspended) >= _MOST_SUSPENDED:
            self.suspended.pop(next(iter(self.suspended)))
        self.suspended[self.id] = SuspendedUse(self.attempt, status)

    def report(self, code: ReportCode, result: Any) -> Exchange[str]:
        """Return the reason if the gateway did not accept the report, else ""."""
        path = f"/v1/calls/{self.id}/outcome"
        reply = yield from self._send(Request("POST", path, encode_outcome(code, result)))
        if isinstance(reply, Reply) and 400 <= reply.status < 500 and reply.code not in _FINAL:
            # Too large, or a number that JSON cannot carry safely: its text, truncated, is better than nothing.
            reply = yield from self._send(Request("POST", path, encode_outcome(code, clip(to_text(result)))))
        if isinstance(reply, Failure):
            return reply.reason
        return "" if reply.status == 200 else reply.message

    def withdraw(self) -> Exchange[str]:
        """Return the reason if the call is not withdrawn, else ""."""
        if not self.id:
            return "the gateway has not named this call"
        status = read_status((yield from self._send(Request("DELETE", f"/v1/calls/{self.id}"))), self.id)
        return "" if status.state == "denied" else explain(status)

    def _propose(self) -> Exchange[CallStatus]:
        if self.is_found and not is_call_id(self.id):
            return CallStatus("refused", reason="this is not a call's id")
        if self.is_found:
            return read_status((yield from self._send(Request("GET", f"/v1/calls/{self.id}"))), self.id)
        try:
            body = self.proposal.encode()
        except (TypeError, ValueError, RecursionError) as error:
            return CallStatus("refused", reason=f"its arguments cannot be sent as JSON ({error})")
        key = "" if self.proposal.key is None else safe_key(self.proposal.key)
        status = read_status((yield from self._send(Request("POST", "/v1/calls", body, key))))
        self.id = status.id
        return status

    def _wait(self, status: CallStatus, until: float) -> Exchange[CallStatus]:
        while status.state == "waiting":
            began = self.clock()
            hold = min(HOLD_SECONDS, until - began)
            if hold <= 0:
                return status
            path = f"/v1/calls/{self.id}?wait={hold:.3f}"
            status = read_status((yield from self._send(Request("GET", path, hold=hold))), self.id)
            took = self.clock() - began
            if status.state == "waiting" and took < min(hold, _SHORTEST_HOLD):
                yield Pause(min(hold, _SHORTEST_HOLD) - took)
        return status

    def _use(self, status: CallStatus) -> Exchange[CallStatus]:
        reply = yield from self._send(Request("POST", f"/v1/calls/{self.id}/use", b"{}", self.attempt))
        return read_permit(reply, status)

    def _deadline(self) -> float:
        return float("inf") if self.proposal.wait is None else self.clock() + self.proposal.wait

    def _send(self, request: Request) -> Exchange[Reply | Failure]:
        pause, until = _FIRST_PAUSE, float("inf")
        while True:
            reply = yield request
            assert reply is not None
            if isinstance(reply, Reply) and not reply.is_temporary:
                return reply
            now = self.clock()
            until = min(until, now + self.patience)
            if now >= until:
                return reply
            asked = reply.retry_after if isinstance(reply, Reply) else 0.0
            # Spread the retries, so that not all clients return at the moment when the gateway is back.
            yield Pause(min(max(asked, pause * random.uniform(0.5, 1.0)), until - now))
            pause = min(2 * pause, _LONGEST_PAUSE)
