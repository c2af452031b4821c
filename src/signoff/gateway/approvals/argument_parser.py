"""Parses the fields of a call's arguments back into arguments: types kept, problems in place.

Pure.
"""

import copy
import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from signoff.approvals.redaction import redact_arguments, secret_values
from signoff.contracts.content import Remark, Words
from signoff.contracts.errors import NotFound, Refused
from signoff.formats.bounds import bounds_remark
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.json_schema import CompiledSchema, SchemaProblem
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.gateway.approvals.argument_form import ABSENT, AbsentValue, ArgumentField, Path, fields_of
from signoff.gateway.approvals.secret_masks import unmasked_args
from signoff.languages.catalogue import ENGLISH
from signoff.languages.remarks import RemarkError, english, remark_text

NULL: Final = "null"
"""The form value under a field's `null_key` that sets it to null."""
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,30})")


@dataclass(frozen=True)
class ParsedArguments:
    """A sent form. `args` are the parsed arguments, `None` if a field cannot be parsed.

    `written` are the arguments in the sender's view: secrets stay hidden unless the sender typed them. `changed`
    compares the typed with the initial values. Base all texts for the sender on these two: a comparison with a hidden
    value would reveal it. `fields` hold the typed texts with their problems. `problems` belong to no single field.
    """

    fields: tuple[ArgumentField, ...]
    args: dict[str, Any] | None
    problems: tuple[Words, ...] = ()
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    changed: bool = False

    @property
    def good(self) -> bool:
        return self.args is not None and not self.problems and not any(field.problem for field in self.fields)


def set_values(
    args: Mapping[str, Any],
    settings: Mapping[str, str | None],
    schema: CompiledSchema | None,
    secrets: Collection[str] = (),
) -> ParsedArguments:
    """Return `args` with new values by dotted name, each of the type in the schema.

    `None` means null, unlike an absent argument or the text `null`. Raises `NotFound` for an unknown name, `Refused`
    (`malformed`) for a list that is not JSON.
    """
    fields = fields_of(args, schema.schema if schema is not None else _shape_of(args), secrets)
    named = {field.dotted: field for field in fields}
    form: dict[str, str] = {}
    for path, value in settings.items():
        field = named.get(path)
        if field is None:
            near = did_you_mean(path, named) or "; change it as JSON"
            raise NotFound(f"there is no argument {quote_name(path)}{near}")
        if value is None:
            form[field.null_key] = NULL
        else:
            form[field.key] = _as_in_form(field, value)
    return read_fields(fields, form, args, schema, secrets)


def read_fields(
    fields: Sequence[ArgumentField],
    form: Mapping[str, str],
    args: Mapping[str, Any],
    schema: CompiledSchema | None,
    secrets: Collection[str] = (),
) -> ParsedArguments:
    """A field that is absent from the form or unchanged keeps its exact value."""
    parsed: dict[str, Any] = copy.deepcopy(dict(args))
    written: Any = redact_arguments(args, secrets, secret_values(args, secrets))
    changed = False
    typed: list[ArgumentField] = []
    for field in fields:
        sent, is_null = form.get(field.key), form.get(field.null_key) == NULL
        if not is_null and (sent is None or _same(sent, field.shown)):
            typed.append(field)
            continue
        sent = field.shown if sent is None else sent
        # A typed value replaces a null value.
        is_null = is_null and (_same(sent, field.shown) or not field.is_null)
        try:
            if is_null and not _same(sent, field.shown):
                raise RemarkError(Remark.of("null_or_value"))
            value = None if is_null else _value(field, _lines(sent))
        except (RemarkError, NotJson) as error:
            typed.append(replace(field, shown=sent, problem=error.words))
            continue
        typed.append(replace(field, shown="" if field.secret or is_null else sent, is_null=is_null))
        parsed = _put(parsed, field.path, value)
        written = _put(written, field.path, value)
        changed = changed or field.secret or value != _first(field)
    if any(field.problem for field in typed):
        return ParsedArguments(tuple(typed), None)
    try:
        whole = unmasked_args(parsed, args, secrets)
    except Refused as error:
        return ParsedArguments(tuple(typed), None, (error.message,))
    if not isinstance(whole, dict):
        return ParsedArguments(tuple(replace(field, problem=Remark.of("object")) for field in typed), None)
    if problem := bounds_remark(whole):
        return ParsedArguments(tuple(typed), None, (Remark.of("hold", detail=problem),))
    checked = _check(tuple(typed), whole, schema.check(whole) if schema is not None else ())
    return replace(checked, written=written, changed=changed)


def _shape_of(value: Any) -> dict[str, Any]:
    """Keeps the type of each value if the tool's schema is unknown. The gates check by the tool's."""
    match value:
        case dict():
            return {"type": "object", "properties": {name: _shape_of(each) for name, each in value.items()}}
        case bool():
            # Before `int`: a bool is an int in Python.
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
    return {}


def _as_in_form(field: ArgumentField, value: str) -> str:
    """Return choices by label, lists as JSON or a single value.

    In a union, such as text or number, a value that is not JSON is text.
    """
    if field.kind == "json" and field.path and not value.lstrip().startswith(("{", "[", '"')):
        try:
            read_json(value)
        except NotJson:
            return json.dumps(value)
    if field.kind == "choice":
        return next((each.value for each in field.choices if value in (each.label, each.value)), value)
    if field.kind == "lines" and value.lstrip().startswith("["):
        try:
            items = read_json(value)
        except NotJson as error:
            raise Refused(f"`{field.dotted}` {error}", code="malformed") from None
        return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in items)
    return value


def problem_words(typed: ParsedArguments, language: str = ENGLISH) -> str:
    problems = [_placed_problem(field) for field in typed.fields if field.problem]
    return remark_text((*problems, *typed.problems), language)


def _placed_problem(field: ArgumentField) -> Words:
    if field.path:
        return Remark.of("at", place=f"`{field.dotted}`", detail=field.problem)
    # A problem of all arguments usually names its place itself.
    return field.problem if english(field.problem).startswith("`") else Remark.of("whole", detail=field.problem)


def _first(field: ArgumentField) -> Any:
    """For JSON, includes the masks: the reader has nothing else."""
    return read_json(field.shown) if field.kind == "json" and field.shown else field.original


def _check(
    fields: tuple[ArgumentField, ...], args: dict[str, Any], problems: Sequence[SchemaProblem]
) -> ParsedArguments:
    rest: list[Words] = []
    by_key = {field.key: field for field in fields}
    for problem in problems:
        near = _nearest(fields, problem.path)
        if near is None:
            rest.append(problem.words)
        elif not by_key[near.key].problem:
            inside = problem.path.removeprefix(near.dotted).lstrip(".")
            by_key[near.key] = replace(near, problem=problem._replace(path=inside).words)
    return ParsedArguments(tuple(by_key.values()), args, tuple(rest))


def _nearest(fields: Sequence[ArgumentField], path: str) -> ArgumentField | None:
    """Prefer the field that holds the place of a problem to the first field inside it."""
    around = [field for field in fields if _within(path, field.dotted)]
    if around:
        return max(around, key=lambda field: len(field.path))
    return next((field for field in fields if path and _within(field.dotted, path)), None)


def _within(path: str, place: str) -> bool:
    return not place or path == place or path.startswith((f"{place}.", f"{place}["))


def _lines(text: str) -> str:
    # Browsers send every line end as two characters.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _same(sent: str, shown: str) -> bool:
    return _lines(sent) == _lines(shown)


def _value(field: ArgumentField, sent: str) -> Any:
    """Raises `RemarkError` or `NotJson` with the expected form."""
    empty = not sent.strip()
    match field.kind:
        case "text":
            return _empty_value(field, "") if sent == "" else sent
        case "number" | "integer":
            if field.nullable and sent.strip() == "null":
                return None
            return _empty_value(field, ABSENT) if empty else _number(sent.strip(), whole=field.kind == "integer")
        case "lines":
            return [_item(field, line.strip()) for line in sent.split("\n") if line.strip()]
        case "choice":
            if sent and sent not in {choice.value for choice in field.choices}:
                raise RemarkError(Remark.of("choice"))
            return read_json(sent) if sent else ABSENT
        case "json":
            return ABSENT if empty else read_json(sent)


def _empty_value(field: ArgumentField, rest: Any) -> Any:
    """Absent if the field is optional, else null if that is allowed."""
    if not field.needed:
        return ABSENT
    return None if field.nullable else rest


def _number(sent: str, *, whole: bool) -> int | float:
    if _INTEGER.fullmatch(sent):
        return int(sent)
    if whole or not _NUMBER.fullmatch(sent):
        raise RemarkError(Remark.of("integer") if whole else Remark.of("number"))
    return float(sent)


def _item(field: ArgumentField, line: str) -> Any:
    if field.items == "string":
        return line
    try:
        return _number(line, whole=field.items == "integer")
    except RemarkError as error:
        raise RemarkError(Remark.of("line", detail=error.words)) from None


def _put(args: Any, path: Path, value: Any) -> Any:
    """Creates objects on the path only if they get a value."""
    if not path:
        return {} if isinstance(value, AbsentValue) else value
    name, rest = path[0], path[1:]
    inner = args.get(name, ABSENT)
    if rest:
        if isinstance(inner, AbsentValue) and isinstance(value, AbsentValue):
            return args
        value = _put({} if isinstance(inner, AbsentValue) else inner, rest, value)
    if isinstance(value, AbsentValue):
        return {key: item for key, item in args.items() if key != name}
    return {**args, name: value}
