"""Reads one calendar in a process with limits of memory and time.

A calendar is a stranger's text: its zones and repetitions can take hours, and the library shares zones between files.
"""

import asyncio
import json
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from signoff.contracts.limits import MIB
from signoff.formats.hours import read_zone
from signoff.formats.json_reader import read_json
from signoff.people.calendars import Span, find_away
from signoff.policypool.process_limits import child_environment, limit_memory

PROCESSOR_SECONDS: Final = 15
SECONDS: Final = 30.0
"""The longest time for one calendar, on a busy machine."""
_MEMORY_BYTES: Final = 512 * MIB


async def find_away_apart(
    content: bytes, words: Sequence[str], zone: str, now: datetime, *, seconds: float = SECONDS
) -> tuple[Span, ...] | None:
    """As `find_away`. Also returns `None` for a calendar that exceeds a limit."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=child_environment()
    )
    asked = json.dumps({"words": list(words), "zone": zone, "now": now.isoformat()}).encode()
    try:
        async with asyncio.timeout(seconds):
            written, _ = await process.communicate(asked + b"\n" + content)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = read_json(written) if process.returncode == 0 else None
    if found is None:
        return None
    return tuple((datetime.fromisoformat(since), datetime.fromisoformat(until)) for since, until in found)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS,) * 2)
    limit_memory(_MEMORY_BYTES)
    asked = read_json(sys.stdin.buffer.readline())
    zone, now = read_zone(asked["zone"]), datetime.fromisoformat(asked["now"])
    found = find_away(sys.stdin.buffer.read(), asked["words"], zone, now)
    shown = None if found is None else [(since.isoformat(), until.isoformat()) for since, until in found]
    sys.stdout.write(json.dumps(shown))


if __name__ == "__main__":
    main()
