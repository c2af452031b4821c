"""Calls a developer's function with a time limit; it can end nothing but itself."""

import asyncio
import contextlib
import copy
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from signoff.registry.hooks import Hook, is_async

T = TypeVar("T")


class HandlerEnded(Exception):
    """A developer's function tried to end more than its own call: it left the process, or cancelled itself."""


class NoAnswer(Exception):
    """A hook gave no answer. Its text says why, as words that follow the hook's name."""


async def ask(hook: Hook[T], function: Callable[..., Any], *given: Any, seconds: float | None = None) -> T:
    """Runs `function`, a hook of this kind, with copies of the mappings among `given`; returns its answer.

    Raises `NoAnswer` where it fails, returns something else, or takes longer than `seconds` (by default the hook's).
    """
    limit = hook.seconds if seconds is None else seconds
    try:
        # Copies: what a hook is shown is not what runs.
        copies = [copy.deepcopy(dict(each)) if isinstance(each, Mapping) else each for each in given]
        returned: object = await await_within(call_function(function, *copies), limit)
        answer = hook.parse(returned)
    except TimeoutError:
        raise NoAnswer(f"gave no answer within {limit:g} s") from None
    except Exception as error:
        # By its class alone: its words may quote a secret argument.
        raise NoAnswer(f"failed ({type(error).__name__})") from None
    if answer is None:
        raise NoAnswer(f"returned a {type(returned).__name__} that is no answer")
    return answer


async def await_within(asked: Awaitable[T], seconds: float) -> T:
    """Awaits `asked`; raises `TimeoutError` when it takes longer, `HandlerEnded` when it ends more than itself.

    It is not waited for any longer than that, also where it ignores its cancellation.
    """
    task = asyncio.ensure_future(_contain(asked))
    try:
        # Not `wait_for`: that waits for what it cancelled to end, which may be never.
        await asyncio.wait({task}, timeout=seconds)
    finally:
        ended = task.done()
        task.cancel()
    if not ended:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if task.cancelled():
        raise HandlerEnded("it cancelled itself")
    return task.result()


async def call_function(function: Callable[..., Any], *given: Any) -> Any:
    """Calls `function`: awaits it if it is async, else runs it in a thread."""
    if is_async(function):
        return await function(*given)
    return await _aside(function, *given)


async def _contain(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerEnded(f"it tried to end the process ({type(error).__name__})") from None


async def _aside(function: Callable[..., Any], *given: Any) -> Any:
    """Runs `function` in a thread of its own: one that hangs keeps no pool from working and no process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = function(*given)
        except StopIteration:
            # Futures refuse StopIteration: `set_exception` would raise in the loop, and nobody be answered.
            failure = HandlerEnded("it raised StopIteration")
        except BaseException as error:
            # A thread ends silently on SystemExit: whoever waits for it would never hear.
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(tell, value, failure)

    threading.Thread(target=run, name="signoff policy handler", daemon=True).start()
    return await future
