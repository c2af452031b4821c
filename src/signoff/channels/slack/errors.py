"""Where Slack's error codes stand, and which of them pass by themselves."""

from typing import Final

from signoff.channels.vendor_http import VendorAnswer, VendorErrors

_CODE_CHARS: Final = 80


def _code(answer: VendorAnswer) -> str | None:
    # Slack answers 200 to what it refuses, too; a response address answers `ok`, in words.
    if not answer.succeeded or not answer.readable or answer.body.get("ok") is True:
        return None
    return str(answer.body.get("error") or "no_answer")[:_CODE_CHARS]


ERRORS: Final = VendorErrors(
    "Slack",
    _code,
    pauses={"ratelimited": 1.0, "rate_limited": 1.0},
    passing=frozenset(("internal_error", "fatal_error", "service_unavailable", "request_timeout")),
    words=lambda answer: f"Slack says `{_code(answer)}`",
)
