"""Calls a developer's function with a time limit. The function can end nothing except itself."""

import asyncio
import contextlib
import copy
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

from signoff.registry.hooks import Hook, is_async

T = TypeVar("T")


class HandlerEnded(Exception):
    """A developer's function left the process or cancelled itself."""


class NoAnswer(Exception):
    """A hook gave no answer. The message is the reason, as text that follows the hook's name."""

    def __init__(self, message: str, fault: Literal["slow", "failed", "invalid"]) -> None:
        super().__init__(message)
        self.fault = fault


async def ask(hook: Hook[T], function: Callable[..., Any], *given: Any, seconds: float | None = None) -> T:
    """Run a hook `function` with copies of the mappings in `given`.

    Raises `NoAnswer` if it fails, returns an invalid value, or exceeds `seconds` (by default the hook's own limit).
    """
    limit = hook.seconds if seconds is None else seconds
    try:
        # Pass copies: a hook must not change the arguments that run.
        copies = [copy.deepcopy(dict(each)) if isinstance(each, Mapping) else each for each in given]
        returned: object = await await_within(call_function(function, *copies), limit)
        answer = hook.parse(returned)
    except TimeoutError:
        raise NoAnswer(f"gave no answer within {limit:g} s", "slow") from None
    except Exception as error:
        # Name the class alone: the message may quote a secret argument.
        raise NoAnswer(f"failed ({type(error).__name__})", "failed") from None
    if answer is None:
        raise NoAnswer(f"returned a {type(returned).__name__} that is no answer", "invalid")
    return answer


async def await_within(asked: Awaitable[T], seconds: float) -> T:
    """Await `asked`.

    Raises `TimeoutError` if it takes longer, `HandlerEnded` if it ends more than itself. Does not wait longer, even if
    the awaitable ignores its cancellation.
    """
    task = asyncio.ensure_future(_contain(asked))
    try:
        # Not `wait_for`: it waits for the cancelled task to end, which may never happen.
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
    """An async `function` is awaited, any other runs in a thread."""
    if is_async(function):
        return await function(*given)
    return await _aside(function, *given)


async def _contain(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except (SystemExit, KeyboardInterrupt) as error:
        raise HandlerEnded(f"it tried to end the process ({type(error).__name__})") from None


async def _aside(function: Callable[..., Any], *given: Any) -> Any:
    """Run `function` in its own thread: a hanging one blocks no pool and no process exit."""
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
            # Futures reject StopIteration: `set_exception` would raise in the loop, and the caller would wait without
            # end.
            failure = HandlerEnded("it raised StopIteration")
        except BaseException as error:
            # A thread ends silently on SystemExit: its caller would never get an answer.
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed, so no caller waits.
            loop.call_soon_threadsafe(tell, value, failure)

    threading.Thread(target=run, name="signoff policy handler", daemon=True).start()
    return await future
