"""Lists the tools of external agents, and judges their calls by the rules alone.

The judge asks nobody, keeps nothing and hands out no permit.
"""

from typing import Any, Final

from signoff.calls.agent_calls import Judgement, ToolListing
from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.errors import Refused
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person
from signoff.gateway.calls.call_proposer import CHANNEL
from signoff.gateway.calls.call_reader import CALL
from signoff.gateway.deps import GatewayDeps
from signoff.people.directory import principal_of, turn_context
from signoff.policypool.pool import ask_rules
from signoff.registry.capabilities import KINDS
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.tool import Tool
from signoff.store.freezes import Freezes

_REASONS: Final = {"denied": "policy_denied", "input_invalid": "invalid_arguments"}


def list_tools_of(deps: GatewayDeps, tenant: str, agent: str, person: Person) -> list[ToolListing]:
    """Returns the tools that an agent may see for a person."""
    view = deps.catalog.tool_view(_context(deps, tenant, agent, person))
    return [listing_of(each) for each in view.visible()]


def listing_of(tool: Tool) -> ToolListing:
    """Returns what an agent is told of a tool."""
    return ToolListing(
        tool.name,
        tool.title,
        tool.description,
        tool.schema.schema,
        read_only=tool.read_only,
        idempotent=tool.read_only or tool.idempotent,
        runs_here=tool.runs == "signoff",
    )


async def judge_call(
    deps: GatewayDeps, tenant: str, agent: str, person: Person, tool: str, args: dict[str, Any]
) -> Judgement:
    """Judges a call by the gates, as far as they need nobody's function and no count. Raises `Unavailable`."""
    try:
        await Freezes(deps.store).refuse_new(tenant)
    except Refused as error:
        return Judgement(False, "frozen", error.message)
    ctx = _context(deps, tenant, agent, person, "evaluation")
    call = CallPart(call=CALL, tool=tool, args=Content(inline=args))
    catalog, known = deps.catalog, GateFacts(backends=frozenset(KINDS), spent={}, at=deps.clock())
    found = await ask_rules(catalog.may_block, judge, catalog, ctx, call, args, Tally(), known=known)
    return judgement_of(found)


def judgement_of(found: LocalGateDecision) -> Judgement:
    """Translates the decision of the gates for an agent that runs the call itself."""
    if found.kind == "settled":
        return Judgement(False, _REASONS.get(found.code, found.code), found.message)
    tool = found.tool
    if tool is None or not tool.is_external:
        return Judgement(False, "run_by_signoff", "Signoff runs this tool itself: propose it as an external call")
    # What is counted, or asked of a function of somebody's, is only known once a call is proposed.
    is_open = tool.available is not None or tool.usage_limit is not None
    if found.kind == "run" and not is_open:
        return Judgement(True)
    return Judgement(False, "approval_required", is_requestable=True)


def _context(deps: GatewayDeps, tenant: str, agent: str, person: Person, name: str = "") -> CallContext:
    return CallContext(
        actor=agent,
        session=name,
        turn=name,
        tenant=tenant,
        channel=CHANNEL,
        user=principal_of(person, deps.people),
        extra=turn_context(person, {}),
    )
