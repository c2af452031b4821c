import dataclasses
import functools
import logging
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proved_rows import case
from registry_kit import SCHEMA, a_tool, handler
from tables import table

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.usage import UsageLimit
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.function import tool
from signoff.registry.hooks import HookContext
from signoff.registry.program.tool_keywords import BypassRouting, CardForm
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool
from signoff.registry.tool_checks import check_declaration, is_placeholder

REASON = "only the desk knows the tariff"


def refusal(*tools: Tool) -> RegistrationError:
    with pytest.raises(RegistrationError) as caught:
        ToolRegistry(tools)
    return caught.value


@pytest.mark.row("B09")
def test_generalist_is_routed_by_default() -> None:
    assert ToolRegistry([a_tool()]).resolve("book_flight").routing == "routed"


@pytest.mark.row("B24")
def test_justified_specialist_is_routed_by_default() -> None:
    tool = a_tool(scope="specialist", justification=REASON)
    assert ToolRegistry([tool]).resolve(tool.name).routing == "routed"


@pytest.mark.row("B25")
def test_specialist_may_bypass_with_both_reasons() -> None:
    tool = a_tool(scope="specialist", routing="bypass", justification=REASON, bypass_routing=BypassRouting("pure sum"))
    assert ToolRegistry([tool]).size == 1


WRONG = [
    case("B16", {"name": "respond"}, "name", "reserved"),
    case("B08", {"scope": "router"}, "scope", "allowed: `generalist`, `specialist`"),
    case("B08", {"scope": None}, "scope", "allowed: `generalist`, `specialist`"),
    case("B09", {"routing": "direct"}, "routing", "allowed: `routed`, `bypass`"),
    case("B19", {"scope": "specialist", "justification": " ToDo "}, "justification", "needs a real `justification`"),
    case(
        "B10",
        {"scope": "specialist", "justification": REASON, "routing": "bypass"},
        "bypass_routing",
        "needs a real `bypass_routing`",
    ),
    case("B10", {"bypass_routing": BypassRouting(REASON)}, "bypass_routing", "but is `routed`"),
    case("B03", {"name": "book flight"}, "name", "matches"),
    case("B03", {"name": "x" * 65}, "name", "matches"),
    case("B04", {"description": "  "}, "description", "a handler with a docstring: the model reads it"),
    case("B07", {"handler": lambda args, ctx: None}, "handler", "but it is not `async def`; or declare"),
    case(
        "B07", {"handler": None}, "handler", "needs `handler` to be `async def (args, context)`, but it is no function"
    ),
    case("B07", {"probe": "look"}, "probe", "needs `probe` to be `async def (args, context)`, but it is no function"),
    case("B07", {"probe": lambda args, ctx: None}, "probe", "but it is not `async def`"),
    case("B07", {"probe": handler, "read_only": True}, "probe", "it is never in doubt"),
    case("B12", {"requires_approval": "yes"}, "requires_approval", "false, true or a policy"),
    case("B12", {"requires_approval": None}, "requires_approval", "false, true or a policy"),
    case("B22", {"input_schema": {"type": "array"}}, "input_schema", "`type: object`"),
    case("B22", {"input_schema": {"type": "object", "required": "flight"}}, "input_schema", "not valid JSON Schema"),
    case("B22", {"output_schema": {"type": "thing"}}, "output_schema", "not valid JSON Schema"),
    case("B22", {"effect": "Book {fligth}"}, "effect", "did you mean `flight`?"),
    case("B22", {"effect": "Book {flight.secret}"}, "effect", "no argument"),
    case("B22", {"effect": "Book {flight!r}"}, "effect", "plain `{argument}`"),
    case("B22", {"effect": "Book {flight"}, "effect", "cannot be read"),
    case("B22", {"effect": "Book {flight}", "secrets": ("flight",)}, "effect", "secret argument"),
    case("B22", {"secrets": ("pin",)}, "secrets", "no argument `pin`"),
    case("B22", {"card": CardForm(("pin",))}, "card.first", "no argument `pin`"),
    case("B22", {"card": CardForm(recipients=("pin",))}, "card.recipients", "no argument `pin`"),
    case("B22", {"card": CardForm(recipients=("flight",)), "secrets": ("flight",)}, "card.recipients", "secret"),
    case("B22", {"card": CardForm(("flight",) * 4)}, "card.first", "at most 3 come first"),
    case("B22", {"timeout": 0}, "timeout", "above 0"),
    case("B22", {"timeout": float("inf")}, "timeout", "above 0"),
    case("B22", {"timeout": "soon"}, "timeout", "above 0"),
    case("B22", {"timeout": True}, "timeout", "above 0"),
    case("B22", {"cache_permission": "10m"}, "cache_permission", "at most 300"),
    case("B22", {"metadata": {"at": object()}}, "metadata", "is no JSON"),
    case("B22", {"metadata": {"n": 2**60}}, "metadata", "JSON"),
    case(
        "B22", {"usage_limit": {"count": 3}}, "usage_limit", "`per` of `usage_limit` of tool `book_flight` is missing"
    ),
    case("B22", {"max_result_chars": 0}, "max_result_chars", "above 0"),
    case("B22", {"read_only": "no"}, "read_only", "true or false"),
    case("B22", {"tags": ("",)}, "tags", "not a word"),
]


@pytest.mark.parametrize("half", ["30s", 30, 30.0, timedelta(seconds=30)])
def test_durations_are_seconds_texts_or_timedeltas(half: Any) -> None:
    limit = UsageLimit(count=3, per="user", period=half)
    tool = a_tool(timeout=half, cache_permission=half, usage_limit=limit)
    assert (tool.timeout, tool.cache_permission) == (30.0, 30.0)
    assert tool.usage_limit == UsageLimit(count=3, per="user", period=30.0)
    assert a_tool(usage_limit={"count": 3, "per": "user", "period": half}).usage_limit == tool.usage_limit
    assert dataclasses.replace(tool) == tool
    assert a_tool(timeout=1e9).timeout == 1e9


@pytest.mark.row("F02", "X20")
def test_foreign_field_names_are_accepted_in_code() -> None:
    async def there(context: HookContext) -> bool:
        return True

    plain = a_tool("refund", title="Refund money", requires_approval=True, max_result_chars=9, available=there)
    given: dict[str, Any] = {
        "id": "refund",
        "name": "Refund money",
        "description": "Books a flight.",
        "parameters": SCHEMA,
        "execute": handler,
        "scope": "generalist",
        "requiresApproval": True,
        "maxResultChars": 9,
        "isAvailable": there,
    }
    assert Tool(**given) == plain
    schema = given.pop("parameters")
    assert Tool(**given, inputSchema=schema).available is there  # type: ignore[call-arg]
    with pytest.raises(RegistrationError, match="has `input_schema` and `inputSchema`, which mean the same and differ"):
        Tool(**given, input_schema=schema, inputSchema={})  # type: ignore[call-arg]

    async def pay(amount: float) -> str:
        """Pay."""
        return ""

    made = tool(scope="generalist", id="payment", name="Pay money", maxResultChars=9)(pay)  # type: ignore[call-arg]
    assert (made.name, made.title, made.max_result_chars) == ("payment", "Pay money", 9)


@pytest.mark.row("P03")
def test_tools_of_a_registry_are_immutable() -> None:
    tools: Any = vars(type(registry := ToolRegistry([a_tool()])))["_tools"].__get__(registry)
    with pytest.raises(TypeError):
        tools["other"] = a_tool("other")


@pytest.mark.row("P05")
def test_duplicate_error_names_both_places() -> None:
    first, second = a_tool(site="one.py:1"), a_tool(site="two.py:2")
    error = refusal(first, second)
    assert (error.context["site"], error.context["first_site"]) == ("two.py:2", "one.py:1")
    assert "already registered at one.py:1;" in error.message
    assert error.message.endswith("(declared at two.py:2)")
    assert "first_site" not in refusal(a_tool(timeout="5s", secrets=("pin",), site="one.py:1")).context


@pytest.mark.row("B18")
@pytest.mark.parametrize(("fields", "field", "words"), WRONG)
def test_invalid_declaration_is_refused_naming_tool_field_and_value(
    fields: dict[str, Any], field: str, words: str
) -> None:
    name = fields.get("name", "book_flight")
    with pytest.raises(RegistrationError) as caught:
        ToolRegistry([a_tool(**fields)])
    error = caught.value
    assert words in error.message
    assert f"`{name}`" in error.message
    assert error.context["tool_name"] == name
    assert error.context["field"] == field
    assert "value" in error.context
    assert isinstance(error, ConfigError)


TWICE = [
    case("B01", {}, name="the same tool"),
    case("B15", {"description": "another"}, name="another tool"),
    case("P05", {"scope": "specialist", "read_only": True}, name="of another scope"),
]


@pytest.mark.parametrize("fields", TWICE)
def test_duplicate_name_is_fatal_and_named(fields: dict[str, Any]) -> None:
    error = refusal(a_tool(), a_tool(**fields))
    assert "already registered" in error.message
    assert error.context["tool_name"] == "book_flight"


@pytest.mark.row("B17")
def test_first_failing_check_wins_in_order() -> None:
    wrong: dict[str, Any] = {"name": "respond", "scope": "nobody", "routing": "bypass", "peer_exposed": True}
    seen = []
    for mend in [
        {},
        {"name": "book_flight"},
        {"name": "other"},
        {"scope": "generalist"},
        {"scope": "specialist"},
        {"justification": REASON},
        {"bypass_routing": BypassRouting(REASON)},
    ]:
        wrong |= mend
        error = refusal(a_tool(), a_tool(**wrong))
        seen.append((error.context["field"], error.context["value"]))
    assert seen == [
        ("name", "respond"),
        ("name", "book_flight"),
        ("scope", "nobody"),
        ("routing", "bypass"),
        ("justification", ""),
        ("bypass_routing", ""),
        ("peer_exposed", True),
    ]


@pytest.mark.row("B19", "N15")
@table(
    "text",
    *("todo", "TBD", "fix me", "wip", "Placeholder", "pending", "none", "NULL", "undefined", "", "ab", "n/a", "NA"),
    *("..", "....", "xxx", "XXXX", "reason here", "will add later", "will-add-later", "  todo\n"),
)
def test_filler_text_is_rejected_as_a_reason(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.row("B19")
@table("text", "todo: ask finance", "abc", "nonesuch", "pending approvals are private", "x.x", "xx xx")
def test_real_text_is_accepted_as_a_reason(text: str) -> None:
    assert not is_placeholder(text)


@given(st.text(max_size=2))
def test_two_characters_are_never_a_reason(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.row("B28")
def test_peer_exposed_generalist_registers_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "signoff.registry"):
        assert ToolRegistry([a_tool(peer_exposed=True)]).resolve("book_flight").peer_exposed
    assert caplog.text == ""


@pytest.mark.row("B20")
def test_tool_knows_where_it_was_declared() -> None:
    tool = Tool(name="t", description="d", input_schema=SCHEMA, handler=handler, scope="generalist")
    assert tool.site.startswith(f"{__file__}:")
    assert "test_tool_checks.py" in refusal(tool, tool).message


def test_async_partials_and_callable_objects_are_handlers() -> None:
    class Callable:
        async def __call__(self, args: dict[str, Any], ctx: object) -> None: ...

    async def three(extra: int, args: dict[str, Any], ctx: object) -> None: ...

    check_declaration(a_tool(handler=Callable()))
    check_declaration(a_tool(handler=functools.partial(three, 1)))
    with pytest.raises(RegistrationError, match="does not take"):
        a_tool(handler=three)


def test_masked_argument_must_exist() -> None:
    """A misspelled secret argument in a policy would expose the secret."""
    policy = ApprovalPolicy.model_validate({"show": {"secret": ["flihgt"]}})
    assert "did you mean `flight`?" in refusal(a_tool(requires_approval=policy)).message


def test_secret_arguments_are_declared_or_write_only() -> None:
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in "abc"} | {"d": {"writeOnly": True}}}
    policy = ApprovalPolicy.model_validate({"show": {"secret": ["b"]}})
    tool = a_tool(input_schema=schema, secrets=("a",), requires_approval=policy)
    assert tool.secret_arguments == ("a", "d")
    assert tool.masked_arguments == ("a", "b", "d")
