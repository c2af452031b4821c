import pytest
from registry_kit import a_tool
from tables import table

from signoff.contracts.errors import ConfigError, NotFound
from signoff.registry.actor import Actor, Route, Step, ToolUse
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.scopes.scope_selector import tools_in_scope


def catalog() -> Catalog:
    steps = (
        Step(name="buy", tools=(a_tool("card"), ToolUse(tool="search"))),
        Step(name="ask", tools=(ToolUse(tool="quote"),)),
    )
    trip = Route(name="trip", tools=(a_tool("quote"), ToolUse(tool="search")), steps=steps)
    actor = Actor(name="desk", model="m", own_tools=(a_tool("mine"),), routes=(trip, Route(name="other")))
    return build_catalog(tools=[a_tool("search"), a_tool("free")], actors=[actor, Actor(name="plain", model="m")])


@pytest.mark.row("F31")
@table(
    ("scope", "where", "tools"),
    ("registered", {}, {"search", "free"}),
    ("agent", {}, {"mine@desk"}),
    ("agent", {"actor": "plain"}, set()),
    ("route", {}, {"quote@desk.trip", "search"}),
    ("route", {"actor": "desk", "route": "other"}, set()),
    ("step", {}, {"card@desk.trip.buy", "search", "quote@desk.trip"}),
    ("step", {"actor": "desk", "route": "trip", "step": "ask"}, {"quote@desk.trip"}),
    ("step", {"step": "buy"}, {"card@desk.trip.buy", "search"}),
    ("all", {}, {"search", "free", "mine@desk", "quote@desk.trip", "card@desk.trip.buy"}),
    ("all", {"actor": "plain"}, {"search", "free"}),
    ("all", {"actor": "desk", "route": "other"}, {"search", "free", "mine@desk"}),
)
def test_scope_holds_the_tools_of_its_layers(scope: str, where: dict[str, str], tools: set[str]) -> None:
    assert tools_in_scope(catalog(), scope, **where) == tools


def test_scope_of_a_catalog_without_actors_is_its_registry() -> None:
    lone = build_catalog(tools=[a_tool("search")], actors=[])
    assert tools_in_scope(lone, "all") == tools_in_scope(lone, "registered") == {"search"}
    assert tools_in_scope(lone, "agent") == frozenset()


@table(
    ("scope", "where", "kind", "expected"),
    ("agnet", {}, ConfigError, "there is no scope `agnet`; known: `agent`, `route`"),
    ("all", {"actor": "dekc"}, NotFound, "there is no actor `dekc`"),
    ("all", {"actor": "desk", "route": "tirp"}, ConfigError, "no route and step `tirp/` of actor `desk`"),
    ("step", {"step": "sell"}, ConfigError, "no route and step `/sell` of any actor"),
)
def test_unknown_scope_or_place_is_an_error(
    scope: str, where: dict[str, str], kind: type[Exception], expected: str
) -> None:
    """An empty list would look like a result."""
    with pytest.raises(kind, match=expected):
        tools_in_scope(catalog(), scope, **where)
