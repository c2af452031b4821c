"""Measures the English of comments, docstrings, documents, messages and test names.

    python -m tools.prose [PATH ...]     figures of each kind, then the worst sentences
    --worst N                            the number of sentences, 15 by default

The exit status is 1 if a figure is over its limit.

A marker is a construction that well-kept Python projects avoid. `[tool.prose]` in pyproject.toml holds the limits: in
1,000 words, and in words of the whole tree. CONTRIBUTING.md has the rules.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

MARKERS: Final = {
    "what": r"\bwhat(?:ever)?\b(?!.*\?$)",
    "first word is relative": (
        r"^(?:who|whoever|whom|whose|whichever|of(?! (?:course|these))|(?:by|for|to|from)\swhom|by\swhich)\b(?!.*\?$)"
    ),
    "nobody, somebody": r"\b(?:nobody|somebody|anybody|everybody|whoever|whomever|whichever)\b",
    "one who": r"\b(?:one|ones|those|he|they)\swho\b|[,;:] who\b",
    "of which": r"\b(?:whom|(?:of|by|to|from)\swhich|(?:of|in|to|by)\swhose)\b",
    "told, said": (
        r"\b(?:tell|tells|told)\b(?!\s+\w*\s*apart)|\b(?:is|are|was|were|be|been)\s+(?:said(?! to)|had)\b"
        r"|\bsays? (?:of|nothing|so|what|who|whose|how)\b"
    ),
    "became of": r"\b(?:became|becomes?|come|comes|came)\sof\b",
    "lies, stands, goes on": (
        r"\b(?:lies|stands(?! for)|stood|(?:comes|came)(?! (?:from|first|with))|goes|gone|go\son|is\sover"
        r"|(?:is|are)\s(?:not )?there(?= ?[.,;:]|$))\b(?!\s*\?)"
    ),
    "anew, any more": (
        r"\b(?:anew|once\smore|any\smore(?! \w+s\b)|for\sever\b|thereof|whereby|meanwhile|by\snow"
        r"|all\sthe\ssame(?=[.,;:]|$)|no\smore(?=[.,;:]|$))"
    ),
    "nor without neither": r"^(?!.*\bneither\b).*?\bnor\b",
    "one that, those that": r"\b(?:(?:one|those|all|each|any)\sthat|those\sof)\b",
    "beside": r"\b(?:in\sthe\splace\sof|beside)\b",
    "as nobody": r",\s+as\s(?:nobody|somebody|nothing|none|its|no|every|each|he|she|what)\b",
    "nothing is lost": (
        r"\b(?:none|nothing)\b[^.]{0,40}\b(?:is|are)\s+(?:lost|known|done|said|there|asked|taken|told|kept|made)\b"
    ),
    "by itself": r"\b(?:by\s(?:itself|themselves|himself)|of\s(?:its|their|his)\sown)\b",
    "as it stands": r"\bas\s(?:it|they)\s(?:is|are|was|were|stands?|stood)(?=[.,;:]|$)",
    "but for": r"\b(?:but\sfor|be\sit|be\sthey|in\svain|nothing\sbut)\b",
    "a mail": r"\b(?:a\smail|mails)\b",
}
_COMPILED: Final = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in MARKERS.items()}
_NO_PROSE: Final = re.compile(r"type:|noqa|fmt:|pragma|mypy:|ruff:|!")


class Passage(NamedTuple):
    """A paragraph, comment, message or name, and its first line in the file."""

    kind: str
    line: int
    text: str


class Finding(NamedTuple):
    """A sentence that has markers or is too long."""

    weight: float
    kind: str
    place: str
    sentence: str
    reasons: tuple[str, ...]


@dataclass
class Figures:
    """Counts by kind of prose, and the findings."""

    words: Counter[str] = field(default_factory=Counter)
    markers: Counter[str] = field(default_factory=Counter)
    semicolons: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    too_long: int = 0

    def add(self, path: Path, passage: Passage, longest: int) -> None:
        """Documents may have no sentence of more than `longest` words."""
        for sentence in sentences(passage.text):
            count = len(sentence.split())
            reasons = [name for name, pattern in _COMPILED.items() for _ in pattern.findall(sentence)]
            self.words[passage.kind] += count
            self.semicolons[passage.kind] += sentence.count(";")
            self.markers[passage.kind] += len(reasons)
            if passage.kind == "documents" and count > longest:
                self.too_long += 1
                reasons.append(f"{count} words")
            if reasons:
                weight = len(reasons) / (6 + count)
                self.findings.append(Finding(weight, passage.kind, f"{path}:{passage.line}", sentence, tuple(reasons)))

    def problems(self, limits: Mapping[str, float], semicolons: float) -> list[str]:
        """Two markers are always allowed, since some files are short."""
        found = [
            f"{kind}: {self.markers[kind]} markers in {words} words, at most {limits[kind]} in 1,000"
            for kind, words in self.words.items()
            if self.markers[kind] > max(2, limits[kind] * words / 1000)
        ]
        if self.semicolons["docstrings"] > max(2, semicolons * self.words["docstrings"] / 1000):
            count, words = self.semicolons["docstrings"], self.words["docstrings"]
            found.append(f"docstrings: {count} semicolons in {words} words, at most {semicolons} in 1,000")
        if self.too_long:
            found.append(f"documents: {self.too_long} sentences are too long")
        return found


def sentences(text: str) -> list[str]:
    """Leave out sentences under four words. Code in backticks counts as one word."""
    plain = re.sub(r"`+[^`]*`+", "X", " ".join(text.split()))
    return [each for each in re.split(r"(?<=[.!?;])\s+(?=[A-Za-z\"(])", plain) if len(each.split()) >= 4]


def passages(path: Path) -> Iterator[Passage]:
    text = path.read_text(errors="replace")
    if path.suffix == ".md":
        yield from _document(text)
    elif path.suffix == ".po":
        yield from _catalogue(text) if path.stem == "en" else ()
    elif path.suffix == ".html":
        yield from _template(text)
    else:
        yield from _python(text, messages="tests" not in path.parts)
        yield from _comments(text)


def _document(text: str) -> Iterator[Passage]:
    block: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", line.strip())
        fence = bare.startswith("```")
        listed = re.match(r"[-*] |\d+\. ", bare)
        if block and (fence or fenced or listed or not bare or bare[0] in "#|"):
            yield Passage("documents", start, " ".join(block))
            block = []
        if fence:
            fenced = not fenced
        elif fenced or not bare or bare.startswith("#"):
            continue
        elif bare.startswith("|"):
            for cell in bare.strip("|").split("|"):
                yield Passage("documents", number, cell.strip())
        else:
            start = start if block else number
            block.append(bare[listed.end() :] if listed else bare)


def _python(source: str, *, messages: bool) -> Iterator[Passage]:
    tree = ast.parse(source)
    documented: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                documented.add(id(each.value))
                for paragraph in re.split(r"\n\s*\n", each.value.value):
                    if not paragraph.lstrip().startswith((">>>", "```")):
                        yield Passage("docstrings", each.lineno, paragraph)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Passage("test names", node.lineno, node.name.removeprefix("test_").replace("_", " "))
    for node in ast.walk(tree) if messages else ():
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in documented:
            continue
        if len(node.value.split()) >= 5 and re.search(r"[a-z]{3} [a-z]", node.value):
            yield Passage("messages", node.lineno, node.value)


def _comments(source: str) -> Iterator[Passage]:
    start, column, last, block = 0, 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _NO_PROSE.match(text := token.string.lstrip("#").strip()):
            continue
        line, at = token.start
        if block and (last, column) == (line - 1, at):
            block = f"{block}\n{text}"
        else:
            if block:
                yield Passage("comments", start, block)
            start, block = line, text
        last, column = line, at
    if block:
        yield Passage("comments", start, block)


def _catalogue(text: str) -> Iterator[Passage]:
    for entry in re.finditer(r'(?m)^msgid (?P<id>(?:".*"\s*)+)(?:msgid_plural (?P<plural>(?:".*"\s*)+))?', text):
        line = text.count("\n", 0, entry.start()) + 1
        for quoted in filter(None, entry.groups()):
            message = "".join(re.findall(r'"(.*)"', quoted)).replace("\\n", " ")
            if len(message.split()) >= 4:
                yield Passage("messages", line, message)


def _template(text: str) -> Iterator[Passage]:
    plain = re.sub(r"(?s)<(script|style)\b.*?</\1>|<!--.*?-->|{#.*?#}|{%.*?%}", " ", text)
    for number, line in enumerate(plain.splitlines(), 1):
        yield Passage("messages", number, re.sub(r"{{.*?}}", "X", re.sub(r"<[^>]*>", " ", line)))


def _files(paths: Sequence[str]) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "--", *paths], capture_output=True, text=True, check=True).stdout
    files = [Path(each) for each in listed.splitlines() if each.endswith((".py", ".md", ".po", ".html"))]
    return [each for each in files if each.is_file() and not each.is_symlink()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--worst", type=int, default=15)
    options = parser.parse_args()
    config = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["prose"]
    whole, parts = Figures(), defaultdict[str, Figures](Figures)
    for path in _files(options.paths):
        for passage in passages(path):
            for figures in (whole, parts[str(path.parent)]):
                figures.add(path, passage, config["sentence"])
    for kind, words in sorted(whole.words.items()):
        rates = (1000 * each[kind] / words for each in (whole.markers, whole.semicolons))
        print("{:12} {:7} words {:5.1f} markers {:5.1f} semicolons in 1,000".format(kind, words, *rates))
    problems = [
        f"{name}: {problem}"
        for name, figures in [("all", whole), *sorted(parts.items())]
        for problem in figures.problems(config["markers"], config["semicolons"])
    ]
    most: dict[str, int] = {} if options.paths else config["words"]
    problems += [f"all: {kind}: at most {words} words" for kind, words in most.items() if whole.words[kind] > words]
    if problems:
        for finding in sorted(whole.findings, reverse=True)[: options.worst]:
            print(f"{finding.place} ({', '.join(finding.reasons)}): {finding.sentence}")
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
