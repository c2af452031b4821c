from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy.facts import ToolFacts
from signoff.policy.filter_expression import compile_filter

TOOL = ToolFacts("pay", "generalist", "routed", ("money",))
ACTOR: dict[str, Any] = {"name": "desk", "tags": []}


def problem(source: str, ctx: dict[str, Any] | None = None, **context: Any) -> str:
    found = compile_filter(source, owner="actor `desk`: route `r`", field="tool_filter", context_schema=context)
    return found.problem(actor=ACTOR, tool=TOOL, ctx=ctx or {"channel": "slack"})


@pytest.mark.row("F12")
@table(
    ("source", "words"),
    ("'money' in tool.tags", ""),
    ("actor.name == 'desk' && ctx.channel == 'slack'", ""),
    ("'money' in tool.tags && ctx.channel == 'whatsapp'", "is false"),
    ("ctx.user.tier == 'trusted'", "could not be evaluated"),
)
def test_tool_passes_a_filter_only_if_it_is_true(source: str, words: str) -> None:
    assert problem(source) == words


@pytest.mark.row("F11")
@table(
    ("source", "words"),
    ("tool.metadata.needs == 'finance'", ""),
    ("has(tool.metadata.level) && tool.metadata.level > 2", ""),
    ("'eu' in tool.metadata.regions", ""),
    ("tool.metadata.level > 3", "is false"),
    ("tool.metadata.owner == 'ana'", "could not be evaluated"),
)
def test_filter_reads_the_metadata_of_a_tool(source: str, words: str) -> None:
    found = compile_filter(source, owner="actor `desk`", field="filter")
    metadata = {"needs": "finance", "level": 3, "regions": ["eu"]}
    tool = ToolFacts("pay", "generalist", "routed", (), metadata=metadata)
    assert found.problem(actor=ACTOR, tool=tool, ctx={}) == words


def test_non_boolean_filter_result_hides_the_tool() -> None:
    assert problem("ctx.flag", {"flag": 1}, flag={}) == "could not be evaluated"
    assert problem("ctx.flag", {"flag": True}, flag={}) == ""


def test_data_unreadable_for_engines_hides_the_tool() -> None:
    assert "cannot be asked" in problem("true", {"channel": "\ud800"})
    assert "cannot be asked" in problem("true", {"channel": 2**60})
    found = compile_filter("true", owner="actor `desk`", field="tool_filter")
    result = found.problem(actor={"name": "\ud800", "tags": []}, tool=TOOL, ctx={})
    assert result == "cannot be asked: the data hold text that is not Unicode (a lone surrogate)"


def test_non_data_value_hides_the_tool_and_names_the_error_type() -> None:
    found = compile_filter("true", owner="actor `desk`", field="tool_filter")
    nobody: Any = 5
    assert found.problem(actor=nobody, tool=TOOL, ctx={}) == "cannot be asked (TypeError)"


def test_integer_counts_as_a_float_if_declared_a_number() -> None:
    assert problem("ctx.limit + 0.5 > 1.0", {"limit": 1}, limit={"type": "number"}) == ""


def test_invalid_filter_is_an_error_at_build() -> None:
    with pytest.raises(ConfigError, match=r"actor `desk`: route `r`: `tool_filter`.*tgas") as caught:
        problem("'money' in tool.tgas")
    assert caught.value.context["field"] == "tool_filter"
