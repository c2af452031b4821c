"""The travel desk's scripted model. It understands a few requests, and the desk needs no key."""

import json
import re
from typing import Any

from signoff.testing import (
    Completion,
    CompletionRequest,
    ResultPart,
    ScriptedModel,
    calls,
    last_user_text,
    respond,
    results,
    text_of,
)

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:euros?|eur|€)", re.IGNORECASE)
_PLACES = ("Lisbon", "Porto", "Vienna")
_ONLY_SEARCH = "never book"
"""The only instruction that the script follows. docs/evaluation.md shows its effect."""
_BOOKING = re.compile(r"\b(TD-[A-Z0-9]+)\b")

HELP = (
    "I can search and book flights, cancel a booking and ask for a refund. "
    "Try “book the 420 euro flight to Lisbon” or “cancel booking TD-1”."
)


def react(request: CompletionRequest) -> Completion:
    """Propose the calls that the message asks for, then report their outcomes."""
    settled = results(request)
    if settled:
        return respond(" ".join(_report(part) for part in settled))
    text = last_user_text(request)
    wish = text.lower()
    booking = _BOOKING.search(text)
    number = booking.group(1) if booking else "TD-1"
    if "refund" in wish:
        return calls(("refund", {"booking": number, "amount": _amount(text, 420.0)}), text="A refund is wanted.")
    if "cancel" in wish:
        return calls(("cancel_booking", {"booking": number}), text="The traveller no longer needs this booking.")
    if "book" in wish and _ONLY_SEARCH in request.instructions.lower():
        return calls(("flight_search", {"destination": _places(text)[0]}), text="The traveller is to choose first.")
    if "book" in wish:
        return calls(*_bookings(text), text="This is the flight that was asked for.")
    if "flight" in wish or "search" in wish:
        return calls(("flight_search", {"destination": _places(text)[0]}))
    return respond(HELP, "clarifying")


def _bookings(text: str) -> list[tuple[str, dict[str, object]]]:
    return [
        (
            "book_flight",
            {
                "flight": "TP 531" if place == "Lisbon" else "TP 1951" if place == "Porto" else "OS 412",
                "destination": place,
                "totalCost": _amount(text, {"Lisbon": 420.0, "Porto": 39.0}.get(place, 180.0)),
                "currency": "EUR",
                "passenger": "the traveller",
            },
        )
        for place in _places(text)
    ]


def _places(text: str) -> list[str]:
    return [place for place in _PLACES if place.lower() in text.lower()] or ["Lisbon"]


def _amount(text: str, default: float) -> float:
    found = _AMOUNT.search(text)
    return float(found.group(1)) if found else default


def _report(part: ResultPart) -> str:
    value = part.value.inline
    if part.code == "denied" and isinstance(value, dict):
        return f"I could not do that: it was denied ({value.get('reason', '')})."
    text = text_of(part.value)
    if part.code != "ok":
        return f"That did not work: {text}"
    try:
        return _words(part.tool, json.loads(text))
    except (ValueError, KeyError, TypeError):
        # A dry run, or a truncated result: repeat its text.
        return f"Done: {text}"


def _words(tool: str, found: Any) -> str:
    match tool:
        case "flight_search":
            listed = [
                f"{row['flight']} to {row['destination']} for {row['price']:g} {row['currency']}" for row in found
            ]
            return f"I found {', '.join(listed)}." if listed else "I found no flight to that city."
        case "book_flight":
            paid = f"{found['total']:g} {found['currency']}"
            return (
                f"Booked: {found['flight']} to {found['destination']} for {paid}. Your booking is {found['booking']}."
            )
        case "cancel_booking":
            return f"Booking {found['booking']} is cancelled."
        case "refund":
            return f"{found['refunded']:g} EUR are paid back for {found['booking']}."
    raise KeyError(tool)


model = ScriptedModel(react, examples=["book the 420 euro flight to Lisbon"])
