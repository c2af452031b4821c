import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.__main__ import Story, story_manifest
from demo.polling import Unexpected, expect, until
from demo.stage import event_ids
from signoff.contracts.errors import ServerUnavailable
from signoff.formats.replace import replace
from signoff.registry.manifest.loader import load_manifest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_failed_expectation_shows_both_values() -> None:
    expect("rows", 1, 1)
    with pytest.raises(Unexpected, match="rows: expected 1, seen 2"):
        expect("rows", 1, 2)


async def test_repeated_check_waits_for_an_absent_worker() -> None:
    answers: Iterator[int] = iter((1, 2, 3))
    away = iter((True,))

    async def look() -> int:
        if next(away, False):
            raise ServerUnavailable("no worker")
        return next(answers)

    assert await until("three", look, lambda seen: seen == 3) == 3
    with pytest.raises(Unexpected, match="four: expected within 0 s, last seen nothing"):
        await until("four", look, lambda seen: seen == 4, patience=0)


def test_event_ids_come_from_temporals_printed_history() -> None:
    history = '{"events": [{"eventId": "1", "eventType": "A"}, {"eventId": "4", "eventType": "B"}]}'
    assert event_ids(history, "B") == [4]


@pytest.mark.long
@pytest.mark.row("V10")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("main", ["SIGKILL", "ToolDenied reached the model", "since its outcome is unknown", "still one row"]),
        ("two-people", ["1 of 2", "Dee decided for Bo", "reminded", "escalated", "none changed or missing"]),
        ("edit", ["malformed", "revision 2", "7,400 EUR are paid, once", "none changed or missing"]),
        ("channels", ["Slack, by email and on WhatsApp", "401", "paid, once", "s later", "none changed or missing"]),
        ("external", ["three cards", "the hook allows", "nothing is paid", "started again", "none changed or missing"]),
        pytest.param(
            "deciding",
            [
                *("before it happens", "Ana takes it", "reads the agent's answer", "by her passkey", "his browser say"),
                *("repeats Bo's remark", "the requester reads in Slack", "in the insights", "none changed or missing"),
            ],
            marks=pytest.mark.chromium,
        ),
        ("grant", ["1 use is left", "people were asked", "Ana takes it back", "none changed or missing"]),
    ],
)
async def test_story_plays_with_one_command(story: str, expected: list[str]) -> None:
    code, output, complaint = await _demo(story)
    assert code == 0, complaint
    seen = " ".join(each["seen"] for each in json.loads(output))
    assert [words for words in expected if words not in seen] == []


async def _demo(story: str) -> tuple[int | None, str, str]:
    # Other tests use the processor: the time limit of the demo is for a machine without them.
    env = {**os.environ, "DEMO_CLOSED_SECONDS": "30"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "demo", story, "--json"), cwd=EXAMPLES, env=env, stdout=PIPE, stderr=PIPE
    )
    output, complaint = await process.communicate()
    return process.returncode, output.decode(), complaint.decode()


def test_hours_become_seconds_in_the_story_of_two_people(tmp_path: Path) -> None:
    quick = load_manifest(story_manifest(Story.TWO_PEOPLE, tmp_path)).policy("release_payment").policy
    slow = load_manifest(story_manifest(Story.EDIT, tmp_path)).policy("release_payment").policy
    assert quick is not None
    assert slow is not None
    assert (quick.remind_after, quick.timeout) == (6, 12)
    assert slow == replace(quick, remind_after=6 * 3_600, timeout=12 * 3_600)
