"""The demo believes nothing it has not seen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff.cli.demo import scenes
from signoff.cli.demo.command import demo_manifest
from signoff.cli.demo.seen import Unexpected, expect, until
from signoff.cli.demo.stage import event_ids, open_stage
from signoff.contracts.errors import ServerUnavailable


def test_an_expectation_that_fails_says_both_sides() -> None:
    """What was expected and what was seen are in the one sentence that the user reads."""
    expect("rows", 1, 1)
    with pytest.raises(Unexpected, match="rows: expected 1, seen 2"):
        expect("rows", 1, 2)


async def test_looking_again_waits_for_a_worker_that_is_away() -> None:
    """An unavailable worker is looked for again; what is never seen is an error that tells what was."""
    answers: Iterator[int] = iter((1, 2, 3))
    away = iter((True,))

    async def look() -> int:
        if next(away, False):
            raise ServerUnavailable("no worker")
        return next(answers)

    assert await until("three", look, lambda seen: seen == 3) == 3
    with pytest.raises(Unexpected, match="four: expected within 0 s, last seen nothing"):
        await until("four", look, lambda seen: seen == 4, patience=0)


def test_event_ids_come_from_the_history_as_temporal_prints_it() -> None:
    """The id to reset to is read from `temporal workflow show --output json`."""
    history = '{"events": [{"eventId": "1", "eventType": "A"}, {"eventId": "4", "eventType": "B"}]}'
    assert event_ids(history, "B") == [4]


async def test_the_quick_scenes_play(tmp_path: Path) -> None:
    """Processes of their own, the policy's yes and the policy's no; `make demo` plays the rest."""
    async with open_stage(tmp_path, demo_manifest()) as stage:
        booked = await scenes.by_itself(stage)
        assert "nobody was asked" in booked.words
        await scenes.denied_by_policy(stage)
        again = await scenes.reset(stage, booked.turn, approve=False)
        assert again.words.startswith("book_flight, `temporal workflow reset`")
        with pytest.raises(Unexpected, match="bookings"):
            await scenes.by_itself(stage)
