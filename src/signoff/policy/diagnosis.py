"""Writes the compilers' reports as one sentence with a remedy."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from signoff.policy.schema_shapes import DataShape
from signoff.policy.type_check import is_cel_name

_LINE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_UNDEFINED: Final = re.compile(r"undefined field '([^']*)'")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")
_OVERLOAD: Final = re.compile(r"found no matching overload for '([^']*)' applied to '\(([^)]*)\)'")
_CHAIN: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\[]*\])?(?:\.[A-Za-z_]\w*(?:\[[^\]\[]*\])?)*", re.ASCII)
_FUNCTIONS: Final = (
    "all", "bool", "bytes", "contains", "double", "duration", "endsWith", "exists", "exists_one", "filter", "has",
    "includes", "int", "join", "lowerAscii", "map", "matches", "size", "split", "startsWith", "string", "timestamp",
    "type", "uint", "upperAscii",
)  # fmt: skip
_MISSING: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("charAt", "indexOf", "lastIndexOf", "replace", "substring", "trim", "reverse", "format", "quote"),
        "of CEL's string extension only `lowerAscii`, `upperAscii`, `split` and `join` are here; "
        "write `matches`, `contains`, `startsWith` or `endsWith`",
    ),
    **dict.fromkeys(("find", "findAll"), "Kubernetes' functions of patterns are not here; write `matches`"),
    **dict.fromkeys(
        ("cidr", "ip", "isIP", "isCIDR", "containsIP", "containsCIDR"),
        "Kubernetes' functions of addresses are not here; write `matches` or `startsWith`",
    ),
    **dict.fromkeys(
        ("quantity", "isQuantity", "semver", "isSemver", "isLessThan", "isGreaterThan", "compareTo", "asInteger"),
        "Kubernetes' quantities and versions are not here; have the tool take a number and compare that",
    ),
    **dict.fromkeys(
        ("url", "isURL", "getHost", "getHostname", "getScheme"),
        "Kubernetes' functions of addresses of pages are not here; write `matches` or `startsWith`",
    ),
    **dict.fromkeys(
        ("isSorted", "sum", "min", "max", "flatten", "sort", "distinct", "slice", "first", "last", "range"),
        "CEL's extensions of lists are not here; write `all`, `exists`, `filter` or `map`",
    ),
    **dict.fromkeys(
        ("greatest", "least", "ceil", "floor", "round", "abs", "sign"),
        "CEL's `math` extension is not here; write `<`, `>` or `? :`",
    ),
    **dict.fromkeys(
        ("optional", "orValue", "hasValue", "optMap", "or"),
        "CEL's optionals are not here; write `has(args.x) ? args.x : 'default'`",
    ),
}
"""Functions of CEL's and Kubernetes' extensions, and what to write in their place."""
_OPTIONAL: Final = re.compile(r"\.\?|\[\s*\?|\{\s*\?")
_FOREIGN: Final[Mapping[str, str]] = {
    **{"and": "&&", "&": "&&", "or": "||", "|": "||", "not": "!(...)", "=": "=="},
    **{"True": "true", "False": "false", "None": "null"},
}
"""Operators and constants of other languages, and CEL's own."""
_FOREIGN_WORD: Final = re.compile(
    r"(?<![\w.])(?:[Aa][Nn][Dd]|[Oo][Rr]|[Nn][Oo][Tt]|True|False|None)(?!\w)|(?<![=!<>])=(?!=)|(?<!&)&(?!&)|(?<!\|)\|(?!\|)"
)
_STRING: Final = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_INT_AND_POINT: Final = frozenset({"int, double", "double, int", "wrapper(int), double", "double, wrapper(int)"})


@dataclass(frozen=True)
class ErrorPlace:
    """The place of an error: the expression and the names it may use."""

    text: str
    variables: Mapping[str, DataShape]


def read_error(report: str, place: ErrorPlace) -> tuple[str, int]:
    """Converts a report of the type checker to one sentence and its column (from 1; 0 when unknown)."""
    if column := _optional_column(place):
        return _MISSING["optional"], column
    if foreign := _foreign_operator(report, place):
        return foreign
    # The checker gives its findings as text only; of a report in another form its first line is shown.
    found = [_locate(match, place) for match in _LINE.finditer(report)]
    if not found:
        first = report.partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
        return first[:200] or "it cannot be read", 0
    # One slip can make several errors; the one that can be put right comes first.
    return next((each for each in found if "did you mean" in each[0]), found[0])


def _locate(match: re.Match[str], place: ErrorPlace) -> tuple[str, int]:
    line, column, message = int(match[1]), int(match[2]), match[3].removesuffix(" [INVALID_ARGUMENT]")
    offset = sum(len(each) + 1 for each in place.text.split("\n")[: line - 1]) + column
    return _sentence(message, place, offset), offset


def single_engine_problem(error: Exception) -> tuple[str, int]:
    """Writes the same for an expression that only the first engine can read."""
    if type(error).__name__ != "CELParseError":
        return "the second engine cannot read it; write it more plainly", 0
    column = vars(error).get("column")
    return "the second engine cannot read it here; write it more plainly", column if isinstance(column, int) else 0


def _optional_column(place: ErrorPlace) -> int:
    """Return the column of an optional selection outside texts; 0 for none."""
    found = _OPTIONAL.search(_blank_texts(place.text))
    return found.start() + 1 if found else 0


def _blank_texts(text: str) -> str:
    return _STRING.sub(lambda found: "'" * len(found[0]), text)


def _foreign_operator(report: str, place: ErrorPlace) -> tuple[str, int] | None:
    """Name CEL's spelling of the first operator or constant of another language that the parser stopped at."""
    undeclared = {match[1] for match in _UNDECLARED.finditer(report)}
    for found in _FOREIGN_WORD.finditer(_blank_texts(place.text)):
        written = found[0]
        if "Syntax error" in report or written in undeclared:
            spelled = _FOREIGN.get(written) or _FOREIGN[written.lower()]
            return f"CEL has no `{written}`; write `{spelled}`", found.start() + 1
    return None


def _sentence(message: str, place: ErrorPlace, column: int) -> str:
    # First: of an argument such as `in` or `a-b` the checker says something else, as it reads a keyword or a minus.
    unspeakable = next((name for name in _all_names(place) if not is_cel_name(name) and _stands(name, place.text)), "")
    if unspeakable:
        return f"CEL cannot spell the argument `{unspeakable}`; rename it or leave it out of the policy"
    if undefined := _UNDEFINED.search(message):
        return _no_field(undefined[1], place, column)
    if undeclared := _UNDECLARED.search(message):
        return _no_name(undeclared[1], place)
    if overload := _OVERLOAD.search(message):
        return _no_overload(overload[1], overload[2], place)
    # Behind ` expecting ` the parser lists every token that it would have taken.
    text = message[:1].lower() + message[1:]
    return text if len(text) <= 160 else text.partition(" expecting ")[0][:160]


def _no_field(name: str, place: ErrorPlace, column: int) -> str:
    chains = [match for match in _CHAIN.finditer(place.text) if f".{name}" in match[0]]
    # The checker points at `has(` rather than at what stands in it.
    chain = next((match for match in chains if match.start() < column <= match.end()), chains[0] if chains else None)
    before = chain[0][: chain[0].rfind(f".{name}")] if chain else ""
    shape = _resolve(before, place.variables)
    siblings = list(shape.fields) if shape is not None else [each for each in _all_names(place) if is_cel_name(each)]
    near = difflib.get_close_matches(name, siblings, n=1)
    known = before if shape is not None else ""
    written = f"`{before}.{name}`" if before else f"`{name}`"
    if near:
        return f"no field {written}; did you mean `{f'{known}.' if known else ''}{near[0]}`?"
    declared = ", ".join(f"`{each}`" for each in sorted(set(siblings))[:12])
    return f"no field {written}; declared are {declared or 'none'}"


def _no_name(name: str, place: ErrorPlace) -> str:
    # The checker calls a function undeclared when it is given the wrong number of arguments.
    if name in _FUNCTIONS:
        return f"`{name}` does not take these arguments"
    if name in _MISSING:
        return f"there is no `{name}`: {_MISSING[name]}"
    root, _, rest = name.partition(".")
    near = difflib.get_close_matches(root, [*place.variables, *_FUNCTIONS], n=1)
    if near and near[0] != root:
        return f"nothing is called `{name}`; did you mean `{near[0]}{'.' + rest if rest else ''}`?"
    deeper = difflib.get_close_matches(name, [each for each in _all_names(place) if is_cel_name(each)], n=1)
    home = next((var for var, shape in place.variables.items() if deeper and deeper[0] in shape.fields), "")
    if home:
        return f"nothing is called `{name}`; did you mean `{home}.{deeper[0]}`?"
    return f"nothing is called `{name}`; there are {', '.join(f'`{var}`' for var in place.variables)}"


def _no_overload(operator: str, types: str, place: ErrorPlace) -> str:
    shown = re.sub(r"policy\.Object\d+", "object", types)
    name = operator.strip("_@").replace("_", " ") or operator
    text = f"`{name}` does not work on ({shown})"
    if types in _INT_AND_POINT:
        integers = [path for path in _CHAIN.findall(place.text) if _kind(path, place.variables) == "int"]
        return f"{text}; write `double({integers[0] if integers else 'n'})`"
    if name == "[ ]" and "object" in shown:
        return f"{text}; select the field with a point"
    if operator == "@in" and types.endswith("string"):
        return f"{text}; use `contains`"
    return text


def _kind(path: str, variables: Mapping[str, DataShape]) -> str:
    shape = _resolve(path, variables)
    return shape.kind if shape is not None else ""


def _resolve(path: str, variables: Mapping[str, DataShape]) -> DataShape | None:
    parts = re.sub(r"\[[^\]]*\]", ".[]", path).split(".")
    shape: DataShape | None = variables.get(parts[0])
    for part in parts[1:]:
        shape = shape.step(part) if shape is not None else None
    return shape


def _all_names(place: ErrorPlace) -> Iterator[str]:
    stack = list(place.variables.values())
    while stack:
        shape = stack.pop()
        yield from shape.fields
        stack.extend(shape.fields.values())
        if shape.items is not None:
            stack.append(shape.items)


def _stands(name: str, text: str) -> bool:
    return re.search(rf"[.'\"`]{re.escape(name)}(?!\w)", text) is not None
