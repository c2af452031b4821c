"""Converts an email's HTML to lines of text, with quotes marked by `>` as in plain text.

Looks at each character a fixed number of times: the standard library's parser takes 17 s for 40 kB of `<a `.
"""

import html
import re
from dataclasses import dataclass, field
from typing import Final

from signoff.channels.answer_text.quotes import CUT, SIGNED

STRUCK: Final = "~"
"""The mark around struck-out text, as in chats."""

# All quantifiers are possessive: no character is tried twice, so the work for a tag is linear in its length.
_TAG = re.compile(
    r"""<(/?)([a-zA-Z][^\s/>]*+)((?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+|["'])*+)>""",
)
_ATTRIBUTE = re.compile(r"""([^\s=/>"']++)\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>"']*+)""")
_MAX_ATTRIBUTES: Final = 4_000
_VOID: Final = frozenset(("br", "hr", "img", "input", "meta", "link", "area", "base", "col", "embed", "source", "wbr"))
_HIDDEN: Final = frozenset(("script", "style", "head", "title", "template", "textarea", "select", "object"))
_RAW: Final = frozenset(("script", "style", "title", "textarea"))
_BLOCKS: Final = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "dd",
        "div",
        "dl",
        "dt",
        "fieldset",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
_QUOTES: Final = frozenset(
    [
        "gmail_attr",
        "yahoo_quoted",
        "moz-cite-prefix",
        "protonmail_quote",
        "zmail_extra",
        "qtdSeparateBR",
        "reply-intro",
        "tutanota_quote",
        "moz-forward-container",
        "gmx_quote",
        "wm-quote",
        "zimbra-quote",
    ]
)
"""Classes and ids of elements that are a quote or an attribution."""
_CUTS: Final = frozenset(
    [
        "divRplyFwdMsg",
        "appendonsend",
        "x_divRplyFwdMsg",
        "x_appendonsend",
        "OLK_SRC_BODY_SECTION",
        "replySplit",
        "mail-editor-reference-message-container",
        "hwmailquote",
        "ms-outlook-mobile-reference-message",
        "mailquote",
    ]
)
"""Classes and ids after which everything is a quote."""
_SIGNATURES: Final = frozenset(
    [
        "gmail_signature",
        "gmail_signature_prefix",
        "moz-signature",
        "Signature",
        "ms-outlook-mobile-signature",
        "protonmail_signature_block",
        "AppleMailSignature",
        "lineBreakAtBeginningOfSignature",
        "ydp-signature",
        "x_Signature",
        "x_ms-outlook-mobile-signature",
    ]
)
"""Classes and ids of signatures. They are still read, as people may type into them."""
_STRUCK: Final = frozenset(("s", "strike", "del"))
_LINE_THROUGH: Final = "line-through"
_SIMPLE: Final = re.compile(r"[.#]?[\w-]+")
_DEEP: Final = 2_000


@dataclass
class _Element:
    tag: str
    quote: bool = False
    hidden: bool = False
    signature: bool = False
    struck: bool = False
    container: bool = False
    """Whether this is Gmail's element around a quote, with the attribution before its first `blockquote`."""


@dataclass
class _Reader:
    lines: list[str] = field(default_factory=list)
    line: list[str] = field(default_factory=list)
    written: bool = False
    """Whether `line` has more than blanks. Stored, as it is checked often."""
    open: list[_Element] = field(default_factory=list)
    quotes: int = 0
    hidden: int = 0
    signatures: int = 0
    pre: int = 0
    struck: frozenset[str] = frozenset()
    """The tags, `.classes` and `#ids` that a style sheet strikes out; `*` for everything."""

    def text(self, text: str) -> None:
        if self.hidden or not text:
            return
        first, *rest = html.unescape(text).split("\n") if self.pre else [html.unescape(text)]
        self._add(first)
        for one in rest:
            self.end_line()
            self._add(one)

    def end_line(self) -> None:
        text = " ".join("".join(self.line).split())
        self.line.clear()
        self.written = False
        signed = SIGNED if self.signatures and text else ""
        self.lines.append(f"> {text}" if self.quotes else signed + text)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "br" or (tag in _BLOCKS and self.written):
            self.end_line()
        names = {*attributes.get("class", "").split(), attributes.get("id", "")}
        if names & _CUTS or _is_outlook_rule(tag, attributes.get("style", "")):
            self.end_line()
            self.lines.append(CUT)
        if tag in _VOID or len(self.open) >= _DEEP:
            return
        quoted = tag == "blockquote" or bool(names & _QUOTES)
        element = _Element(tag, quoted, tag in _HIDDEN or _is_hidden(attributes), bool(names & _SIGNATURES))
        element.struck = self._is_struck(tag, attributes)
        if element.signature and self.written:
            self.end_line()
        if element.struck and not self.hidden:
            self._add(STRUCK)
        if "gmail_quote" in names and tag != "blockquote":
            element.container = element.quote = True
        elif tag == "blockquote":
            self._leave_containers()
        self._count(element, 1)
        self.open.append(element)

    def end(self, tag: str) -> None:
        if tag in _BLOCKS and self.written:
            self.end_line()
        # Limit the search: otherwise each of many stray end tags would search all open elements.
        if not any(element.tag == tag for element in self.open[-_NEAR:]):
            return
        while self.open:
            element = self.open.pop()
            if element.struck and not self.hidden:
                self._add(STRUCK)
            if element.signature and self.written:
                self.end_line()
            self._count(element, -1)
            if element.tag == tag:
                return

    def _is_struck(self, tag: str, attributes: dict[str, str]) -> bool:
        if tag in _STRUCK or _LINE_THROUGH in attributes.get("style", "").lower():
            return True
        classes = (f".{each}" for each in attributes.get("class", "").lower().split())
        named = {tag, f"#{attributes.get('id', '').lower()}", *classes}
        return bool(self.struck) and ("*" in self.struck or bool(self.struck & named))

    def _add(self, text: str) -> None:
        self.line.append(text)
        self.written = self.written or bool(text.strip())

    def _leave_containers(self) -> None:
        for element in self.open[-_NEAR:]:
            if element.container and element.quote:
                element.quote = False
                self.quotes -= 1

    def _count(self, element: _Element, step: int) -> None:
        self.quotes += step * element.quote
        self.hidden += step * element.hidden
        self.signatures += step * element.signature
        self.pre += step * (element.tag == "pre")


_NEAR: Final = 100
"""How many of the innermost open elements an end tag can close."""


def html_lines(document: str) -> list[str]:
    """Return the lines that a reader would see, with `> ` before quoted ones."""
    # Not `lower()`, which lengthens some letters: positions in the two texts would differ.
    lower = document.translate(_ASCII_LOWER)
    reader = _Reader(struck=_struck_names(lower))
    at = 0
    while at < len(document):
        start = document.find("<", at)
        if start < 0:
            start = len(document)
        reader.text(document[at:start])
        at = _after_markup(document, lower, start, reader)
    reader.end_line()
    return reader.lines


_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _after_markup(document: str, lower: str, start: int, reader: _Reader) -> int:
    """Handle the markup from the `<` at `start` and return its end. Endless markup ends the document."""
    following = document[start + 1 : start + 2]
    if document.startswith("<!--", start):
        end = document.find("-->", start + 4)
        return end + 3 if end >= 0 else len(document)
    if following and following in "!?":
        end = document.find(">", start)
        return end + 1 if end >= 0 else len(document)
    if following == "/" and not _is_letter(document[start + 2 : start + 3]):
        end = document.find(">", start)
        return end + 1 if end >= 0 else len(document)
    if following != "/" and not _is_letter(following):
        # Like browsers, treat the `<` in `a < b` as a character.
        reader.text(document[start : start + 1])
        return start + 1
    tag = _TAG.match(document, start)
    if tag is None:
        return len(document)
    name = tag[2].lower()
    if tag[1]:
        reader.end(name)
    else:
        reader.start(name, _attributes(tag[3][:_MAX_ATTRIBUTES]))
    if name in _RAW and not tag[1]:
        # Only their own end tag ends these elements: browsers ignore all other tags in them.
        end = lower.find(f"</{name}", tag.end())
        return end if end >= 0 else len(document)
    return tag.end()


def _struck_names(lower: str) -> frozenset[str]:
    """Return the tags, `.classes` and `#ids` whose elements a style sheet strikes out.

    A selector counts for every class and id that it names, regardless of its other conditions.
    """
    names: set[str] = set()
    at = lower.find("<style")
    while at >= 0:
        end = lower.find("</style", at)
        begin = lower.find(">", at) + 1
        sheet = lower[begin : end if end >= 0 else len(lower)]
        for rule in sheet.split("}") if _LINE_THROUGH in sheet else ():
            selectors, _, declarations = rule.rpartition("{")
            if _LINE_THROUGH in declarations:
                # Use only the innermost braces: a rule may be in `@media`.
                for selector in selectors.rpartition("{")[2].split(","):
                    names |= _names_of(selector)
        at = lower.find("<style", end) if end >= 0 else -1
    return frozenset(names)


def _names_of(selector: str) -> set[str]:
    last = (selector.replace(">", " ").replace("+", " ").split() or ["*"])[-1]
    names = _SIMPLE.findall(last.partition(":")[0].partition("[")[0])
    classes = {each for each in names if each[0] in ".#"}
    return classes or set(names) or {"*"}


def _is_letter(char: str) -> bool:
    return char.isascii() and char.isalpha()


def _attributes(text: str) -> dict[str, str]:
    return {name.lower(): html.unescape(value.strip("\"'")) for name, value in _ATTRIBUTE.findall(text)}


def _is_outlook_rule(tag: str, style: str) -> bool:
    """Outlook draws this rule above the header of a quote."""
    compact = style.replace(" ", "").lower()
    return tag == "div" and "border-top:solid#" in compact and "padding:3.0pt0" in compact


def _is_hidden(attributes: dict[str, str]) -> bool:
    compact = attributes.get("style", "").replace(" ", "").lower()
    return "display:none" in compact or "mso-hide:all" in compact
