from datetime import UTC, datetime
from typing import Any

import pytest
from activity_kit import ARGS, pinned
from turn_fixtures import Ledger, pay_tool

from signoff.activities.hooks.tool_hooks import judge_call, withheld_tools
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.registry.actor import Actor, Route
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.hooks import HookContext, Permission

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)

LEDGER = Ledger()


async def staff(args: dict[str, Any], context: HookContext) -> Permission:
    return Permission.allow() if "staff" in context.user.roles else Permission.deny("staff only")


def tool(name: str, **fields: Any) -> Any:
    return pay_tool(LEDGER, False, name=name, **fields)


def catalog() -> Catalog:
    """`desk` has one plugin and, at its till, one tool of the other. `guide` has none."""
    plugged = [tool("charge", plugin="bank", check_permissions=staff), tool("map", plugin="maps"), tool("plain")]
    till = Route(name="till", tools=(tool("refund", plugin="bank", check_permissions=staff),))
    actors = [
        Actor(name="desk", model="m", allowed_plugins=("bank",), routes=(till,)),
        Actor(name="guide", model="m", allowed_plugins=()),
    ]
    return build_catalog(tools=plugged, actors=actors)


@pytest.mark.row("F17")
@pytest.mark.parametrize(
    ("actor", "route", "roles", "expected", "runs"),
    [
        ("desk", "", ("staff",), {"charge", "plain"}, {"charge", "plain"}),
        ("desk", "", (), {"charge", "plain"}, {"plain"}),
        ("desk", "till", ("staff",), {"charge", "plain", "refund"}, {"charge", "plain", "refund"}),
        ("desk", "till", (), {"charge", "plain", "refund"}, {"plain"}),
        ("guide", "", ("staff",), {"plain"}, {"plain"}),
    ],
)
async def test_tools_of_plugins_are_filtered_by_plugin_scope_and_permission(
    actor: str, route: str, roles: tuple[str, ...], expected: set[str], runs: set[str]
) -> None:
    found = catalog()
    ctx = pinned(actor=actor, route=route, user=Principal(user="ana", roles=roles))
    seen = {tool.name for tool in found.tool_view(ctx).visible()} - await withheld_tools(found, ctx, at=NOW)
    assert seen == expected
    allowed = set()
    for name in ("charge", "map", "plain", "refund"):
        call = CallPart(call="c1.1", tool=name, args=Content(inline=ARGS))
        judgement = await judge_call(found, ctx, call, ARGS, frozenset(), at=NOW)
        if judgement.kind == "run":
            allowed.add(name)
        else:
            assert (judgement.gate == "permission") is (name in expected)
    assert allowed == runs
