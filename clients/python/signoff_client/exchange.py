"""Decides what is asked of a gateway for one call, and what next; sends nothing itself.

Each verb is a generator that yields requests and pauses and is sent the replies, so that one text serves programs with
and without an event loop.
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
"""For how long one request waits for people: less than what proxies commonly allow."""
_SHORTEST_HOLD: Final = 1.0
"""Seconds between looks at a call that waits, where the gateway answers at once although asked to wait."""
_MOST_AGAIN: Final = 3
"""How often a permit may be out of date when it is used, before it is taken for none."""
_MOST_SUSPENDED: Final = 1_000
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 15.0
_FINAL: Final = frozenset({"sign_in", "scope", "not_found", "not_used", "conflict"})
"""Codes of answers to a report that no other words would change."""


class SuspendedUse(NamedTuple):
    """The use of a permit whose call was suspended: its try, and the call as it was permitted."""

    attempt: str
    status: CallStatus


@dataclass
class CallExchange:
    """Carries one call through the five verbs."""

    proposal: Proposal
    patience: float
    """For how many seconds a gateway that does not answer is tried again."""
    clock: Callable[[], float]
    id: str = ""
    """Names the call at the gateway; "" until the gateway has."""
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Names this program's try to use the permit: sent again, it is answered the same."""
    is_found: bool = False
    """Whether another program has proposed it: it is read, and not proposed."""
    is_repeated: bool = False
    """Whether an earlier program of the same try may have used the permit: it is asked for all the same."""
    suspended: MutableMapping[str, SuspendedUse] = field(default_factory=dict)
    """The suspended uses of this program, by the calls' ids."""

    def settle(self) -> Exchange[CallStatus]:
        """Proposes the call and waits for people; `permitted` means that its permit can be used."""
        until = self._deadline()
        status = yield from self._wait((yield from self._propose()), until)
        use = self.suspended.get(self.id)
        return use.status if use is not None and status.state == "used" else status

    def obtain(self, settled: CallStatus | None = None) -> Exchange[CallStatus]:
        """Settles the call, unless it is, and uses its permit; whatever is no permit is a status as well."""
        until = self._deadline()
        status, again = (yield from self._propose()) if settled is None else settled, 0
        # Taken out: of several that resume it at once one runs it.
        use = self.suspended.pop(self.id, None)
        if use is not None and status.state in ("used", "permitted"):
            self.attempt, status = use.attempt, use.status
        while True:
            status = yield from self._wait(status, until)
            if status.state != "permitted" and not (status.state == "used" and self.is_repeated):
                return status
            status = yield from self._use(status)
            if status.state == "denied" and status.source == "stale" and again < _MOST_AGAIN:
                # What permitted it has changed meanwhile, and it is being judged again: people may be asked now.
                status, again = replace(status, state="waiting"), again + 1
            if status.state != "waiting":
                return status

    def suspend(self, status: CallStatus) -> None:
        """Keep the use of a permit, so that this program uses the permit again when the call is resumed."""
        while len(self.suspended) >= _MOST_SUSPENDED:
            self.suspended.pop(next(iter(self.suspended)))
        self.suspended[self.id] = SuspendedUse(self.attempt, status)

    def report(self, code: ReportCode, result: Any) -> Exchange[str]:
        """Reports what became of the call; explains why that was not taken, "" where it was."""
        path = f"/v1/calls/{self.id}/outcome"
        reply = yield from self._send(Request("POST", path, encode_outcome(code, result)))
        if isinstance(reply, Reply) and 400 <= reply.status < 500 and reply.code not in _FINAL:
            # Too large, or a number that JSON cannot carry safely: its words, cut, are better than nothing.
            reply = yield from self._send(Request("POST", path, encode_outcome(code, clip(to_text(result)))))
        if isinstance(reply, Failure):
            return reply.reason
        return "" if reply.status == 200 else reply.message

    def withdraw(self) -> Exchange[str]:
        """Withdraws the call; explains why it is not out of the world, "" where it is."""
        if not self.id:
            return "it is not known which call this is"
        status = read_status((yield from self._send(Request("DELETE", f"/v1/calls/{self.id}"))), self.id)
        return "" if status.state == "denied" else explain(status)

    def _propose(self) -> Exchange[CallStatus]:
        if self.is_found and not is_call_id(self.id):
            return CallStatus("refused", reason="this can be no call's id")
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
        """Sends a request until it is answered, for as long as patience lasts."""
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
            # Not all clients of a gateway that comes back are to be there in the same moment.
            yield Pause(min(max(asked, pause * random.uniform(0.5, 1.0)), until - now))
            pause = min(2 * pause, _LONGEST_PAUSE)
