import pytest
from call_rig import refund_tool
from registry_kit import pinned

from signoff.contracts.errors import ConfigError
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.inventory import inventory


def _catalog(undeclared: str = "ask", **fields: object) -> Catalog:
    agent = ExternalAgent(acts_for=("user:guest",), undeclared=undeclared)  # type: ignore[arg-type]
    actors = [Actor(name="roamer", model="", external=agent, **fields)]  # type: ignore[arg-type]
    return build_catalog(tools=[refund_tool()], actors=actors, default_approvers=("role:approvers",))


def test_undeclared_name_means_an_external_tool_that_asks() -> None:
    for fields in ({}, {"tools": ("refund",)}, {"tools": ()}):
        catalog = _catalog(**fields)
        view = catalog.tool_view(pinned(actor="roamer"))
        tool, other = view.tool("Bash"), view.tool("Write")
        assert tool is not None
        assert other is not None
        assert view.offers(tool)
        assert (tool.name, tool.is_external, tool.undeclared, tool.activity) == ("Bash", True, True, "*@roamer")
        assert tool.definition != other.definition
        assert not tool.schema.check({"anything": {"at": ["all"]}})
        assert catalog.policy(tool.activity).needs_person == "always"
        assert catalog.find_definition("Bash", tool.definition) == tool
        assert catalog.tools_named("Bash") == ()


def test_declared_or_reserved_name_is_never_undeclared() -> None:
    view = _catalog(tools=()).tool_view(pinned(actor="roamer"))
    refund = view.tool("refund")
    assert refund is not None
    assert (refund.undeclared, view.offers(refund)) == (False, False)
    assert [view.tool(name) for name in ("Refund", "respond", "read_rest", "a b", "", "x" * 65)] == [None] * 6


def test_undeclared_tool_is_denied_by_default() -> None:
    view = _catalog("deny").tool_view(pinned(actor="roamer"))
    assert view.tool("Bash") is None
    shown = _catalog().tool_view(pinned(actor="roamer")).visible()
    assert [tool.name for tool in shown] == ["refund"]


def test_undeclared_tools_are_part_of_the_catalog_hash() -> None:
    assert _catalog().hash != _catalog("deny").hash
    row = next(each for each in inventory(_catalog()) if each.tool == "*@roamer")
    assert (row.needs, row.approvers, row.actors) == ("asks", ("role:approvers",), ("roamer",))


def test_invalid_undeclared_setting_is_an_error_at_start() -> None:
    with pytest.raises(ConfigError, match="write `deny` or `ask`"):
        _catalog("maybe")
    actors = [Actor(name="roamer", model="", external=ExternalAgent(acts_for=("user:a",), undeclared="ask"))]
    with pytest.raises(ConfigError, match="no default ones"):
        build_catalog(tools=[refund_tool(False)], actors=actors, default_approvers=())
