"""Reads one line as the command of a tool. It reads the whole line or nothing, and never guesses."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from signoff.activities.models.command_values import (
    EXAMPLE_NUMBER,
    Unreadable,
    Word,
    choices_of,
    describe,
    example_word,
    read_value,
)
from signoff.contracts.activity_messages import ModelTool

_QUOTES: Final[Mapping[str, str]] = {
    '"': '"',
    "'": "'",
    "“": "”",
    "„": "“”",
    "«": "»",
    "\u2018": "\u2019",
}
"""Maps an opening quote to its closing quotes: phones write others than keyboards."""
_KEY: Final = re.compile(r"([\w.\-]+)=")
_BLANK: Final = re.compile(r"\s*")
_PLAIN: Final = re.compile(r"\S*")
_NAME_WORD: Final = re.compile(r"[^\s_]+")
_MOST_WORDS: Final = 200
_SHOWN_CHARS: Final = 40
_CHOICES_CHARS: Final = 40


@dataclass(frozen=True)
class Command:
    """A line that calls a tool."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class NoCommand:
    """A line that calls no tool."""

    why: str
    """The reason, a sentence without its end."""
    tool: ModelTool | None = None


def read_command(text: str, tools: Sequence[ModelTool]) -> Command | NoCommand:
    line = text.strip()
    tool, rest = _find_tool(line, tools)
    if tool is None:
        return NoCommand("this line does not begin with the name of a tool")
    try:
        return Command(tool.name, _fill(list(_split(rest)), tool))
    except _Misread as error:
        return NoCommand(str(error), tool)


def usage(tool: ModelTool) -> str:
    """Return the form of a command, such as `refund CUSTOMER AMOUNT [note=NOTE]`."""
    properties, required = _parameters(tool)
    shown = {name: _placeholder(name, properties[name], tool.parameters) for name in properties}
    optional = (f"[{name}={word}]" for name, word in shown.items() if name not in required)
    return " ".join([tool.name, *(shown[name] for name in required), *optional])


def example(tool: ModelTool, number: int = EXAMPLE_NUMBER) -> str:
    """Return a line that calls a tool, with `number` for numbers; "" if no line of plausible values does."""
    properties, required = _parameters(tool)
    try:
        words = [example_word(name, properties[name], tool.parameters, number) for name in required]
    # A type may contain itself, such as a list of such lists.
    except RecursionError:
        return ""
    line = " ".join([tool.name, *words])
    return line if isinstance(read_command(line, [tool]), Command) else ""


class _Misread(Exception):
    """The line is not a command. The message is the reason."""


def _parameters(tool: ModelTool) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the schemas of the parameters, and the names of the required ones in their order."""
    declared = tool.parameters.get("properties")
    properties: dict[str, Any] = dict(declared) if isinstance(declared, Mapping) else {}
    required = tool.parameters.get("required") or ()
    for name in required:
        properties.setdefault(name, {})
    return properties, tuple(name for name in properties if name in required)


def _placeholder(name: str, schema: Any, root: Mapping[str, Any]) -> str:
    choices = "|".join(choices_of(schema, root))
    return choices if 0 < len(choices) <= _CHOICES_CHARS and " " not in choices else name.upper()


def _find_tool(line: str, tools: Sequence[ModelTool]) -> tuple[ModelTool | None, str]:
    """Return the tool whose name begins the line, and the rest; the longest name wins."""
    names = [(tool, [each for each in re.split(r"[\s_]+", tool.name.casefold()) if each]) for tool in tools]
    longest = max((len(words) for _, words in names), default=0)
    found = [match for match, _ in zip(_NAME_WORD.finditer(line), range(longest), strict=False)]
    heard = [match.group().casefold() for match in found]

    def begins(words: Sequence[str]) -> bool:
        count = len(words)
        return 0 < count <= len(heard) and heard[:count] == words and not line[found[count - 1].end() :][:1].strip()

    fitting = [(tool, len(words)) for tool, words in names if begins(words)]
    count = max((words for _, words in fitting), default=0)
    best = [tool for tool, words in fitting if words == count]
    # Two names may differ only in case or `_`. The line must then write one of them exactly.
    exact = best if len(best) == 1 else [tool for tool in best if line.split(maxsplit=1)[0] == tool.name]
    return (exact[0], line[found[count - 1].end() :]) if len(exact) == 1 else (None, "")


def _split(text: str) -> Iterator[Word]:
    at, words = _skip(text, 0), 0
    while at < len(text):
        words += 1
        if words > _MOST_WORDS:
            raise _Misread(f"the line has more than {_MOST_WORDS} words")
        match = _KEY.match(text, at)
        key = match.group(1) if match else ""
        at = match.end() if match else at
        word, at = _read_word(text, at, key)
        if at < len(text) and not text[at].isspace():
            raise _Misread(f"a quote before {_show(text[at:])} is followed by no blank")
        yield word
        at = _skip(text, at)


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _read_word(text: str, at: int, key: str) -> tuple[Word, int]:
    opening = text[at : at + 1]
    if opening in _QUOTES and opening:
        ends = [end for end in (text.find(mark, at + 1) for mark in _QUOTES[opening]) if end >= 0]
        if not ends:
            raise _Misread(f"the quote before {_show(text[at + 1 :])} is not closed")
        return Word(text[at + 1 : min(ends)], "quoted", key=key), min(ends) + 1
    if opening in ("[", "{"):
        parsed = _read_json(text, at)
        if parsed is not None and (parsed[1] == len(text) or text[parsed[1]].isspace()):
            return Word(text[at : parsed[1]], "json", parsed[0], key), parsed[1]
    match = _PLAIN.match(text, at)
    end = match.end() if match else at
    if key and end == at:
        raise _Misread(f"`{_cut(key)}` has no value after `=`")
    return Word(text[at:end], key=key), end


def _read_json(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return _DECODER.raw_decode(text, at)
    # Thousands of open brackets are nested too deeply.
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _fill(words: Sequence[Word], tool: ModelTool) -> dict[str, Any]:
    properties, required = _parameters(tool)
    given: dict[str, Word] = {}
    for word in words:
        if word.key:
            name = _find_parameter(word.key, properties)
            if name is None:
                raise _Misread(f"`{tool.name}` has no parameter `{_cut(word.key)}`")
            if name in given:
                raise _Misread(f"`{name}` is given twice")
            given[name] = word
    free = [word for word in words if not word.key]
    open_names = [name for name in required if name not in given]
    if len(free) > len(open_names):
        raise _Misread(f"{_show(free[len(open_names)].text)} is left over")
    if len(free) < len(open_names):
        raise _Misread(f"`{open_names[len(free)]}` is missing")
    given |= dict(zip(open_names, free, strict=True))
    return {name: _value(name, given[name], properties[name], tool) for name in properties if name in given}


def _find_parameter(key: str, properties: Mapping[str, Any]) -> str | None:
    if key in properties:
        return key
    folded = [name for name in properties if name.casefold() == key.casefold()]
    return folded[0] if len(folded) == 1 else None


def _value(name: str, word: Word, schema: Any, tool: ModelTool) -> Any:
    try:
        return read_value(word, schema, tool.parameters)
    except Unreadable:
        kind = describe(schema, tool.parameters)
        raise _Misread(f"{_show(word.text)} is not {kind}, for `{name}`") from None


def _show(text: str) -> str:
    return f"`{_cut(text)}`"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
