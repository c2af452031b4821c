"""The invariant under every load: health answers, and neither process grows by a gibibyte."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from attack_site import AttackSite
from health_probe import probed

from signoff.contracts.limits import MIB

MOST_BYTES = 1024 * MIB
"""Growth allowed to a process while one limit is driven."""


@contextlib.asynccontextmanager
async def bearable(site: AttackSite) -> AsyncIterator[None]:
    before = peaks(site)
    async with probed(site.url) as found:
        yield
    assert found.in_time, found
    grown = {name: peak - before[name] for name, peak in peaks(site).items() if peak - before[name] > MOST_BYTES}
    assert grown == {}


def peaks(site: AttackSite) -> dict[str, int]:
    """In bytes. Empty if the system does not report it."""
    if sys.platform != "linux":
        return {}
    found = {}
    for name, process in site.processes.items():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    return found
