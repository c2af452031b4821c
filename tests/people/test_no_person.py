from typing import Any

import pytest
from tables import table

import signoff
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.people.no_person import PERSONAL, asker
from signoff.policy.handler_verdict import PolicyHandler
from signoff.testing import a_call_context, execute_parallel
from signoff.tools import HandlerCall, HookContext, Permission

EVENTS = Principal(user="subscription:payouts", tier="")
ANA = Principal(user="ana", tier="standard")


def by_key(call: HandlerCall, context: dict[str, Any]) -> str:
    return "auto" if context["user"]["tier"] != "external" else "ask"


def by_get(call: HandlerCall, context: dict[str, Any]) -> str:
    return "auto" if context["user"].get("tier", "") != "external" else "ask"


def by_roles(call: HandlerCall, context: dict[str, Any]) -> str:
    return "ask" if "visitors" in context["user"].get("roles", ()) else "auto"


def of_people(call: HandlerCall, context: dict[str, Any]) -> str:
    return "ask" if "tier" in context["user"] else "auto"


async def permit(args: dict[str, Any], context: HookContext) -> Permission:
    return Permission.allow() if context.user.tier != "external" else Permission.deny()


async def available(context: HookContext) -> bool:
    return context.user.tier != "external"


async def judged(user: Principal, **fields: Any) -> tuple[str, str]:
    app = signoff.App(model="openai:gpt-5")

    @app.tool(**fields)
    async def pay(amount: int, ctx: signoff.ToolContext) -> str:
        """Pay."""
        return "external" if ctx.user.is_person and ctx.user.tier == "external" else "paid"

    app.actor("watcher", tools=[pay])
    ctx = a_call_context(actor="watcher", user=user)
    [found] = await execute_parallel(app, [("pay", {"amount": 1})], ctx)
    return found.kind, found.outcome.code if found.outcome is not None else ""


@table(
    ("policy", "of_event", "of_ana"),
    (by_key, "ask", "run"),
    (by_get, "ask", "run"),
    (by_roles, "ask", "run"),
    (of_people, "run", "ask"),
)
async def test_policy_function_approves_nothing_by_a_missing_tier(
    policy: PolicyHandler, of_event: str, of_ana: str
) -> None:
    assert (await judged(EVENTS, requires_approval=policy))[0] == of_event
    assert (await judged(ANA, requires_approval=policy))[0] == of_ana


@table("field", "check_permissions", "available")
async def test_checks_of_a_tool_reject_a_requester_without_a_tier(field: str) -> None:
    check = {"check_permissions": permit, "available": available}[field]
    assert (await judged(EVENTS, **{field: check}))[0] == "settled"
    assert await judged(ANA, **{field: check}) == ("run", "ok")


async def test_handler_that_checks_for_a_person_first_runs() -> None:
    assert await judged(EVENTS) == ("run", "ok")


def test_asker_has_personal_facts_only_for_a_person() -> None:
    assert asker(ANA) is ANA
    assert asker(replace(ANA, words="a hash")) == ANA
    event = asker(EVENTS)
    assert (event.user, event.is_person, event.model_dump()) == (EVENTS.user, False, EVENTS.model_dump())
    for name in (*PERSONAL, "human"):
        with pytest.raises(LookupError, match=f"a subscription has no `{name}`"):
            getattr(event, name)
