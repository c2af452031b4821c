"""Serves the description of the API as plain HTML, without scripts and without files of other sites."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.pages.dependencies import CurrentSite

router = APIRouter(include_in_schema=False)
_SCHEMAS: Final = "#/components/schemas/"


@dataclass(frozen=True)
class FieldRow:
    """One parameter, or one field of a body."""

    name: str
    kind: str
    """Its type in a word or two."""
    where: str
    """`path`, `query`, `header` or `body`."""
    required: bool
    description: str


@dataclass(frozen=True)
class AnswerRow:
    """One status of an operation, and the type of its body."""

    status: str
    description: str
    body: str


@dataclass(frozen=True)
class OperationRow:
    """One operation of the API, as shown."""

    method: str
    path: str
    summary: str
    description: str
    scope: str
    """The scope that a token needs, or ""."""
    fields: tuple[FieldRow, ...]
    answers: tuple[AnswerRow, ...]


@router.api_route("/docs", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_api_docs(request: Request, site: CurrentSite) -> Response:
    """Show all operations by subject. In English, like errors and the description itself."""
    app: FastAPI = request.app
    described = app.openapi()
    groups: dict[str, list[OperationRow]] = {}
    for tag, operation in operations(described):
        groups.setdefault(tag, []).append(operation)
    return site.renderer.page("docs.html", None, groups=groups, lead=described["info"]["description"])


def operations(described: Mapping[str, Any]) -> Iterator[tuple[str, OperationRow]]:
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            needed = [scope for each in operation.get("security", ()) for scopes in each.values() for scope in scopes]
            yield (
                operation["tags"][0],
                OperationRow(
                    method=method.upper(),
                    path=path,
                    summary=operation["summary"],
                    description=operation["description"],
                    scope=", ".join(needed),
                    fields=(*_parameters(operation), *_body(operation, schemas)),
                    answers=tuple(_answers(operation)),
                ),
            )


def _parameters(operation: Mapping[str, Any]) -> Iterator[FieldRow]:
    for each in operation.get("parameters", ()):
        schema = each["schema"]
        description = each.get("description") or schema.get("description", "")
        yield FieldRow(each["name"], _kind(schema), each["in"], each.get("required", False), description)


def _body(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[FieldRow]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = _resolve(content["schema"], schemas)
        for name, field in schema.get("properties", {}).items():
            required = name in schema.get("required", ())
            yield FieldRow(name, _kind(field), "body", required, field.get("description", ""))


def _answers(operation: Mapping[str, Any]) -> Iterator[AnswerRow]:
    for status, answer in sorted(operation["responses"].items()):
        kinds = [_kind(content.get("schema", {})) for content in answer.get("content", {}).values()]
        yield AnswerRow(status, answer["description"], ", ".join(filter(None, kinds)))


def _resolve(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in schema.get("anyOf", ()):
        if "$ref" in each:
            return _resolve(each, schemas)
    named = schema.get("$ref", "")
    schema_of_name: Mapping[str, Any] = schemas[named.removeprefix(_SCHEMAS)] if named else schema
    return schema_of_name


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_SCHEMAS)
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", ""))
