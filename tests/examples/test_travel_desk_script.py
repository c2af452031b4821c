import json
from pathlib import Path
from typing import Any

from tables import table

from signoff.contracts.completion import CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.message import Message, ResultPart, user_message
from signoff.registry.manifest.loader import load_manifest

ROOT = Path(__file__).parent.parent.parent
load_manifest(ROOT / "examples" / "travel_desk" / "signoff.yaml")
from travel_desk.script import react  # noqa: E402  (the manifest puts its folder on the path)


def asked(*messages: Message) -> Any:
    completion = react(CompletionRequest("", "", messages, (None,) * len(messages), ()))
    return completion.calls[0]


@table(
    ("words", "tool", "args"),
    ("book the 420 euro flight to Lisbon", "book_flight", {"destination": "Lisbon", "totalCost": 420.0}),
    ("book the flight to Porto", "book_flight", {"destination": "Porto", "totalCost": 39.0}),
    ("cancel booking TD-7", "cancel_booking", {"booking": "TD-7"}),
    ("refund 420 euro for TD-7", "refund", {"booking": "TD-7", "amount": 420.0}),
    ("which flights go to Vienna?", "flight_search", {"destination": "Vienna"}),
)
def test_message_becomes_a_travel_call(words: str, tool: str, args: dict[str, Any]) -> None:
    call = asked(user_message(words))
    assert call.tool == tool
    assert args.items() <= call.args.items()


def test_unclear_travel_message_is_asked_back() -> None:
    call = asked(user_message("sing"))
    assert (call.tool, call.args["state"]) == ("respond", "clarifying")


@table(
    ("tool", "code", "value", "expected"),
    (
        "book_flight",
        "ok",
        json.dumps({"booking": "TD-1", "flight": "TP 531", "destination": "Lisbon", "total": 420.0, "currency": "EUR"}),
        "Booked: TP 531 to Lisbon for 420 EUR. Your booking is TD-1.",
    ),
    ("cancel_booking", "ok", json.dumps({"booking": "TD-1", "state": "cancelled"}), "Booking TD-1 is cancelled."),
    ("refund", "ok", json.dumps({"booking": "TD-1", "refunded": 20.0}), "20 EUR are paid back for TD-1."),
    ("flight_search", "ok", "[]", "I found no flight to that city."),
    ("book_flight", "ok", "[dry-run] book_flight would be called", "Done: [dry-run] book_flight would be called"),
    ("book_flight", "denied", {"reason": "too dear"}, "I could not do that: it was denied (too dear)."),
    ("book_flight", "in_doubt", "It is not known.", "That did not work: It is not known."),
)
def test_travel_result_is_put_into_words(tool: str, code: str, value: Any, expected: str) -> None:
    part = ResultPart(call="c1.1", tool=tool, code=code, value=Content(inline=value))
    call = asked(user_message("go"), Message(role="tool", parts=(part,)))
    assert call.args["text"] == expected
