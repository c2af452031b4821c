"""The messages between client and gateway, as bytes and as values, without I/O."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

ReportCode = Literal["ok", "execution_failed", "in_doubt"]

_KEY_CHARS: Final = 200
_RESULT_CHARS: Final = 10_000
_SAYS_CHARS: Final = 2_000
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Request:
    """A request to the gateway. The client may repeat it unchanged."""

    method: str
    path: str
    body: bytes = b""
    key: str = ""
    hold: float = 0.0
    """Seconds for which the gateway may hold the answer."""


@dataclass(frozen=True)
class Pause:
    """Asks the transport to sleep."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """An answer of the gateway, or of another server at its address."""

    status: int
    body: Mapping[str, Any] | None = None
    """`None` for content other than a JSON object."""
    retry_after: float = 0.0

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may get another answer later."""
        return self.status in _TEMPORARY

    @property
    def message(self) -> str:
        words = None if self.body is None else self.body.get("message")
        return words if isinstance(words, str) and words else f"HTTP {self.status}"

    @property
    def code(self) -> str:
        code = None if self.body is None else self.body.get("code")
        return code if isinstance(code, str) else ""


@dataclass(frozen=True)
class Failure:
    """The reason why no answer arrived."""

    reason: str


@dataclass(frozen=True)
class Proposal:
    """The proposed call, and the wait for approvers."""

    tool: str
    args: Mapping[str, Any]
    key: str | None = None
    user: str | None = None
    session: str | None = None
    says: str = ""
    timeout: str | float | None = None
    wait: float | None = None
    callback: Mapping[str, Any] | None = None

    def encode(self) -> bytes:
        """Raise `TypeError`, `ValueError` or `RecursionError` if it is not valid JSON."""
        body: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        says = self.says[:_SAYS_CHARS]
        more: dict[str, Any] = {"user": self.user, "session": self.session, "says": says, "timeout": self.timeout}
        more["callback"] = None if self.callback is None else dict(self.callback)
        return encode_json(body | {name: value for name, value in more.items() if value not in (None, "")})


def encode_outcome(code: ReportCode, result: Any) -> bytes:
    """A result that is not JSON is sent as text."""
    try:
        return encode_json({"code": code, "result": result})
    except (TypeError, ValueError, RecursionError):
        return encode_json({"code": code, "result": clip(to_text(result))})


def same_arguments(one: Any, other: Any) -> bool:
    """Python's `==` takes `True` for `1`; JSON does not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_arguments(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_arguments, one, other))
    return bool(one == other)


def to_text(value: Any) -> str:
    """Text stays unchanged. Other values become JSON or else their `repr`."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def clip(text: str) -> str:
    """Truncate text to the gateway's limit, and make it valid UTF-8."""
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= _RESULT_CHARS else f"{whole[:_RESULT_CHARS]} ... (cut)"


def safe_key(key: str) -> str:
    """Return a key that a header can carry. Equal keys stay equal."""
    if 1 <= len(key) <= _KEY_CHARS and key.isascii() and key.isprintable():
        return key
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def encode_json(value: Any) -> bytes:
    """Raises `TypeError`, `ValueError` or `RecursionError`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
