from hypothesis import given
from hypothesis import strategies as st
from registry_kit import SCHEMA, a_tool, an_actor

from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import ToolUse
from signoff.registry.catalog import build_catalog
from signoff.registry.peer_view import peer_view

OUTPUT = {"type": "object", "properties": {"seat": {"type": "string"}}}
OWN = {"scope": "specialist", "justification": "only the desk does this"}
ASKING = ApprovalPolicy(auto_approve_if="args.totalCost < 20.0")


def test_peer_sees_schemas_and_approval_needs() -> None:
    tools = [
        a_tool("asked", peer_exposed=True, requires_approval=True),
        a_tool("free", peer_exposed=True, output_schema=OUTPUT, title="Free"),
        a_tool("ruled", peer_exposed=True, requires_approval=ASKING),
        a_tool("closed"),
        a_tool("own", **OWN),
    ]
    catalog = build_catalog(tools=tools)
    found = {each.name: each for each in peer_view(catalog)}
    assert {name: each.approval for name, each in found.items()} == {
        "asked": "always",
        "free": "never",
        "ruled": "maybe",
    }
    free, declared = found["free"], catalog.registry.resolve("free")
    assert declared is not None
    assert (free.title, free.description, free.definition) == ("Free", declared.description, declared.definition)
    assert free.input_schema == declared.schema.schema
    assert free.input_schema["properties"] == SCHEMA["properties"]
    assert (free.output_schema, found["asked"].output_schema) == (declared.output.schema, None)  # type: ignore[union-attr]


def test_rule_that_may_ask_is_shown_to_peers() -> None:
    rule = GlobalRule(name="ice", rule="'ice' in tool.tags", effect="require_approval")
    (found,) = peer_view(build_catalog(tools=[a_tool(peer_exposed=True)], policies=[rule]))
    assert found.approval == "maybe"


def test_own_tools_of_an_actor_are_not_shown_to_peers() -> None:
    own = an_actor(own_tools=(ToolUse(tool=a_tool("mine", peer_exposed=True)),))
    assert peer_view(build_catalog(tools=[a_tool("plain")], actors=[own])) == ()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6))
def test_peer_view_holds_only_exposed_generalists(kinds: list[tuple[bool, bool]]) -> None:
    tools = [
        a_tool(f"t{number}", **(OWN if special else {"peer_exposed": exposed}))
        for number, (special, exposed) in enumerate(kinds)
    ]
    shown = [each.name for each in peer_view(build_catalog(tools=tools))]
    assert shown == [f"t{number}" for number, (special, exposed) in enumerate(kinds) if exposed and not special]
