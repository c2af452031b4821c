"""The end of a local activity and the answer to a query never meet."""

import asyncio
import time

import pytest

from signoff.activities import looks as module
from signoff.activities.looks import PATIENCE, REST, Looks

RUN = "run-1"


async def test_nothing_ends_while_a_query_is_answered_nor_right_after() -> None:
    """It ends when the answer has had the time to arrive; another run's activity at once."""
    looks = Looks()
    assert looks.look(RUN) == frozenset()
    ending = asyncio.create_task(looks.end(RUN, "a", done=True))
    await asyncio.wait_for(looks.end("run-2", "a", done=True), 1)
    await asyncio.sleep(0.05)
    assert not ending.done()
    looks.away(RUN)
    answered = time.monotonic()
    await ending
    assert time.monotonic() - answered >= REST * 0.9


async def test_a_query_is_told_what_ended_before_it_until_the_workflow_has_heard_of_it() -> None:
    """What failed may be tried again, so it has not ended."""
    looks = Looks()
    await looks.end(RUN, "a", done=True)
    await looks.end(RUN, "b", done=False)
    await looks.end(RUN, "c", done=True)
    assert looks.look(RUN) == {"a", "c"}
    assert looks.look("run-2") == frozenset()
    looks.heard(RUN, ["a"])
    assert looks.look(RUN) == {"c"}
    looks.forget(RUN)
    assert looks.look(RUN) == frozenset()


async def test_an_answer_that_never_ends_holds_nothing_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the activity ends all the same."""
    assert PATIENCE > REST
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    looks = Looks()
    looks.look(RUN)
    await asyncio.wait_for(looks.end(RUN, "a", done=True), 30)
