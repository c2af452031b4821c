"""Decides what is asked of a gateway and what its answers mean for a call; sends nothing itself.

Each verb is a generator that yields requests and pauses and is sent the replies, so that one text serves programs with
and without an event loop.
"""

import hashlib
import json
import random
import re
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

State = Literal["waiting", "permitted", "used", "denied", "ended", "refused", "unreachable"]
"""How far a call has come for this program. `permitted`: its permit is in this program's hands. `refused` and
`unreachable`: the gateway took no such call, or gave no answer that counts."""
ReportCode = Literal["ok", "execution_failed", "in_doubt"]

T = TypeVar("T")

HOLD_SECONDS: Final = 30.0
"""For how long one request waits for people: less than what proxies commonly allow."""
_SHORTEST_HOLD: Final = 1.0
"""Seconds between looks at a call that waits, where the gateway answers at once although asked to wait."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 15.0
_KEY_CHARS: Final = 200
_RESULT_CHARS: Final = 10_000
_SAYS_CHARS: Final = 2_000
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_FINAL: Final = frozenset({"sign_in", "scope", "not_found", "not_used", "conflict"})
"""Codes of answers to a report that no other words would change."""
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,600}")
_STATES: Final[Mapping[Any, State]] = {
    "waiting": "waiting",
    "running": "waiting",
    "permitted": "permitted",
    "used": "used",
    "denied": "denied",
    "ended": "ended",
}
_WORDS: Final = ("code", "page", "source", "reason", "by", "decided_by", "edited_by", "note")
_STRANGER: Final = "what answers there is no gateway of this version"
_SOURCES: Final = {
    "human": "it was denied",
    "policy": "a rule denies it",
    "timeout": "nobody answered in time",
    "cancelled": "it was withdrawn",
    "repeat": "it was denied before",
    "lapsed": "its permit was not used in time",
    "frozen": "everything is stopped at present",
    "stale": "what was approved is not what would run",
}


@dataclass(frozen=True)
class Request:
    """Is sent to the gateway; the same request may be sent again."""

    method: str
    path: str
    body: bytes = b""
    key: str = ""
    """The `Idempotency-Key`; "" for none."""
    hold: float = 0.0
    """For how many seconds the gateway may keep the answer back."""


@dataclass(frozen=True)
class Pause:
    """Asks for these seconds to pass."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """Holds an answer of the gateway, or of whatever answers in its place."""

    status: int
    body: Mapping[str, Any] | None = None
    """The JSON object that was answered; None for anything else."""
    retry_after: float = 0.0

    @property
    def message(self) -> str:
        """The answer's own words, or its status."""
        words = None if self.body is None else self.body.get("message")
        return words if isinstance(words, str) and words else f"HTTP {self.status}"

    @property
    def code(self) -> str:
        """The code of a refusal."""
        code = None if self.body is None else self.body.get("code")
        return code if isinstance(code, str) else ""


@dataclass(frozen=True)
class Failure:
    """Says why no answer came."""

    reason: str


Exchange = Generator[Request | Pause, Reply | Failure | None, T]


@dataclass(frozen=True)
class Proposal:
    """Holds what is proposed, and for how long to wait for people."""

    tool: str
    args: Mapping[str, Any]
    key: str | None = None
    user: str | None = None
    session: str | None = None
    says: str = ""
    timeout: str | float | None = None
    wait: float | None = None

    def encode(self) -> bytes:
        """Returns the body of the request. Raises `TypeError`, `ValueError` or `RecursionError` for what is no JSON."""
        body: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        says = self.says[:_SAYS_CHARS]
        more = {"user": self.user, "session": self.session, "says": says, "timeout": self.timeout}
        return encode_json(body | {name: value for name, value in more.items() if value not in (None, "")})


@dataclass(frozen=True)
class CallStatus:
    """Says how far a call has come, as the gateway tells it."""

    state: State
    id: str = ""
    code: str = ""
    """While it waits, the code that people read; once it has ended `ok`, `execution_failed` or `in_doubt`."""
    page: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    """Of a permit: the same for the same call, for a backend that knows idempotency keys."""
    source: str = ""
    reason: str = ""
    by: str = ""
    decided_by: str = ""
    edited_by: str = ""
    note: str = ""
    result: Any = None


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

    def settle(self) -> Exchange[CallStatus]:
        """Proposes the call and waits for people; `permitted` means that its permit can be used."""
        until = self._deadline()
        return (yield from self._wait((yield from self._propose()), until))

    def obtain(self, settled: CallStatus | None = None) -> Exchange[CallStatus]:
        """Settles the call, unless it is, and uses its permit; whatever is no permit is a status as well."""
        until = self._deadline()
        status = (yield from self._propose()) if settled is None else settled
        while True:
            status = yield from self._wait(status, until)
            if status.state != "permitted":
                return status
            status = yield from self._use(status)
            # People are asked again where the rules have changed meanwhile.
            if status.state != "waiting":
                return status

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
            if isinstance(reply, Reply) and reply.status not in _TEMPORARY:
                return reply
            now = self.clock()
            until = min(until, now + self.patience)
            if now >= until:
                return reply
            asked = reply.retry_after if isinstance(reply, Reply) else 0.0
            # Not all clients of a gateway that comes back are to be there in the same moment.
            yield Pause(min(max(asked, pause * random.uniform(0.5, 1.0)), until - now))
            pause = min(2 * pause, _LONGEST_PAUSE)


def read_status(reply: Reply | Failure, known: str = "") -> CallStatus:
    """Reads how far a call has come; what is no such answer lets nothing run. `known` is the call's id, once known."""
    if isinstance(reply, Failure):
        return CallStatus("unreachable", known, reason=reply.reason)
    if reply.status in _TEMPORARY:
        return CallStatus("unreachable", known, reason=reply.message)
    if 400 <= reply.status < 500:
        return CallStatus("refused", known, reason=reply.message)
    body = reply.body or {}
    call, state = body.get("id"), body.get("state")
    is_call = reply.status in (200, 201) and isinstance(call, str) and known in ("", call)
    if not is_call or not _ID.fullmatch(str(call)) or not isinstance(state, str) or state not in _STATES:
        return CallStatus("unreachable", known, reason=_STRANGER)
    args = body.get("args") if state == "permitted" else {}
    if not isinstance(args, dict):
        return CallStatus("unreachable", known, reason=_STRANGER)
    words = {name: body[name] for name in _WORDS if isinstance(body.get(name), str)}
    return CallStatus(_STATES[state], str(call), args=args, result=body.get("result"), **words)


def read_permit(reply: Reply | Failure, status: CallStatus) -> CallStatus:
    """Reads what came of the use of a permit: the arguments to run the call with, or why it must not be run."""
    if isinstance(reply, Reply) and reply.status == 409 and reply.body is not None:
        state: State = "used" if reply.code == "used" else "waiting" if reply.code == "waiting" else "denied"
        return replace(status, state=state, source=reply.code, reason=reply.message)
    if isinstance(reply, Failure) or reply.status != 200:
        found = read_status(reply, status.id)
        return found if found.state in ("refused", "unreachable") else replace(found, state="unreachable")
    args, key = (reply.body or {}).get("args"), (reply.body or {}).get("key")
    if not isinstance(args, dict) or not isinstance(key, str):
        return CallStatus("unreachable", status.id, reason=_STRANGER)
    note = (reply.body or {}).get("note")
    return replace(status, state="permitted", args=args, key=key, note=note if isinstance(note, str) else "")


def explain(status: CallStatus) -> str:
    """Says, for the model, why a call was not run, or what came of it where it was not run here."""
    if status.state == "waiting":
        code = f" ({status.code})" if status.code else ""
        return f"Not run: it waits for a person's approval{code}. Ask for the same again later."
    if status.state == "denied":
        by = f" by {status.by}" if status.by else ""
        why = f": {status.reason}" if status.reason else ""
        return f"Not run: {_SOURCES.get(status.source, 'it must not run')}{by}{why}"
    if status.state == "used":
        return "Not run: its permit was used before, and what became of it is not known here."
    if status.state == "refused":
        return f"Not run: Signoff does not take it: {status.reason}"
    if status.state == "unreachable":
        return f"Not run: Signoff gave no answer ({status.reason})."
    if status.state == "permitted":
        return "It may run, and has not run yet."
    return describe_outcome(status.code, status.result)


def describe_outcome(code: str, result: Any) -> str:
    """Says, for the model, what became of a call."""
    words = to_text(result)
    if code == "ok":
        return words
    return f"It failed: {words}" if code == "execution_failed" else f"It may have happened or not: {words}"


def judge(error: BaseException) -> ReportCode:
    """Returns what is known of a call whose block ended with this error before it had a result."""
    # A time-out and a cancellation come while the effect is under way.
    return "execution_failed" if isinstance(error, Exception) and not isinstance(error, TimeoutError) else "in_doubt"


def encode_json(value: Any) -> bytes:
    """Returns JSON as it is sent. Raises `TypeError`, `ValueError` or `RecursionError`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encode_outcome(code: ReportCode, result: Any) -> bytes:
    """Returns the body of a report; a result that is no JSON is sent as its text."""
    try:
        return encode_json({"code": code, "result": result})
    except (TypeError, ValueError, RecursionError):
        return encode_json({"code": code, "result": clip(to_text(result))})


def to_text(value: Any) -> str:
    """Returns a result as words: text as it is, anything else as JSON, else as Python shows it."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def clip(text: str) -> str:
    """Returns text that a gateway takes: of a length that it keeps, and nothing that UTF-8 cannot carry."""
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= _RESULT_CHARS else f"{whole[:_RESULT_CHARS]} ... (cut)"


def safe_key(key: str) -> str:
    """Returns a key that a header can carry: the same for the same."""
    if 1 <= len(key) <= _KEY_CHARS and key.isascii() and key.isprintable():
        return key
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
