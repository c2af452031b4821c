"""Reads one calendar in a process with limits of memory and time.

A calendar is a stranger's text: its zones and repetitions can take hours, and the library shares zones between files.
"""

import asyncio
import json
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from signoff.contracts.limits import MIB
from signoff.formats.hours import read_zone
from signoff.formats.json_reader import read_json
from signoff.people.calendars import Span, find_away, find_shifts
from signoff.people.on_call import Shift
from signoff.policypool.process_limits import child_environment, limit_memory

PROCESSOR_SECONDS: Final = 15
SECONDS: Final = 30.0
"""The longest time for one calendar, on a busy machine."""
_MEMORY_BYTES: Final = 512 * MIB


async def find_away_apart(
    content: bytes, words: Sequence[str], zone: str, now: datetime, *, seconds: float = SECONDS
) -> tuple[Span, ...] | None:
    """As `find_away`. Also returns `None` for a calendar that exceeds a limit."""
    found = await _read_apart(content, {"words": list(words), "zone": zone, "now": now.isoformat()}, seconds)
    if found is None:
        return None
    return tuple((datetime.fromisoformat(since), datetime.fromisoformat(until)) for since, until in found)


async def find_shifts_apart(
    content: bytes, zone: str, now: datetime, *, seconds: float = SECONDS
) -> tuple[Shift, ...] | None:
    """As `find_away_apart`, for `find_shifts`."""
    found = await _read_apart(content, {"zone": zone, "now": now.isoformat()}, seconds)
    if found is None:
        return None
    return tuple(
        Shift(name, datetime.fromisoformat(since), datetime.fromisoformat(until)) for name, since, until in found
    )


async def _read_apart(content: bytes, asked: Mapping[str, Any], seconds: float) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=child_environment()
    )
    try:
        async with asyncio.timeout(seconds):
            written, _ = await process.communicate(json.dumps(asked).encode() + b"\n" + content)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return read_json(written) if process.returncode == 0 else None


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS,) * 2)
    limit_memory(_MEMORY_BYTES)
    asked = read_json(sys.stdin.buffer.readline())
    zone, now = read_zone(asked["zone"]), datetime.fromisoformat(asked["now"])
    content = sys.stdin.buffer.read()
    found = find_away(content, asked["words"], zone, now) if "words" in asked else find_shifts(content, zone, now)
    sys.stdout.write(json.dumps(found, default=datetime.isoformat))


if __name__ == "__main__":
    main()
