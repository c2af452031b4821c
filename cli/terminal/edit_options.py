"""Changing a call's arguments from a terminal, before they are approved: `--set` and `--edit`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from signoff.cli.terminal.changes import Editable
from signoff.cli.terminal.output import Output
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import ConfigError, NotFound, Refused
from signoff.formats.json_schema import CompiledSchema
from signoff.formats.nearest_name import did_you_mean, shown
from signoff.gateway.argument_form import Field, fields_of, whole_field
from signoff.gateway.argument_parser import Typed, read_fields


def edited_args(
    out: Output,
    request: ApprovalRequest,
    found: Editable,
    settings: Mapping[str, str],
    *,
    editor: bool,
) -> dict[str, Any]:
    """The arguments of `request` with `settings`, then as an editor leaves them.

    Raises `Refused` for what does not fit the tool's schema or changes nothing, `NotFound` for a path, `ConfigError`
    without an editor.
    """
    if request.edit == "off":
        raise Refused("arguments cannot be changed here; deny and say what to change", code="not_allowed")
    args, schema = found.args, found.tool.schema if found.tool is not None else None
    made = set_values(args, settings, schema, found.secrets) if settings else args
    made = _in_editor(out, made, args, schema, found.secrets) if editor else made
    if made == args:
        raise Refused("nothing was changed; approve it as it is, or change something")
    return made


def set_values(
    args: dict[str, Any], settings: Mapping[str, str], schema: CompiledSchema | None, secrets: Sequence[str]
) -> dict[str, Any]:
    """`args` with some values replaced, each of the type that the schema says. Raises `Refused`, `NotFound`."""
    fields = fields_of(args, schema.schema if schema is not None else _shape_of(args), secrets)
    named = {field.dotted: field for field in fields}
    form: dict[str, str] = {}
    for path, value in settings.items():
        field = named.get(path)
        if field is None:
            near = did_you_mean(path, named) or "; change it as JSON with --edit"
            raise NotFound(f"there is no argument {shown(path)}{near}")
        form[field.key] = _written(field, value)
    return _good(read_fields(fields, form, args, schema, secrets))


def _shape_of(value: Any) -> dict[str, Any]:
    """A schema by which every value stays of its type, where the tool's own is not known; the gates check by that."""
    match value:
        case dict():
            return {"type": "object", "properties": {name: _shape_of(each) for name, each in value.items()}}
        case bool():
            # Before `int`, which a bool is in Python.
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
    return {}


def _written(field: Field, value: str) -> str:
    """`value` as the form would have it: choices by their words, lists as JSON or one value."""
    if field.kind == "choice":
        return next((each.value for each in field.choices if value in (each.label, each.value)), value)
    if field.kind == "lines" and value.lstrip().startswith("["):
        try:
            items = json.loads(value)
        except ValueError as error:
            raise Refused(f"`{field.dotted}` is not JSON: {error}", code="malformed") from None
        return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in items)
    return value


def _in_editor(
    out: Output, made: dict[str, Any], args: dict[str, Any], schema: CompiledSchema | None, secrets: Sequence[str]
) -> dict[str, Any]:
    """What somebody makes of `made` in their editor; it opens again until that fits, or they leave it as it is."""
    field = whole_field(made, secrets)
    offered = field.shown + "\n"
    while True:
        written = _edit(offered)
        if written is None:
            raise Refused("nothing was changed; approve it as it is, or change something")
        typed = read_fields((field,), {field.key: written}, made, schema, secrets)
        if typed.good:
            return _good(typed)
        told = _problems(typed)
        if written == offered:
            raise Refused(told, code="malformed")
        out.say(f"{told}; the editor opens again, leave it as it is to give up")
        offered = written


def _edit(text: str) -> str | None:
    try:
        return click.edit(text, extension=".json")
    except click.ClickException as error:
        raise ConfigError(f"{error.message}: name an editor in EDITOR, or use --set", field="EDITOR") from None


def _good(typed: Typed) -> dict[str, Any]:
    if not typed.good or typed.args is None:
        raise Refused(_problems(typed), code="malformed")
    return typed.args


def _what(field: Field) -> str:
    """What a problem is of; of all arguments at once it mostly says that itself."""
    if field.path:
        return f"`{field.dotted}` "
    return "" if field.problem.startswith("`") else "this "


def _problems(typed: Typed) -> str:
    found = [f"{_what(field)}{field.problem}" for field in typed.fields]
    told = [each for each, field in zip(found, typed.fields, strict=True) if field.problem]
    return "; ".join((*told, *typed.problems))
