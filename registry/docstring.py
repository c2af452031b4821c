"""Google-style docstrings: what a function does and what each argument means."""

import inspect
import re
from typing import Final, NamedTuple

_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?|See Also):\s*$"
)
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY: Final = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


class Docstring(NamedTuple):
    """The words before the first section, and one sentence an argument."""

    summary: str
    arguments: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring; what is not there is empty."""
    summary: list[str] = []
    sections: dict[str, list[str]] = {}
    section = ""
    for line in inspect.cleandoc(text or "").splitlines():
        # Only without indent: `Returns:` within the words about an argument is part of those words.
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
        elif section:
            sections.setdefault(section, []).append(line)
        else:
            summary.append(line)
    lines = [line for name in sections if name in _ARGUMENTS for line in sections[name]]
    return Docstring("\n".join(summary).strip(), _entries(lines))


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    current, depth = "", 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line)
        # What is indented further goes on with the entry, even if it looks like `name: words`.
        if entry and (not current or indent <= depth):
            current, depth = entry[1], indent
            found[current] = entry[2].strip()
        elif current and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
