"""Tools out of typed functions."""

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field
from registry_kit import a_context

from signoff.contracts.errors import RegistrationError
from signoff.registry.docstring import parse_docstring
from signoff.registry.function import from_function, tool
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool_context import ToolContext


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
        passenger: Who travels,
            by full name.
        legs (list): The legs.

    Returns:
        The booking.
    """
    return {"days": [leg.day for leg in legs], "key": ctx.idempotency_key, "cost": total_cost, "schema": schema}


def test_schema_comes_from_the_signature() -> None:
    """Names, types, defaults, aliases and argument words become the schema; the context is not an argument."""
    ToolRegistry([book])
    schema = book.input_schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["passenger", "legs"]
    assert set(schema["properties"]) == {"passenger", "legs", "totalCost", "seat", "schema"}
    assert schema["properties"]["passenger"] == {"type": "string", "description": "Who travels, by full name."}
    assert schema["properties"]["totalCost"] == {"type": "number", "minimum": 0, "default": 1.0}
    assert book.description == "Book a journey.\n\nEvery leg at once."
    assert book.name == "book"
    assert book.site.startswith(f"{__file__}:")


async def test_handler_gets_typed_values_and_the_context() -> None:
    """JSON arguments arrive as the types the function names."""
    args = {"passenger": "A", "legs": [{"city": "Lisbon", "day": "2030-05-04"}], "totalCost": 3, "schema": [1]}
    result = await book.handler(args, a_context(idempotency_key="k"))
    assert result == {"days": [dt.date(2030, 5, 4)], "key": "k", "cost": 3.0, "schema": (1,)}


def test_own_check_finds_what_the_schema_cannot() -> None:
    """What pydantic would refuse is known before anybody is asked."""
    args = {"passenger": "A", "legs": [{"city": "Lisbon", "day": "2030-02-31"}]}
    assert book.schema.check(args) == []
    assert [path for path, _ in book.validate_input(args)] == ["legs[0].day"]


def test_own_check_repeats_no_value() -> None:
    """A developer's validator that quotes the value is not quoted to the model."""

    def never(value: str) -> str:
        raise ValueError(f"{value} is bad")

    @tool(scope="generalist")
    async def strict(word: Annotated[str, AfterValidator(never)]) -> None:
        """Strict."""

    assert strict.validate_input({"word": "hunter2"}) == [("word", "is not acceptable")]


async def test_mutable_default_is_fresh_every_time() -> None:
    """Two calls do not share a default list."""

    @tool(scope="generalist")
    async def collect(items: list[int] = []) -> list[int]:  # noqa: B006
        """Collect."""
        items.append(1)
        return list(items)

    assert [await collect.handler({}, a_context()) for _ in range(2)] == [[1], [1]]


def test_fields_override_what_the_function_says() -> None:
    """Name and description may be given; everything else is a field of the tool."""

    async def inner(amount: Decimal) -> None:
        """Pay."""

    made = from_function(inner, scope="specialist", name="pay", description="Pays.", justification="the payer's own")
    assert (made.name, made.description, made.scope) == ("pay", "Pays.", "specialist")


async def _untyped(a) -> None: ...  # type: ignore[no-untyped-def]
async def _star(*a: int) -> None: ...
async def _keywords(**a: int) -> None: ...
async def _positional(a: int, /) -> None: ...
async def _unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821
async def _unreadable(a: Opaque) -> None: ...
def _sync(a: int) -> None: ...


@pytest.mark.row("B22")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_untyped, "no type for its argument `a`"),
        (_star, "`*args`"),
        (_keywords, "`**kwargs`"),
        (_positional, "positional only"),
        (_unresolved, "cannot be resolved"),
        (_unreadable, "argument type"),
        (_sync, "async only"),
    ],
)
def test_function_without_a_clear_signature_is_refused(function: Any, words: str) -> None:
    """A function whose arguments cannot be described is an error where it is declared."""
    with pytest.raises(RegistrationError) as caught:
        from_function(function, scope="generalist")
    assert words in caught.value.message


def test_docstring_sections_are_told_apart() -> None:
    """Only the argument section names arguments; what follows it is not theirs."""
    words = parse_docstring("Do it.\n\nArgs:\n    a: One\n      more: of it.\n    *b: Two.\nReturns:\n    c: Three.")
    assert words.summary == "Do it."
    assert words.arguments == {"a": "One more: of it.", "b": "Two."}
    assert parse_docstring(None) == ("", {})
