import datetime as dt
import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Optional, TypeAlias

import pytest
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from registry_kit import a_context
from tables import table

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.registry.function import parse_docstring, tool
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool_context import ToolContext
from signoff.testing.builders import a_tool_context


class Leg(BaseModel):
    city: str
    day: dt.date


class Opaque:
    """No schema."""


@tool(scope="generalist", effect="Book {legs} for {passenger}", idempotent=True)
async def book(
    passenger: str,
    legs: list[Leg],
    ctx: ToolContext,
    total_cost: Annotated[float, Field(alias="totalCost", ge=0)] = 1.0,
    seat: Literal["aisle", "window"] | None = None,
    schema: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Book a journey.

    Every leg at once.

    Args:
        passenger: The traveller,
            by full name.
        legs (list): The legs.

    Returns:
        The booking.
    """
    return {"days": [leg.day for leg in legs], "key": ctx.idempotency_key, "cost": total_cost, "schema": schema}


def test_schema_comes_from_the_signature() -> None:
    ToolRegistry([book])
    schema = book.input_schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["passenger", "legs"]
    assert set(schema["properties"]) == {"passenger", "legs", "totalCost", "seat", "schema"}
    assert schema["properties"]["passenger"] == {"type": "string", "description": "The traveller, by full name."}
    assert schema["properties"]["totalCost"] == {"type": "number", "minimum": 0, "default": 1.0}
    assert book.description == "Book a journey.\n\nEvery leg at once."
    assert book.name == "book"
    assert book.site.startswith(f"{__file__}:")


async def test_handler_gets_typed_values_and_the_context() -> None:
    args = {"passenger": "A", "legs": [{"city": "Lisbon", "day": "2030-05-04"}], "totalCost": 3, "schema": [1]}
    result = await book.handler(args, a_context(idempotency_key="k"))
    assert result == {"days": [dt.date(2030, 5, 4)], "key": "k", "cost": 3.0, "schema": (1,)}


def test_own_check_finds_errors_the_schema_cannot() -> None:
    args = {"passenger": "A", "legs": [{"city": "Lisbon", "day": "2030-02-31"}]}
    assert book.schema.check(args) == []
    assert [path for path, _ in book.validate_input(args)] == ["legs[0].day"]


def test_own_check_never_repeats_a_value() -> None:
    def never(value: str) -> str:
        raise ValueError(f"{value} is bad")

    @tool(scope="generalist")
    async def strict(word: Annotated[str, AfterValidator(never)]) -> None:
        """Strict."""

    assert strict.validate_input({"word": "hunter2"}) == [("word", "is not acceptable")]


async def test_mutable_default_is_fresh_on_every_call() -> None:
    @tool(scope="generalist")
    async def collect(items: list[int] = []) -> list[int]:  # noqa: B006
        """Collect."""
        items.append(1)
        return list(items)

    assert [await collect.handler({}, a_context()) for _ in range(2)] == [[1], [1]]


def test_explicit_fields_override_the_function() -> None:
    async def inner(amount: Decimal) -> None:
        """Pay."""

    made = tool(scope="specialist", name="pay", description="Pays.", justification="the payer's own")(inner)
    assert (made.name, made.description, made.scope) == ("pay", "Pays.", "specialist")


Context: TypeAlias = ToolContext
"""An alias of the context type."""


async def _optional(city: str, ctx: ToolContext | None = None) -> str:
    return "" if ctx is None else ctx.decided_by


async def _typing_optional(city: str, ctx: Optional[ToolContext] = None) -> str:  # noqa: UP045
    return "" if ctx is None else ctx.decided_by


async def _annotated(city: str, ctx: Annotated[ToolContext, "given"]) -> str:
    return ctx.decided_by


async def _annotated_optional(city: str, ctx: Annotated[ToolContext | None, "given"] = None) -> str:
    return "" if ctx is None else ctx.decided_by


async def _written(city: str, ctx: "ToolContext | None" = None) -> str:
    return "" if ctx is None else ctx.decided_by


async def _aliased(city: str, ctx: Context | None = None) -> str:
    return "" if ctx is None else ctx.decided_by


@table("function", _optional, _typing_optional, _annotated, _annotated_optional, _written, _aliased)
async def test_context_argument_is_injected_and_never_taken_from_the_model(function: Any) -> None:
    made = tool(scope="generalist")(function)
    assert set(made.input_schema["properties"]) == {"city"}
    context = a_tool_context(decided_by="ana")
    assert await made.handler({"city": "Porto"}, context) == "ana"
    with pytest.raises(ValidationError):
        await made.handler({"city": "Porto", "ctx": {"decided_by": "ceo"}}, context)


async def _raw(args: dict[str, Any], ctx: ToolContext | None = None) -> str:
    """Greet."""
    return "" if ctx is None else f"{args['city']} {ctx.decided_by}"


async def test_raw_handler_with_an_optional_context_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own_raw", SimpleNamespace(raw=_raw))
    tools = "tools: {raw: {handler: 'own_raw:raw', scope: generalist, input_schema: {type: object}}}"
    (tmp_path / "signoff.yaml").write_text(f"version: 1\nactors: {{}}\n{tools}\n", encoding="utf-8")
    made = load_manifest(tmp_path / "signoff.yaml").resolve("raw")
    assert made is not None
    assert await made.handler({"city": "Porto"}, a_tool_context(decided_by="ana")) == "Porto ana"


@dataclass
class Trip:
    ctx: ToolContext


class ChildContext(ToolContext):
    pass


async def _list(a: list[ToolContext]) -> None: ...
async def _either(a: ToolContext | str) -> None: ...
async def _nested(a: Trip) -> None: ...
async def _child(a: ChildContext) -> None: ...
async def _twice(a: ToolContext, b: ToolContext) -> None: ...
async def _untyped(a) -> None: ...  # type: ignore[no-untyped-def]
async def _star(*a: int) -> None: ...
async def _keywords(**a: int) -> None: ...
async def _positional(a: int, /) -> None: ...
async def _unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821
async def _unreadable(a: Opaque) -> None: ...
def _sync(a: int) -> None: ...


@pytest.mark.row("B22")
@table(
    ("function", "words"),
    (_untyped, "no type for its argument `a`"),
    (_star, "`*args`"),
    (_keywords, "`**kwargs`"),
    (_positional, "positional only"),
    (_unresolved, "cannot be resolved"),
    (_unreadable, "argument type"),
    (_list, "contains `ToolContext`"),
    (_either, "contains `ToolContext`"),
    (_nested, "contains `ToolContext`"),
    (_child, "contains `ToolContext`"),
    (_twice, "two parameters for the context"),
)
def test_function_without_a_clear_signature_is_refused(function: Any, words: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        tool(scope="generalist")(function)
    assert words in caught.value.message
    assert f"(declared at {__file__}:" in caught.value.message


@tool
async def bare(city: str) -> str:
    """Say hello to a city."""
    return f"hello {city}"


async def test_bare_decorator_leaves_the_scope_to_the_manifest(tmp_path: Path) -> None:
    assert (bare.name, bare.description) == ("bare", "Say hello to a city.")
    assert await bare.handler({"city": "Porto"}, a_context()) == "hello Porto"
    with pytest.raises(RegistrationError, match=r"`bare` has no `scope`; .*allowed: `generalist`, `specialist`"):
        ToolRegistry([bare])
    (tmp_path / "bare_code.py").write_text("from test_function import bare\n")
    (tmp_path / "m.yaml").write_text("version: 1\ntools:\n  bare: {handler: 'bare_code:bare', scope: generalist}\n")
    assert load_manifest(tmp_path / "m.yaml").tool("bare").scope == "generalist"
    (tmp_path / "m.yaml").write_text("version: 1\ntools:\n  bare: {handler: 'bare_code:bare'}\n")
    with pytest.raises(ConfigError, match=r"m\.yaml:3: tool `bare` has no `scope`"):
        load_manifest(tmp_path / "m.yaml")


class Booker:
    async def __call__(self, city: str) -> str:
        return city


@pytest.mark.row("B22")
@table(
    ("declare", "words"),
    (lambda: tool(Booker), "`@tool` is for functions, and the class `Booker` is none; write `@tool(scope=...)` above"),
    (lambda: tool(Booker()), "`@tool` is for functions, and"),
    (lambda: tool(functools.partial(_sync, 1)), "`@tool` is for functions, and"),
    (lambda: tool(bare), "tool `bare` is declared twice; drop one `@tool`"),
    (lambda: tool("book"), "`@tool` takes keywords alone, and `'book'` is none"),
    (lambda: tool("book", scope="generalist"), "`@tool` takes keywords alone, and `'book'` is none"),
    (lambda: tool(lambda city: city), "tool `<lambda>` needs `handler` to be a `def` or an `async def`, but it is a"),
    (lambda: tool(len), "tool `len` needs `handler` to be a `def` or an `async def`"),
    (lambda: tool(readonly=True)(bare_function), "has no field `readonly`; did you mean `read_only`?"),
    (lambda: tool(scope="generalist", handler=_sync)(bare_function), "has `handler` among its keywords"),
    (lambda: tool(scope="generalist", validate_input=len)(bare_function), "has `validate_input` among its keywords"),
)
def test_wrong_use_of_the_decorator_names_the_correct_form(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        declare()
    assert words in refused.value.message


async def bare_function(city: str) -> str:
    """Say hello to a city."""
    return city


def test_decorator_signature_shows_its_keywords() -> None:
    assert {"scope", "read_only", "probe"} <= set(inspect.signature(tool).parameters)


def test_docstring_sections_are_parsed_separately() -> None:
    words = parse_docstring("Do it.\n\nArgs:\n    a: One\n      more: of it.\n    *b: Two.\nReturns:\n    c: Three.")
    assert words.summary == "Do it."
    assert words.arguments == {"a": "One more: of it.", "b": "Two."}
    assert parse_docstring(None) == ("", {})
