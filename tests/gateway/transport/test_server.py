"""A gateway has a file for every connection that it takes, or takes fewer of them."""

import subprocess
import sys

import pytest

from signoff.contracts.limits import CONNECTIONS

_STARTED = """
import logging, resource, sys
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1])))
from signoff.gateway.transport.server import allow_connections
print(allow_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("hard", "connections", "files", "expected"),
    [
        (4_096, CONNECTIONS, CONNECTIONS + 200, ""),
        (512, 312, 512, "only 312 connections at once: raise this process's hard limit of open files to 2200\n"),
    ],
)
def test_a_gateway_has_a_file_for_each_connection(hard: int, connections: int, files: int, expected: str) -> None:
    """In a process of its own: many systems start one with 256 or 1,024 files, which 2,000 connections used up."""
    made = subprocess.run(
        [sys.executable, "-c", _STARTED, str(hard)], capture_output=True, text=True, check=True, timeout=60
    )
    assert (made.stdout.split(), made.stderr) == ([str(connections), str(files)], expected)
