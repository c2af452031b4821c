"""Checks an expression against the tool's schema, and evaluates it in both engines."""

import difflib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cel_expr_python import cel

from signoff.contracts.errors import ConfigError
from signoff.policy import first_engine, second_engine
from signoff.policy.answer import EngineAnswer, EngineOutcome
from signoff.policy.bounded_expression import BoundedTask, bounded_outcomes, growth_problem, is_bounded
from signoff.policy.first_engine import is_cel_name, typed_environment
from signoff.policy.paths import ReferencedPaths, referenced_paths, spell, unchecked_paths, unguarded_paths
from signoff.policy.schema_shapes import DataShape
from signoff.policy.syntax import normalise, text_problem, tree_problem

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
        "CEL's string extension is limited to `lowerAscii`, `upperAscii`, `split` and `join`; "
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
"""Functions of CEL's and Kubernetes' extensions, with their replacements."""
_OPTIONAL: Final = re.compile(r"\.\?|\[\s*\?|\{\s*\?")
_FOREIGN: Final[Mapping[str, str]] = {
    **{"and": "&&", "&": "&&", "or": "||", "|": "||", "not": "!(...)", "=": "=="},
    **{"True": "true", "False": "false", "None": "null"},
}
"""Operators and constants of other languages, and CEL's equivalents."""
_FOREIGN_WORD: Final = re.compile(
    r"(?<![\w.])(?:[Aa][Nn][Dd]|[Oo][Rr]|[Nn][Oo][Tt]|True|False|None)(?!\w)|(?<![=!<>])=(?!=)|(?<!&)&(?!&)|(?<!\|)\|(?!\|)"
)
_STRING: Final = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_INT_AND_POINT: Final = frozenset({"int, double", "double, int", "wrapper(int), double", "double, wrapper(int)"})

Gives: TypeAlias = Literal["BOOL", "LIST"]
"""The required type of the result: a boolean, or a list of texts."""

EVALUATORS: Final = f"{first_engine.NAME} {first_engine.VERSION}, {second_engine.NAME} {second_engine.VERSION}"
_NOT_RUN: Final = EngineOutcome("error", "not run, the first engine has an error")
_BUILDING: Final = threading.Lock()


@dataclass(frozen=True)
class EngineInput:
    """Data in the form of each engine."""

    plain: Mapping[str, Any]
    celpy: Mapping[str, Any]


def facts(data: Mapping[str, Any]) -> EngineInput:
    """The caller has checked the bounds of `data`."""
    return EngineInput(data, {name: second_engine.as_celpy(value) for name, value in data.items()})


@dataclass(frozen=True)
class Expression:
    """A checked expression.

    `rule` names its field, `findings` lists parts that could not be checked.

    A `bounded` expression is evaluated in a process with limits, and only if its data are not too large.
    """

    rule: str
    text: str
    first: first_engine.FirstProgram
    second: second_engine.SecondProgram
    findings: tuple[str, ...] = ()
    bounded: bool = False
    variables: tuple[str, ...] = ()
    reads_now: bool = False

    def outcomes(self, data: EngineInput) -> tuple[EngineOutcome, EngineOutcome]:
        """Never raises."""
        if self.bounded:
            return bounded_outcomes(self.second.tree, BoundedTask(self.text, self.variables, data.plain))
        return self.evaluate_here(data)

    def evaluate_here(self, data: EngineInput) -> tuple[EngineOutcome, EngineOutcome]:
        """Evaluate without limits, in this process. Never raises."""
        # The order matters: celpy takes seconds to hours for hostile text that the first engine rejects in
        # milliseconds.
        first = self.first.run(data.plain)
        return first, _NOT_RUN if first.kind == "error" else self.second.run(data.celpy)

    def ask(self, data: EngineInput) -> tuple[EngineAnswer, EngineAnswer]:
        """Never raises."""
        first, second = self.outcomes(data)
        return self.answers_from_outcomes(first, second)

    def answers_from_outcomes(self, first: EngineOutcome, second: EngineOutcome) -> tuple[EngineAnswer, EngineAnswer]:
        """Leave out the results' values."""
        return (
            EngineAnswer(self.rule, first_engine.NAME, first.kind, first.note),
            EngineAnswer(self.rule, second_engine.NAME, second.kind, second.note),
        )


def check_timeless(expression: Expression, owner: str) -> None:
    """Raise `ConfigError` if an expression that selects tools reads `ctx.now`, or `ctx` as a whole."""
    # The model is offered its tools at another time than it calls one.
    if expression.reads_now:
        raise ConfigError(
            f"{owner}: `{expression.rule}` may not read `ctx.now`, as it says which tools there are; use the tool's "
            "`hours`",
            field=expression.rule,
            value=expression.text,
        )


class Compiler:
    """Compiles expressions over the same variables.

    `owner` starts every error, such as ``tool `x` ``.
    """

    def __init__(self, variables: Mapping[str, DataShape], owner: str, tool_name: str = "") -> None:
        self._variables = variables
        self._owner = owner
        self._tool_name = tool_name
        with _BUILDING:
            self._typed = typed_environment(variables)

    def compile(self, rule: str, source: str, *, gives: Gives = "BOOL") -> Expression:
        """Check and compile one expression. Raises `ConfigError`."""
        text = normalise(source)
        # Each step protects the next: overlong text reaches no parser, and celpy reads only text that type-checks.
        problem, column = text_problem(text)
        if problem:
            raise self._error(rule, text, problem, column)
        findings = self._check_types(rule, text, gives)
        first = first_engine.first_program(text, self._variables)
        try:
            second = second_engine.second_program(text)
        except Exception as error:
            message, column = single_engine_problem(error)
            raise self._error(rule, text, message, column) from None
        places = referenced_paths(second.tree, self._variables)
        findings += self._check_tree(rule, text, second, places)
        bounded = is_bounded(second.tree, self._variables)
        return Expression(
            rule, text, first, second, findings, bounded, tuple(sorted(self._variables)), self._reads_now(places)
        )

    def _check_types(self, rule: str, text: str, gives: Gives) -> tuple[str, ...]:
        try:
            kind = self._typed.compile(text).return_type().name()
        except Exception as error:
            message, column = read_error(str(error), ErrorPlace(text, self._variables))
            raise self._error(rule, text, message, column) from None
        # An unknown type is no error here: at evaluation, only an exact boolean of both engines counts.
        if kind == cel.Type.DYN.name():
            return (f"`{rule}`: not checked: the type of the result",)
        # `_people` of policy/compiled_policy.py checks the items of a list of DYN at evaluation.
        wanted = kind == "BOOL" if gives == "BOOL" else kind in ("LIST<STRING>", "LIST<DYN>")
        if not wanted:
            need = "true or false" if gives == "BOOL" else "a list of strings"
            raise self._error(rule, text, f"the result is {kind.lower()}, it must be {need}", 0)
        return ()

    def _reads_now(self, places: ReferencedPaths) -> bool:
        ctx = self._variables.get("ctx")
        read = places.used | places.guarded
        # If `ctx` is read as a whole, any field of it may matter.
        return ctx is not None and "now" in ctx.fields and any(p[:2] in (("ctx",), ("ctx", "now")) for p in read)

    def _check_tree(
        self, rule: str, text: str, second: second_engine.SecondProgram, places: ReferencedPaths
    ) -> tuple[str, ...]:
        problem = tree_problem(second.tree) or growth_problem(second.tree, self._variables)
        if problem:
            raise self._error(rule, text, problem, 0)
        # Reject it now: if the field is absent, `deny_if` would deny every call and `auto_approve_if` allow none,
        # unnoticed.
        for path in unguarded_paths(places, self._variables):
            name = spell(path)
            message = f"`{name}` is optional; ask `has({name}) && ...` first, else its absence is an error"
            raise self._error(rule, text, message, 0)
        return tuple(f"`{rule}`: not checked: `{spell(path)}`" for path in unchecked_paths(places, self._variables))

    def _error(self, rule: str, text: str, problem: str, column: int) -> ConfigError:
        where = f" column {column}" if column else ""
        shown = text if len(text) <= 300 else f"{text[:300]}..."
        return ConfigError(
            f"{self._owner}: `{rule}`{where}: {problem} (in `{shown}`)",
            tool_name=self._tool_name,
            field=rule,
            value=text,
            column=column,
        )


@dataclass(frozen=True)
class ErrorPlace:
    """The expression of an error, and the names it may use."""

    text: str
    variables: Mapping[str, DataShape]


def read_error(report: str, place: ErrorPlace) -> tuple[str, int]:
    """Return a sentence and its column. Columns count from 1, and 0 means unknown."""
    if column := _optional_column(place):
        return _MISSING["optional"], column
    if foreign := _foreign_operator(report, place):
        return foreign
    # The checker returns its findings as text only. If the format is unknown, show the first line.
    problems = [_locate(match, place) for match in _LINE.finditer(report)]
    if not problems:
        first = report.partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
        return first[:200] or "it cannot be read", 0
    # One mistake can cause several errors. Prefer one with a suggestion.
    return next((each for each in problems if "did you mean" in each[0]), problems[0])


def _locate(match: re.Match[str], place: ErrorPlace) -> tuple[str, int]:
    line, column, message = int(match[1]), int(match[2]), match[3].removesuffix(" [INVALID_ARGUMENT]")
    offset = sum(len(each) + 1 for each in place.text.split("\n")[: line - 1]) + column
    return _sentence(message, place, offset), offset


def single_engine_problem(error: Exception) -> tuple[str, int]:
    if type(error).__name__ != "CELParseError":
        return "the second engine cannot read it; write it more plainly", 0
    column = vars(error).get("column")
    return "the second engine cannot read it here; write it more plainly", column if isinstance(column, int) else 0


def _optional_column(place: ErrorPlace) -> int:
    """Return 0 without an optional selection outside of text literals."""
    selection = _OPTIONAL.search(_blank_texts(place.text))
    return selection.start() + 1 if selection else 0


def _blank_texts(text: str) -> str:
    return _STRING.sub(lambda found: "'" * len(found[0]), text)


def _foreign_operator(report: str, place: ErrorPlace) -> tuple[str, int] | None:
    undeclared = {match[1] for match in _UNDECLARED.finditer(report)}
    for found in _FOREIGN_WORD.finditer(_blank_texts(place.text)):
        written = found[0]
        if "Syntax error" in report or written in undeclared:
            spelled = _FOREIGN.get(written) or _FOREIGN[written.lower()]
            return f"CEL has no `{written}`; write `{spelled}`", found.start() + 1
    return None


def _sentence(message: str, place: ErrorPlace, column: int) -> str:
    # Check this first: for an argument such as `in` or `a-b`, the checker reports a keyword or a minus.
    unspeakable = next((name for name in _all_names(place) if not is_cel_name(name) and _stands(name, place.text)), "")
    if unspeakable:
        return f"CEL cannot spell the argument `{unspeakable}`; rename it or leave it out of the policy"
    if undefined := _UNDEFINED.search(message):
        return _no_field(undefined[1], place, column)
    if undeclared := _UNDECLARED.search(message):
        return _no_name(undeclared[1], place)
    if overload := _OVERLOAD.search(message):
        return _no_overload(overload[1], overload[2], place)
    # After ` expecting `, the parser lists every token that it would have accepted.
    text = message[:1].lower() + message[1:]
    return text if len(text) <= 160 else text.partition(" expecting ")[0][:160]


def _no_field(name: str, place: ErrorPlace, column: int) -> str:
    chains = [match for match in _CHAIN.finditer(place.text) if f".{name}" in match[0]]
    # The checker's column is that of `has(`, not of its argument.
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
    # The checker calls a function undeclared if it has the wrong number of arguments.
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
