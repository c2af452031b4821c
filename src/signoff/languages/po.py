"""Parses gettext's `.po` files, and compiles them to `.mo`. Uses only the standard library, as the build runs it, too.

The context of each text (`msgctxt`) is its key, and its `msgid` the English text. As in gettext, a text that is empty
or marked `fuzzy` counts as missing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from gettext import c2py
from struct import pack
from typing import Final

_STRING: Final = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_STRINGS: Final = rf"{_STRING}(?:\n{_STRING})*"
_ENTRY: Final = re.compile(
    r"(?P<comments>(?:[ \t]*\n|#[^\n]*\n)*)"
    rf"(?:msgctxt (?P<key>{_STRINGS})\n)?"
    rf"msgid (?P<words>{_STRINGS})\n"
    rf"(?:msgid_plural (?P<plural>{_STRINGS})\n)?"
    rf"(?P<forms>(?:msgstr(?:\[\d\])? {_STRINGS}\n)+)"
)
_COMMENTS: Final = re.compile(r"(?:\s|#[^\n]*(?:\n|\Z))*\Z")
_FORM: Final = re.compile(rf"msgstr(?:\[(\d)\])? ({_STRINGS})\n")
_FUZZY: Final = re.compile(r"^#,.*\bfuzzy\b", re.MULTILINE)
_BETWEEN: Final = re.compile(r'"\n"')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_PLURAL_FORMS: Final = "Plural-Forms: nplurals=...; plural=...;"
_FIELDS: Final = {
    "Content-Type: text/plain; charset=UTF-8": re.compile(r"^Content-Type: .*charset=utf-8$", re.MULTILINE | re.I),
    "X-Language-Name: ...": re.compile(r"^X-Language-Name: *\S", re.MULTILINE),
    _PLURAL_FORMS: re.compile(r"^Plural-Forms: *nplurals *= *(\d) *; *plural *= *([^;\n]+);?$", re.MULTILINE),
}
"""The required fields of a header: the charset, the language's own name, and its plural rule."""
_NUMBERS: Final = 201
"""Numbers with which a plural rule is tried: rules repeat after a hundred."""
_FOLLOWERS: Final = {
    "": ("msgctxt", "msgid"),
    "msgctxt": ("msgid",),
    "msgid": ("msgid_plural", "msgstr"),
    "msgid_plural": ("msgstr",),
    "msgstr": ("msgstr",),
}
"""Maps a keyword to the keywords that may follow."""
_ONE_STRING: Final = re.compile(_STRING)
_MAGIC: Final = 0x950412DE
_HEAD: Final = 28
"""Bytes before the tables of a `.mo`."""
_PLACE: Final = 8
"""Bytes of a table for each text: its length and offset."""


class PoError(ValueError):
    """A `.po` file is wrong at a line."""

    def __init__(self, name: str, line: int, why: str) -> None:
        super().__init__(f"{name}:{line}: {why}")
        self.line = line


@dataclass(frozen=True)
class PoEntry:
    """One text of a file; the header has no key."""

    line: int
    key: str
    words: str
    plural: str | None
    """The English plural. None for a text without plural forms."""
    forms: tuple[str, ...]

    @property
    def identity(self) -> bytes:
        """The name of the text in a `.mo` file."""
        context = f"{self.key}\4" if self.key else ""
        return f"{context}{self.words}{'' if self.plural is None else chr(0) + self.plural}".encode()


def read_po(written: str, name: str) -> list[PoEntry]:
    """Raise `PoError`, with the file's `name`, for the first mistake."""
    entries: list[PoEntry] = []
    seen: set[str] = set()
    count = 0
    for entry in _entries(written if written.endswith("\n") else f"{written}\n", name):
        if not count:
            count = _count_forms(entry, name)
        elif not entry.key:
            raise PoError(name, entry.line, "`msgctxt` with the key of the text is missing")
        elif entry.plural is not None and len(entry.forms) != count:
            missing = f"has {len(entry.forms)} of the {count} forms of `Plural-Forms`"
            raise PoError(name, entry.line, f"`{entry.key}` {missing}")
        if entry.key in seen:
            raise PoError(name, entry.line, f"`{entry.key}` is there twice")
        seen.add(entry.key)
        if all(entry.forms):
            entries.append(entry)
    if not entries:
        raise PoError(name, 1, "the header is missing")
    return entries


def compile_po(written: str, name: str) -> bytes:
    """Return the `.mo` of a `.po` file, as from `msgfmt`. Raises `PoError` as `read_po` does."""
    texts = sorted((entry.identity, "\0".join(entry.forms).encode()) for entry in read_po(written, name))
    count = len(texts)
    begin = _HEAD + 2 * _PLACE * count
    tables, data = bytearray(), bytearray()
    for column in (0, 1):
        for each in (text[column] for text in texts):
            tables += pack("<2I", len(each), begin + len(data))
            data += each + b"\0"
    return pack("<7I", _MAGIC, 0, count, _HEAD, _HEAD + _PLACE * count, 0, begin) + tables + data


def _entries(written: str, name: str) -> Iterator[PoEntry]:
    at, line = 0, 1
    while (found := _ENTRY.match(written, at)) is not None:
        comments = found["comments"]
        begin = line + comments.count("\n")
        # Tools mark a generated header as fuzzy, but it still counts.
        if at == 0 or not _FUZZY.search(comments):
            yield _entry(found, name, begin)
        line += found.group().count("\n")
        at = found.end()
    if _COMMENTS.match(written, at) is None:
        raise PoError(name, _wrong_line(written[at:], line), "this is no text as `.po` files have them")


def _entry(found: re.Match[str], name: str, line: int) -> PoEntry:
    key, plural = found["key"], found["plural"]
    forms = _FORM.findall(found["forms"])
    if [number for number, _ in forms] != ([""] if plural is None else [str(each) for each in range(len(forms))]):
        wanted = "one `msgstr`" if plural is None else "`msgstr[0]`, `msgstr[1]` and so on"
        raise PoError(name, line, f"{key or 'the header'} needs {wanted}".replace('"', "`"))
    try:
        return PoEntry(
            line,
            "" if key is None else _unquote(key),
            _unquote(found["words"]),
            None if plural is None else _unquote(plural),
            tuple(_unquote(each) for _, each in forms),
        )
    except KeyError as error:
        raise PoError(name, line, f"`\\{error.args[0]}` is no escape of `.po` files") from None


def _unquote(quoted: str) -> str:
    text = quoted[1:-1]
    if "\n" in text:
        text = _BETWEEN.sub("", text)
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape[1]], text) if "\\" in text else text


def _wrong_line(written: str, line: int) -> int:
    before = ""
    for number, each in enumerate(written.split("\n"), line):
        if not before and (each.startswith("#") or not each.strip()):
            continue
        keyword, _, quoted = each.partition(" ")
        kind = keyword.partition("[")[0]
        if before and each.startswith('"'):
            # A continued string.
            kind, quoted = before, each
        elif kind not in _FOLLOWERS[before]:
            return number
        if not _ONE_STRING.fullmatch(quoted):
            return number
        before = kind
    return line + written.count("\n")


def _count_forms(header: PoEntry, name: str) -> int:
    if header.key or header.words:
        raise PoError(name, header.line, "the header is missing")
    matches = {field: pattern.search(header.forms[0]) for field, pattern in _FIELDS.items()}
    lacks = next((field for field, match in matches.items() if match is None), "")
    rule = matches[_PLURAL_FORMS]
    if lacks or rule is None or not _is_rule(int(rule[1]), rule[2]):
        raise PoError(name, header.line, f"the header needs `{lacks or _PLURAL_FORMS}`")
    return int(rule[1])


def _is_rule(count: int, rule: str) -> bool:
    try:
        return max(map(c2py(rule), range(_NUMBERS))) < count
    except (ValueError, ArithmeticError):
        return False
