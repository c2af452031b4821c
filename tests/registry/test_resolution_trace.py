from registry_kit import a_tool, an_actor, pinned
from tables import table

from signoff.registry.actor import Route, Step
from signoff.registry.catalog import build_catalog
from signoff.registry.gates.resolution_trace import resolution_facts, resolution_line

ROUTE = Route(name="r", tools=(a_tool(),), steps=(Step(name="q", tools=(a_tool(),)), Step(name="z")))
DESK = an_actor(own_tools=(a_tool(),), routes=(ROUTE,), shadowing="allow")
CATALOG = build_catalog(tools=[a_tool(), a_tool("pay")], actors=[DESK])


@table(
    ("place", "name", "tool", "levels", "line"),
    (
        ("r", "q"), "book_flight", "book_flight@desk.r.q", ["step", "route", "agent", "registry"],
        "tool `book_flight` in step q: book_flight@desk.r.q (step > route > agent > registry)",
    ),
    (
        ("r", "z"), "book_flight", "book_flight@desk.r", ["route", "agent", "registry"],
        "tool `book_flight` in step z: book_flight@desk.r (route > agent > registry)",
    ),
    (
        ("r", ""), "book_flight", "book_flight@desk.r", ["route", "agent", "registry"],
        "tool `book_flight` on route r: book_flight@desk.r (route > agent > registry)",
    ),
    (
        ("", ""), "book_flight", "book_flight@desk", ["agent", "registry"],
        "tool `book_flight`: book_flight@desk (agent > registry)",
    ),
    (("", ""), "pay", "pay", ["registry"], "tool `pay`: pay (registry)"),
    (("", ""), "wire", "", [], "tool `wire`: none, no layer names it"),
)  # fmt: skip
def test_name_resolves_to_the_tool_of_the_nearest_layer(
    place: tuple[str, str], name: str, tool: str, levels: list[str], line: str
) -> None:
    route, step = place
    facts = resolution_facts(CATALOG.tool_view(pinned(route=route, step=step)), name)
    assert (facts["route"], facts["step"], facts["tool"], facts["levels"]) == (route, step, tool, levels)
    assert facts["why"] == ("" if tool else "no layer names it")
    assert resolution_line(name, facts) == line


def test_actor_at_an_unknown_step_has_no_place() -> None:
    facts = resolution_facts(CATALOG.tool_view(pinned(route="r", step="gone")), "pay")
    assert (facts["route"], facts["step"], facts["tool"]) == ("", "", "")


def test_every_layer_states_its_outcome_and_reason() -> None:
    facts = resolution_facts(CATALOG.tool_view(pinned()), "pay")
    assert facts["layers"] == [
        "actor `desk`: absent, does not name it",
        "the registry: won, is the nearest that names it",
    ]
