import dataclasses
import inspect
from typing import Any

import pytest
from registry_kit import a_tool, an_actor
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.catalog_variant import derive
from signoff.registry.manifest.channel_sections import NO_CHANNELS, DeclaredChannel, RoutingRules
from signoff.registry.manifest.on_call_sections import OnCallRota
from signoff.registry.manifest.room_sections import TeamRoom
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.mcp.tool_server import ToolServer
from signoff.registry.normal_form import normal_text
from signoff.registry.results.destinations import NOWHERE, Destination
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer
from signoff.registry.tool import Tool
from signoff.registry.tool_result import Result, identity

PARTS = {
    *("tools", "actors", "policies", "default_approvers", "people", "context", "part_types"),
    *("requires_peer_consumes", "reducers"),
    *("destinations", "observer", "channels", "routing", "rooms", "subscriptions", "mcp_servers", "timezone"),
    *("insights_by_person", "on_call"),
}
"""The parts of a catalog. A derived catalog must carry over all of them."""


def shorter(result: Result, given: Any) -> Result:
    return result


async def shown(delivery: Any) -> None:
    """A sink that ignores its input."""


def a_catalog() -> Catalog:
    reducers = ReducerRegistry()
    reducers.register(ToolReducer("book", shorter))
    return build_catalog(
        tools=[a_tool("book", requires_approval=ApprovalPolicy(quorum=2)), a_tool("look"), a_tool("sell")],
        actors=[an_actor(tools=("book", "look")), an_actor("reader", read_rest=True)],
        policies=[GlobalRule(name="no-x", rule="'x' in tool.tags", effect="hide")],
        default_approvers=("role:finance",),
        people=[Person(id="ana")],
        context={"project": {"type": "string"}},
        part_types=["invoice"],
        requires_peer_consumes=["invoice"],
        reducers=reducers,
        destinations=[Destination(name="cache", filter=identity, sink=shown)],
        observer=print,
        channels=[DeclaredChannel("mail", "email", {"sender": "a@example.com"}), DeclaredChannel("chat", "slack")],
        routing=RoutingRules(("mail",), digest_over=2),
        rooms={"role:finance": [TeamRoom("chat", "C0123")]},
        on_call=[OnCallRota("payments", ical="env:ROTA")],
        subscriptions=[Subscription("feed", ("*",), "https://a.example", "env:FEED")],
        insights_by_person=True,
        mcp_servers=[ToolServer("github", url="https://b.example/mcp")],
        timezone="Europe/Lisbon",
    )


@pytest.mark.row("X01")
def test_derived_catalog_is_new_and_the_old_one_unchanged() -> None:
    old = a_catalog()
    before = normal_text(old)
    new = derive(old, add=[a_tool("buy")], replace=[a_tool("look", title="Look")], remove=["sell"])
    assert new.registry.list() == ("book", "buy", "look", "read_rest")
    assert new.registry.resolve("look") == a_tool("look", title="Look")
    assert (normal_text(old), old.registry.list()) == (before, ("book", "look", "read_rest", "sell"))
    assert new.hash != old.hash


def test_derived_catalog_carries_over_every_part() -> None:
    old = a_catalog()
    new = derive(old)
    assert normal_text(new) == normal_text(old)
    assert new.reducers == old.reducers
    assert new.distribution == old.distribution != NOWHERE
    assert new.channels == old.channels != NO_CHANNELS
    assert str(new.zone) == str(old.zone) == "Europe/Lisbon"
    assert set(inspect.signature(build_catalog).parameters) == PARTS, "tell `derive` of the new part, then this test"


@pytest.mark.row("B21")
def test_removed_tool_is_absent_and_a_listed_one_is_refused() -> None:
    old = a_catalog()
    with pytest.raises(ConfigError, match="actor `desk` lists the unknown tool `book`"):
        derive(old, remove=["book"])
    actors = [dataclasses.replace(old.actor("desk"), tools=("look",))]
    new = derive(old, remove=["book"], actors=actors)
    assert new.registry.resolve("book") is None
    assert (list(new.reducers), list(new.actors)) == ([], ["desk"])
    assert [tool.name for tool in derive(new, remove=["look"], actors=[]).tools()] == ["sell"]


@pytest.mark.row("X02")
@table(
    ("change", "words"),
    ({"add": [a_tool("book")]}, "tool `book` is already registered; `replace` it"),
    ({"add": [a_tool("buy"), a_tool("buy")]}, "tool `buy` is already registered"),
    ({"add": [a_tool("Book")]}, "differ by case only"),
    ({"add": [a_tool("respond")]}, "reserved name"),
    ({"replace": [a_tool("bok")]}, "there is no tool `bok` to replace; did you mean `book`?"),
    ({"replace": [a_tool("book"), a_tool("book")]}, "tool `book` is replaced twice"),
    ({"replace": [a_tool("sell")], "remove": ["sell"]}, "tool `sell` is both replaced and removed"),
    ({"remove": ["seel"]}, "there is no tool `seel` to remove; did you mean `sell`?"),
    ({"remove": ["read_rest"]}, "there is no tool `read_rest` to remove"),
)
def test_replacement_must_be_explicit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        derive(a_catalog(), **change)
    assert words in caught.value.message
    assert caught.value.context["tool_name"] in caught.value.message


@pytest.mark.row("N17", "F25")
def test_several_tools_are_registered_together_or_not_at_all() -> None:
    old = a_catalog()
    wrong = a_tool("third", description="")
    with pytest.raises(ConfigError, match="`third` needs a `description`"):
        derive(old, add=[a_tool("first"), a_tool("second"), wrong, a_tool("fourth")], remove=["sell"])
    assert old.registry.list() == ("book", "look", "read_rest", "sell")


@pytest.mark.row("F01")
def test_registry_resolves_exact_names() -> None:
    catalog = a_catalog()
    registered = {tool.name: tool for tool in catalog.tools()}
    assert list(registered) == ["book", "look", "read_rest", "sell"]
    assert catalog.registry.resolve("book") is registered["book"]
    assert catalog.registry.resolve("Book") is None


@pytest.mark.row("E51", "B84")
def test_tools_declared_in_a_list_are_checked_in_order() -> None:
    waiting: list[Tool] = [a_tool("one")]
    waiting += [a_tool("two", scope="specialist"), a_tool("three", description="")]
    with pytest.raises(ConfigError, match="`two` is a specialist and needs a real `justification`"):
        build_catalog(tools=waiting)
    waiting[1] = a_tool("two", scope="specialist", justification="only the desk may")
    with pytest.raises(ConfigError, match="`three` needs a `description`"):
        build_catalog(tools=waiting)
    assert build_catalog(tools=waiting[:2]).registry.size == 2


@pytest.mark.row("B29")
def test_tool_name_may_but_need_not_show_its_scope() -> None:
    private = {"scope": "specialist", "justification": "only the desk may"}
    catalog = build_catalog(tools=[a_tool("email_search"), a_tool("search", **private), a_tool("email", **private)])
    assert [(tool.name, tool.scope) for tool in catalog.tools()] == [
        ("email", "specialist"),
        ("email_search", "generalist"),
        ("search", "specialist"),
    ]
