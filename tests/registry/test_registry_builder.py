import pytest
from registry_kit import a_tool

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.registry.registry import ToolRegistry, ToolRegistryBuilder


@pytest.mark.row("F01", "V12", "X01")
def test_builder_registers_finds_and_builds_tools() -> None:
    builder = ToolRegistryBuilder()
    search = builder.register(a_tool("search"))
    builder.register_many([a_tool("book"), a_tool("cancel")])
    assert [*builder.get_registered()] == ["search", "book", "cancel"]
    assert builder.get_registered()["search"] is search
    assert (builder.is_registered("book"), builder.is_registered("Book")) == (True, False)
    assert builder.build().list() == ("book", "cancel", "search")


@pytest.mark.row("F01")
def test_repeated_builds_have_equal_hashes() -> None:
    builder = ToolRegistryBuilder([a_tool("a"), a_tool("b")])
    first = builder.build()
    assert first.hash == builder.build().hash == ToolRegistryBuilder([a_tool("b"), a_tool("a")]).build().hash
    assert first.hash == ToolRegistry([a_tool("a"), a_tool("b")]).hash
    builder.register(a_tool("c"))
    assert (first.list(), first.resolve("c")) == (("a", "b"), None)
    assert builder.build().hash != first.hash


@pytest.mark.row("F25")
def test_register_many_is_all_or_nothing() -> None:
    builder = ToolRegistryBuilder([a_tool("a")])
    with pytest.raises(RegistrationError) as caught:
        builder.register_many([a_tool("b"), a_tool("respond")])
    assert caught.value.context["tool_name"] == "respond"
    assert [*builder.get_registered()] == ["a"]


def test_tool_is_registered_for_a_plugin_and_removed_again() -> None:
    builder = ToolRegistryBuilder()
    assert builder.register(a_tool("chart"), plugin_id="maps").plugin == "maps"
    resolved = builder.build().resolve("chart")
    assert resolved is not None
    assert resolved.plugin == "maps"
    assert builder.unregister("chart").name == "chart"
    assert dict(builder.get_registered()) == {}
    with pytest.raises(RegistrationError, match="is of plugin `own`, and is registered as one of `maps`; keep one"):
        builder.register(a_tool("mine", plugin="own"), plugin_id="maps")
    builder.register_all([a_tool("chart"), a_tool("plot")])
    with pytest.raises(ConfigError, match="there is no tool `chat` to take out; did you mean `chart`"):
        builder.unregister("chat")


@pytest.mark.row("B15")
def test_duplicate_name_is_refused_at_registration() -> None:
    """At the build, the origin of the duplicate would be unknown."""
    builder = ToolRegistryBuilder([a_tool("pay")])
    with pytest.raises(RegistrationError) as caught:
        builder.register(a_tool("pay"))
    assert (caught.value.context["tool_name"], caught.value.context["field"]) == ("pay", "name")
    builder.register(a_tool("Pay"))
    with pytest.raises(RegistrationError, match="differ by case only"):
        builder.build()


def test_returned_registrations_do_not_follow_the_builder() -> None:
    builder = ToolRegistryBuilder([a_tool("a")])
    before = builder.get_registered()
    builder.unregister("a")
    assert [*before] == ["a"]
    with pytest.raises(TypeError):
        before["b"] = a_tool("b")  # type: ignore[index]
