"""Writes `tools/locks/`: every installed package, with the hashes of its files.

`python -m tools.release.locks` runs it.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "tools" / "locks"
IMAGE_EXTRAS: Final = (
    *("openai", "anthropic", "postgres", "mail", "push", "slack", "teams", "apprise", "oidc", "calendar"),
    *("mcp", "metrics", "otel"),
)
_OLDEST: Final = "3.11"
_BLOCK: Final = re.compile(r"^\S.*(?:\n    .*)*", re.MULTILINE)


@dataclass(frozen=True)
class Lock:
    """One file of `tools/locks/`."""

    name: str
    extras: tuple[str, ...] = ()
    """Without any extra, Signoff's own requirements are left out as well."""
    more: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    """Locks that are installed together with this one, which leaves out their packages."""


LOCKS: Final = (
    # Packages that build others from source. They are installed first, and pip downloads no builders itself.
    Lock("build", more=("hatchling", "setuptools")),
    Lock("dev", ("dev",), ("aiosqlite",), over=("build",)),
    Lock("test", ("test",), over=("build", "dev")),
    Lock("bench", ("test", "bench"), over=("build", "dev", "test")),
    Lock("mutants", ("test", "mutants"), over=("build", "dev", "test")),
    Lock("release", ("test", "release"), ("uv",), over=("build", "dev", "test")),
    Lock("image", IMAGE_EXTRAS, ("aiosqlite",)),
)


def main() -> int:
    """Use the versions of constraints.txt."""
    FOLDER.mkdir(exist_ok=True)
    written: dict[str, list[str]] = {}
    for lock in LOCKS:
        held = {block for name in lock.over for block in written[name]}
        written[lock.name] = [block for block in _resolve(lock) if block not in held]
        text = "\n".join(written[lock.name])
        (FOLDER / f"{lock.name}.txt").write_text(f"{text}\n", encoding="utf-8")
        print(f"tools/locks/{lock.name}.txt: {len(written[lock.name])} packages")
    return 0


def _resolve(lock: Lock) -> Sequence[str]:
    """Return name, version and marker of each package, then the hash of each of its files."""
    project = ("pyproject.toml", *(word for extra in lock.extras for word in ("--extra", extra))) if lock.extras else ()
    done = subprocess.run(
        [
            *("uv", "pip", "compile", *project, "-", "--constraints", "constraints.txt", "--universal"),
            *("--python-version", _OLDEST, "--generate-hashes", "--no-header", "--no-annotate", "--quiet"),
        ],
        cwd=ROOT,
        input="\n".join(lock.more),
        check=True,
        capture_output=True,
        text=True,
    )
    return [block for block in _BLOCK.findall(done.stdout) if not block.startswith("#")]


if __name__ == "__main__":
    sys.exit(main())
