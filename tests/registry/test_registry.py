import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from registry_kit import SCHEMA, a_call, a_tool, an_actor, pinned
from some import some
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import build_catalog
from signoff.registry.gates.pipeline import judge
from signoff.registry.registry import ToolRegistry, ToolResolver, create_tool_registry, definition_hash
from signoff.registry.scopes.position import Layer, Position, ResolutionContext
from signoff.registry.tool import Tool


@pytest.mark.row("P02")
def test_public_registry_api_is_resolve_list_size_and_hash() -> None:
    assert {name for name in dir(ToolRegistry) if not name.startswith("_")} == {"resolve", "list", "size", "hash"}


@pytest.mark.row("P01")
def test_factory_function_makes_the_same_registry() -> None:
    made = create_tool_registry([a_tool()])
    assert type(made) is ToolRegistry
    assert made.hash == ToolRegistry([a_tool()]).hash


@pytest.mark.row("P01")
def test_registry_and_catalog_both_are_tool_resolvers() -> None:
    class One:
        def resolve(self, name: str) -> Tool | None:
            return a_tool() if name == "book_flight" else None

    catalog = build_catalog(tools=[a_tool()], actors=[an_actor()])
    resolvers: tuple[ToolResolver, ...] = (ToolRegistry([a_tool()]), catalog, One())
    for each in resolvers:
        assert isinstance(each, ToolResolver)
        found = some(each.resolve("book_flight"))
        assert (found.name, each.resolve("Book_flight"), each.resolve("book")) == ("book_flight", None, None)
        position = Position("desk", "", "", each, (Layer("registry", "the registry"),))
        seen = some(position.resolve("book_flight", ResolutionContext(transient=("book_flight",))).tool)
        assert seen.name == "book_flight"
    assert not isinstance({}, ToolResolver)


@pytest.mark.row("P04")
def test_registry_takes_only_tools() -> None:
    assert list(inspect.signature(ToolRegistry).parameters) == ["tools"]
    assert list(inspect.signature(create_tool_registry).parameters) == ["tools"]


@pytest.mark.row("P03")
def test_attributes_of_a_registry_cannot_be_set() -> None:
    registry = ToolRegistry([a_tool()])
    with pytest.raises(AttributeError):
        registry.register = None  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        registry.size = 2  # type: ignore[misc]


def test_registry_list_is_sorted() -> None:
    assert ToolRegistry([a_tool("b"), a_tool("a"), a_tool("C")]).list() == ("C", "a", "b")


@pytest.mark.row("P11")
@table("listed", ("book", "look"), None)
def test_turn_never_lists_the_registry(listed: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = build_catalog(tools=[a_tool("book"), a_tool("look")], actors=[an_actor(tools=listed)])

    def refuse(registry: ToolRegistry) -> tuple[str, ...]:
        raise AssertionError("a turn asked for the list of all tools")

    monkeypatch.setattr(ToolRegistry, "list", refuse)
    with pytest.raises(AssertionError, match="list of all tools"):
        catalog.registry.list()
    args = {"flight": "LH1", "totalCost": 1.0}
    assert [each.name for each in catalog.offered_tools("desk", pinned())] == ["book", "look", "respond"]
    assert judge(catalog, pinned(), a_call("book"), args, Tally()).kind == "run"
    assert judge(catalog, pinned(), a_call("nothing"), args, Tally()).code == "not_available"
    assert catalog.tool("book") is not None


@pytest.mark.row("X04")
def test_names_that_differ_only_by_case_are_refused() -> None:
    with pytest.raises(ConfigError, match="differ by case only") as caught:
        ToolRegistry([a_tool("pay"), a_tool("Pay")])
    assert caught.value.context["tool_name"] == "Pay"


@pytest.mark.row("P10")
@table(
    "change",
    lambda schema: schema.update(type="array"),
    lambda schema: schema["properties"].pop("flight"),
    lambda schema: schema["properties"]["flight"].__setitem__("type", "integer"),
    lambda schema: schema["required"].append("seat"),
    lambda schema: schema.__delitem__("required"),
)
@table("kind", "input_schema", "output_schema")
def test_schema_of_a_resolved_tool_is_immutable(change: Callable[[Any], Any], kind: str) -> None:
    tool = some(ToolRegistry([a_tool(**{kind: SCHEMA})]).resolve("book_flight"))
    with pytest.raises(TypeError, match="cannot be changed"):
        change(getattr(tool, kind))
    assert getattr(tool, kind) == SCHEMA
    assert tool.declaration["input_schema"] is tool.schema.schema is tool.input_schema


def test_too_deeply_nested_schema_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100_000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ConfigError, match="`deep` has a schema that is nested too deeply") as caught:
        a_tool("deep", input_schema=schema)
    assert caught.value.context["field"] == "input_schema"


def test_change_of_the_original_schema_does_not_change_the_tool() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = a_tool(input_schema=schema)
    registry = ToolRegistry([tool])
    before = registry.hash
    schema["properties"]["a"]["type"] = "integer"
    assert tool.schema.check({"a": "text"}) == []
    assert ToolRegistry([tool]).hash == before == registry.hash


CHANGED: list[tuple[dict[str, Any], bool]] = [
    ({"effect": "Book {flight}"}, True),
    ({"version": "2"}, True),
    ({"idempotent": True}, True),
    ({"read_only": True}, True),
    ({"secrets": ("flight",)}, True),
    ({"input_schema": {**SCHEMA, "required": []}}, True),
    ({"scope": "specialist", "justification": "one actor's own"}, True),
    ({"description": "Other words."}, False),
    ({"tags": ("money",)}, False),
    ({"requires_approval": True}, False),
    ({"requires_approval": ApprovalPolicy(auto_approve_if="args.totalCost < 50.0")}, False),
    ({"timeout": 5}, False),
]


@pytest.mark.row("N08")
@table(("fields", "changes"), *CHANGED, ids=[next(iter(each[0])) + str(each[1]) for each in CHANGED])
def test_definition_covers_the_behavior_of_a_tool_not_its_text(fields: dict[str, Any], changes: bool) -> None:
    plain, other = a_tool(), a_tool(**fields)
    assert (definition_hash(plain) != definition_hash(other)) is changes
    assert ToolRegistry([plain]).hash != ToolRegistry([other]).hash


def test_hash_is_the_same_in_every_process_and_order() -> None:
    code = (
        "from registry_kit import a_tool; from signoff.registry.registry import ToolRegistry;"
        "print(ToolRegistry([a_tool('b', tags=('x', 'y')), a_tool('a', secrets=('flight', 'totalCost'))]).hash)"
    )
    here = ToolRegistry([a_tool("a", secrets=("totalCost", "flight")), a_tool("b", tags=("x", "y"))]).hash
    folder = __file__.rpartition("/")[0]
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONHASHSEED": "7"},
    )
    assert there.stdout.strip() == here
