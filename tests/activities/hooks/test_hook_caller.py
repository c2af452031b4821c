import asyncio
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tables import table

from signoff.activities.hooks.hook_caller import HandlerEnded, NoAnswer, ask, await_within, call_function
from signoff.registry.hooks import Hook

YES = Hook[bool](
    field="yes",
    takes=("args",),
    parse=lambda returned: returned if isinstance(returned, bool) else None,
    style="any",
    seconds=60.0,
)
HURRIED = dataclasses.replace(YES, seconds=0.05)
"""Only for who never answers: a busy machine may take as long to begin a thread."""


def raises(error: BaseException) -> Callable[[Any], bool]:
    def function(args: Any) -> bool:
        raise error

    return function


async def hangs(args: Any) -> bool:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            raise


async def cancels(args: Any) -> bool:
    raise asyncio.CancelledError


@table(
    ("function", "why"),
    (lambda args: "yes", "returned a str that is no answer"),
    (lambda args: None, "returned a NoneType that is no answer"),
    (cancels, "failed (HandlerEnded)"),
    (raises(ValueError("Ana owes 20")), "failed (ValueError)"),
    (raises(SystemExit(3)), "failed (HandlerEnded)"),
    (raises(StopIteration()), "failed (HandlerEnded)"),
    (lambda: True, "failed (TypeError)"),
)
async def test_invalid_hook_answers_give_a_uniform_reason(function: Any, why: str) -> None:
    with pytest.raises(NoAnswer) as none:
        await ask(YES, function, {"amount": 20})
    assert str(none.value) == why


@table(
    ("function", "error", "words"),
    (cancels, HandlerEnded, "it cancelled itself"),
    (raises(SystemExit(3)), HandlerEnded, "it tried to end the process (SystemExit)"),
    (raises(KeyboardInterrupt()), HandlerEnded, "it tried to end the process (KeyboardInterrupt)"),
    (raises(StopIteration()), HandlerEnded, "it raised StopIteration"),
    (raises(ValueError("Ana owes 20")), ValueError, "Ana owes 20"),
    (hangs, TimeoutError, "no answer within 0.05 s"),
)
async def test_cancellation_or_exit_by_a_hook_becomes_an_error(
    function: Any, error: type[Exception], words: str
) -> None:
    seconds = 0.05 if function is hangs else 60.0
    with pytest.raises(error) as raised:
        await await_within(call_function(function, {}), seconds)
    assert (type(raised.value), str(raised.value)) == (error, words)


async def test_slow_hook_is_abandoned_after_its_timeout() -> None:
    with pytest.raises(NoAnswer) as none:
        await ask(HURRIED, hangs, {"amount": 20})
    assert str(none.value) == "gave no answer within 0.05 s"


async def test_sync_hook_runs_in_a_thread_and_async_hook_in_the_loop() -> None:
    seen: list[threading.Thread] = []

    def plain(args: Any) -> bool:
        seen.append(threading.current_thread())
        return True

    async def here(args: Any) -> bool:
        seen.append(threading.current_thread())
        return False

    assert (await ask(YES, plain, {}), await ask(YES, here, {})) == (True, False)
    assert seen[0] is not threading.current_thread()
    # The thread is a daemon with a name: a hanging hook can be found in a process dump and does not keep the
    # process alive.
    assert (seen[0].daemon, seen[0].name) == (True, "signoff policy handler")
    assert seen[1] is threading.current_thread()


async def test_hook_receives_deep_copies_of_its_arguments() -> None:
    given = {"legs": [1, 2]}

    async def changes(args: Any) -> bool:
        args["legs"].clear()
        return True

    assert await ask(YES, changes, given)
    assert given == {"legs": [1, 2]}


async def test_caller_may_override_the_timeout_of_a_hook() -> None:
    async def slow(args: Any) -> bool:
        await asyncio.sleep(0.08)
        return True

    assert await ask(HURRIED, slow, {}, seconds=60)
    with pytest.raises(NoAnswer):
        await ask(HURRIED, hangs, {})
    with pytest.raises(NoAnswer):
        await ask(YES, hangs, {}, seconds=0.05)
