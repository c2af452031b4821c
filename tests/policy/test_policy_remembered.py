"""The predicate of a remembered answer: both engines, exactly `true`."""

from typing import Any

import pytest
from policy_samples import TOOL

from signoff.contracts.errors import ConfigError
from signoff.policy.compiled import compile_policy
from signoff.policy.remembered import compile_where

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}, "memo": {"type": "string"}},
    "required": ["amount", "to"],
}
POLICY = compile_policy(True, tool=TOOL, input_schema=SCHEMA)


@pytest.mark.parametrize(
    ("where", "args", "holds"),
    [
        ("args.amount <= 50.0", {"amount": 50, "to": "Ana"}, True),
        ("args.amount <= 50.0", {"amount": 50.5, "to": "Ana"}, False),
        ("args.amount < 50 && args.to == 'Ana'", {"amount": 5, "to": "Bo"}, False),
        ("has(args.memo) && args.memo == 'x'", {"amount": 5, "to": "Bo"}, False),
        ("args.amount <= 50.0", {"amount": True, "to": "Ana"}, False),
        ("args.amount <= 50.0", {"to": "Ana"}, False),
        ("args.amount", {"amount": 5, "to": "Ana"}, False),
        ("args.amount <= 50.0", {"amount": 2**60, "to": "Ana"}, False),
        ("true", {"amount": 2**60, "to": "Ana"}, False),
    ],
)
def test_only_an_agreed_true_holds(where: str, args: dict[str, Any], holds: bool) -> None:
    """False, an error, no boolean, or data out of bounds: people are asked."""
    assert compile_where(where, POLICY).holds(args) is holds


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("args.amuont < 5.0", "did you mean"),
        ("args.memo == 'x'", "optional"),
        ("args.to", "true or false"),
        ("ctx.user.tier == 'x'", "ctx"),
        ("args.amount <", "what to remember: `where`"),
    ],
)
def test_a_predicate_is_checked_against_the_schema(where: str, says: str) -> None:
    """Typos, unguarded optional arguments, other types and anything but `args` are refused with the reason."""
    with pytest.raises(ConfigError) as caught:
        compile_where(where, POLICY)
    assert says in caught.value.message
    assert (caught.value.context["field"], caught.value.context["tool_name"]) == ("where", "book_flight")
