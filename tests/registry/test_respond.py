"""`respond` payloads."""

from typing import Any

import pytest

from signoff.registry.respond import RESPOND_OFFER, parse_respond


@pytest.mark.row("B46")
def test_state_defaults_to_complete() -> None:
    """A text alone completes the turn; a state says otherwise."""
    assert parse_respond({"text": "done"}) == ("complete", "done")
    assert parse_respond({"text": "which?", "state": "clarifying"}) == ("clarifying", "which?")
    assert RESPOND_OFFER.name == "respond"


@pytest.mark.row("B55")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "`text` is required"),
        ({"text": 1}, "`text` must be of type string"),
        ({"text": "x", "state": "suspended"}, "`state` must be one of"),
        ({"text": "x", "passTo": "y"}, "`passTo` is not an argument"),
        (None, "must be of type object"),
    ],
)
def test_bad_payload_is_told_what_is_wrong(args: Any, words: str) -> None:
    """A payload that cannot be read is one sentence for the model."""
    message = parse_respond(args)
    assert isinstance(message, str)
    assert words in message
