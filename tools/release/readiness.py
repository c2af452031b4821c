"""Finds obstacles to a release of this version: its changelog, its number, its commit."""

import re
import subprocess
import tomllib
from datetime import date
from pathlib import Path
from typing import Final

from signoff.contracts.names import VERSION

CHANGELOG: Final = "CHANGELOG.md"
VERSION_FILE: Final = "src/signoff/contracts/names.py"
CLIENT_VERSION: Final = "clients/python/signoff_client/gate.py"
_HEADING: Final = re.compile(r"^## (?P<name>\S+)(?: \((?P<day>[^)]*)\))?\s*$")
_SEMVER: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_UNRELEASED: Final = "unreleased"


def find_problems(root: Path, today: date) -> list[str]:
    """Return one sentence with its remedy for each obstacle."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    found = [
        version_problem(version, VERSION),
        client_problem(root, VERSION),
        changelog_problem((root / CHANGELOG).read_text(encoding="utf-8"), version, today),
        recording_problem(root, version),
        commit_problem(root, version),
    ]
    return [each for each in found if each]


def version_problem(version: str, named: str) -> str:
    if version != named:
        return f"pyproject.toml says {version} and {VERSION_FILE} says {named}: write one number into both"
    if _SEMVER.fullmatch(version) is None:
        return f"the version {version} is not MAJOR.MINOR.PATCH, with a1, b1 or rc1 at most after it: write such a one"
    return ""


def client_problem(root: Path, version: str) -> str:
    if f'VERSION: Final = "{version}"' in (root / CLIENT_VERSION).read_text(encoding="utf-8"):
        return ""
    return f"{CLIENT_VERSION} has another version than {version}: write one number into both"


def changelog_problem(text: str, version: str, today: date) -> str:
    sections = list(_sections(text))
    for name, _, lines in sections:
        if name.lower() == _UNRELEASED and lines:
            return (
                f"{CHANGELOG} has lines under Unreleased: move them below {version}, or leave them for the next version"
            )
    named = [each for each in sections if each[0].lower() != _UNRELEASED]
    if not named or named[0][0] != version:
        first = named[0][0] if named else "nothing"
        return f"{CHANGELOG} begins with {first} and not with {version}: write `## {version} ({today})` and its changes"
    _, day, lines = named[0]
    if day.lower() == _UNRELEASED or not day:
        return f"{CHANGELOG} still calls {version} unreleased: write the day, `## {version} ({today})`"
    try:
        released = date.fromisoformat(day)
    except ValueError:
        return f"{CHANGELOG} dates {version} `{day}`, which is no day: write `## {version} ({today})`"
    if released > today:
        return f"{CHANGELOG} dates {version} {released}, which is yet to come: write `## {version} ({today})`"
    if not lines:
        return f"{CHANGELOG} says nothing of {version}: write its visible changes below its heading"
    return ""


def recording_problem(root: Path, version: str) -> str:
    """The recorded installation of `version` is a test input of later versions."""
    if (root / "tests/installations" / version / "turns.json").is_file():
        return ""
    return f"no installation of {version} is recorded: run tests/installations/record.py as it says, and commit that"


def commit_problem(root: Path, version: str) -> str:
    if _git(root, "status", "--porcelain"):
        return "there are changes that are not committed: commit them, or take them back"
    if _git(root, "tag", "--list", f"v{version}"):
        return f"there is a tag v{version} already: write the next version into pyproject.toml and {VERSION_FILE}"
    return ""


def commit_time(root: Path) -> int:
    """Return seconds. Every file of the release gets this time."""
    return int(_git(root, "log", "-1", "--format=%ct"))


def commit_id(root: Path) -> str:
    return _git(root, "rev-parse", "HEAD")


def _sections(text: str) -> list[tuple[str, str, list[str]]]:
    """Return each version's name, day and nonempty lines, unchanged."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading is not None:
            found.append((heading["name"], heading["day"] or "", []))
        elif found and line.strip():
            found[-1][2].append(line)
    return found


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=root, check=True, capture_output=True, text=True).stdout.strip()
