"""Spares a worker the SDK's walks over the payloads of its workflow tasks, where none of them could change one.

For its codec, for external storage, and for what a codec makes of the storage's references, the SDK walks through the
messages of each task, three times on its way in and three times out, and waits for the event loop meanwhile. Without
either all of it comes to nothing, and lies between a decision and its effect. Delete when the SDK looks first.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, ParamSpec

from temporalio.bridge import worker as bridge
from temporalio.converter import DataConverter
from temporalio.converter._extstore import StorageOperationMetrics

P = ParamSpec("P")
_SPARED: Final[ContextVar[bool]] = ContextVar("spared", default=False)


@contextmanager
def spare_visits() -> Iterator[None]:
    """Spares the worker that is run within the block, and no other of this process."""
    token = _SPARED.set(True)
    try:
        yield
    finally:
        _SPARED.reset(token)


def _sparing(
    visit: Callable[P, Coroutine[Any, Any, StorageOperationMetrics]],
) -> Callable[P, Coroutine[Any, Any, StorageOperationMetrics]]:
    async def visit_if_needed(*args: P.args, **named: P.kwargs) -> StorageOperationMetrics:
        if _SPARED.get() and any(isinstance(each, DataConverter) and _is_plain(each) for each in args):
            return StorageOperationMetrics()
        return await visit(*args, **named)

    return visit_if_needed


def _is_plain(converter: DataConverter) -> bool:
    return converter.payload_codec is None and converter.external_storage is None


# The SDK looks both up in this module for each task, and has no other place where one could stand between.
bridge.decode_activation = _sparing(bridge.decode_activation)
bridge.encode_completion = _sparing(bridge.encode_completion)
