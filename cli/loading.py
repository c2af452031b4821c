"""What a command needs is imported when it turns out to be needed: users wait for the start of each command.

The borders are few: `main` loads the module of the command that is run, and a command that can speak to a gateway loads
what works with this installation's own server and store only where it does. Everything else is imported as usual.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import within this block, and nothing else: the collector waits meanwhile.

    Imports make hundreds of thousands of objects that all stay; looking through them again and again for garbage would
    be a third of a start.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
